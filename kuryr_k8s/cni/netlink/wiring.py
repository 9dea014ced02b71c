"""What an interface has inside of a Pod: the values, without the doing."""

from dataclasses import dataclass

from kuryr_k8s import errors


class LinkError(errors.KuryrError):
    """The kernel refused; the message says what was tried."""


class NamespaceError(LinkError):
    """The network namespace is gone, or is none that a Pod may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """``destination`` (a CIDR; ``0.0.0.0/0`` or ``::/0`` is the default route) via ``gateway``."""

    destination: str
    gateway: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """The Pod's end of a veth: ``addresses`` are CIDRs, ``mtu`` is in bytes (None: as it comes).

    ``offload``: leave the checksums of what the Pod sends to the other side. Must be off where
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
        return any(":" in address for address in self.addresses)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """An interface of a Pod as the kernel has it."""

    mac: str
    mtu: int
    up: bool
    addresses: frozenset[str]
