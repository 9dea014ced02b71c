"""The network of an interface, and its subnets."""

import ipaddress
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.api import Network, Neutron, Subnet


@dataclass(frozen=True, slots=True, kw_only=True)
class PodNetwork:
    """The network of an interface, and one subnet for each address family.

    :param further: other subnets of the network, in order; one of them replaces the subnet of its
        family while that is full. Where a family has several subnets, none of them is automatic.
    """

    network: Network
    subnets: tuple[Subnet, ...]
    further: tuple[Subnet, ...] = ()

    @classmethod
    def of(cls, network: Network, subnets: Sequence[Subnet]) -> "PodNetwork":
        """Return the network with all of these subnets: the first of a family before the others.

        :raises kuryr_k8s.errors.Refused: an automatic subnet is not the only one of its family.
        """
        families = Counter(subnet.ip_version for subnet in subnets)
        for subnet in subnets:
            if subnet.is_automatic and families[subnet.ip_version] > 1:
                raise errors.Refused(
                    f"subnet {subnet.id} gives every port of its network an address: it must be "
                    "the only one of its address family"
                )
        first: dict[int, Subnet] = {}
        for subnet in subnets:
            first.setdefault(subnet.ip_version, subnet)
        further = tuple(subnet for subnet in subnets if subnet not in first.values())
        return cls(network=network, subnets=tuple(first.values()), further=further)

    @property
    def all_subnets(self) -> tuple[Subnet, ...]:
        """All subnets that the interface may have addresses of."""
        return (*self.subnets, *self.further)

    @property
    def choices(self) -> "tuple[PodNetwork, ...]":
        """The network with each choice of one subnet for each family, in the order of preference.

        IPv4 changes first: its subnets are the small ones.
        """
        if not self.further:
            return (self,)
        families = sorted(self.subnets, key=lambda subnet: subnet.ip_version, reverse=True)
        candidates = [
            [other for other in self.all_subnets if other.ip_version == subnet.ip_version]
            for subnet in families
        ]
        return tuple(map(self._choice, itertools.product(*candidates)))

    def _choice(self, chosen: tuple[Subnet, ...]) -> "PodNetwork":
        of_version = {subnet.ip_version: subnet for subnet in chosen}
        return replace(
            self,
            subnets=tuple(of_version[subnet.ip_version] for subnet in self.subnets),
            further=tuple(subnet for subnet in self.all_subnets if subnet not in chosen),
        )

    def with_room(self, has_room: Callable[[tuple[str, ...]], bool]) -> "PodNetwork | None":
        """Return the first choice with room in all of its subnets; None: there is none.

        :param has_room: returns whether each of these subnets may have a free address.
        """
        return next((choice for choice in self.choices if has_room(choice.asked_subnet_ids)), None)

    def first_with_room(self, has_room: Callable[[tuple[str, ...]], bool]) -> "PodNetwork":
        """Return the choice :meth:`with_room`; if there is none, the first."""
        return self.with_room(has_room) or self.choices[0]

    def may_have(self, subnet_ids: tuple[str, ...]) -> bool:
        """Return whether one of the choices asks for addresses of exactly these subnets."""
        return any(subnet_ids == choice.asked_subnet_ids for choice in self.choices)

    def holding(self, addresses: Collection[str]) -> "PodNetwork":
        """Return the network with those of its subnets that these addresses are in.

        Of families without an address, and of addresses that are in no subnet, nothing changes.

        :raises kuryr_k8s.errors.Refused: addresses of one family are in several subnets.
        """
        chosen: dict[int, Subnet] = {}
        for address in map(ipaddress.ip_address, addresses):
            inside = [
                subnet
                for subnet in self.all_subnets
                if address in ipaddress.ip_network(subnet.cidr)
            ]
            for subnet in inside:
                if chosen.setdefault(address.version, subnet) != subnet:
                    raise errors.Refused("the addresses are in several subnets of one family")
        return replace(
            self,
            subnets=tuple(chosen.get(each.ip_version, each) for each in self.subnets),
            further=tuple(each for each in self.further if each.ip_version not in chosen),
        )

    @property
    def asked_subnet_ids(self) -> tuple[str, ...]:
        """The ids of the subnets that a port must ask an address of, sorted.

        Of all others, every port of the network has one.
        """
        return tuple(sorted(subnet.id for subnet in self.subnets if not subnet.is_automatic))


async def read_subnets(neutron: Neutron, subnet_ids: Sequence[str]) -> tuple[Subnet, ...]:
    """Read the subnets of an interface.

    :raises kuryr_k8s.errors.Refused: one does not exist or is listed twice, or they belong to
        several networks.
    """
    try:
        subnets = tuple([await neutron.get_subnet(subnet_id) for subnet_id in subnet_ids])
    except errors.NotFound as error:
        raise errors.Refused(f"no such subnet in Neutron: {error}") from error
    check_subnets(subnets)
    return subnets


def check_subnets(subnets: Sequence[Subnet]) -> None:
    """Check that an interface can have these subnets.

    :raises kuryr_k8s.errors.Refused: one is listed twice, or they belong to several networks.
    """
    if len({subnet.network_id for subnet in subnets}) > 1:
        raise errors.Refused("the subnets of an interface must belong to one network")
    if len({subnet.id for subnet in subnets}) < len(subnets):
        raise errors.Refused("a subnet is listed twice")
