"""The trunks of nodes and of ports: asked for once, then remembered.

A node's trunk is the one on the port that has the node's InternalIP in one of ``[pod_vif_nested]
worker_nodes_subnets``, or the one with the tag ``trunk_tag``.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from oslo_config import cfg

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.api import Neutron
from kuryr_k8s.cloud.neutron.trunks import Trunk, parent_of
from kuryr_k8s.drivers.base import NodeNotReady
from kuryr_k8s.drivers.vif.node_ports import is_same, list_ports_of, where
from kuryr_k8s.drivers.vif.trunk_ports import TrunkPorts
from kuryr_k8s.model.pod import Node

Json = dict[str, Any]
GROUP = "[pod_vif_nested]"


class NoTrunk(NodeNotReady):
    """The node has no trunk that we see, or more than one."""

    reason = "KuryrNoTrunk"


class NodeTrunks:
    """The trunks of the nodes, as far as they are known."""

    def __init__(self, neutron: Neutron, conf: cfg.ConfigOpts) -> None:
        options = conf.pod_vif_nested
        self._neutron = neutron
        self._subnets: tuple[str, ...] = tuple(options.worker_nodes_subnets)
        self._tag: str = options.trunk_tag or ""
        self._attempts: int = options.rev_update_attempts
        self._trunks: dict[str, TrunkPorts] = {}
        self._of_node: dict[str, tuple[Node, TrunkPorts]] = {}
        self._asking: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def check(self) -> None:
        """Check the options.

        :raises errors.ConfigError: they do not describe how to find trunks.
        :raises errors.Refused: they name a subnet that Neutron does not show.
        """
        if not (self._subnets or self._tag):
            raise errors.ConfigError(f"{GROUP} worker_nodes_subnets is not set")
        if self._tag and "{node}" not in self._tag:
            raise errors.ConfigError(f"{GROUP} trunk_tag: {self._tag!r} has no {{node}} in it")
        for subnet_id in self._subnets:
            try:
                await self._neutron.get_subnet(subnet_id)
            except errors.NotFound as error:
                raise errors.Refused(f"{GROUP} worker_nodes_subnets: {error}") from error

    async def of_node(self, node: Node) -> TrunkPorts:
        """Find the trunk of a node.

        :raises NoTrunk: the node has no trunk, or more than one.
        """
        async with self._asking[node.name]:
            known, trunk = self._of_node.get(node.name, (None, None))
            if known is None or trunk is None or not is_same(known, node):
                trunk = self.register(await self._find(node))
                self._of_node[node.name] = (node, trunk)
            return trunk

    async def of_id(self, trunk_id: str) -> TrunkPorts:
        """Find a trunk by its id.

        :raises errors.NotFound: there is no such trunk that we may see.
        """
        return self._trunks.get(trunk_id) or self.register(
            await self._neutron.trunks.get_trunk(trunk_id)
        )

    def carrying(self, port_id: str) -> TrunkPorts | None:
        """Return the known trunk that has this subport."""
        return next((trunk for trunk in self._trunks.values() if trunk.carries(port_id)), None)

    async def of_parent(self, parent: str) -> TrunkPorts | None:
        """Find the trunk on a VM's port."""
        known = next((trunk for trunk in self._trunks.values() if trunk.parent == parent), None)
        if known is not None:
            return known
        found = await self._neutron.trunks.list_trunks({"port_id": parent})
        return self.register(found[0]) if found else None

    async def read(self, ports: Iterable[Json]) -> dict[str, Trunk]:
        """Read the trunks that these ports are on, by the ids of the trunks' subports.

        A port shows its trunk's parent. One whose attachment was interrupted does not, and could
        be on any trunk: then all of them are listed, and those that the list lacks are asked for.
        """
        parents = {parent_of(port) for port in ports}
        by_port = await self.read_all() if "" in parents else {}
        listed = {trunk.port_id for trunk in by_port.values()}
        found = await self._neutron.trunks.list_trunks_on(parents - listed - {""})
        return by_port | {port_id: trunk for trunk in found for port_id in trunk.vlan_ids}

    async def read_all(self) -> dict[str, Trunk]:
        """List all trunks in Neutron, by the ids of their subports."""
        found = await self._neutron.trunks.list_trunks({})
        return {port_id: trunk for trunk in found for port_id in trunk.vlan_ids}

    def register(self, trunk: Trunk) -> TrunkPorts:
        """Return the one object that changes this trunk's subports."""
        if trunk.id not in self._trunks:
            self._trunks[trunk.id] = TrunkPorts(self._neutron.trunks, trunk, self._attempts)
        return self._trunks[trunk.id]

    def forget(self, trunk: TrunkPorts) -> None:
        """Forget a trunk that is gone: the node may have another one by now."""
        self._trunks.pop(trunk.id, None)
        for name in [name for name, (_, known) in self._of_node.items() if known is trunk]:
            del self._of_node[name]

    def forget_node(self, name: str) -> None:
        """Forget a Node that is gone, and its trunk, which is probably gone with it."""
        if (known := self._of_node.get(name)) is not None:
            self.forget(known[1])
        if name in self._asking and not self._asking[name].locked():
            del self._asking[name]

    async def _find(self, node: Node) -> Trunk:
        if self._tag:
            tag = self._tag.format(node=node.name)
            found, where = await self._neutron.trunks.list_trunks({"tags": tag}), f"tag {tag}"
        else:
            found, where = await self._by_address(node)
        if len(found) != 1:
            what = "no trunk" if not found else f"{len(found)} trunks"
            raise NoTrunk(f"node {node.name} has {what} in Neutron with {where}")
        return found[0]

    async def _by_address(self, node: Node) -> tuple[list[Trunk], str]:
        if not node.addresses:
            raise NoTrunk(f"node {node.name} has no InternalIP yet")
        ports = await list_ports_of(self._neutron, node, self._subnets, ("id",))
        found = await self._neutron.trunks.list_trunks_on([port["id"] for port in ports])
        return found, where(node)
