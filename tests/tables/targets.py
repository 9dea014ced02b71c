"""The places at which a life can be struck: every request that the controller makes in it."""

from collections import Counter
from typing import NamedTuple

from tests.kit.kube.proxy import kind_of

WRITE_VERBS = frozenset({"create", "update", "patch", "delete", "POST", "PUT", "PATCH", "DELETE"})


class Place(NamedTuple):
    """The n-th request of its kind; verb and what are as in RBAC, or as in Neutron's API."""

    side: str
    verb: str
    what: str
    nth: int = 1

    def __str__(self):
        again = f" #{self.nth}" if self.nth > 1 else ""
        return f"{self.side} {self.verb} {self.what.removeprefix('/v2.0')}{again}"

    @property
    def is_write(self):
        return self.verb in WRITE_VERBS and self.what != "/v3/auth/tokens"

    def strike(self, stage, action):
        """Have the action done to this request, counted from now on."""
        faults = stage.proxy.faults if self.side == "kube" else stage.cloud.faults
        left = self.nth

        def when(request):
            nonlocal left
            left -= self._is_of_this_kind(request)
            return left == 0

        return faults.add(action=action, when=when)

    def _is_of_this_kind(self, request):
        if self.side == "kube":
            return kind_of(request) == (self.verb, self.what)
        resource = request.match_info.route.resource
        what = resource.canonical if resource is not None else request.path
        return (request.method, what) == (self.verb, self.what)


def places(stage):
    """Every request that came to the stage so far but for the Lease's: each side in its order."""
    counted = Counter()
    found = []
    for side, calls in (("kube", stage.proxy.calls), ("neutron", stage.cloud.calls)):
        for call in calls:
            kind = (side, call.method, call.what)
            if call.what != "leases":
                counted[kind] += 1
                found.append(Place(*kind, counted[kind]))
    return found


def writes(stage):
    return [place for place in places(stage) if place.is_write]
