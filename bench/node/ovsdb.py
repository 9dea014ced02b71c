"""Open vSwitch's database, by RFC 7047 over its socket, with no library in between.

The connection shows when an interface's row was committed, and when ovn-controller marked it as
installed. It also makes such rows, to measure OVN without the product.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
PATIENCE = 60.0  # seconds without a message


@dataclass
class InterfaceTimes:
    """The times of time.monotonic() when an interface's row was seen, and was installed."""

    row: float
    installed: float = 0.0


class Switch:
    """A connection to the database; :meth:`read` takes every message, and blocks until one comes.

    :param path: the path of the UNIX socket.
    """

    def __init__(self, path: str) -> None:
        self._times: dict[str, InterfaceTimes] = {}
        self._answers: dict[int, tuple[float, Any]] = {}
        self._buffer = ""
        self._last = 0
        self._channel = socket.socket(socket.AF_UNIX)
        self._channel.settimeout(PATIENCE)
        self._channel.connect(path)
        watch = {"Interface": {"columns": ["name", "external_ids"]}}
        first = self._ask("monitor", ["Open_vSwitch", None, watch])
        self._take(time.monotonic(), self._wait(first)[1])

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._channel.fileno()

    def read(self) -> None:
        """Read the messages that have arrived."""
        part = self._channel.recv(1 << 20)
        now = time.monotonic()
        if not part:
            raise ConnectionError("ovsdb-server has closed the connection")
        self._buffer += part.decode()
        decoder = json.JSONDecoder()
        while self._buffer:
            try:
                message, end = decoder.raw_decode(self._buffer)
            except ValueError:
                return  # the rest is yet to come
            self._buffer = self._buffer[end:].lstrip()
            match message.get("method"):
                case "update":
                    self._take(now, message["params"][1])
                case "echo":
                    self._send({"id": message["id"], "result": message["params"], "error": None})
                case _:
                    assert not message["error"], message
                    self._answers[message["id"]] = now, message["result"]

    def installation(self, bridge: str, ports: Mapping[str, str]) -> dict[str, float]:
        """Make a row for each port, wait until OVN has installed it, and remove it.

        :param ports: the Neutron port's id by the name of a device that exists.
        :returns: the seconds from the commit, which is the server's answer, by device.
        """
        requests = {
            name: self._ask("transact", ["Open_vSwitch", *_insert(bridge, name, port)])
            for name, port in ports.items()
        }
        commits = {name: self._wait(number) for name, number in requests.items()}
        times = {name: self.pop_times(name) for name in ports}
        for _, results in commits.values():
            self._wait(self._ask("transact", ["Open_vSwitch", _remove(bridge, results)]))
        return {
            name: times[name].installed - committed for name, (committed, _) in commits.items()
        }

    def pop_times(self, name: str) -> InterfaceTimes:
        """Wait until an interface is installed; return its times and forget them."""
        while name not in self._times or not self._times[name].installed:
            self.read()
        return self._times.pop(name)

    def _take(self, now: float, update: Json) -> None:
        for change in update.get("Interface", {}).values():
            row = change.get("new")
            if row is None:
                continue
            ids = dict(row["external_ids"][1])
            if "iface-id" not in ids:
                continue
            name = row["name"]
            if "new" in change and "old" not in change:
                self._times[name] = InterfaceTimes(now)
            times = self._times.setdefault(name, InterfaceTimes(now))
            if ids.get("ovn-installed") == "true" and not times.installed:
                times.installed = now

    def _ask(self, method: str, params: list[Any]) -> int:
        self._last += 1
        self._send({"id": self._last, "method": method, "params": params})
        return self._last

    def _send(self, message: Json) -> None:
        self._channel.sendall(json.dumps(message).encode())

    def _wait(self, number: int) -> tuple[float, Any]:
        """Wait for an answer; return its time and its result."""
        while number not in self._answers:
            self.read()
        return self._answers.pop(number)


def _insert(bridge: str, name: str, port: str) -> list[Json]:
    ids = ["map", [["iface-id", port]]]
    own = [["named-uuid", "port"]]
    return [
        {"op": "insert", "table": "Interface", "uuid-name": "interface",
         "row": {"name": name, "external_ids": ids}},
        {"op": "insert", "table": "Port", "uuid-name": "port",
         "row": {"name": name, "interfaces": ["named-uuid", "interface"]}},
        {"op": "mutate", "table": "Bridge", "where": [["name", "==", bridge]],
         "mutations": [["ports", "insert", ["set", own]]]},
    ]  # fmt: skip


def _remove(bridge: str, results: list[Json]) -> Json:
    for result in results:
        assert "error" not in result, results
    gone = ["ports", "delete", ["set", [results[1]["uuid"]]]]
    where = [["name", "==", bridge]]
    return {"op": "mutate", "table": "Bridge", "where": where, "mutations": [gone]}
