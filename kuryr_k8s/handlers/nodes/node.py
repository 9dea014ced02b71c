"""The handler of Nodes: each has a Neutron port, by which the node reaches its Pods.

The daemon of the node learns the port from an annotation, and plugs it as ``kuryr0``. A Node whose
daemon has published no host has no Open vSwitch of the cloud: it is a virtual machine, which
reaches Pods through the port that it has already.

After a start one list of all ports, the sweep's, tells which Nodes need something, and so does
each later list. Of a Node that changes, the ports are asked for at once.
"""

import contextlib
import ipaddress
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kuryr_k8s import errors
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.engine.limit import Priority, prioritized
from kuryr_k8s.handlers.base import Handler, HandlerContext, Watch
from kuryr_k8s.handlers.nodes.network import (
    Address,
    Destination,
    NodeNetwork,
    NodeSubnets,
    Occupied,
)
from kuryr_k8s.handlers.nodes.ports import PortsOfNodes
from kuryr_k8s.handlers.nodes.sweep import NodePortSweep
from kuryr_k8s.k8s.events import Reference, node_reference
from kuryr_k8s.k8s.informer import Informer
from kuryr_k8s.k8s.resources import NODES, Key
from kuryr_k8s.model.annotations import NODE_INTERFACE
from kuryr_k8s.model.node_interface import NodeInterface
from kuryr_k8s.model.pod import Node

Json = dict[str, Any]
NESTED = "nested-"  # begins the names of the drivers for nodes that are virtual machines


class NodeHandler(Handler):
    """Makes the Neutron port of each Node, and describes it in the Node's annotation."""

    def __init__(self, context: HandlerContext) -> None:
        super().__init__(context)
        self._nodes = context.informers.of(NODES)
        self._subnets = NodeSubnets(context.conf, context.neutron, context.clock)
        self._ports = PortsOfNodes(context.conf, context.neutron)
        self._sweep = NodePortSweep(
            context, self._ports, named=self._subnets.named, review=self._review
        )
        self._default_vif: str = context.conf.kubernetes.pod_vif_driver
        self._reviewed = False  # the Nodes that need something are known
        self._written: dict[str, str] = {}  # annotations by the names of Nodes
        self._destinations: tuple[Destination, ...] = ()

    def watches(self) -> Sequence[Watch[Any]]:
        return (Watch(self._nodes, self._of_node),)

    def _of_node(self, key: Key, old: Node | None, new: Node | None) -> Iterable[Key]:
        """Return the Node's key, and those of all Nodes whose routes its addresses concern."""
        if _what_matters(old) == _what_matters(new) and self._is_written(old, new):
            return ()
        addresses = {*_addresses(old), *_addresses(new)}
        if any(address in routed for address in addresses for routed in self._destinations):
            return (key, *(Key("", node.name) for node in self._nodes.values()))
        return (key,)

    def _is_written(self, old: Node | None, new: Node | None) -> bool:
        """Return whether the annotation is as it was, or as it was written here."""
        if old is None or new is None or old.interface == new.interface:
            return True
        return new.interface is not None and new.interface == self._written.get(new.name)

    def loops(self) -> Sequence[Controller[Any]]:
        return (self._sweep.loop,)

    def collectors(self) -> Sequence[Collector]:
        return (_Count(self._nodes),) if self._subnets.named else ()

    async def reconcile(self, key: Key) -> float | None:
        node = self._nodes.get(key)
        if node is None:
            self._written.pop(key.name, None)
            self._sweep.search_after(0.0)
            return None
        if not self._subnets.named or node.foreign:
            if node.interface is not None:
                await self._write(node, None)
            return None
        if node.host_id is None or not self._reviewed:
            return None  # a change of the Node, or the first review, comes back to it
        with prioritized(Priority.REFILL):  # after a start all Nodes ask, and no Pod waits
            network = await self._subnets.network()
            occupied = self._occupied(network)
            network.check(node.name, occupied)
            self._destinations = network.destinations
            port, replaced = await self._ports.ensure(node, network, _port_of(node))
        routes, left_out = network.routes(node.name, occupied)
        await self._report_left_out(node, left_out)
        text = self._ports.describe(port, network, routes).to_json()
        if text != node.interface:
            await self._write(node, text)
        with prioritized(Priority.REFILL):
            for port_id in replaced:
                await self._context.neutron.delete_port(port_id)
        return None

    async def _review(self, ports: Sequence[Json]) -> None:
        """Wake the Nodes that need something; all of them if that cannot be told.

        :param ports: Of all Nodes.
        """
        owned: defaultdict[str, list[Json]] = defaultdict(list)
        for port in ports:
            owned[port["device_id"]].append(port)
        network: NodeNetwork | None = None
        occupied: Occupied = {}
        with contextlib.suppress(errors.KuryrError):  # each Node reports it
            network = await self._subnets.network()
            self._destinations = network.destinations
            occupied = self._occupied(network)
        self._reviewed = True
        for node in self._nodes.values():
            if network is None or not self._is_well(node, owned[node.uid], network, occupied):
                self.queue.revisit(Key("", node.name))

    def _is_well(
        self, node: Node, ports: Sequence[Json], network: NodeNetwork, occupied: Occupied
    ) -> bool:
        """Return whether nothing is to be done for a Node that has these ports."""
        if node.host_id is None or node.foreign:
            return True
        if not self._ports.is_right(ports, node, network):
            return False
        try:
            network.check(node.name, occupied)
        except errors.Refused:
            return False
        routes, left_out = network.routes(node.name, occupied)
        described = self._ports.describe(ports[0], network, routes).to_json()
        return not left_out and described == node.interface

    def _occupied(self, network: NodeNetwork) -> Occupied:
        """Return which Nodes have InternalIPs in the network's subnets and destinations."""
        nodes = list(self._nodes.values())
        everywhere = {node.name: _addresses(node) for node in nodes}
        servers = [node.name for node in nodes if not self._in_cloud(node)]
        elsewhere = {name: everywhere[name] for name in servers}
        return network.occupied(everywhere, elsewhere)

    def _in_cloud(self, node: Node) -> bool:
        """Return whether a Node is a virtual machine: others reach it through Neutron only."""
        kind = node.pod_vif or self._default_vif
        return node.host_id is None and not node.foreign and kind.startswith(NESTED)

    async def _write(self, node: Node, text: str | None) -> None:
        """Write the annotation, or remove it."""
        if text is not None:
            self._written[node.name] = text
        patch = {"metadata": {"uid": node.uid, "annotations": {NODE_INTERFACE: text}}}
        answer = await self._context.kube.merge_patch(NODES, Key("", node.name), patch)
        self._nodes.learn(answer)

    async def _report_left_out(self, node: Node, left_out: Sequence[Destination]) -> None:
        source, about = "routes of nodes", node_reference(node)
        if about is None:
            return
        if not left_out:
            self._context.events.well(source, about)
            return
        named = ", ".join(map(str, left_out))
        note = (
            f"no route to {named}: it contains the InternalIP of a Node, so that nodes would no "
            "longer reach each other (docs/nodes.md)"
        )
        await self._context.events.warn(source, about, "KuryrNodeRouteLeftOut", note)

    def about(self, key: Key) -> Reference | None:
        return node_reference(self._nodes.get(key))


class _Count(Collector):
    """The metric of Nodes with a host, by whether they have a port."""

    def __init__(self, nodes: Informer[Node]) -> None:
        self._nodes = nodes

    def collect(self) -> Iterable[GaugeMetricFamily]:
        metric = GaugeMetricFamily(
            "kuryr_nodes",
            "Nodes whose daemon has published a host, by whether a Neutron port is made for them",
            labels=["port"],
        )
        hosts = [node for node in self._nodes.values() if node.host_id and not node.foreign]
        made = sum(node.interface is not None for node in hosts)
        metric.add_metric(["made"], made)
        metric.add_metric(["missing"], len(hosts) - made)
        yield metric


def _what_matters(node: Node | None) -> object:
    return node and (node.uid, node.host_id, node.addresses, node.foreign, node.pod_vif)


def _addresses(node: Node | None) -> list[Address]:
    """Return the InternalIPs of a Node that can be read."""
    found = []
    for address in node.addresses if node is not None else ():
        try:
            found.append(ipaddress.ip_address(address))
        except ValueError:
            continue
    return found


def _port_of(node: Node) -> str | None:
    """Return the id of the port that the annotation names."""
    try:
        return NodeInterface.parse(node.interface).port_id if node.interface else None
    except ValueError:
        return None
