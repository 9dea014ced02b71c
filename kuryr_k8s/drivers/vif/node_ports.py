"""The ports of nodes that are virtual machines: asked for once, then remembered.

A node's port is the one that has the node's InternalIP in one of ``[pod_vif_nested]
worker_nodes_subnets``.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oslo_config import cfg

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.api import Neutron
from kuryr_k8s.drivers.base import NodeNotReady
from kuryr_k8s.model.pod import Node

Json = dict[str, Any]


class NoNodePort(NodeNotReady):
    """The node has no port that we see, or more than one."""

    reason = "KuryrNoNodePort"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePort:
    """The port of a virtual machine that is a node."""

    id: str
    network_id: str


class NodePorts:
    """The ports of the nodes, as far as they are known."""

    def __init__(self, neutron: Neutron, conf: cfg.ConfigOpts) -> None:
        self._neutron = neutron
        self._subnets: tuple[str, ...] = tuple(conf.pod_vif_nested.worker_nodes_subnets)
        self._of_node: dict[str, tuple[Node, NodePort]] = {}
        self._asking: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def of_node(self, node: Node) -> NodePort:
        """Find the port of a node.

        :raises NoNodePort: there is none, or more than one.
        """
        async with self._asking[node.name]:
            known, port = self._of_node.get(node.name, (None, None))
            if known is None or port is None or not is_same(known, node):
                port = await self._find(node)
                self._of_node[node.name] = (node, port)
            return port

    def forget(self, port: NodePort) -> None:
        """Forget a port that is gone: the node may have another one by now."""
        for name in [name for name, (_, known) in self._of_node.items() if known == port]:
            del self._of_node[name]

    def forget_node(self, name: str) -> None:
        """Forget a Node that is gone."""
        self._of_node.pop(name, None)
        if name in self._asking and not self._asking[name].locked():
            del self._asking[name]

    async def _find(self, node: Node) -> NodePort:
        found = await list_ports_of(self._neutron, node, self._subnets, ("id", "network_id"))
        if len(found) != 1:
            what = "no port" if not found else f"{len(found)} ports"
            raise NoNodePort(f"node {node.name} has {what} in Neutron with {where(node)}")
        return NodePort(id=found[0]["id"], network_id=found[0]["network_id"])


async def list_ports_of(
    neutron: Neutron, node: Node, subnet_ids: Sequence[str], fields: Sequence[str]
) -> list[Json]:
    """List the ports with an InternalIP of a node in one of these subnets."""
    addresses = [f"ip_address={address}" for address in node.addresses]
    subnets = [f"subnet_id={subnet_id}" for subnet_id in subnet_ids]
    if not addresses:
        return []
    return await neutron.list_ports({"fixed_ips": [*addresses, *subnets], "fields": fields})


def where(node: Node) -> str:
    """Return words for where the ports of a node are looked for."""
    addresses = " or ".join(node.addresses) or "that it does not have yet"
    return f"the address {addresses} in [pod_vif_nested] worker_nodes_subnets"


def is_same(node: Node, other: Node) -> bool:
    """Return whether both are one Node with the same addresses."""
    return (node.uid, node.addresses) == (other.uid, other.addresses)


def check_subnets_are_set(conf: cfg.ConfigOpts) -> None:
    """Check that the options tell where the nodes' ports are.

    :raises errors.ConfigError: they do not.
    """
    if not conf.pod_vif_nested.worker_nodes_subnets:
        raise errors.ConfigError("[pod_vif_nested] worker_nodes_subnets is not set")
