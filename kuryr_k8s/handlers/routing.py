"""Pass claims of routes to the L7 router, and its verdicts back to the objects.

Sources such as the handler of Ingresses tell what their objects claim; the handler of the router
asks all of them, and tells each object the verdict.
"""

from collections.abc import Callable, Iterable, Mapping
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
    :param is_refused: none of its routes can be had.
    :param is_served: all of its routes that are not refused are as desired.
    :param refused: why routes of it are left out.
    :param is_closed: some of its routes would be served over TLS, and have no certificate.
    :param version: of the claim.
    :param refusal: why the claim itself cannot be had.
    """

    address: str
    is_refused: bool
    is_served: bool
    refused: tuple[str, ...] = ()
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
        """Note that the router's address has changed, or has become known."""


class Routing:
    """The claims of all objects, by their sources, and the verdicts on them."""

    def __init__(self) -> None:
        self._sources: dict[str, Source] = {}
        self._wake_router: list[Callable[[], None]] = []
        self._verdicts: Mapping[str, Verdict] = {}
        self.address = ""  # of the router; empty if it is not known
        self.is_released = False  # people want no router any more

    # -- sources

    def add_source(self, source: Source) -> None:
        """Ask a source from now on."""
        self._sources[source.kind] = source

    def changed(self) -> None:
        """Note that claims have changed."""
        for wake in self._wake_router:
            wake()

    def verdict(self, uid: str) -> Verdict | None:
        """Return the verdict on an object's claim, if there is one."""
        return self._verdicts.get(uid)

    # -- the router

    @property
    def has_router(self) -> bool:
        """True if somebody keeps the router."""
        return bool(self._wake_router)

    def release(self) -> None:
        """Have the router removed, for as long as this process lives."""
        self.is_released = True
        self.changed()

    def subscribe(self, woken: Callable[[], None]) -> None:
        """Call ``woken`` when claims have changed."""
        self._wake_router.append(woken)

    def claims(self) -> list[Claim]:
        """Return what all objects claim, without routes where a host belongs to others."""
        return settled(claim for source in self._sources.values() for claim in source.claims())

    async def claimants(self) -> set[str]:
        """Return the uids of all objects that claim something, by live lists."""
        lists = [await source.claimants() for source in self._sources.values()]
        return set().union(*lists)

    def publish(
        self, claims: Iterable[Claim], verdicts: Mapping[str, Verdict], address: str
    ) -> None:
        """Tell the objects whose verdicts are not as before.

        :param verdicts: by the uids of the objects.
        :param address: the router's.
        """
        has_changed, self.address = self.address != address, address
        before, self._verdicts = self._verdicts, verdicts
        for claim in claims:
            if before.get(claim.uid) != verdicts.get(claim.uid):
                self._sources[claim.kind].wake(Key(claim.namespace, claim.name))
        for source in self._sources.values() if has_changed else ():
            source.address_changed()
