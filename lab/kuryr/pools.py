"""Pools of ports on the lab: the controller's settings for them, and what an operator does."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.openstack.rest import Api, ApiError
from lab.process import CommandError, wait_until

KINDS = ("noop", "neutron")
Json = dict[str, Any]


def settings(
    kind: str, options: Mapping[str, str], *, machines: bool
) -> dict[str, dict[str, str]]:
    """Build the controller's settings by group.

    :param kind: noop, or neutron: every node has pools, of subports where it is a machine.
    :param options: of [vif_pool].
    :param machines: whether nodes of both kinds are there.
    """
    if not machines:
        return {"kubernetes": {"vif_pool_driver": kind}, "vif_pool": dict(options)}
    nested = "nested" if kind == "neutron" else kind
    mapping = f"nested-vlan:{nested},neutron-vif:{kind}"
    return {
        "kubernetes": {"vif_pool_driver": "multi_pool"},
        "vif_pool": {"vif_pool_mapping": mapping, **options},
    }


class Pools:
    """The pools of a controller that leads.

    While it starts or ends, requests raise OSError or ApiError.

    :param url: of its loopback HTTP.
    :param admin_socket: the path of its socket for changes.
    """

    def __init__(self, url: str, admin_socket: Path) -> None:
        self._controller = Api(url)
        self._socket = admin_socket

    def all(self) -> list[Json]:
        """List every pool that has a port, or is to have one, without its ports."""
        found: list[Json] = self._controller.get("/pools")["pools"]
        return found

    def ports(self) -> dict[str, str]:
        """Return the state of each port in the pools by its id, such as available or in_use."""
        shown = [self._controller.get(f"/pools/{pool['id']}") for pool in self.all()]
        return {port["id"]: port["state"] for pool in shown for port in pool["ports"]}

    def populate(self, hosts: Mapping[str, str], count: int, seconds: float) -> None:
        """Have nodes keep so many ports for Pods to come, and return when these are parked there.

        :param hosts: the nodes' hosts in Neutron, by the nodes' names.
        :raises CommandError: the time is up.
        """
        asked: set[str] = set()

        def populated() -> bool:
            try:
                for node in hosts.keys() - asked:
                    if self._count(hosts[node], "available", "creating", "returning") < count:
                        self._post("/pools", {"node": node, "count": count})
                    asked.add(node)
                return all(self._count(host, "parked") >= count for host in hosts.values())
            except (OSError, ApiError):  # it does not lead yet
                return False

        if not wait_until(populated, seconds, pause=0.2):
            raise CommandError(f"after {seconds:.0f} s {count} ports are not parked on each node")

    def _post(self, path: str, body: Json) -> None:
        """Have the controller change something.

        :raises ApiError: a status of 400 or more.
        """
        connection = _UnixConnection(self._socket)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", path, json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read().decode(errors="replace")
        except http.client.HTTPException as error:
            raise ConnectionError(f"POST {path}: {error}") from error
        finally:
            connection.close()
        if response.status >= 400:
            raise ApiError(response.status, f"POST {path}: {text}")

    def _count(self, host: str, *places: str) -> int:
        here = [pool for pool in self.all() if pool["place"] == host]
        return sum(int(pool[place]) for pool in here for place in places)

    def drain(self, seconds: float) -> None:
        """Free all ports that no Pod has, and return when they are gone from Neutron.

        :raises CommandError: the time is up.
        """

        def drained() -> bool:
            try:
                for pool in self.all():
                    if any(pool[place] for place in ("available", "creating", "returning")):
                        self._post(f"/pools/{pool['id']}/free", {"count": None})
                return set(self.ports().values()) <= {"in_use"}
            except (OSError, ApiError):  # it starts; or a pool went meanwhile
                return False

        if not wait_until(drained, seconds, pause=0.2):
            raise CommandError(f"after {seconds:.0f} s the pools are not empty")


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a UNIX socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=120)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))
