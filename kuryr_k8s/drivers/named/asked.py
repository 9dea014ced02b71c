"""Describe the port that a user asks for, before Neutron is asked about any of it."""

from dataclasses import dataclass

from kuryr_k8s.cloud.neutron.address_pairs import AddressPair


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Hold what is asked for: ids may be names.

    :param subnets: at most two; empty: those of the network.
    :param groups: None: the Pod's own.
    :param pool: choices of addresses.
    :param pairs: an empty MAC is the port's own.
    """

    network: str | None = None
    subnets: tuple[str, ...] = ()
    groups: tuple[str, ...] | None = None
    addresses: tuple[str, ...] = ()
    pool: tuple[tuple[str, ...], ...] = ()
    mac: str | None = None
    pairs: tuple[AddressPair, ...] = ()
    port_security: bool | None = None
    qos: str | None = None

    @property
    def names_network(self) -> bool:
        """True if a network is asked for, by itself or by its subnets."""
        return self.network is not None or bool(self.subnets)

    @property
    def every_address(self) -> tuple[str, ...]:
        """All addresses of all choices."""
        return tuple(each for choice in (self.addresses, *self.pool) for each in choice)


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """How users have asked for each thing, for what they are told about it.

    :param pool: where ``pool`` was asked for.
    """

    network: str
    subnets: str
    groups: str
    addresses: str
    mac: str
    pairs: str
    port_security: str
    qos: str
    pool: str = ""
