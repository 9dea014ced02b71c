"""The sweep of address pairs on nodes' ports that no Pod's port has."""

import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from kuryr_k8s.drivers.base import DriverContext
from kuryr_k8s.drivers.vif import macvlan_plan
from kuryr_k8s.drivers.vif.parent_pairs import ParentPairs
from kuryr_k8s.engine.sweep import Sweep
from kuryr_k8s.k8s.resources import NODES

LOG = logging.getLogger(__name__)


class Stray(NamedTuple):
    """Pairs of one MAC on a port of a node."""

    port_id: str
    mac: str


class StrayPairSweep(Sweep[Stray]):
    """The sweep that removes pairs of the form of ours, of whose MAC the network has no port.

    Such pairs are left where Neutron carried out an addition after its Pod's port was gone, or
    refused the removal.
    """

    def __init__(self, context: DriverContext, pairs: ParentPairs) -> None:
        super().__init__(
            "address-pair-sweeper",
            interval=context.conf.neutron_defaults.sweep_interval,
            confirm_after=context.patience.unneeded,
            patience=context.patience,
            clock=context.clock,
            observe=context.observe,
        )
        self._api = context.neutron.address_pairs
        self._nodes = context.informers.of(NODES)
        self._subnets = context.conf.pod_vif_nested.worker_nodes_subnets
        self._pairs = pairs

    async def search(self) -> list[Stray]:
        nodes = {address for node in self._nodes.values() for address in node.addresses}
        on_network: defaultdict[str, set[Stray]] = defaultdict(set)
        for port in await self._api.list_of(self._subnets):
            on_network[port["network_id"]] |= {
                Stray(port["id"], pair["mac_address"])
                for pair in port["allowed_address_pairs"]
                if macvlan_plan.may_be_ours(pair, port)
                and any(ip["ip_address"] in nodes for ip in port["fixed_ips"])
            }
        found = []
        for network_id, suspects in on_network.items():
            in_use = await self._api.macs_in_use(network_id, {each.mac for each in suspects})
            found += [each for each in suspects if each.mac not in in_use]
        return found

    def identity(self, item: Stray) -> Stray:
        """Return the stray itself."""
        return item

    async def confirm(self, items: Sequence[Stray]) -> Sequence[Stray]:
        still = await self.search()
        return [item for item in items if item in still]

    async def remove(self, item: Stray) -> None:
        LOG.warning("port %s: the address pairs of %s are those of no Pod", *item)
        await self._pairs.remove(*item)
