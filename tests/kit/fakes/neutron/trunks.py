"""Trunks: a port that carries other ports in VLANs, as ML2/OVN has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from tests.kit.fakes.faults import Answer

from . import errors
from .kinds import TRUNK
from .policy import Context, Policy
from .store import Store

Json = dict[str, Any]

SUBPORT_OWNER = "trunk:subport"
VLAN_IDS = range(1, 4095)


class Trunks:
    """What the plugin does with trunks; every method is complete before anybody else runs."""

    def __init__(self, store: Store, policy: Policy) -> None:
        self._store = store
        self._policy = policy

    def create(self, context: Context, body: Json) -> Json:
        """A trunk on a port, with subports if it names any."""
        body = TRUNK.check_create(body)
        self._policy.check_create(context, "trunk", body)
        self._store.get("port", body["port_id"])
        self._check_free(body["port_id"], errors.parent_in_use(body["port_id"]))
        items = self._checked(body["port_id"], body["sub_ports"])
        trunk = self._store.add("trunk", body | {"sub_ports": [], "status": "DOWN"})
        self._insert(trunk, items)
        trunk["status"] = "ACTIVE"
        return trunk

    def add(self, trunk: Json, items: list[Json]) -> Json:
        """Attach all or none; the trunk as the answer shows it."""
        items = self._checked(trunk["port_id"], items)
        _check_enabled(trunk)
        self._insert(trunk, items)
        return self._finish(trunk, items)

    def remove(self, trunk: Json, items: list[Json]) -> Json:
        """Detach all or none; the trunk as the answer shows it."""
        _check_enabled(trunk)
        _check_unique(items)
        attached = {subport["port_id"]: subport for subport in trunk["sub_ports"]}
        for item in items:
            if item["port_id"] not in attached:
                message = f"SubPort {item['port_id']} on trunk {trunk['id']} could not be found."
                raise Answer(404, "SubPortNotFound", message)
        for item in items:
            trunk["sub_ports"].remove(attached[item["port_id"]])
            self._unset(item["port_id"])
        return self._finish(trunk, items)

    def delete(self, trunk: Json) -> None:
        """Its subports are ordinary ports again."""
        _check_enabled(trunk)
        for subport in trunk["sub_ports"]:
            self._unset(subport["port_id"])
        self._store.remove("trunk", trunk)

    def _checked(self, parent: str, items: list[Json]) -> list[Json]:
        _check_unique(items)
        return [self._check(parent, item) for item in items]

    def _check(self, parent: str, item: Json) -> Json:
        port_id, vlan_id = item["port_id"], item.get("segmentation_id")
        if port_id == parent:
            raise errors.parent_in_use(port_id)
        port = self._store.ports.get(port_id)
        mtu = self._mtu(self._store.ports[parent])
        if port is not None and self._mtu(port) > mtu:
            message = (
                f"MTU {self._mtu(port)} of subport {port_id} cannot be greater than MTU {mtu} of"
                f" trunk {parent}."
            )
            raise Answer(409, "SubPortMtuGreaterThanTrunkPortMtu", message)
        if int(vlan_id or 0) not in VLAN_IDS:
            raise errors.invalid_input(f"Segmentation ID '{vlan_id}' is not in range")
        message = f"Port {port_id} is in use by another trunk."
        self._check_free(port_id, Answer(409, "TrunkPortInUse", message))
        if port is None:
            raise errors.missing("port", port_id)
        if port["device_id"]:
            message = (
                f"Unable to complete operation on port {port_id} for network"
                f" {port['network_id']}. Port already has an attached device {port['device_id']}."
            )
            raise Answer(409, "PortInUse", message)
        return {"segmentation_type": "vlan"} | item

    def _check_free(self, port_id: str, subport: Answer) -> None:
        if self._store.trunk_carrying(port_id) is not None:
            raise subport
        if self._store.trunk_on(port_id) is not None:
            raise errors.parent_in_use(port_id)

    def _mtu(self, port: Json) -> int:
        return int(self._store.networks[port["network_id"]]["mtu"])

    def _insert(self, trunk: Json, items: list[Json]) -> None:
        taken = {subport["segmentation_id"] for subport in trunk["sub_ports"]}
        for item in items:
            if item["segmentation_id"] in taken:
                message = (
                    f"segmentation_type vlan and segmentation_id {item['segmentation_id']} already"
                    f" in use on trunk {trunk['id']}."
                )
                raise Answer(409, "DuplicateSubPort", message)
        status = self._store.ports[trunk["port_id"]]["status"]
        for item in items:
            trunk["sub_ports"].append(item)
            changes = {
                "device_owner": SUBPORT_OWNER,
                "status": status,
                "binding:vif_type": "ovs",
                "binding:profile": {
                    "parent_name": trunk["port_id"],
                    "tag": item["segmentation_id"],
                },
            }
            self._store.change("port", self._store.ports[item["port_id"]], changes)

    def _unset(self, port_id: str) -> None:
        changes = {
            "device_owner": "",
            "status": "DOWN",
            "binding:vif_type": "unbound",
            "binding:profile": {},
        }
        self._store.change("port", self._store.ports[port_id], changes)

    def _finish(self, trunk: Json, items: list[Json]) -> Json:
        """The answer is written before the driver says that all is well.

        What is refused leaves the status alone, as it is one transaction with the subports.
        """
        self._set_status(trunk, "DOWN")
        answer = trunk | {"sub_ports": list(trunk["sub_ports"])}
        if items:
            self._set_status(trunk, "ACTIVE")
        return answer

    def _set_status(self, trunk: Json, status: str) -> None:
        if trunk["status"] != status:  # nothing else raises the revision
            self._store.change("trunk", trunk, {"status": status})


class Subports:
    """/v2.0/trunks/<id>/add_subports and remove_subports; `find` gives who asks and the trunk."""

    def __init__(
        self,
        trunks: Trunks,
        policy: Policy,
        find: Callable[[web.Request], tuple[Context, Json]],
        check_revision: Callable[[web.Request, Json], None],
    ) -> None:
        self._trunks = trunks
        self._policy = policy
        self._find = find
        self._check_revision = check_revision

    def routes(self) -> list[web.RouteDef]:
        """Both actions."""
        path = TRUNK.path + "/{id}"
        return [
            web.put(f"{path}/add_subports", self._add),
            web.put(f"{path}/remove_subports", self._remove),
        ]

    async def _add(self, request: web.Request) -> web.Response:
        items = (await request.json())["sub_ports"]
        return web.json_response(self._trunks.add(self._trunk(request, "add_subports"), items))

    async def _remove(self, request: web.Request) -> web.Response:
        items = (await request.json())["sub_ports"]
        trunk = self._trunk(request, "remove_subports")
        return web.json_response(self._trunks.remove(trunk, items))

    def _trunk(self, request: web.Request, verb: str) -> Json:
        context, trunk = self._find(request)
        self._policy.check_change(context, "trunk", trunk, verb)
        self._check_revision(request, trunk)
        return trunk


def _check_unique(items: list[Json]) -> None:
    ports, vlan_ids = set(), set()
    for item in items:
        port_id, vlan_id = item["port_id"], item.get("segmentation_id")
        if port_id in ports:
            raise errors.invalid_input(f"Non unique UUID for subport: '{port_id}'")
        if vlan_id in vlan_ids:
            message = f"Segmentation ID '{vlan_id}' for '{port_id}' is not unique"
            raise errors.invalid_input(message)
        ports.add(port_id)
        if vlan_id is not None:
            vlan_ids.add(vlan_id)


def _check_enabled(trunk: Json) -> None:
    if not trunk["admin_state_up"]:
        raise Answer(409, "TrunkDisabled", f"Trunk {trunk['id']} is currently disabled.")
