"""The network of the nodes' ports, and what nodes reach through it."""

import asyncio
import ipaddress
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from oslo_config import cfg

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.api import Network, Neutron, Subnet
from kuryr_k8s.engine.clock import Clock
from kuryr_k8s.model.node_interface import Route

OPTION = "[neutron_defaults] node_subnet"
REFRESH = 300.0  # seconds after which subnets are read again: gateways and MTUs change
REFUSED = 20.0  # seconds for which a refusal counts for all Nodes
Address = IPv4Address | IPv6Address
Destination = IPv4Network | IPv6Network
Internal = Mapping[str, Collection[Address]]  # InternalIPs by the names of Nodes
Occupied = Mapping[Destination, Collection[str]]  # the names of Nodes with InternalIPs there


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNetwork:
    """The network of the ports of all Nodes.

    :param subnets: One of each address family.
    :param destinations: What nodes reach through the gateways of these subnets.
    """

    network: Network
    subnets: tuple[Subnet, ...]
    destinations: tuple[Destination, ...]

    def occupied(self, everywhere: Internal, elsewhere: Internal) -> Occupied:
        """Return which Nodes have an InternalIP in the subnets, and in the destinations.

        :param everywhere: All Nodes.
        :param elsewhere: Those that are not reached through Neutron: a route to them would cut
            nodes off from each other.
        """
        looked_at = dict.fromkeys(self.destinations, elsewhere)
        looked_at |= {ipaddress.ip_network(subnet.cidr): everywhere for subnet in self.subnets}
        return {
            network: frozenset(
                name
                for name, addresses in internal.items()
                if any(address in network for address in addresses)
            )
            for network, internal in looked_at.items()
        }

    def check(self, name: str, occupied: Occupied) -> None:
        """Check that a Node may have a port in these subnets.

        :raises errors.Refused: An InternalIP would be reached through the Neutron port from now
            on: that of the Node, or those of several others.
        """
        for subnet in self.subnets:
            if _concerns(name, there := occupied[ipaddress.ip_network(subnet.cidr)]):
                named = ", ".join(sorted(there)[:3])
                raise errors.Refused(f"{OPTION}: {subnet.cidr} contains InternalIPs ({named})")

    def routes(self, name: str, occupied: Occupied) -> tuple[tuple[Route, ...], list[Destination]]:
        """Return a Node's routes.

        :returns: The routes, and the destinations that are left out since they contain an
            InternalIP of the Node, or those of several others.
        """
        routes, left_out = [], []
        for destination in self.destinations:
            gateway = self._gateway(destination)
            if gateway is None:
                continue
            if _concerns(name, occupied[destination]):
                left_out.append(destination)
            else:
                routes.append(Route(destination, gateway))
        return tuple(routes), left_out

    def _gateway(self, destination: Destination) -> Address | None:
        """Return the next hop; None if the destination is on the link, or of another family."""
        for subnet in self.subnets:
            own = ipaddress.ip_network(subnet.cidr)
            if own.version == destination.version and own != destination:
                return ipaddress.ip_address(subnet.gateway_ip) if subnet.gateway_ip else None
        return None


def _concerns(name: str, there: Collection[str]) -> bool:
    """Return whether a Node does without what contains InternalIPs of these Nodes.

    A kubelet writes the addresses of its own Node. A single one that is wrong, or that lies,
    concerns that Node alone.
    """
    return name in there or len(there) > 1


class NodeSubnets:
    """``[neutron_defaults] node_subnet``, read from Neutron now and then."""

    def __init__(self, conf: cfg.ConfigOpts, neutron: Neutron, clock: Clock) -> None:
        defaults = conf.neutron_defaults
        self._neutron = neutron
        self._now = clock.now
        self._ids: list[str] = list(defaults.node_subnet)
        self._reached: dict[str, list[str]] = {
            "pod_subnet": defaults.pod_subnet,
            "service_subnet": defaults.service_subnet,
        }
        self._further: list[str] = list(defaults.node_routes)
        self._known: NodeNetwork | None = None
        self._refusal: errors.Refused | None = None
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()

    @property
    def named(self) -> bool:
        """True if nodes shall have ports."""
        return bool(self._ids)

    async def network(self) -> NodeNetwork:
        """Return the network of the nodes' ports.

        :raises errors.Refused: The option cannot be carried out; that counts for a while.
        :raises errors.CloudError: Neutron does not answer, and has never done so.
        """
        async with self._reading:
            age = self._now() - self._read_at
            if self._refusal is not None and age < REFUSED:
                raise self._refusal.with_traceback(None)  # else it grows with each Node
            if self._known is None or self._refusal is not None or age > REFRESH:
                return await self._refresh()
            return self._known

    async def _refresh(self) -> NodeNetwork:
        try:
            self._known = await self._read()
        except errors.Refused as refusal:
            self._refusal = refusal
            self._read_at = self._now()
            raise
        except errors.CloudError:
            if self._known is None:
                raise
            return self._known  # is good enough meanwhile
        self._refusal = None
        self._read_at = self._now()
        return self._known

    async def _read(self) -> NodeNetwork:
        if shared := sorted({*self._ids} & {*self._reached["pod_subnet"]}):
            raise errors.Refused(
                f"{OPTION}: {', '.join(shared)} is a pod_subnet, too: Pods let in everything that "
                "comes from node_subnet, so it must be the nodes' alone"
            )
        subnets = [await self._subnet(subnet_id, OPTION) for subnet_id in self._ids]
        if len({subnet.network_id for subnet in subnets}) > 1:
            raise errors.Refused(f"{OPTION}: the subnets must belong to one network")
        if len({subnet.ip_version for subnet in subnets}) < len(subnets):
            raise errors.Refused(f"{OPTION}: name one subnet of each address family at most")
        for subnet in subnets:
            if subnet.gateway_ip is None:
                raise errors.Refused(f"{OPTION}: subnet {subnet.id} has no gateway")
        reached = [
            await self._subnet(subnet_id, f"[neutron_defaults] {option}")
            for option, subnet_ids in self._reached.items()
            for subnet_id in subnet_ids
        ]
        try:
            further = [ipaddress.ip_network(destination) for destination in self._further]
        except ValueError as error:
            raise errors.Refused(f"[neutron_defaults] node_routes: {error}") from error
        return NodeNetwork(
            network=await self._neutron.get_network(subnets[0].network_id),
            subnets=tuple(subnets),
            destinations=tuple(
                dict.fromkeys([ipaddress.ip_network(subnet.cidr) for subnet in reached] + further)
            ),
        )

    async def _subnet(self, subnet_id: str, option: str) -> Subnet:
        try:
            return await self._neutron.get_subnet(subnet_id)
        except errors.NotFound as error:
            raise errors.Refused(f"{option}: no such subnet in Neutron: {error}") from error
