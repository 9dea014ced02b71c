"""The thread that speaks OVSDB (RFC 7047): a copy of a few columns, and transactions.

Of ``python-ovs`` we use the IDL itself. ``ovsdbapp``'s commands over it write whole columns
under a precondition, so that two ports added to a bridge at once collide and are tried again;
here each is a mutation of the set, and all of them are in flight together.
"""

import asyncio
import collections
import contextlib
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ovs import poller
from ovs.db import idl

from kuryr_k8s import errors

LOG = logging.getLogger(__name__)

_MAP = {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}}
_TEXT = {"type": "string"}
_MAYBE_TEXT = {"type": {"key": "string", "min": 0, "max": 1}}
SCHEMA: dict[str, Any] = {
    "name": "Open_vSwitch",
    "version": "7.0.0",
    "tables": {
        "Open_vSwitch": {
            "columns": {
                "external_ids": _MAP,
                "next_cfg": {"type": "integer"},
                "cur_cfg": {"type": "integer"},
            },
            "isRoot": True,
        },
        "Bridge": {
            "columns": {
                "name": _TEXT,
                "datapath_type": _TEXT,
                "ports": {
                    "type": {
                        "key": {"type": "uuid", "refTable": "Port"},
                        "min": 0,
                        "max": "unlimited",
                    }
                },
            }
        },
        "Port": {
            "columns": {
                "name": _TEXT,
                "interfaces": {
                    "type": {
                        "key": {"type": "uuid", "refTable": "Interface"},
                        "min": 1,
                        "max": "unlimited",
                    }
                },
            }
        },
        "Interface": {"columns": {"name": _TEXT, "external_ids": _MAP, "error": _MAYBE_TEXT}},
    },
}
PROBE = 10_000  # milliseconds of silence before the server is asked whether it lives
RETRIES = 5  # of a transaction that the server asks to be made anew


class OVSError(errors.KuryrError):
    """Open vSwitch's database refused, or did not answer in time."""


class Change(NamedTuple):
    """A row as it is now; ``values`` is None for one that is gone."""

    table: str
    row: str
    values: dict[str, Any] | None


Build = Callable[[Any, Any], None]  # (tables, transaction): fill the transaction
# connected or not, whether the changes are all rows there are, the changes
Report = Callable[[bool, bool, list[Change]], None]


@dataclass(eq=False)
class _Request:
    build: Build
    done: asyncio.Future[int]
    transaction: Any = None
    counted: bool = False
    attempts: int = 0
    abandoned: bool = False


class _Idl(idl.Idl):  # type: ignore[misc]
    """Collects what changes."""

    def __init__(self, remote: str, helper: Any) -> None:
        self.changes: list[Change] = []
        super().__init__(remote, helper, probe_interval=PROBE, leader_only=False)

    def notify(self, event: str, row: Any, updates: Any = None) -> None:  # noqa: ARG002
        gone = event == idl.ROW_DELETE
        table = row._table.name
        if table != "Port":
            self.changes.append(Change(table, str(row.uuid), None if gone else _values(row)))

    @property
    def monitoring(self) -> bool:
        return bool(self._session.is_connected() and self.state == self.IDL_S_MONITORING)

    def snapshot(self) -> list[Change]:
        return [
            Change(name, str(row.uuid), _values(row))
            for name, table in self.tables.items()
            if name != "Port"
            for row in table.rows.values()
        ]


class Ovsdb:
    """Follows one server, reconnecting for ever, and commits transactions.

    :param remote: for example ``unix:/run/openvswitch/db.sock``.
    :param report: called on the event loop with what changed, always before the result of a
        transaction that made the change.
    """

    def __init__(self, remote: str, report: Report) -> None:
        self._remote = remote
        self._report = report
        self._requests: collections.deque[_Request] = collections.deque()
        self._flying: list[_Request] = []
        self._stopping = False
        self._connected = False
        self._wake_read, self._wake_write = -1, -1

    async def run(self) -> None:
        """Follow the database until cancelled."""
        self._loop = asyncio.get_running_loop()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        thread = threading.Thread(target=self._work, name="ovsdb", daemon=True)
        thread.start()
        try:
            await asyncio.Event().wait()
        finally:
            self._stopping = True
            self._wake()
            thread.join()
            os.close(self._wake_read)
            os.close(self._wake_write)

    async def commit(self, build: Build, *, counted: bool = False, deadline: float = 10.0) -> int:
        """Make a transaction and wait for the server's word, not for ovs-vswitchd.

        ``build`` is called in the thread, perhaps more than once, on the rows as they are then,
        and must be such that doing it again does no harm: an answer may get lost. A cancelled
        caller waits until it is certain that nothing will happen any more.

        :param counted: increment ``next_cfg``; its new value is returned, else 0.
        :raises OVSError: refused, or no answer within ``deadline`` seconds.
        """
        request = _Request(build, asyncio.get_running_loop().create_future(), counted=counted)
        self._requests.append(request)
        self._wake()
        interrupted: asyncio.CancelledError | None = None
        give_up = asyncio.get_running_loop().call_later(deadline, self._abandon, request)
        while not request.done.done():
            try:
                await asyncio.wait([request.done])
            except asyncio.CancelledError as error:
                interrupted = error
                self._abandon(request)
        give_up.cancel()
        if interrupted is not None:
            request.done.exception()
            raise interrupted
        return request.done.result()

    def _abandon(self, request: _Request) -> None:
        request.abandoned = True
        self._wake()

    def _wake(self) -> None:
        if self._wake_write >= 0:
            with contextlib.suppress(BlockingIOError):
                os.write(self._wake_write, b"x")

    # In the thread:

    def _work(self) -> None:
        helper = idl.SchemaHelper(None, SCHEMA)
        helper.register_all()
        database = _Idl(self._remote, helper)
        while not self._stopping:
            try:
                self._turn(database)
            except Exception:
                LOG.exception("ovsdb: starting anew")
                database.force_reconnect()
        database.close()
        for request in [*self._flying, *self._requests]:
            self._resolve(request, OVSError("the daemon is stopping"))

    def _turn(self, database: _Idl) -> None:
        database.run()
        self._tell(database)
        self._flying = [request for request in self._flying if not self._landed(request)]
        self._start(database)
        waiting = poller.Poller()
        database.wait(waiting)
        for request in self._flying:
            request.transaction.wait(waiting)
        waiting.fd_wait(self._wake_read, poller.POLLIN)
        waiting.block()
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 4096)

    def _tell(self, database: _Idl) -> None:
        changes, database.changes = database.changes, []
        monitoring = database.monitoring
        anew = monitoring and not self._connected
        if anew:
            changes = database.snapshot()
        if changes or monitoring != self._connected:
            self._connected = monitoring
            self._loop.call_soon_threadsafe(self._report, monitoring, anew, changes)

    def _start(self, database: _Idl) -> None:
        waiting: list[_Request] = []
        while self._requests:
            request = self._requests.popleft()
            if request.abandoned:
                self._resolve(request, OVSError("Open vSwitch's database did not answer"))
            elif not self._connected:
                waiting.append(request)
            else:
                self._send(database, request)
        self._requests.extendleft(reversed(waiting))

    def _send(self, database: _Idl, request: _Request) -> None:
        request.attempts += 1
        request.transaction = idl.Transaction(database)
        try:
            request.build(database.tables, request.transaction)
            if request.counted:
                next(iter(database.tables["Open_vSwitch"].rows.values())).increment("next_cfg")
        except Exception as error:
            request.transaction.abort()
            self._resolve(request, error)
        else:
            request.transaction.commit()
            if not self._landed(request):
                self._flying.append(request)

    def _landed(self, request: _Request) -> bool:
        """Has the server spoken? Then tell the caller, or line up again."""
        kind, transaction = idl.Transaction, request.transaction
        status = transaction.commit()
        if status == kind.INCOMPLETE:
            return False
        if status in (kind.SUCCESS, kind.UNCHANGED):
            counted = request.counted and status == kind.SUCCESS
            self._resolve(request, transaction.get_increment_new_value() if counted else 0)
        elif status == kind.TRY_AGAIN and request.attempts < RETRIES:
            self._requests.append(request)
        else:
            self._resolve(request, OVSError(f"Open vSwitch's database: {transaction.get_error()}"))
        return True

    def _resolve(self, request: _Request, outcome: int | Exception) -> None:
        if isinstance(outcome, Exception):
            self._loop.call_soon_threadsafe(request.done.set_exception, outcome)
        else:
            self._loop.call_soon_threadsafe(request.done.set_result, outcome)


def _values(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row._table.columns if name != "ports"}
