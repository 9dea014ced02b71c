"""KuryrPort (``openstack.org/v1``), the record of the interfaces of a Pod.

spec:   podUid, podNodeName, podStatic
status: projectId, securityGroupIds, vifs: {eth0: {default: true, vif: <versioned object>}},
        specificPorts: {<id of a port that a user made>: {<field>: <value before the Pod had it>}}
        requestedDevices: {eth1: {physnet: <physical network>}}, what the node is asked for
        devices: {eth1: {physnet: …, pciSlot: …, pciVendorInfo: …}}, what the node answers
        floatingIP: <address>, empty until it is known

An interface that does not follow the security groups of its Pod has ``ownSecurityGroups: true``
beside its ``vif``; one in a network that users name, its ``networkName``; one for which the node's
plugin is called on its own, ``delegated: true``.
"""

import hashlib
import json
import re
import sys
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

from kuryr_k8s.model import annotations
from kuryr_k8s.model.codec import DecodeError
from kuryr_k8s.model.device import Device
from kuryr_k8s.model.vif import VIFBase

Json = dict[str, Any]
DEFAULT_IFNAME = "eth0"
OWN_GROUPS = "ownSecurityGroups"
NETWORK_NAME = "networkName"
DELEGATED = "delegated"
OLD_DEFINITION = "the definition of KuryrPorts is of an earlier version: apply etc/crds again"
DATA = "versioned_object.data"
DEEPEST = 50  # levels of an interface; ours have 16
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KuryrPort:
    """A KuryrPort as the caches keep it.

    :param vifs_granted: A digest of what in ``status.vifs`` only the controller may write: all but
        ``active``, as long as that is true or false; empty while there are none.
    :param vifs_packed: ``status.vifs`` compressed, empty while there are none. It is read only a
        few times, and takes a fiftieth of the memory that dictionaries would take.
    :param has_none: ``status.vifs`` is there, and empty: the Pod gets no interfaces of ours.
    :param has_network_names: an interface is in a network that users name.
    :param specific_ports: ``status.specificPorts`` as (id, fields), the fields as pairs.
    :param requested_devices: ``status.requestedDevices`` as (interface, physical network).
    :param devices: ``status.devices`` as (interface, device), without what cannot be read.
    :param floating_ip: ``status.floatingIP``; None: the Pod asks for none.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    creator: str | None
    leader: str | None
    pod_uid: str
    node: str
    static: bool
    deleting: bool
    finalizers: tuple[str, ...]
    project_id: str | None
    security_groups: tuple[str, ...]
    vifs_granted: bytes
    vifs_packed: bytes
    has_none: bool = False
    has_network_names: bool = False
    specific_ports: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    requested_devices: tuple[tuple[str, str], ...] = ()
    devices: tuple[tuple[str, Device], ...] = ()
    floating_ip: str | None = None

    @classmethod
    def read(cls, item: Json) -> Self:
        """Read a KuryrPort from the API's JSON."""
        meta, spec = item["metadata"], item["spec"]
        status = item.get("status") or {}
        creator = annotations.annotation(item, annotations.CREATOR)
        leader = annotations.annotation(item, annotations.LEADER)
        vifs, project = _bounded(status.get("vifs") or {}), status.get("projectId")
        return cls(
            namespace=sys.intern(meta["namespace"]),
            name=meta["name"],
            uid=meta["uid"],
            resource_version=meta["resourceVersion"],
            creator=sys.intern(creator) if creator else None,
            leader=sys.intern(leader) if leader else None,
            pod_uid=spec["podUid"],
            node=sys.intern(spec["podNodeName"]),
            static=bool(spec.get("podStatic")),
            deleting="deletionTimestamp" in meta,
            finalizers=tuple(map(sys.intern, meta.get("finalizers") or ())),
            project_id=sys.intern(project) if project else None,
            security_groups=tuple(map(sys.intern, status.get("securityGroupIds") or ())),
            vifs_granted=_digest(vifs) if vifs else b"",
            vifs_packed=zlib.compress(json.dumps(vifs).encode(), level=1) if vifs else b"",
            has_none=status.get("vifs") == {},
            has_network_names=bool(_network_names(vifs)),
            specific_ports=tuple(
                (port_id, tuple(sorted(fields.items())))
                for port_id, fields in sorted((status.get("specificPorts") or {}).items())
            ),
            requested_devices=tuple(
                (ifname, fields["physnet"])
                for ifname, fields in sorted((status.get("requestedDevices") or {}).items())
            ),
            devices=tuple(
                (ifname, device)
                for ifname, fields in sorted((status.get("devices") or {}).items())
                if (device := Device.read(fields)) is not None
            ),
            floating_ip=status.get("floatingIP"),
        )

    def vifs(self) -> dict[str, VIFBase]:
        """Return the interfaces by their names in the Pod, none before the controller made them.

        :raises kuryr_k8s.model.codec.DecodeError: another program has written them.
        """
        try:
            return {name: _vif_of(entry) for name, entry in self.vifs_json().items()}
        except DecodeError as error:
            raise DecodeError(f"status.vifs of {self.namespace}/{self.name}: {error}") from error

    def following(self) -> list[VIFBase]:
        """Return the interfaces that have the security groups of the Pod, the default one first.

        :raises kuryr_k8s.model.codec.DecodeError: another program has written them.
        """
        vifs, entries = self.vifs(), self.vifs_json()
        names = sorted(vifs, key=lambda name: name != DEFAULT_IFNAME)
        return [vifs[name] for name in names if not entries[name].get(OWN_GROUPS)]

    def network_names(self) -> dict[str, str]:
        """Return the names that users know networks by, by the interfaces' names."""
        return _network_names(self.vifs_json()) if self.has_network_names else {}

    def delegated(self) -> dict[str, str]:
        """Return the networks of the interfaces for which the plugin is called on its own.

        :returns: the names that users know them by, by the interfaces' names.
        """
        return {
            name: str(entry.get(NETWORK_NAME) or "")
            for name, entry in self.vifs_json().items()
            if isinstance(entry, dict) and entry.get(DELEGATED)
        }

    @property
    def has_vifs(self) -> bool:
        """Return whether the controller has made the interfaces."""
        return bool(self.vifs_packed)

    def may_be_given_vifs_by_another(self, leader: str) -> bool:
        """Return whether a late write of an earlier leader may still add interfaces.

        Such a write applies to one resourceVersion. The signature of this leader has changed that,
        and so has a deletion.
        """
        return not (self.has_vifs or self.deleting or self.leader == leader)

    def vifs_json(self) -> Json:
        """Return ``status.vifs`` as it is."""
        found: Json = json.loads(zlib.decompress(self.vifs_packed)) if self.has_vifs else {}
        return found

    def specific_ports_json(self) -> Json:
        """Return ``status.specificPorts`` as it is."""
        return {port_id: dict(fields) for port_id, fields in self.specific_ports}

    def uuids(self) -> set[str]:
        """Return the ids of the ports, and all UUIDs in an interface that is unreadable."""
        found: set[str] = set()
        for entry in self.vifs_json().values():
            try:
                found.add(_vif_of(entry).id)
            except DecodeError:
                found.update(UUID.findall(json.dumps(entry)))
        return found

    def may_name(self, port_id: str) -> bool:
        """Return whether a port is one of the interfaces, or they are unreadable."""
        try:
            return any(vif.id == port_id for vif in self.vifs().values())
        except DecodeError:
            return True


def _network_names(vifs: Json) -> dict[str, str]:
    return {
        name: str(entry[NETWORK_NAME])
        for name, entry in vifs.items()
        if isinstance(entry, dict) and entry.get(NETWORK_NAME)
    }


def _vif_of(entry: Any) -> VIFBase:
    """Read an interface.

    :raises DecodeError: another program has written it.
    """
    try:
        vif = VIFBase.from_json(entry["vif"])
    except (AttributeError, KeyError, TypeError) as error:
        raise DecodeError(repr(error)) from error
    if not isinstance(vif.id, str):
        raise DecodeError(f"the id of a port is {vif.id!r:.80}")
    return vif


def _bounded(vifs: Json) -> Json:
    """Return ``status.vifs`` with null for each interface that cannot be walked through.

    The API server takes 10,000 levels; Python's parser, and whoever recurses, some hundreds.
    """
    return {name: entry if _is_bounded(entry) else None for name, entry in vifs.items()}


def _is_bounded(entry: Any) -> bool:
    level = [entry]
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner.extend(each.values())
            elif isinstance(each, list):
                inner.extend(each)
        if not inner:
            return True
        level = inner
    return False


def _digest(vifs: Json) -> bytes:
    shown = {name: _without_active(entry) for name, entry in vifs.items()}
    return hashlib.blake2b(json.dumps(shown, sort_keys=True).encode(), digest_size=8).digest()


def _without_active(entry: Any) -> Any:
    """Return an interface without the one field that its node writes.

    Anything but true or false in that field is not the node's to write.
    """
    try:
        vif = entry["vif"]
        data = {
            name: value
            for name, value in vif[DATA].items()
            if name != "active" or not isinstance(value, bool)
        }
        shown = {**entry, "vif": {**vif, DATA: data}}
    except (AttributeError, KeyError, TypeError):
        return entry  # written by others
    return shown


def write_vifs(
    vifs: dict[str, VIFBase],
    own_groups: Collection[str] = (),
    network_names: Mapping[str, str] = MappingProxyType({}),
    delegated: Collection[str] = (),
) -> Json:
    """Return ``status.vifs`` for these interfaces.

    :param own_groups: the names of those that do not follow the security groups of the Pod.
    :param network_names: the names that users know the networks by, by the interfaces' names.
    :param delegated: the names of those for which the plugin is called on its own.
    """
    return {
        name: {"default": name == DEFAULT_IFNAME, "vif": vif.to_json()}
        | ({OWN_GROUPS: True} if name in own_groups else {})
        | ({NETWORK_NAME: network_names[name]} if network_names.get(name) else {})
        | ({DELEGATED: True} if name in delegated else {})
        for name, vif in vifs.items()
    }
