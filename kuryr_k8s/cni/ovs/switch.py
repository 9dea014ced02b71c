"""The node's Open vSwitch: ports of Pods, and what ovn-controller says of them.

What the daemon must remember of an attachment stands in ``external_ids`` of the port's
Interface row, and nowhere else: it outlives the daemon, and goes with the port. A port that is
parked has a mark there, with or without a Pod.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kuryr_k8s.cni.ovs.commands import AddPorts, DelPort, Ids, NewPort
from kuryr_k8s.cni.ovs.database import Change, Ovsdb, OVSError
from kuryr_k8s.cni.ovs.marking import Marking

LOG = logging.getLogger(__name__)
OURS = "kuryr-container-id"  # the external id of rows that a container has
PARKED = "kuryr-parked"  # that of rows that stay when their container leaves
MARKS = (OURS, PARKED)
ZONE = "ct-zone-"  # ovn-controller's, on the bridge: the zone of a port's connections
SETTLE = 5.0  # seconds that ovs-vswitchd gets to let go of an interface

__all__ = ["OURS", "PARKED", "Interface", "NewPort", "OVSError", "OpenVSwitch"]


@dataclass(frozen=True, slots=True)
class Interface:
    """An Interface row of ours. ``error`` is ovs-vswitchd's, empty if all is well."""

    row: str
    name: str
    external_ids: Mapping[str, str]
    error: str

    @property
    def iface_id(self) -> str:
        return self.external_ids.get("iface-id", "")

    @property
    def attached(self) -> bool:
        """Has a container got it?"""
        return OURS in self.external_ids

    @property
    def parked(self) -> bool:
        """Does it stay when its container, if it has one, leaves?"""
        return PARKED in self.external_ids

    @property
    def installed(self) -> bool:
        """Has ovn-controller installed all flows of the port? True of this very row."""
        return self.external_ids.get("ovn-installed") == "true"


class _Bridge(NamedTuple):
    name: str
    datapath_type: str
    external_ids: Mapping[str, str]


class OpenVSwitch:
    """:param remote: for example ``unix:/run/openvswitch/db.sock``."""

    def __init__(self, remote: str) -> None:
        self._database = Ovsdb(remote, self._changed, self._reached)
        self.connected = self._database.connected
        self._interfaces: dict[str, Interface] = {}  # by row
        self._names: dict[str, Interface] = {}
        self._bridges: dict[str, _Bridge] = {}  # by row
        self._host_id: str | None = None
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

    def subscribe(self, subscriber: Callable[[], None]) -> None:
        """Call it when the connection or :meth:`host_id` may have changed."""
        self._subscribers.append(subscriber)

    def subscribe_ports(self, subscriber: Callable[[], None]) -> None:
        """Call it when a port of ours has come, gone, or been installed, and after a gap."""
        self._port_subscribers.append(subscriber)

    def host_id(self) -> str | None:
        """``external_ids:hostname``: the chassis' name, by which Neutron binds ports."""
        return self._host_id

    def identity(self) -> str:
        """Tells this database from every other; empty before the first connection."""
        return self._identity

    def in_user_space(self, bridge: str) -> bool:
        """Does this bridge forward in user space (``datapath_type=netdev``)?"""
        return any(
            each.name == bridge and each.datapath_type == "netdev"
            for each in self._bridges.values()
        )

    def zone(self, iface_id: str) -> tuple[str, int] | None:
        """The bridge, and the number of the zone there, where OVN keeps a port's connections."""
        for bridge in self._bridges.values():
            if zone := bridge.external_ids.get(f"{ZONE}{iface_id}"):
                return bridge.name, int(zone)
        return None

    def interfaces(self) -> list[Interface]:
        """All rows of ours, as last heard of, with and without a container."""
        return list(self._interfaces.values())

    def find(self, name: str) -> Interface | None:
        return self._names.get(name)

    async def add_port(self, bridge: str, name: str, external_ids: Mapping[str, str]) -> None:
        """Add a port with one interface, always as a fresh row. Does not wait for ovs-vswitchd.

        :raises OVSError: the bridge does not exist, or the database does not answer.
        """
        await self.add_ports([NewPort(bridge, name, external_ids)])

    async def add_ports(self, ports: Sequence[NewPort]) -> None:
        """:meth:`add_port` for several, all of them or none."""
        for port in ports:
            await self._let_go(port.name)
        await self._database.commit(AddPorts(self._database, ports))

    async def mark(self, row: str, external_ids: Ids) -> bool:
        """Change some external ids of an interface, by its row, and leave the others alone.

        :returns: whether there still is this row.
        :raises OVSError: the database does not answer.
        """
        return await self._marking.mark(row, external_ids)

    async def del_port(self, name: str) -> None:
        """Remove the port; without such a port nothing happens. Does not wait for ovs-vswitchd.

        When this returns the row is gone.
        """
        if known := self._names.get(name):
            LOG.debug("removing port %s (%s)", name, known.iface_id)
        self._removed[name] = await self._database.commit(DelPort(self._database, name)) or 0
        self._removed = {n: cfg for n, cfg in self._removed.items() if cfg > self._cur_cfg}

    async def wait_installed(self, name: str, iface_id: str) -> None:
        """Wait until ovn-controller has installed the flows of this port. No deadline."""
        while True:
            found = self._names.get(name)
            if found is not None and found.iface_id == iface_id and found.installed:
                return
            await self._change(name)

    async def _let_go(self, name: str) -> None:
        """ovs-vswitchd must see that a device is gone before one of the same name comes, or it
        keeps reading from the old one.
        """
        wanted = self._removed.pop(name, 0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE):
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
        """What subscribers to ports want to know of the rows that change."""
        found = (self._interfaces.get(change.row) for change in changes)
        return {(one.row, one.iface_id, one.installed) for one in found if one is not None}

    def _notify(self) -> None:
        for subscriber in self._subscribers:
            subscriber()

    def _notify_of_ports(self) -> None:
        for subscriber in self._port_subscribers:
            subscriber()

    def _apply(self, change: Change) -> str:
        """Take a change over; returns the name of the interface that changed, or ""."""
        values = change.values
        match change.table:
            case "Bridge":
                self._bridges.pop(change.row, None)
                if values is not None:
                    self._bridges[change.row] = _Bridge(**values)
            case "Open_vSwitch" if values is not None:
                self._identity = change.row
                self._host_id = values["external_ids"].get("hostname")
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
        new = Interface(change.row, name, change.values["external_ids"], "".join(error))
        self._interfaces[change.row] = self._names[name] = new
        return new.name

    def _wake(self, names: set[str]) -> None:
        for name in names:
            for future in self._waiting.get(name, ()):
                if not future.done():
                    future.set_result(None)
