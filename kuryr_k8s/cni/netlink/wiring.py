"""An interface inside a Pod, as values."""

from dataclasses import dataclass

from kuryr_k8s import errors


class LinkError(errors.KuryrError):
    """The kernel refused; the message says why."""


class NamespaceError(LinkError):
    """The network namespace is gone, or is not one that a Pod may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A route.

    :param destination: a CIDR; ``0.0.0.0/0`` or ``::/0`` for the default route.
    """

    destination: str
    gateway: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """The Pod's end of an interface.

    :param mtu: in bytes; None for the kernel's default.
    :param addresses: as CIDRs.
    :param offload: leave the checksums of what the Pod sends to the other side. It must be off if
        the bridge is in user space, which forwards packets as it gets them.
    """

    ifname: str
    mac: str
    mtu: int | None
    addresses: tuple[str, ...]
    routes: tuple[Route, ...]
    offload: bool

    @property
    def has_ipv6(self) -> bool:
        """Return whether one of the addresses is of IPv6."""
        return any(":" in address for address in self.addresses)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """An interface of a Pod as the kernel reports it."""

    mac: str
    mtu: int
    up: bool
    addresses: frozenset[str]
