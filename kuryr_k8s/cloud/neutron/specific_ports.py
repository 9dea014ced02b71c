"""Ports that users made for Pods: taken for one Pod, and given back as they were.

While a Pod has such a port, ``device_id`` names the Pod and ``device_owner`` the cluster. It gets
no tags: nothing that deletes ports ever finds it. Each change needs the revision that was looked
at (``If-Match``): of two that want the port, one is late.
"""

import json
from collections.abc import Mapping
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.cloud.mark import ClusterMark, clusters_on
from kuryr_k8s.cloud.paging import BY_ID, read_all
from kuryr_k8s.cloud.transport import Transport

Json = dict[str, Any]
HOST, PROFILE = "binding:host_id", "binding:profile"
OF_PODS = "compute:kuryr"  # the device_owner of ports that were made for Pods
TAKEN = "compute:kuryr-specific:"  # the beginning of that of users' ports that Pods have
ATTEMPTS = 2  # Neutron itself changes ports, too


class PortInUse(errors.Refused):
    """Somebody else has the port that a Pod asks for."""

    reason = "KuryrPortInUse"


def fields_of(port: Mapping[str, Any]) -> dict[str, str]:
    """Return those fields of a port that change while a Pod has it, as they are recorded.

    The profile is recorded as JSON, for a port on a device of the node.
    """
    found = {HOST: port.get(HOST) or ""}
    if not _is_on_device(port):
        return found
    return found | {PROFILE: json.dumps(port.get(PROFILE) or {}, sort_keys=True)}


def _is_on_device(port: Mapping[str, Any]) -> bool:
    return bool(port.get("binding:vnic_type", "normal") != "normal")


class SpecificPorts:
    """The changes of ports that users made; every error of Neutron is a CloudError.

    :param mark: of this cluster; it may become known later.
    """

    def __init__(self, transport: Transport, mark: ClusterMark) -> None:
        self._transport = transport
        self._mark = mark

    def is_free(self, port: Mapping[str, Any], pod_uid: str) -> bool:
        """Return whether the port is free; False: the Pod has it already.

        :raises PortInUse: somebody else has it, or a cluster made it.
        """
        if self._is_taken_for(port, pod_uid):
            return False
        if port["device_id"] or port["device_owner"] or clusters_on(port.get("tags") or ()):
            owner = port["device_owner"]
            whose = (
                "another Pod"
                if owner == OF_PODS or owner.startswith(TAKEN)
                else owner or "somebody"
            )
            raise PortInUse(f"port {port['id']} is in use by {whose}")
        return True

    async def take(
        self,
        port_id: str,
        pod_uid: str,
        binding: Mapping[str, Any],
        *,
        as_found: Mapping[str, str] | None,
    ) -> Json:
        """Take the port for a Pod.

        :param binding: the host, and for a device the profile, that it gets.
        :param as_found: what is recorded of its fields; None if the Pod has it already.
        :returns: the port.
        :raises PortInUse: somebody else has it, was faster, or has changed what is recorded.
        :raises errors.NotFound: there is no such port that we may see.
        """
        wanted = {"device_id": pod_uid, "device_owner": self._owner, **binding}
        conflict: errors.Conflict | None = None
        for _ in range(ATTEMPTS):
            port = await self._get(port_id)
            is_free = self.is_free(port, pod_uid)
            if is_free and as_found is not None and fields_of(port) != as_found:
                break  # it is recorded again with the next attempt
            if PROFILE in binding:  # what its owner has put there stays
                wanted[PROFILE] = {**(port.get(PROFILE) or {}), **binding[PROFILE]}
            if all(port.get(name) == value for name, value in wanted.items()):
                return port
            try:
                return await self._change(port, wanted)
            except errors.Conflict as error:
                conflict = error
        raise PortInUse(f"port {port_id} is being changed by somebody else") from conflict

    async def give_back(self, port_id: str, pod_uid: str, as_found: Mapping[str, str]) -> None:
        """Give the port back as it was, unless the Pod does not have it any more.

        :param as_found: see :func:`fields_of`; what is missing was empty.
        :raises errors.Conflict: somebody has changed the port just now.
        """
        try:
            port = await self._get(port_id)
            if self._is_taken_for(port, pod_uid):
                free = {"device_id": "", "device_owner": "", HOST: as_found.get(HOST) or ""}
                profile = json.loads(as_found.get(PROFILE) or "{}")
                if profile != (port.get(PROFILE) or {}):
                    free[PROFILE] = profile
                await self._change(port, free)
        except errors.NotFound:
            return

    async def list_taken(self) -> list[Json]:
        """List all ports that Pods of this cluster have; ``id`` and ``device_id`` of each."""
        query = {"device_owner": self._owner, "fields": ("id", "device_id"), **BY_ID}
        return await read_all(self._transport, "/ports", query)

    @property
    def _owner(self) -> str:
        return f"{TAKEN}{self._mark.uid}"

    def _is_taken_for(self, port: Mapping[str, Any], pod_uid: str) -> bool:
        return (port["device_owner"], port["device_id"]) == (self._owner, pod_uid)

    async def _get(self, port_id: str) -> Json:
        found: Json = (await self._transport.call("GET", f"/ports/{port_id}"))["port"]
        return found

    async def _change(self, port: Json, fields: Json) -> Json:
        headers = {"If-Match": f"revision_number={port['revision_number']}"}
        path, body = f"/ports/{port['id']}", {"port": fields}
        answer = await self._transport.call("PUT", path, body=body, headers=headers)
        changed: Json = answer["port"]
        return changed
