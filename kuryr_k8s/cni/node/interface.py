"""Plugs ``kuryr0`` and keeps it as the Node's annotation says; removes it when that is gone.

The interface is a port of the integration bridge that ovs-vswitchd makes itself. Its row is
recorded first, and found again after a restart. Nothing here keeps a Pod or the node from working:
what fails is tried again, and told by an Event on the Node and a metric.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from prometheus_client.registry import Collector

from kuryr_k8s import errors
from kuryr_k8s.cni import nft
from kuryr_k8s.cni.netlink import NodeLinks, NoLink
from kuryr_k8s.cni.node import plan
from kuryr_k8s.cni.node.api_server import Api, ApiServer
from kuryr_k8s.cni.node.own_node import OwnNode
from kuryr_k8s.cni.node.plan import NAME, TABLE
from kuryr_k8s.cni.ovs.switch import NODE, InterfaceRow, Internal, NewPort, OVSError
from kuryr_k8s.cni.parts import Part
from kuryr_k8s.cni.patience import USUAL, Patience
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.engine.metrics import gauge
from kuryr_k8s.engine.workqueue import WorkQueue
from kuryr_k8s.k8s.events import Reference
from kuryr_k8s.k8s.resources import NODES, Key
from kuryr_k8s.model.annotations import NODE_INTERFACE
from kuryr_k8s.model.node_interface import NodeInterface

LOG = logging.getLogger(__name__)
FIRST_RETRY, LONGEST_RETRY = 0.2, 30.0  # seconds
SOON = 0.1  # seconds until we look whether ovs-vswitchd has made the interface
KEPT = 60.0  # seconds until we look at the kernel's table of packets again
FAILED, LEFT_OUT = "KuryrNodeInterfaceFailed", "KuryrNodeRouteLeftOut"
SOURCE = "node-interface"


class Nodes(Protocol):
    """The part of :class:`~kuryr_k8s.cni.node.own_node.OwnNodes` that this module needs."""

    def get(self, key: Key) -> OwnNode | None:
        """Return the Node as last read."""

    def subscribe(self, subscriber: Callable[[Key], None]) -> None:
        """Call a function at each change."""


class Switch(Protocol):
    """The part of :class:`~kuryr_k8s.cni.ovs.switch.OpenVSwitch` that this module needs."""

    @property
    def connected(self) -> Any:
        """Return the event that is set while the database is followed."""

    def find(self, name: str) -> InterfaceRow | None:
        """Return the row of this name."""

    def integration_bridge(self) -> str:
        """Return the bridge that ovn-controller connects."""

    def encap_ips(self) -> list[str]:
        """Return the node's endpoints of tunnels."""

    def host_id(self) -> str | None:
        """Return the chassis' name."""

    async def add_ports(self, ports: Sequence[NewPort]) -> None:
        """Add ports as new rows."""

    async def del_port(self, name: str) -> None:
        """Remove a port."""

    async def mark(self, row: str, external_ids: Mapping[str, str | None]) -> bool:
        """Change external ids of a row."""

    def subscribe(self, subscriber: Callable[[], None]) -> None:
        """Call a function when the connection or the chassis may have changed."""

    def subscribe_ports(self, subscriber: Callable[[], None]) -> None:
        """Call a function when a port has changed."""


class Events(Protocol):
    """The part of :class:`~kuryr_k8s.k8s.events.EventRecorder` that this module needs."""

    async def warn(self, source: str, about: Reference, reason: str, note: str) -> None:
        """Report that something is wrong with an object."""

    def well(self, source: str, about: Reference) -> None:
        """Forget what was reported."""


class NodeInterfacePart(Part):
    """Reconciles one key, the Node's: ``kuryr0`` is what its annotation says."""

    def __init__(
        self,
        nodes: Nodes,
        node: Key,
        switch: Switch,
        links: NodeLinks,
        api: Api,
        events: Events,
        patience: Patience = USUAL,
    ) -> None:
        self._nodes = nodes
        self._switch = switch
        self._links = links
        self._api_server = ApiServer(api)
        self._events = events
        self._patience = patience
        self._wanted, self._up = False, False
        self._left_out: list[str] = []
        self._made: float | None = None  # when the row was made for which there is no link yet
        self._missing_since: float | None = None  # since when OVN has not installed the port
        self._rules, self._rules_at = "", 0.0  # of nft, and when they were last seen there
        self._seen: object = None  # of Open vSwitch, when it was last looked at
        self._controller: Controller[Key] = Controller(
            "node-interface",
            self.reconcile,
            queue=WorkQueue(base=FIRST_RETRY, cap=LONGEST_RETRY),
            workers=1,
            report=self._report,
        )
        nodes.subscribe(self._controller.queue.add)
        for subscribe in (switch.subscribe, switch.subscribe_ports):
            subscribe(lambda: self._switch_changed(node))

    def loops(self) -> Sequence[Controller[Key]]:
        """Return the loop that keeps the interface."""
        return [self._controller]

    def collectors(self) -> Sequence[Collector]:
        """Return the metrics of the interface."""
        return [
            gauge(
                "kuryr_node_interface_wanted",
                "Whether the Node's annotation demands the interface kuryr0",
                lambda: self._wanted,
            ),
            gauge(
                "kuryr_node_interface_up",
                "Whether kuryr0 is plugged as the annotation says, and OVN has installed its port",
                lambda: self._up,
            ),
        ]

    def _switch_changed(self, key: Key) -> None:
        """Queue the Node, unless only ports of Pods have changed, which come and go often."""
        switch = self._switch
        connected, row = switch.connected.is_set(), switch.find(NAME)
        seen = connected, row, switch.integration_bridge(), switch.encap_ips()
        if seen != self._seen:
            self._seen = seen
            self._controller.queue.add(key)

    async def reconcile(self, key: Key) -> float | None:
        """Plug, mend or remove the interface.

        :returns: seconds until the next look.
        :raises errors.KuryrError: to be tried again.
        """
        node = self._nodes.get(key)
        if node is None:
            return None  # registered again soon; the controller decides by the Node, not we
        if not self._switch.connected.is_set():
            raise errors.Wait("Open vSwitch's database cannot be reached", delay=SOON * 20)
        self._wanted = node.interface is not None
        up, self._up = self._up, False
        if node.interface is None:
            return await self._remove(node)
        try:
            wanted = NodeInterface.parse(node.interface)
        except ValueError as error:
            raise errors.Refused(f"annotation {NODE_INTERFACE}: {error}") from error
        installed = await self._plug(node, wanted)
        self._up = installed
        if installed and not up:
            LOG.info("%s is up, with %s", NAME, ", ".join(map(str, wanted.addresses)))
        return self._patience.node_interface_look

    async def _plug(self, node: OwnNode, wanted: NodeInterface) -> bool:
        """Make everything as it should be.

        :returns: whether OVN has installed the port.
        """
        port = self._port(node, wanted)
        row = await self._recorded(port)
        others = await self._links.others(NAME)
        api_server = await self._api_server.addresses()
        needs = plan.needed(api_server, self._switch.encap_ips(), others)
        link, left_out = plan.link(wanted, needs)
        await self._apply_rules(plan.packet_rules(link.addresses))  # before there are routes
        try:
            changes = await self._links.configure(NAME, link)
        except NoLink:
            await self._make_again(port)
            raise errors.Wait(f"ovs-vswitchd has yet to make {NAME}", delay=SOON) from None
        self._made = None
        if changes:
            LOG.info("%s: %s", NAME, ", ".join(changes))
        for problem in left_out:
            if problem not in self._left_out:
                LOG.warning("%s: %s", NAME, problem)
        self._left_out = left_out
        return self._is_installed(row, wanted)

    def _port(self, node: OwnNode, wanted: NodeInterface) -> NewPort:
        ids = {
            "iface-id": wanted.port_id,
            "iface-status": "active",
            "attached-mac": wanted.mac_address.lower(),
            NODE: node.uid,
        }
        internal = Internal(wanted.mac_address.lower(), wanted.mtu)
        return NewPort(self._switch.integration_bridge(), NAME, ids, internal)

    async def _recorded(self, port: NewPort) -> InterfaceRow | None:
        """Have the row of the port in Open vSwitch, and return it."""
        row = self._switch.find(NAME)
        if row is None or row.internal != port.internal or not _is_of(row, port):
            await self._switch.add_ports([port])
            LOG.info("%s: plugged Neutron port %s", NAME, port.external_ids["iface-id"])
            self._made, self._missing_since = time.monotonic(), None
        elif row.external_ids.get(NODE) != port.external_ids[NODE]:  # registered again
            await self._switch.mark(row.row, {NODE: port.external_ids[NODE]})
        return self._switch.find(NAME)

    async def _make_again(self, port: NewPort) -> None:
        """Have ovs-vswitchd make the interface, which does so for new rows only.

        :raises OVSError: it has been asked for that, and does not.
        """
        if self._made is None:
            LOG.warning("%s is gone: Open vSwitch makes it again", NAME)
            await self._switch.del_port(NAME)
            await self._switch.add_ports([port])
            self._made = time.monotonic()
        elif time.monotonic() - self._made > self._patience.internal_port:
            self._made = None
            row = self._switch.find(NAME)
            why = row.error if row is not None and row.error else "is it running?"
            raise OVSError(f"ovs-vswitchd does not make the interface {NAME}: {why}")

    async def _apply_rules(self, rules: str) -> None:
        now = time.monotonic()
        if rules == self._rules and now - self._rules_at < KEPT:
            return
        if rules != self._rules or not await nft.exists(TABLE, self._patience):
            await nft.apply(rules, self._patience)
        self._rules, self._rules_at = rules, now

    def _is_installed(self, row: InterfaceRow | None, wanted: NodeInterface) -> bool:
        """Return whether OVN has installed the port.

        :raises OVSError: it has had enough time.
        """
        if row is not None and row.installed:
            self._missing_since = None
            return True
        now = time.monotonic()
        if self._missing_since is None:
            self._missing_since = now
        if now - self._missing_since > self._patience.node_port_installed:
            raise OVSError(
                f"OVN has not installed Neutron port {wanted.port_id} (interface {NAME}); is "
                "ovn-controller running, and is the port bound to chassis "
                f"{self._switch.host_id()}?"
            )
        return False

    async def _remove(self, node: OwnNode) -> float | None:
        """Remove all of it; the rules of routing last, since they tell that something is left."""
        self._left_out, self._made, self._missing_since = [], None, None
        row = self._switch.find(NAME)
        if row is not None and row.installed and row.external_ids.get(NODE) != node.uid:
            # The Node was registered again: no controller has seen that one yet.
            return KEPT
        if row is None and not await self._links.has_routing():
            return None
        await self._switch.del_port(NAME)
        try:
            await nft.apply(nft.no_table(TABLE), self._patience)
        except errors.Refused as error:
            LOG.debug("no table of %s can exist: %s", NAME, error)
        self._rules = ""
        await self._links.remove_routing()
        LOG.info("%s was removed: its Node has no annotation %s", NAME, NODE_INTERFACE)
        return None

    async def _report(self, key: Key, error: Exception | None, failures: int) -> None:
        """Tell by an Event on the Node what is wrong."""
        node = self._nodes.get(key)
        if node is None:
            return
        about = Reference(resource=NODES, namespace="", name=key.name, uid=node.uid)
        if error is not None:
            if isinstance(error, errors.Refused) or failures >= 3:
                await self._events.warn(SOURCE, about, FAILED, f"{NAME}: {error}")
        elif self._left_out:
            note = "; ".join(self._left_out)
            await self._events.warn(SOURCE, about, LEFT_OUT, f"{NAME}: {note}")
        else:
            self._events.well(SOURCE, about)


def _is_of(row: InterfaceRow, port: NewPort) -> bool:
    """Return whether a row is of this port; whose Node it is does not matter."""
    return all(row.external_ids.get(k) == v for k, v in port.external_ids.items() if k != NODE)
