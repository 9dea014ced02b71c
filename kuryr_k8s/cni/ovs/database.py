"""Open vSwitch's database through ovsdbapp: a copy of a few columns, and transactions.

ovsdbapp's thread keeps the connection and commits one transaction after another. The commands that
make up a transaction are in :mod:`kuryr_k8s.cni.ovs.commands`.
"""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent import futures
from typing import Any, NamedTuple

from ovs.db.idl import SchemaHelper
from ovsdbapp.backend.ovs_idl import command, connection, event, idlutils, transaction

from kuryr_k8s import errors
from kuryr_k8s.cni.patience import USUAL, Patience

# Milliseconds of silence before the server is probed. python-ovs does not probe on a local socket:
# there only the deadlines help.
PROBE = 10_000
STOP = 1.0  # seconds that the thread gets to end; it dies with the process anyway
STOPPING = "the daemon is stopping"

_MAP = {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}}
_MAYBE_TEXT = {"type": {"key": "string", "min": 0, "max": 1}}
_TEXT = {"type": "string"}
_NUMBER = {"type": "integer"}
_MAYBE_NUMBER = {"type": {"key": "integer", "min": 0, "max": 1}}


def _rows(table: str, least: int) -> dict[str, Any]:
    key = {"type": "uuid", "refTable": table}
    return {"type": {"key": key, "min": least, "max": "unlimited"}}


# The part of the schema that we need. Fetching it would have to wait for the server.
SCHEMA: dict[str, Any] = {
    "name": "Open_vSwitch",
    "version": "7.0.0",
    "tables": {
        "Open_vSwitch": {
            "columns": {"external_ids": _MAP, "next_cfg": _NUMBER, "cur_cfg": _NUMBER},
            "isRoot": True,
        },
        "Bridge": {
            "columns": {
                "name": _TEXT,
                "datapath_type": _TEXT,
                "ports": _rows("Port", 0),
                "external_ids": _MAP,
            },
        },
        "Port": {"columns": {"name": _TEXT, "interfaces": _rows("Interface", 1)}},
        "Interface": {
            "columns": {
                "name": _TEXT,
                "type": _TEXT,
                "mac": _MAYBE_TEXT,
                "mtu_request": _MAYBE_NUMBER,
                "external_ids": _MAP,
                "error": _MAYBE_TEXT,
            },
        },
    },
}
# The columns that we follow
FOLLOWED = {
    "Open_vSwitch": ("external_ids", "cur_cfg"),
    "Bridge": ("name", "datapath_type", "external_ids"),
    "Interface": ("name", "type", "mac", "mtu_request", "external_ids", "error"),
}


class OVSError(errors.KuryrError):
    """Open vSwitch's database refused, or did not answer in time."""


class Change(NamedTuple):
    """A row as it is now; ``values`` is None if it is gone."""

    table: str
    row: str
    values: dict[str, Any] | None


class Ovsdb:
    """A connection that follows one server, reconnects for ever, and commits transactions.

    :param remote: for example ``unix:/run/openvswitch/db.sock``.
    :param changed: called on the event loop with the changes of a transaction, all at once, and
        always before its result.
    :param reached: called there with all rows whenever the server has been reached, and with None
        when the connection is lost.
    """

    def __init__(
        self,
        remote: str,
        changed: Callable[[list[Change]], None],
        reached: Callable[[list[Change] | None], None],
        patience: Patience = USUAL,
    ) -> None:
        self.connected = asyncio.Event()
        self._remote = remote
        self._changed = changed
        self._reached = reached
        self._deadline = patience.transaction
        self._worker = futures.ThreadPoolExecutor(1, "ovsdb")

    async def run(self) -> None:
        """Follow the database until cancelled."""
        self._loop = asyncio.get_running_loop()
        self.idl = _Idl(self._remote, self._tell, self._follow)
        self._connection = connection.Connection(self.idl, self._deadline)
        self._connection.start()
        try:
            await asyncio.Event().wait()
        finally:
            self._stop()

    def _stop(self) -> None:
        self._worker.shutdown(wait=False, cancel_futures=True)
        if left := self._connection.txns.get_nowait():  # stop() would wait for room in the queue
            left.results.put(idlutils.ExceptionResult(OVSError(STOPPING), ""))
        if self._connection.stop(STOP):
            self._connection.txns.close()

    async def commit(self, wanted: command.BaseCommand, deadline: float | None = None) -> Any:
        """Commit a transaction, and wait for the server, not for ovs-vswitchd.

        The command runs in the thread, perhaps more than once, on the rows as they are then. It
        must be repeatable, since an answer may get lost. It does not begin after the deadline,
        and no later command overtakes it. A cancelled caller waits for a command that has begun,
        but no longer than a transaction may take.

        :param deadline: seconds; as long as a transaction may take if None.
        :returns: the command's result.
        :raises OVSError: the server refused, or did not answer before the deadline.
        """
        try:
            async with asyncio.timeout(self._deadline if deadline is None else deadline):
                while True:
                    await self.connected.wait()
                    with contextlib.suppress(_NotConnected):
                        await self._execute(wanted)
                        return wanted.result
        except TimeoutError:
            raise OVSError("Open vSwitch's database did not answer") from None
        except RuntimeError as error:  # ovsdbapp's
            raise OVSError(f"Open vSwitch's database: {error}") from error

    async def _execute(self, wanted: command.BaseCommand) -> None:
        asked = _Transaction(self, self._connection, check_error=True, log_errors=False)
        asked.add(wanted)
        job = self._worker.submit(asked.commit)
        answer = asyncio.wrap_future(job)
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # seen
        try:
            await asyncio.wait([answer])
        except asyncio.CancelledError:
            asked.abandoned = True
            if not job.cancel():
                await asyncio.wait([answer])
            raise
        if answer.cancelled():
            raise OVSError(STOPPING)
        answer.result()

    # In the thread:

    def _tell(self, changes: list[Change]) -> None:
        self._loop.call_soon_threadsafe(self._changed, changes)

    def _follow(self, rows: list[Change] | None) -> None:
        self._loop.call_soon_threadsafe(self._follows, rows)

    def _follows(self, rows: list[Change] | None) -> None:
        if rows is None:
            self.connected.clear()
        else:
            self.connected.set()
        self._reached(rows)


class _NotConnected(Exception):
    pass


class _Transaction(transaction.Transaction):  # type: ignore[misc]
    """A transaction that begins neither after its caller has gone, nor on a stale copy."""

    abandoned = False

    def pre_commit(self, _txn: Any) -> None:
        """Check that the transaction may begin."""
        if self.abandoned:
            raise OVSError("the caller does not wait any more")
        if not self.api.idl.following:
            raise _NotConnected


class _Event(event.RowEvent):  # type: ignore[misc]
    """A change of a column that we follow."""

    def __init__(self, table: str, changes: list[Change]) -> None:
        super().__init__((self.ROW_CREATE, self.ROW_UPDATE, self.ROW_DELETE), table, None)
        self._changes = changes

    def match_fn(self, _event: str, _row: Any, old: Any) -> bool:
        """Return whether the row is new, gone, or different in a column that we follow."""
        return old is None or any(hasattr(old, column) for column in FOLLOWED[self.table])

    def run(self, event: str, row: Any, _old: Any) -> None:
        """Note the change."""
        gone = event == self.ROW_DELETE
        self._changes.append(Change(self.table, str(row.uuid), None) if gone else _change(row))


class _Events(event.RowEventHandler):  # type: ignore[misc]
    """A handler that runs events in the connection's thread.

    In a thread of their own, as ovsdbapp runs them, they could come after the result of the
    transaction that caused them.
    """

    def start(self) -> None:
        """Start no thread."""

    def notify(self, event: str, row: Any, updates: Any = None) -> None:
        """Run the events that match at once."""
        for watching in self.matching_events(event, row, updates):
            watching.run(event, row, updates)


class _Idl(connection.OvsdbIdl):  # type: ignore[misc]
    """A copy that reports when it begins and ceases to follow the server, and the changes between.

    ovsdbapp reports neither, nor which rows have gone while there was no connection.
    """

    def __init__(
        self,
        remote: str,
        tell: Callable[[list[Change]], None],
        follow: Callable[[list[Change] | None], None],
    ) -> None:
        helper = SchemaHelper(None, SCHEMA)
        helper.register_all()
        super().__init__(remote, helper, probe_interval=PROBE, leader_only=False)
        self.following = False
        self._tell = tell
        self._follow = follow
        self._changes: list[Change] = []
        self.notify_handler = _Events()
        self.notify_handler.watch_events([_Event(table, self._changes) for table in FOLLOWED])

    def has_ever_connected(self) -> bool:
        """Keep Connection.start() from waiting for the server: the thread waits."""
        return True

    def run(self) -> bool:
        """Take in what the server has sent, and report it.

        :returns: whether the copy has changed.
        """
        try:
            changed: bool = super().run()
        except Exception:  # ovsdbapp logs it, and would go on with a copy that lacks something
            self.force_reconnect()
            raise
        if self._changes:
            self._tell(self._changes.copy())
            self._changes.clear()
        following = self._session.is_connected() and self.state == self.IDL_S_MONITORING
        if following != self.following:
            self.following = following
            self._follow(self._all() if following else None)
        return changed

    def notify(self, event: str, row: Any, updates: Any = None) -> None:
        """Note a change, once the copy follows the server."""
        if self.following:
            self.notify_handler.notify(event, row, updates)

    def _all(self) -> list[Change]:
        return [_change(row) for table in FOLLOWED for row in self.tables[table].rows.values()]


def _change(row: Any) -> Change:
    table = row._table.name
    return Change(table, str(row.uuid), {name: getattr(row, name) for name in FOLLOWED[table]})
