"""Trunks of the Neutron API v2.0: a VM's port that carries other ports, each in a VLAN of its own.

https://docs.openstack.org/api-ref/network/v2/#trunk-networking

A trunk's ``revision_number`` does not help those who add and remove subports: it rises with the
trunk's status, twice for each call (the second time after its answer), and not at all if two calls
overlap. What Neutron does guarantee is that one call adds all of its subports or none, that no
VLAN id is given twice, and that a port is on one trunk only. It answers 409 otherwise.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.cloud.paging import BY_ID, in_queries, read_all
from kuryr_k8s.cloud.transport import Query, Transport

Json = dict[str, Any]
FIELDS = ("id", "port_id", "sub_ports")

SUBPORT = "trunk:subport"  # the device_owner of a port on a trunk

# Kinds of errors (errors.CloudError.kind).
VLAN_TAKEN = "DuplicateSubPort"
ATTACHED = "TrunkPortInUse"  # the port is on a trunk already, perhaps on this one
NOT_ATTACHED = "SubPortNotFound"
NO_PORT = "PortNotFound"
IS_SUBPORT = "PortInUseAsSubPort"  # so it cannot be deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class Trunk:
    """A trunk with its parent port ``port_id`` and the VLAN ids of its subports by port id.

    The parent port is the VM's own port.
    """

    id: str
    port_id: str
    vlan_ids: Mapping[str, int]


def parent_of(port: Mapping[str, Any]) -> str:
    """Return the id of the VM's port that carries a port, as the port itself says; else empty."""
    return (port.get("binding:profile") or {}).get("parent_name") or ""


def without_parent(port: Mapping[str, Any]) -> Json:
    """Return the ``binding:profile`` of a port without what Neutron puts there for a subport."""
    profile = port.get("binding:profile") or {}
    return {name: value for name, value in profile.items() if name not in ("parent_name", "tag")}


class Trunks:
    """Typed calls; every error is a :class:`kuryr_k8s.errors.CloudError`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list_trunks(self, query: Query) -> list[Trunk]:
        """List all trunks that match and that we may see."""
        shown = {**query, "fields": FIELDS, **BY_ID}
        return [_trunk(found) for found in await read_all(self._transport, "/trunks", shown)]

    async def list_trunks_on(self, port_ids: Collection[str]) -> list[Trunk]:
        """List the trunks that have these parent ports."""
        found: list[Trunk] = []
        for some in in_queries(sorted(port_ids)):
            found += await self.list_trunks({"port_id": some})
        return found

    async def get_trunk(self, trunk_id: str) -> Trunk:
        """Get a trunk.

        :raises errors.NotFound: There is no such trunk that we may see.
        """
        answer = await self._transport.call("GET", f"/trunks/{trunk_id}")
        return _trunk(answer["trunk"])

    async def add_subports(self, trunk_id: str, vlan_ids: Mapping[str, int]) -> Trunk:
        """Attach all of these ports, given with their VLAN ids, or none.

        The ports must have no ``device_id``. Neutron sets their ``device_owner`` to
        ``trunk:subport``, and their ``binding:profile`` to the parent port and the VLAN id.

        :returns: The trunk as it is now.
        :raises errors.NotFound: Of the kind ``NO_PORT``, or the trunk is gone.
        :raises errors.Conflict: Among others of the kinds ``VLAN_TAKEN`` and ``ATTACHED``.
        """
        sub_ports = [
            {"port_id": port_id, "segmentation_type": "vlan", "segmentation_id": vlan_id}
            for port_id, vlan_id in vlan_ids.items()
        ]
        return await self._put(trunk_id, "add_subports", sub_ports)

    async def remove_subports(self, trunk_id: str, port_ids: Collection[str]) -> Trunk:
        """Detach all of these ports, or none; their ``device_owner`` is empty then.

        :returns: The trunk as it is now.
        :raises errors.NotFound: Of the kind ``NOT_ATTACHED``, or the trunk is gone.
        """
        sub_ports = [{"port_id": port_id} for port_id in port_ids]
        return await self._put(trunk_id, "remove_subports", sub_ports)

    async def _put(self, trunk_id: str, action: str, sub_ports: list[Json]) -> Trunk:
        path, body = f"/trunks/{trunk_id}/{action}", {"sub_ports": sub_ports}
        try:
            return _trunk(await self._transport.call("PUT", path, body=body))
        except KeyError as error:
            raise errors.CloudError(f"PUT {path}: the answer is not a trunk") from error


def _trunk(found: Json) -> Trunk:
    vlan_ids = {
        subport["port_id"]: int(subport["segmentation_id"]) for subport in found["sub_ports"]
    }
    return Trunk(id=found["id"], port_id=found["port_id"], vlan_ids=vlan_ids)
