"""Tell the users of a Pod what its network is not connected with.

A Pod in a network of its users' has no probes and no Services unless a router leads there. Nothing
fails in Neutron then: so an Event says it, once, when the Pod gets its port.
"""

import asyncio
import logging
import math
from collections.abc import Iterable

from kuryr_k8s import errors
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.k8s.events import Reference
from kuryr_k8s.model.kuryrport import DEFAULT_IFNAME, KuryrPort

LOG = logging.getLogger(__name__)
REASON = "KuryrNetworkNotRouted"
NODES = "the nodes: httpGet, tcpSocket and grpc probes fail; exec probes work."
SERVICES = (
    "Services: the Pod reaches none, nor the cluster's DNS; dnsPolicy None or Default avoids that."
)
BRIEF = 10.0  # seconds for which it counts that no router leads there: users are told to add one
MOST_KNOWN = 10_000  # networks
INTERFACES = (  # device_owner of the ports of routers in subnets
    "network:router_interface",
    "network:router_interface_distributed",
    "network:ha_router_replicated_interface",
)


class Reachability:
    """Knows which routers lead from the networks of Pods to those of nodes and Services."""

    def __init__(self, context: HandlerContext) -> None:
        defaults = context.conf.neutron_defaults
        self._neutron = context.neutron
        self._events = context.events
        self._clock = context.clock
        self._longest = context.patience.routers
        self._subnets = {
            NODES: tuple(defaults.node_subnet),
            SERVICES: tuple(defaults.service_subnet),
        }
        self._networks: dict[str, str] = {}  # of subnets
        self._asking = asyncio.Lock()
        self._routers: dict[str, tuple[frozenset[str], float]] = {}  # of networks, until when

    async def tell(self, about: Reference, recorded: KuryrPort) -> None:
        """Write an Event if the Pod has named a network that is not connected with all it needs.

        :param about: the Pod.
        """
        if DEFAULT_IFNAME not in recorded.network_names():
            return
        network = recorded.vifs()[DEFAULT_IFNAME].network
        if network is None:
            return
        try:
            missing = [
                what
                for what, subnet_ids in self._subnets.items()
                if subnet_ids and not await self._is_connected(network.id, subnet_ids)
            ]
        except errors.CloudError as error:  # the Pod has its interface all the same
            LOG.debug("whether network %s is routed is not known: %s", network.id, error)
            return
        if missing:
            name = network.label or network.id
            told = [
                f"No router of Neutron connects network {name} with {each}" for each in missing
            ]
            await self._events.note(about, REASON, " ".join(told), warning=True)

    async def _is_connected(self, network_id: str, subnet_ids: Iterable[str]) -> bool:
        others = {await self._network_of(subnet_id) for subnet_id in subnet_ids}
        if network_id in others:
            return True
        async with self._asking:  # those that come meanwhile share the answer
            routers = await self._routers_of(network_id)
            if any([bool(routers & await self._routers_of(other)) for other in others]):
                return True
            soon = self._clock.now() + BRIEF
            for each in (network_id, *others):
                known, until = self._routers[each]
                self._routers[each] = (known, min(until, soon))
            return False

    async def _network_of(self, subnet_id: str) -> str:
        if subnet_id not in self._networks:
            subnet = await self._neutron.get_subnet(subnet_id)
            self._networks[subnet_id] = subnet.network_id
        return self._networks[subnet_id]

    async def _routers_of(self, network_id: str) -> frozenset[str]:
        known, until = self._routers.get(network_id, (frozenset[str](), -math.inf))
        if self._clock.now() < until:
            return known
        query = {
            "network_id": network_id,
            "device_owner": INTERFACES,
            "fields": ("id", "device_id"),
        }
        found = await self._neutron.list_ports(query)
        routers = frozenset(port["device_id"] for port in found)
        if len(self._routers) > MOST_KNOWN:
            self._routers.clear()
        self._routers[network_id] = (routers, self._clock.now() + self._longest)
        return routers
