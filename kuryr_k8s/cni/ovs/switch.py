"""The node's Open vSwitch: the ports of Pods, and their state according to ovn-controller.

The record of an attachment is in ``external_ids`` of the port's Interface row, and nowhere else:
it outlives the daemon, and goes with the port. A parked port has a mark there, with or without a
Pod.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from prometheus_client import Gauge

from kuryr_k8s.cni.ovs.commands import AddPorts, DelPort, Ids, Internal, NewPort
from kuryr_k8s.cni.ovs.database import Change, Ovsdb, OVSError
from kuryr_k8s.cni.ovs.marking import Marking
from kuryr_k8s.cni.parts import Job, Part
from kuryr_k8s.cni.patience import USUAL, Patience
from kuryr_k8s.engine.metrics import gauge

LOG = logging.getLogger(__name__)
OURS = "kuryr-container-id"  # the external id of rows that a container has
PARKED = "kuryr-parked"  # the external id of rows that stay when their container leaves
NODE = "kuryr-node"  # the external id of the node's own interface: the uid of its Node
MARKS = (OURS, PARKED, NODE)
ZONE = "ct-zone-"  # ovn-controller's, on the bridge: the zone of a port's connections
REMOVAL = 5.0  # seconds that ovs-vswitchd gets to close an interface that was removed

__all__ = [
    "NODE",
    "OURS",
    "PARKED",
    "InterfaceRow",
    "Internal",
    "NewPort",
    "OVSError",
    "OpenVSwitch",
]


@dataclass(frozen=True, slots=True)
class InterfaceRow:
    """An Interface row of ours.

    :param row: its UUID.
    :param error: what ovs-vswitchd reports; empty if all is well.
    :param internal: what ovs-vswitchd makes it of; None if it does not make it.
    """

    row: str
    name: str
    external_ids: Mapping[str, str]
    error: str
    internal: Internal | None = None

    @property
    def iface_id(self) -> str:
        """Return the id of the Neutron port."""
        return self.external_ids.get("iface-id", "")

    @property
    def attached(self) -> bool:
        """Return whether a container has it."""
        return OURS in self.external_ids

    @property
    def parked(self) -> bool:
        """Return whether it stays when its container, if it has one, leaves."""
        return PARKED in self.external_ids

    @property
    def installed(self) -> bool:
        """Return whether ovn-controller has installed all flows for this very row."""
        return self.external_ids.get("ovn-installed") == "true"


class _Bridge(NamedTuple):
    name: str
    datapath_type: str
    external_ids: Mapping[str, str]


class OpenVSwitch(Part):
    """The node's Open vSwitch, through its database.

    :param remote: for example ``unix:/run/openvswitch/db.sock``.
    """

    def __init__(self, remote: str, patience: Patience = USUAL) -> None:
        self.remote = remote
        self._database = Ovsdb(remote, self._changed, self._reached, patience)
        self.connected = self._database.connected
        self._interfaces: dict[str, InterfaceRow] = {}  # by row
        self._names: dict[str, InterfaceRow] = {}
        self._bridges: dict[str, _Bridge] = {}  # by row
        self._ids: Mapping[str, str] = {}  # of the switch itself
        self._identity = ""
        self._cur_cfg = 0
        self._removed: dict[str, int] = {}  # names of removed ports: the next_cfg of that
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._subscribers: list[Callable[[], None]] = []
        self._port_subscribers: list[Callable[[], None]] = []
        self._marking = Marking(self._database)

    async def run(self) -> None:
        """Follow the database until cancelled."""
        await self._database.run()

    def loops(self) -> Sequence[Job]:
        """Return the loop that follows the database."""
        return [Job("openvswitch", self.run)]

    def checks(self) -> Mapping[str, Callable[[], bool]]:
        """Return the check of the connection."""
        return {"openvswitch": self.connected.is_set}

    def collectors(self) -> Sequence[Gauge]:
        """Return the metric of the connection."""
        about = "Is Open vSwitch reached"
        return [gauge("kuryr_cni_ovs_connected", about, self.connected.is_set)]

    def subscribe(self, subscriber: Callable[[], None]) -> None:
        """Call a function when the connection or :meth:`host_id` may have changed."""
        self._subscribers.append(subscriber)

    def subscribe_ports(self, subscriber: Callable[[], None]) -> None:
        """Call a function when one of our ports is new, gone or installed, and after a gap."""
        self._port_subscribers.append(subscriber)

    def host_id(self) -> str | None:
        """Return ``external_ids:hostname``: the chassis' name, by which Neutron binds ports."""
        return self._ids.get("hostname")

    def integration_bridge(self) -> str:
        """Return the bridge that ovn-controller connects."""
        return self._ids.get("ovn-bridge") or "br-int"

    def encap_ips(self) -> list[str]:
        """Return the node's endpoints of tunnels, as ovn-controller is told them."""
        told = (value for key, value in self._ids.items() if key.startswith("ovn-encap-ip"))
        return [address.strip() for value in told for address in value.split(",")]

    def identity(self) -> str:
        """Return what tells this database from others; empty before the first connection."""
        return self._identity

    def in_user_space(self, bridge: str) -> bool:
        """Return whether a bridge forwards in user space (``datapath_type=netdev``)."""
        return any(
            known.name == bridge and known.datapath_type == "netdev"
            for known in self._bridges.values()
        )

    def zone(self, iface_id: str) -> tuple[str, int] | None:
        """Return where OVN keeps a port's connections: the bridge, and the zone's number."""
        for bridge in self._bridges.values():
            if zone := bridge.external_ids.get(f"{ZONE}{iface_id}"):
                return bridge.name, int(zone)
        return None

    def interfaces(self) -> list[InterfaceRow]:
        """Return all rows of ours as last reported, with and without a container."""
        return list(self._interfaces.values())

    def find(self, name: str) -> InterfaceRow | None:
        """Return the row of this name as last reported."""
        return self._names.get(name)

    async def add_port(self, bridge: str, name: str, external_ids: Mapping[str, str]) -> None:
        """Add a port with one interface, always as a new row, without waiting for ovs-vswitchd.

        :raises OVSError: the bridge does not exist, or the database does not answer.
        """
        await self.add_ports([NewPort(bridge, name, external_ids)])

    async def add_ports(self, ports: Sequence[NewPort]) -> None:
        """Add several ports like :meth:`add_port`, all of them or none."""
        for port in ports:
            await self._wait_removed(port.name)
        await self._database.commit(AddPorts(self._database, ports))

    async def mark(self, row: str, external_ids: Ids) -> bool:
        """Change some external ids of a row, and leave its others alone.

        :returns: whether the row still exists.
        :raises OVSError: the database does not answer.
        """
        return await self._marking.mark(row, external_ids)

    async def del_port(self, name: str) -> None:
        """Remove a port, without waiting for ovs-vswitchd; without such a port nothing happens.

        When this returns the row is gone.
        """
        if known := self._names.get(name):
            LOG.debug("removing port %s (%s)", name, known.iface_id)
        self._removed[name] = await self._database.commit(DelPort(self._database, name)) or 0
        self._removed = {n: cfg for n, cfg in self._removed.items() if cfg > self._cur_cfg}

    async def wait_installed(self, name: str, iface_id: str) -> InterfaceRow:
        """Wait until ovn-controller has installed the flows of a port; the caller sets a limit.

        :returns: the row that is installed.
        """
        while True:
            found = self._names.get(name)
            if found is not None and found.iface_id == iface_id and found.installed:
                return found
            await self._change(name)

    async def _wait_removed(self, name: str) -> None:
        """Wait until ovs-vswitchd has closed a device that was removed.

        Were one of the same name added before, it would keep reading from the old one.
        """
        wanted = self._removed.pop(name, 0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REMOVAL):
                while self._cur_cfg < wanted:
                    await self._change("")

    async def _change(self, name: str) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(name, []).append(future)
        try:
            await future
        finally:
            if future in (waiting := self._waiting.get(name, [])):
                waiting.remove(future)
            if not waiting:
                self._waiting.pop(name, None)

    def _reached(self, rows: list[Change] | None) -> None:
        if rows is None:
            LOG.info("Open vSwitch's database: disconnected")
        else:
            LOG.info("Open vSwitch's database: connected")
            before = {*self._names}
            self._interfaces.clear()
            self._names.clear()
            self._bridges.clear()
            self._wake({self._apply(row) for row in rows} | before)
        self._notify()
        self._notify_of_ports()

    def _changed(self, changes: list[Change]) -> None:
        before = self._plugged(changes)
        self._wake({self._apply(change) for change in changes})
        if any(change.table == "Open_vSwitch" for change in changes):
            self._notify()
        if self._plugged(changes) != before:
            self._notify_of_ports()

    def _plugged(self, changes: list[Change]) -> set[tuple[str, str, bool]]:
        """Return what subscribers to ports want to know about the rows that change."""
        found = (self._interfaces.get(change.row) for change in changes)
        return {(known.row, known.iface_id, known.installed) for known in found if known}

    def _notify(self) -> None:
        for subscriber in self._subscribers:
            subscriber()

    def _notify_of_ports(self) -> None:
        for subscriber in self._port_subscribers:
            subscriber()

    def _apply(self, change: Change) -> str:
        """Apply a change to the copy.

        :returns: the name of the interface that changed, or "".
        """
        values = change.values
        match change.table:
            case "Bridge":
                self._bridges.pop(change.row, None)
                if values is not None:
                    self._bridges[change.row] = _Bridge(**values)
            case "Open_vSwitch" if values is not None:
                self._identity = change.row
                self._ids = values["external_ids"]
                self._cur_cfg = values["cur_cfg"]
            case "Interface":
                return self._apply_interface(change)
        return ""

    def _apply_interface(self, change: Change) -> str:
        old = self._interfaces.pop(change.row, None)
        if old is not None and self._names.get(old.name) is old:
            del self._names[old.name]
        if change.values is None or change.values["external_ids"].keys().isdisjoint(MARKS):
            return old.name if old is not None else ""
        name, error = change.values["name"], change.values["error"]
        ids = change.values["external_ids"]
        new = InterfaceRow(change.row, name, ids, "".join(error), _internal(change.values))
        self._interfaces[change.row] = self._names[name] = new
        return new.name

    def _wake(self, names: set[str]) -> None:
        for name in names:
            for future in self._waiting.get(name, ()):
                if not future.done():
                    future.set_result(None)


def _internal(values: Mapping[str, Any]) -> Internal | None:
    if values["type"] != "internal":
        return None
    return Internal("".join(values["mac"]), next(iter(values["mtu_request"]), 0))
