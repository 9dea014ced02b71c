"""The claims that wait for ports: how to wake each of them, and how long they have waited."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kuryr_k8s.drivers.base.pool import Claim

SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class WaitTimes:
    """A histogram of requests: those that found a port, and how long the others waited."""

    def __init__(self) -> None:
        self.hits = 0
        self.misses = 0
        self.seconds = 0.0
        self.buckets = dict.fromkeys((*map(str, SECONDS), "+Inf"), 0)

    def add(self, seconds: float) -> None:
        """Count a request that waited for so long."""
        self.seconds += seconds
        for bound in self.buckets:
            self.buckets[bound] += seconds <= float(bound)


@dataclass(slots=True)
class _Waiter:
    wake: Callable[[], None]
    since: float
    refusal: Exception | None = None


class Waiters:
    """The claims that found their pool empty, until they have a port or their Pod is gone.

    :param now: the time in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.times = WaitTimes()
        self._now = now
        self._waiters: dict[str, dict[str, _Waiter]] = {}  # by Pod and interface

    def add(self, claim: Claim, wake: Callable[[], None]) -> None:
        """Have ``wake`` called when the claim has a port or is refused."""
        if (waiter := self._find(claim)) is None:
            self.times.misses += 1
            waiters = self._waiters.setdefault(claim.pod_uid, {})
            waiters[claim.ifname] = _Waiter(wake, self._now())
        else:
            waiter.wake = wake

    def served(self, claim: Claim) -> None:
        """Note that a claim has taken its port, whether it had to wait or not."""
        waiters = self._waiters.get(claim.pod_uid, {})
        if (waiter := waiters.pop(claim.ifname, None)) is None:
            self.times.hits += 1
            return
        self.times.add(self._now() - waiter.since)
        if not waiters:
            del self._waiters[claim.pod_uid]

    def remove_pod(self, pod_uid: str) -> None:
        """Forget the claims of a Pod that is gone."""
        self._waiters.pop(pod_uid, None)

    def wake(self, claims: Iterable[Claim]) -> None:
        """Have the claims ask again, as far as they wait."""
        for claim in claims:
            if waiter := self._find(claim):
                waiter.wake()

    def refuse(self, refused: Mapping[Claim, Exception]) -> None:
        """Wake claims that cannot have a port, and tell each of them why."""
        for claim, error in refused.items():
            if waiter := self._find(claim):
                waiter.refusal = error
                waiter.wake()

    def pop_refusal(self, claim: Claim) -> Exception | None:
        """Return why the claim cannot have a port; a refusal is told once."""
        waiter = self._find(claim)
        if waiter is None or waiter.refusal is None:
            return None
        refusal, waiter.refusal = waiter.refusal, None
        return refusal

    def _find(self, claim: Claim) -> _Waiter | None:
        return self._waiters.get(claim.pod_uid, {}).get(claim.ifname)
