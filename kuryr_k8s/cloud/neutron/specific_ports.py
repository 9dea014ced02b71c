"""Ports that outlive the Pods that have them: taken for one Pod, and given back as they were.

Users made them, or they are those of NeutronPorts, which ``device_id`` and ``device_owner`` name
while no Pod has the port.

While a Pod has such a port, ``device_id`` names the Pod and ``device_owner`` the cluster. Each
change needs the revision that was looked at (``If-Match``): of two that want the port, one is
late. Nothing that deletes ports of Pods ever finds it by what it has then.

For a port on a trunk that takes three steps, since Neutron attaches no port with a ``device_id``,
and replaces ``device_owner`` then:

1. *reserved*: ``device_owner`` names cluster and Pod;
2. *attached*: the port shows neither, but the Pod's record names the parent port (``PARENT``);
3. *taken*: ``device_id`` names cluster and Pod, and nobody can attach the port any more.

Neutron may carry out an attachment long after it was sent, when no record is left. So two tags
go before it, of which one names the parent port. They are no truth about the port: a sweep
detaches with their help what was attached too late, and removes them when that cannot be any more.
"""

import contextlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from kuryr_k8s import errors
from kuryr_k8s.cloud.mark import ClusterMark, clusters_on
from kuryr_k8s.cloud.neutron.trunks import SUBPORT, Trunk, Trunks, parent_of, without_parent
from kuryr_k8s.cloud.paging import BY_ID, read_all
from kuryr_k8s.cloud.transport import Transport

Json = dict[str, Any]
HOST, PROFILE = "binding:host_id", "binding:profile"
PARENT = "parent_name"  # recorded: the parent port of the trunk that the port is attached to
OF_PODS = "compute:kuryr"  # the device_owner of ports that were made for Pods
TAKEN = "compute:kuryr-specific:"  # the beginning of that of users' ports that Pods have
ON_TRUNK = "kuryr-specific:"  # the beginning of the device_id, and of a tag, of those on trunks
ATTACHED_TO = "kuryr-parent-port:"  # the beginning of the tag that names the parent port
OF_NEUTRON_PORTS = "compute:kuryr-neutron-port:"  # the beginning of that of NeutronPorts' ports
NOBODY = "-"  # the uid of no Pod
ATTEMPTS = 2  # Neutron itself changes ports, too
# fields of a port that are remembered
REMEMBERED = ("id", "device_id", "device_owner", "revision_number", HOST, "binding:vnic_type")


class PortInUse(errors.Refused):
    """Somebody else has the port that a Pod asks for."""

    reason = "KuryrPortInUse"


class TakenPort(NamedTuple):
    """A port that a Pod has, or one that has a tag of an attachment.

    :ivar pod_uid: empty if no Pod of this cluster has it.
    :ivar is_cut_off: a Pod had it on a trunk, or is about to.
    :ivar parent: the parent port that it is attached to, if that is all that was done for a Pod.
    :ivar revision: of the port, if no Pod of this cluster has it.
    """

    id: str
    pod_uid: str
    is_cut_off: bool = False
    parent: str = ""
    revision: int = 0


def fields_of(port: Mapping[str, Any]) -> dict[str, str]:
    """Return those fields of a port that change while a Pod has it, as they are recorded.

    The profile is recorded as JSON, for a port on a device of the node.
    """
    found = {HOST: port.get(HOST) or ""}
    if port["device_owner"].startswith(OF_NEUTRON_PORTS):
        found |= {name: port[name] for name in ("device_id", "device_owner")}
    if _is_on_device(port):
        found[PROFILE] = json.dumps(port.get(PROFILE) or {}, sort_keys=True)
    return found


def _is_on_device(port: Mapping[str, Any]) -> bool:
    return (port.get("binding:vnic_type") or "normal") != "normal"


class SpecificPorts:
    """Changes ports of users and of NeutronPorts; every error of Neutron is a CloudError.

    :param mark: of this cluster; it may become known later.
    """

    def __init__(self, transport: Transport, trunks: Trunks, mark: ClusterMark) -> None:
        self._transport = transport
        self._trunks = trunks
        self._mark = mark
        # those of NeutronPorts that no Pod has, as they were last shown: taken with one call
        self._remembered: dict[str, Json] = {}

    def note(self, port: Json) -> None:
        """Note a port as Neutron has just shown it; one that no Pod has is remembered."""
        if port["device_owner"].startswith(OF_NEUTRON_PORTS):
            self._remembered[port["id"]] = {name: port.get(name) for name in REMEMBERED}
        else:
            self._remembered.pop(port["id"], None)

    def forget(self, port_id: str) -> None:
        """Forget a port that is gone."""
        self._remembered.pop(port_id, None)

    def remembered(self, port_id: str, neutron_port_uid: str) -> Json | None:
        """Return the port of a NeutronPort as it was last shown, if no Pod had it then.

        It may have changed since: each change needs the revision.
        """
        port = self._remembered.get(port_id)
        is_its = port is not None and port["device_id"] == neutron_port_uid
        return port if is_its else None

    def neutron_port_marks(self, uid: str) -> dict[str, str]:
        """Return the fields that name the NeutronPort whose a port is."""
        return {"device_id": uid, "device_owner": f"{OF_NEUTRON_PORTS}{self._mark.uid}"}

    def is_free(
        self, port: Mapping[str, Any], pod_uid: str, *, neutron_port_uid: str = ""
    ) -> bool:
        """Return whether the port is free; False: the Pod has it already.

        :param neutron_port_uid: of the NeutronPort whose port it has to be; empty: of none.
        :raises PortInUse: somebody else has it, or it is not one of those.
        """
        if self._has(port, pod_uid):
            return False
        if neutron_port_uid:
            if _shows(port, self.neutron_port_marks(neutron_port_uid)):
                return True
            raise PortInUse(f"port {port['id']} is not free for its NeutronPort")
        owner = port["device_owner"]
        if owner.startswith(OF_NEUTRON_PORTS):
            raise PortInUse(f"port {port['id']} is that of a NeutronPort: name that one")
        if port["device_id"] or owner or clusters_on(port.get("tags") or ()):
            is_pods = owner == OF_PODS or owner.startswith(TAKEN)
            is_pods = is_pods or port["device_id"].startswith(ON_TRUNK)
            whose = "another Pod" if is_pods else owner or "somebody"
            raise PortInUse(f"port {port['id']} is in use by {whose}")
        return True

    async def claim(self, port_id: str, neutron_port_uid: str) -> Json:
        """Claim a free port for a NeutronPort.

        :returns: the port.
        :raises PortInUse: somebody has it.
        :raises errors.Refused: there is no such port that we may see.
        :raises errors.Conflict: somebody has changed the port just now.
        """
        marks = self.neutron_port_marks(neutron_port_uid)
        port = await self._get_named(port_id)
        if _shows(port, marks):
            return port
        self.is_free(port, NOBODY)
        return await self._change(port, marks)

    async def disclaim(self, port_id: str, neutron_port_uid: str) -> None:
        """Leave a port that was claimed for a NeutronPort to others.

        :raises errors.Conflict: somebody has changed the port just now.
        """
        self.forget(port_id)
        with contextlib.suppress(errors.NotFound):
            port = await self._get(port_id)
            if _shows(port, self.neutron_port_marks(neutron_port_uid)):
                await self._change(port, {"device_id": "", "device_owner": ""})

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
        :raises errors.Refused: there is no such port that we may see.
        """
        wanted = {"device_id": pod_uid, "device_owner": self._owner, **binding}
        conflict: errors.Conflict | None = None
        remembered = self._remembered.pop(port_id, None)
        if remembered is not None and PROFILE not in binding:
            # it may be otherwise by now, or gone: then it is looked at
            with contextlib.suppress(errors.Conflict, errors.NotFound, PortInUse):
                if self._may_take(remembered, pod_uid, as_found):
                    return await self._change(remembered, wanted)
        for _ in range(ATTEMPTS):
            port = await self._get_named(port_id)
            if not self._may_take(port, pod_uid, as_found):
                break
            if self._is_reserved(port, pod_uid) or self._is_sealed(port, pod_uid):
                raise PortInUse(f"port {port_id} is given back first: it was on a trunk")
            if PROFILE in binding:  # what its owner has put there stays
                wanted[PROFILE] = {**(port.get(PROFILE) or {}), **binding[PROFILE]}
            if all(port.get(name) == value for name, value in wanted.items()):
                return port
            try:
                return await self._change(port, wanted)
            except errors.Conflict as error:
                conflict = error
        raise _being_changed(port_id) from conflict

    async def reserve(
        self, port_id: str, pod_uid: str, parent: str, *, as_found: Mapping[str, str] | None
    ) -> None:
        """Reserve the port for a Pod, so that it can be attached to a trunk, or is attached to it.

        :param parent: the trunk's parent port, which is recorded.
        :param as_found: see :meth:`take`.
        :raises PortInUse: somebody else has it, or has changed what is recorded.
        :raises errors.Refused: there is no such port that we may see.
        """
        conflict: errors.Conflict | None = None
        self.forget(port_id)
        for _ in range(ATTEMPTS):
            port = await self._get_named(port_id)
            if not self._may_take(port, pod_uid, as_found):
                break
            if self._is_sealed(port, pod_uid):
                if parent_of(port) == parent and await self._trunks_of(port):
                    return
                port = await self._detach(port)
            if await self._add_tags(port, parent):
                port = await self._get_named(port_id)
                if not self._may_take(port, pod_uid, as_found):
                    break
            if self._is_reserved(port, pod_uid):
                return
            reserved = {"device_id": "", "device_owner": self._reserved(pod_uid), HOST: ""}
            try:
                await self._change(port, _changes(port, reserved))
            except errors.Conflict as error:
                conflict = error
            else:
                return
        raise _being_changed(port_id) from conflict

    async def seal(self, port_id: str, pod_uid: str, parent: str) -> Json:
        """Take a port for a Pod, after it was attached for it.

        :param parent: of the trunk that it was attached to.
        :returns: the port; it shows no parent port if Neutron attached it incompletely.
        :raises PortInUse: another Pod was faster.
        """
        conflict: errors.Conflict | None = None
        for _ in range(ATTEMPTS):
            port = await self._get_named(port_id)
            if self._is_sealed(port, pod_uid):
                return port
            if not (_is_attached(port, parent) or self._is_reserved(port, pod_uid)):
                raise PortInUse(f"port {port_id} is in use by another Pod")
            try:
                return await self._change(port, {"device_id": self._sealed(pod_uid)})
            except errors.Conflict as error:
                conflict = error
        raise _being_changed(port_id) from conflict

    async def settle(self, port_id: str, pod_uid: str, as_found: Mapping[str, str]) -> None:
        """Take the port for a Pod if it was attached for it, and that was all.

        :param as_found: what is recorded of it.
        :raises errors.Conflict: somebody has changed the port just now.
        """
        with contextlib.suppress(errors.NotFound):
            await self._settle(await self._get(port_id), pod_uid, as_found)

    async def _settle(self, port: Json, pod_uid: str, as_found: Mapping[str, str]) -> Json:
        if not _is_attached(port, as_found.get(PARENT)):
            return port
        return await self._change(port, {"device_id": self._sealed(pod_uid)})

    async def reattach(self, port_id: str, pod_uid: str, parent: str, vlan_id: int) -> None:
        """Attach a port that a Pod has again, if it is on its trunk no more.

        Neutron may have carried out a removal late that was meant for an earlier Pod.

        :raises errors.CloudError: there is no such trunk, or another port has the VLAN id.
        """
        port = await self._settle(await self._get(port_id), pod_uid, {PARENT: parent})
        if self._is_sealed(port, pod_uid) and not parent_of(port):
            reserved = {"device_id": "", "device_owner": self._reserved(pod_uid)}
            port = await self._change(port, reserved)
        if not self._is_reserved(port, pod_uid):
            return
        for trunk in await self._trunks.list_trunks({"port_id": parent}):
            if port_id not in trunk.vlan_ids:
                await self._trunks.add_subports(trunk.id, {port_id: vlan_id})
        await self.seal(port_id, pod_uid, parent)

    async def give_back(self, port_id: str, pod_uid: str, as_found: Mapping[str, str]) -> None:
        """Give the port back as it was, unless the Pod does not have it any more.

        Tags of an attachment stay: see :meth:`clear`.

        :param as_found: what is recorded of it; what is missing was empty.
        :raises errors.Conflict: somebody has changed the port just now.
        """
        self.forget(port_id)
        try:
            port = await self._settle(await self._get(port_id), pod_uid, as_found)
            if self._is_reserved(port, pod_uid):  # from now on it cannot be attached any more
                port = await self._change(port, {"device_id": self._sealed(pod_uid)})
            if self._is_sealed(port, pod_uid):
                port = await self._detach(port)
            if self._has(port, pod_uid):
                names = ("device_id", "device_owner", HOST)
                free: Json = {name: as_found.get(name) or "" for name in names}
                if _is_on_device(port):
                    free[PROFILE] = json.loads(as_found.get(PROFILE) or "{}")
                await self._free(port, pod_uid, free)
        except errors.NotFound:
            return

    async def detach_late(self, port_id: str, revision: int) -> None:
        """Detach a port that was attached after it was given back.

        :param revision: of the port; if it has changed since, nothing is done.
        """
        with contextlib.suppress(errors.NotFound):
            port = await self._get(port_id)
            if port["revision_number"] == revision:
                as_found = {**fields_of(port), PARENT: parent_of(port)}
                await self.give_back(port_id, NOBODY, as_found)

    async def clear(self, port_id: str, revision: int) -> None:
        """Remove the tags of an attachment from a port that no Pod has.

        :param revision: see :meth:`detach_late`.
        """
        with contextlib.suppress(errors.NotFound):
            port = await self._get(port_id)
            if port["revision_number"] != revision:
                return
            tags = [tag for tag in port["tags"] if tag.startswith((ON_TRUNK, ATTACHED_TO))]
            if any(tag.startswith(ON_TRUNK) and tag != self._tag for tag in tags):
                tags = [self._tag]  # another cluster needs the others
            elif _is_nobodys(port):
                for trunk in await self._trunks_of(port):  # incompletely: the port does not say so
                    await self._trunks.remove_subports(trunk.id, [port_id])
            tags.sort(key=lambda tag: tag == self._tag)  # by the last one, the port is found
            for tag in tags:
                await self._transport.call("DELETE", f"/ports/{port_id}/tags/{tag}")

    async def _free(self, port: Json, pod_uid: str, free: Json) -> None:
        """Give these fields to a port that the Pod has; Neutron may be changing it still."""
        try:
            await self._change(port, _changes(port, free))
        except errors.Conflict:
            port = await self._get(port["id"])
            if not self._has(port, pod_uid):
                raise
            await self._change(port, _changes(port, free))

    async def list_taken(self) -> list[TakenPort]:
        """List all ports that Pods of this cluster have, or of which tags are left."""
        fields = ("id", "device_id", "device_owner", "revision_number", "tags", PROFILE)
        found: dict[str, Json] = {}
        for query in ({"device_owner": self._owner}, {"tags": self._tag}):
            ports = await read_all(self._transport, "/ports", {**query, "fields": fields, **BY_ID})
            found |= {port["id"]: port for port in ports}
        return [self._taken(port) for port in found.values()]

    def _taken(self, port: Json) -> TakenPort:
        if pod_uid := self._pod_uid_of(port):
            is_for_trunk = self._is_sealed(port, pod_uid) or self._is_reserved(port, pod_uid)
            return TakenPort(port["id"], pod_uid, is_for_trunk and not parent_of(port))
        parents = [parent for parent in _tagged_parents(port) if _is_attached(port, parent)]
        parent = next(iter(parents), "")
        return TakenPort(port["id"], "", parent=parent, revision=port["revision_number"])

    def _pod_uid_of(self, port: Mapping[str, Any]) -> str:
        """Return the uid of the Pod that has the port; empty if none of this cluster has it."""
        device_id, owner = port["device_id"], port["device_owner"]
        if owner == self._owner:
            return str(device_id)
        for name, start in ((device_id, self._sealed("")), (owner, self._reserved(""))):
            if name.startswith(start):
                return str(name).removeprefix(start)
        return ""

    async def _add_tags(self, port: Json, parent: str) -> bool:
        """Give the port the tags of an attachment; return whether it lacked one.

        :raises errors.Refused: Neutron shows us no tags of it.
        """
        if "tags" not in port:
            raise errors.Refused(f"port {port['id']}: Neutron does not show us its tags")
        missing = [tag for tag in (self._tag, f"{ATTACHED_TO}{parent}") if tag not in port["tags"]]
        for tag in missing:
            await self._transport.call("PUT", f"/ports/{port['id']}/tags/{tag}", body={})
        return bool(missing)

    async def _detach(self, port: Json) -> Json:
        """Detach a port that a Pod has from its trunk; return it as it is then.

        One whose attachment was interrupted does not show its trunk: then those that tags name
        are looked at, or all. One whose detachment was interrupted still shows it.

        :raises errors.CloudError: somebody has changed the port meanwhile.
        """
        device_id = port["device_id"]
        carrying = await self._trunks_of(port)
        for trunk in carrying:
            with contextlib.suppress(errors.NotFound):  # somebody has just detached it
                await self._trunks.remove_subports(trunk.id, [port["id"]])
        port = await self._get(port["id"])
        if port["device_id"] != device_id or (carrying and parent_of(port)):
            raise errors.CloudError(f"port {port['id']} has changed while it was detached")
        if parent_of(port):
            port = await self._change(port, {PROFILE: without_parent(port)})
        return port

    async def _trunks_of(self, port: Json) -> list[Trunk]:
        """List the trunks that the port is on: none or one."""
        parents = [parent] if (parent := parent_of(port)) else _tagged_parents(port)
        found = await (
            self._trunks.list_trunks_on(parents) if parents else self._trunks.list_trunks({})
        )
        return [trunk for trunk in found if port["id"] in trunk.vlan_ids]

    @property
    def _owner(self) -> str:
        return f"{TAKEN}{self._mark.uid}"

    @property
    def _tag(self) -> str:
        return f"{ON_TRUNK}{self._mark.uid}"

    def _reserved(self, pod_uid: str) -> str:
        """Return the ``device_owner`` of a port that is to be attached for a Pod."""
        return f"{self._owner}:{pod_uid}"

    def _sealed(self, pod_uid: str) -> str:
        """Return the ``device_id`` of a port that the Pod has on a trunk."""
        return f"{ON_TRUNK}{self._mark.uid}:{pod_uid}"

    def _may_take(
        self, port: Mapping[str, Any], pod_uid: str, as_found: Mapping[str, str] | None
    ) -> bool:
        """Return whether a port is as it is recorded, or not free: else it is recorded again.

        :raises PortInUse: see :meth:`is_free`.
        """
        neutron_port_uid = (as_found or {}).get("device_id", "")
        is_free = self.is_free(port, pod_uid, neutron_port_uid=neutron_port_uid)
        return not is_free or as_found is None or fields_of(port) == as_found

    def _has(self, port: Mapping[str, Any], pod_uid: str) -> bool:
        """Return whether the port itself shows that it is the Pod's."""
        is_taken = (port["device_owner"], port["device_id"]) == (self._owner, pod_uid)
        return is_taken or self._is_reserved(port, pod_uid) or self._is_sealed(port, pod_uid)

    def _is_reserved(self, port: Mapping[str, Any], pod_uid: str) -> bool:
        is_reserved: bool = port["device_owner"] == self._reserved(pod_uid)
        return is_reserved and not port["device_id"]

    def _is_sealed(self, port: Mapping[str, Any], pod_uid: str) -> bool:
        """Return whether the Pod has the port on a trunk, or has just had it there."""
        return bool(port["device_id"] == self._sealed(pod_uid))

    async def _get(self, port_id: str) -> Json:
        found: Json = (await self._transport.call("GET", f"/ports/{port_id}"))["port"]
        return found

    async def _get_named(self, port_id: str) -> Json:
        try:
            return await self._get(port_id)
        except errors.NotFound as error:
            raise errors.Refused(f"there is no port {port_id} any more") from error

    async def _change(self, port: Json, fields: Json) -> Json:
        headers = {"If-Match": f"revision_number={port['revision_number']}"}
        path, body = f"/ports/{port['id']}", {"port": fields}
        answer = await self._transport.call("PUT", path, body=body, headers=headers)
        changed: Json = answer["port"]
        self.note(changed)
        return changed


def _changes(port: Json, wanted: Json) -> Json:
    """Return those of the fields that differ; an account may not see, nor change, all of them."""
    return {
        name: value
        for name, value in wanted.items()
        if (port.get(name) or None) != (value or None)
    }


def _shows(port: Mapping[str, Any], fields: Mapping[str, str]) -> bool:
    return all(port[name] == value for name, value in fields.items())


def _is_nobodys(port: Mapping[str, Any]) -> bool:
    """Return whether no Pod and nobody else has the port."""
    owner: str = port["device_owner"]
    return owner.startswith(OF_NEUTRON_PORTS) or not (port["device_id"] or owner)


def _tagged_parents(port: Mapping[str, Any]) -> list[str]:
    """Return the parent ports that the tags name."""
    tags = [tag for tag in port.get("tags") or () if tag.startswith(ATTACHED_TO)]
    return [tag.removeprefix(ATTACHED_TO) for tag in tags]


def _is_attached(port: Mapping[str, Any], parent: str | None) -> bool:
    """Return whether the port is a subport with this parent port, and nobody has taken it."""
    is_nobodys = (port["device_owner"], port["device_id"]) == (SUBPORT, "")
    return is_nobodys and bool(parent) and parent_of(port) == parent


def _being_changed(port_id: str) -> PortInUse:
    return PortInUse(f"port {port_id} is being changed by somebody else")
