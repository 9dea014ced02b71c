"""Pass claims of routes to L7 routers, and their verdicts back to the objects.

Sources such as the handler of Ingresses tell what their objects claim, and of which router; the
handler of routers asks all of them, and tells each object the verdict.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from oslo_config import cfg

from kuryr_k8s import errors
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.host_claims import settled
from kuryr_k8s.model.routes import Claim, Refusal


@dataclass(frozen=True, slots=True)
class Verdict:
    """State how far the router serves the claim of an object.

    :param address: of the router.
    :param has_no_routes: none of its routes can be had.
    :param is_served: all of its routes that are not refused are as desired.
    :param problems: what of it cannot be done, in words for users.
    :param is_closed: some of its routes would be served over TLS, and have no certificate.
    :param version: of the claim.
    :param refusal: why the claim itself cannot be had.
    """

    address: str
    has_no_routes: bool
    is_served: bool
    problems: tuple[str, ...] = ()
    is_closed: bool = False
    version: int = 0
    refusal: Refusal | None = None


def check_router_enabled(handler: str, conf: cfg.ConfigOpts) -> None:
    """Make sure that somebody asks a source for its claims.

    :param handler: the name of the source's handler.
    :raises errors.ConfigError: nobody does.
    """
    if "l7_router" not in conf.kubernetes.enabled_handlers:
        raise errors.ConfigError(
            f"[kubernetes] enabled_handlers: the handler {handler} needs l7_router"
        )


class Source(Protocol):
    """Represent a kind of objects that claim routes.

    :cvar kind: of the objects.
    """

    kind: ClassVar[str]

    def claims(self) -> Iterable[Claim]:
        """Return what the objects claim, by caches that are filled."""

    async def claimants(self) -> set[str]:
        """Return the uids of the objects that claim something, by a live list."""

    def wake(self, key: Key) -> None:
        """Note that there is another verdict on an object."""

    def address_changed(self) -> None:
        """Note that the address of a router has changed, or has become known."""


class ClaimCache:
    """Claims of objects, each made once for what its object says."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[object, Claim]] = {}  # by uid

    def claim(self, uid: str, said: object, make: Callable[[], Claim]) -> Claim:
        """Return the claim of an object.

        :param said: what the object says.
        """
        known = self._made.get(uid)
        if known is None or known[0] != said:
            known = self._made[uid] = (said, make())
        return known[1]

    def forget(self, uid: str) -> None:
        """Forget the claim of an object that is gone."""
        self._made.pop(uid, None)


class Routing:
    """The claims of all objects, by their sources, and the verdicts on them."""

    def __init__(self) -> None:
        self._sources: dict[str, Source] = {}
        self._wake_router: list[Callable[[], None]] = []
        self._verdicts: dict[str, Mapping[str, Verdict]] = {}  # by router
        self.addresses: dict[str, str] = {}  # of routers, as far as they are known
        self.is_released = False  # people do not want the cluster's own router any more

    # -- sources

    def add_source(self, source: Source) -> None:
        """Ask a source from now on."""
        self._sources[source.kind] = source

    def changed(self) -> None:
        """Note that claims have changed."""
        for wake in self._wake_router:
            wake()

    def verdict(self, claim: Claim) -> Verdict | None:
        """Return its router's verdict on an object's claim, if there is one."""
        return self._verdicts.get(claim.router, {}).get(claim.uid)

    # -- the router

    @property
    def has_router(self) -> bool:
        """True if somebody keeps routers."""
        return bool(self._wake_router)

    def release(self) -> None:
        """Have the cluster's own router removed, for as long as this process lives."""
        self.is_released = True
        self.changed()

    def subscribe(self, woken: Callable[[], None]) -> None:
        """Call ``woken`` when claims have changed."""
        self._wake_router.append(woken)

    def claims(self, router: str) -> list[Claim]:
        """Return what is claimed of a router, without routes where a host belongs to others."""
        return settled(claim for claim in self._all() if claim.router == router)

    def uids(self) -> set[str]:
        """Return the uids of all objects that claim something, by caches."""
        return {claim.uid for claim in self._all()}

    def _all(self) -> Iterator[Claim]:
        for source in self._sources.values():
            yield from source.claims()

    async def claimants(self, kinds: Collection[str] | None = None) -> set[str]:
        """Return the uids of all objects that claim something, by live lists.

        :param kinds: of the objects; None for all.
        """
        asked = [s for kind, s in self._sources.items() if kinds is None or kind in kinds]
        return set().union(*[await source.claimants() for source in asked])

    def publish(
        self, router: str, claims: Iterable[Claim], verdicts: Mapping[str, Verdict], address: str
    ) -> None:
        """Keep the verdicts and the address; wake the objects that others than before concern.

        :param verdicts: by the uids of the objects.
        :param address: the router's; empty if there is none any more.
        """
        has_changed = self.addresses.get(router, "") != address
        if address:
            self.addresses[router] = address
        else:
            self.addresses.pop(router, None)
        before, self._verdicts[router] = self._verdicts.get(router, {}), verdicts
        for claim in claims:
            if before.get(claim.uid) != verdicts.get(claim.uid):
                self._sources[claim.kind].wake(Key(claim.namespace, claim.name))
        if has_changed:
            for source in self._sources.values():
                source.address_changed()
