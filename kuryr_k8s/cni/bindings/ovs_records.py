"""The two records of an attachment: the row of Open vSwitch, and the alias of the veth's end.

The alias outlives the database. It names the database that has the row, so that what the daemon of
another database plugged on the same machine does not look like a leftover.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Self

from kuryr_k8s.cni.bindings.base import Attachment, BindingError, Claim
from kuryr_k8s.cni.ovs.switch import OURS, InterfaceRow
from kuryr_k8s.model.vif import VIFBase, VIFOpenVSwitch, VIFPortProfileOpenVSwitch

# The external_ids that hold the fields of an Attachment
IDS = {
    "container_id": OURS,
    "ifname": "kuryr-ifname",
    "request_ifname": "kuryr-request-ifname",
    "netns": "kuryr-netns",
    "pod_uid": "kuryr-pod-uid",
    "namespace": "kuryr-namespace",
    "pod": "kuryr-pod",
}
RESTORED = "kuryr-restored"  # the external id of rows whose Pod's end is not set up again yet
PARKED_USER = "parked"
LIMIT = 255  # bytes of an alias
# Before the last part of a path that would make the alias too long. The runtime gives each
# namespace a name of its own, and mounts it there.
SHORTENED = "*/"
_PREFIX = "kuryr:"
_FIELDS = 5


@dataclass(frozen=True, slots=True)
class Remembered:
    """The attachment that an alias describes, without the Pod's name, which is in its KuryrPort.

    :param netns: the path of the namespace, or ``*/`` and its last part.
    """

    container_id: str
    pod_uid: str
    ifname: str
    request_ifname: str
    netns: str

    def attachment(self, claim: Claim) -> Attachment | None:
        """Return the attachment, if it is the one that a Pod claims, else None."""
        attachment = Attachment(
            container_id=self.container_id,
            ifname=self.ifname,
            request_ifname=self.request_ifname,
            netns=self.netns,
            pod_uid=self.pod_uid,
            namespace=claim.key.namespace,
            pod=claim.key.name,
        )
        return attachment if claim.is_of(attachment) else None

    def located(self, namespaces: Mapping[str, str]) -> Self | None:
        """Return the same with the whole path of the namespace; None if it is gone.

        :param namespaces: the paths of mounted namespaces by their last parts.
        """
        if not self.netns.startswith(SHORTENED):
            return self
        path = namespaces.get(self.netns.removeprefix(SHORTENED))
        return dataclasses.replace(self, netns=path) if path else None

    def is_of(self, attachment: Attachment) -> bool:
        """Return whether the alias is that of an attachment."""
        fields = ("container_id", "pod_uid", "ifname", "request_ifname")
        return all(getattr(self, name) == getattr(attachment, name) for name in fields) and (
            self.netns in (attachment.netns, _shortened(attachment.netns))
        )


def _shortened(netns: str) -> str:
    return f"{SHORTENED}{PurePath(netns).name}"


def alias(identity: str, user: str) -> str:
    """Return the alias of a node's end.

    :param identity: of the database.
    :param user: the container that has the port, :func:`user_of` an attachment, or ``parked``.
    """
    return f"{_PREFIX}{identity}:{user}"


def user_of(attachment: Attachment, identity: str) -> str:
    """Return what the alias says about an attachment; only the container if it is too long."""
    for netns in (attachment.netns, _shortened(attachment.netns)):
        user = (
            f"{attachment.container_id} {attachment.pod_uid} {attachment.ifname}"
            f" {attachment.request_ifname} {netns}"
        )
        if len(alias(identity, user).encode()) <= LIMIT:
            return user
    return attachment.container_id


def remembered(text: str) -> Remembered | None:
    """Read an alias; None if it says nothing about an attachment."""
    _prefix, _, rest = text.partition(_PREFIX)
    fields = rest.partition(":")[2].split(" ", _FIELDS - 1)
    return Remembered(*fields) if len(fields) == _FIELDS else None


def expect(vif: VIFBase) -> VIFOpenVSwitch:
    """Return the VIF.

    :raises BindingError: it is of another class.
    """
    if not isinstance(vif, VIFOpenVSwitch):
        raise BindingError(f"{type(vif).__name__} is not a VIFOpenVSwitch")
    return vif


def port_id(vif: VIFOpenVSwitch) -> str:
    """Return the Neutron port's id, as OVN looks for it."""
    profile = vif.port_profile
    return profile.interface_id if isinstance(profile, VIFPortProfileOpenVSwitch) else vif.id


def ids(attachment: Attachment) -> dict[str, str]:
    """Return the external ids that record an attachment."""
    return {key: getattr(attachment, name) for name, key in IDS.items()}


def external_ids(attachment: Attachment, vif: VIFOpenVSwitch) -> dict[str, str]:
    """Return all external ids of an attachment's row."""
    return ids(attachment) | {
        "iface-id": port_id(vif),
        "iface-status": "active",
        "attached-mac": vif.address or "",
    }


def read(row: InterfaceRow) -> Attachment:
    """Return the attachment that a row records."""
    return Attachment(**{name: row.external_ids.get(key, "") for name, key in IDS.items()})
