"""Changes of Open vSwitch's database, as commands of ovsdbapp. All may be repeated.

ovsdbapp's own commands wait for ovs-vswitchd, and those that add to a bridge write its whole list
of ports. Ours are mutations of that list, and wait for ovsdb-server only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from ovsdbapp.backend.ovs_idl import command, idlutils

from kuryr_k8s.cni.ovs.database import Ovsdb, OVSError

Ids = Mapping[str, str | None]  # None removes the key


@dataclass(frozen=True, slots=True)
class Internal:
    """The settings of an interface that ovs-vswitchd makes itself."""

    mac: str
    mtu: int


@dataclass(frozen=True, slots=True)
class NewPort:
    """A port of a bridge with one interface of the same name.

    :param internal: None: the interface exists, or is made by somebody else.
    """

    bridge: str
    name: str
    external_ids: Mapping[str, str]
    internal: Internal | None = None


class AddPorts(command.BaseCommand):  # type: ignore[misc]
    """Add ports with one interface each, as new rows, in place of ports of the same name."""

    def __init__(self, api: Ovsdb, ports: Sequence[NewPort]) -> None:
        super().__init__(api)
        self.ports = ports

    def run_idl(self, txn: Any) -> None:
        """Add to the transaction what this command changes."""
        for port in self.ports:
            self._add(txn, port)

    def _add(self, txn: Any, wanted: NewPort) -> None:
        bridge = _find(self.api, "Bridge", wanted.bridge)
        if bridge is None:
            raise OVSError(f"Open vSwitch has no bridge {wanted.bridge}")
        _remove(self.api, wanted.name)
        interface = txn.insert(self.api.idl.tables["Interface"])
        interface.name = wanted.name
        interface.external_ids = dict(wanted.external_ids)
        if wanted.internal is not None:
            interface.type = "internal"
            interface.mac = wanted.internal.mac
            interface.mtu_request = wanted.internal.mtu
        port = txn.insert(self.api.idl.tables["Port"])
        port.name = wanted.name
        port.interfaces = [interface]
        bridge.addvalue("ports", port.uuid)


class DelPort(command.BaseCommand):  # type: ignore[misc]
    """Remove a port.

    The result is the ``next_cfg`` that ovs-vswitchd reaches once it has seen this; None without
    such a port.
    """

    def __init__(self, api: Ovsdb, name: str) -> None:
        super().__init__(api)
        self.name = name

    def run_idl(self, _txn: Any) -> None:
        """Add to the transaction what this command changes."""
        _remove(self.api, self.name)
        next(iter(self.api.idl.tables["Open_vSwitch"].rows.values())).increment("next_cfg")

    def post_commit(self, txn: Any) -> None:
        """Take the result from the transaction."""
        self.result = txn.get_increment_new_value()


class Mark(command.BaseCommand):  # type: ignore[misc]
    """Change keys of ``external_ids`` of interfaces, and leave other keys alone.

    The result is the set of the UUIDs of the rows that exist.
    """

    def __init__(self, api: Ovsdb, marks: Sequence[tuple[str, Ids]]) -> None:
        super().__init__(api)
        self.marks = marks

    def run_idl(self, _txn: Any) -> None:
        """Add to the transaction what this command changes."""
        rows = self.api.idl.tables["Interface"].rows
        self.result = set()
        for wanted, ids in self.marks:
            row = rows.get(UUID(wanted))
            if row is None:
                continue
            self.result.add(wanted)
            for key, value in ids.items():
                if value is None:
                    row.delkey("external_ids", key)
                else:
                    row.setkey("external_ids", key, value)


def _find(api: Ovsdb, table: str, name: str) -> Any:
    return idlutils.row_by_value(api.idl, table, "name", name, None)


def _remove(api: Ovsdb, name: str) -> None:
    """Take the port from its bridge; ovsdb-server deletes rows that nothing refers to."""
    port = _find(api, "Port", name)
    if port is None:
        return
    for bridge in api.idl.tables["Bridge"].rows.values():
        if port in bridge.ports:
            bridge.delvalue("ports", port.uuid)
