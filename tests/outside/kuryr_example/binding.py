"""The binding of isolated interfaces: a veth whose node's end is connected to nothing."""

import dataclasses
from collections.abc import Collection

from kuryr_example.model import VIFIsolated

from kuryr_k8s.cni import netlink
from kuryr_k8s.cni.bindings import interface
from kuryr_k8s.cni.bindings.base import (
    Attachment,
    Binding,
    BindingContext,
    BindingError,
    NamespaceGone,
)
from kuryr_k8s.cni.bindings.records import Record, Records
from kuryr_k8s.cni.result import Result
from kuryr_k8s.model.vif import VIFBase

ALIAS = "kuryr-example"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class IsolatedRecord(Record):
    """An attachment, and the node's end of its veth."""

    host: str


class IsolatedBinding(Binding):
    """Plugs a veth. Its record is written first and removed last, so nothing is forgotten."""

    def __init__(self, context: BindingContext) -> None:
        self._links = context.links
        self._records = Records(context.record_directory("isolated"), IsolatedRecord)

    async def connect(self, attachment: Attachment, vif: VIFBase) -> Result:
        """Make the pair, unless it is there."""
        if not isinstance(vif, VIFIsolated):
            raise BindingError(f"{type(vif).__name__} is not a VIFIsolated")
        host = vif.vif_name
        wiring = interface.wiring(attachment, vif, offload=True)
        try:
            seen = await self._links.observe(attachment.netns, attachment.ifname)
            mac = await self._links.mac(host) if seen is not None else None
            if mac is None:
                self._records.put(IsolatedRecord(attachment=attachment, host=host))
                mac = await self._links.create(host, ALIAS, attachment.netns, wiring)
        except netlink.NamespaceError as error:
            raise NamespaceGone(str(error)) from error
        except netlink.LinkError as error:
            raise BindingError(f"cannot make {attachment.ifname}: {error}") from error
        return interface.describe(attachment, vif, host, mac)

    async def ready(self, attachment: Attachment, vif: VIFBase) -> None:
        """Set the Pod's end up; there is nothing to wait for."""
        wiring = interface.wiring(attachment, vif, offload=True)
        await self._links.activate(attachment.netns, wiring)

    def progress(self, vif: VIFBase) -> str:
        """Say what the interface's port is."""
        return f"setting up the isolated interface of Neutron port {vif.id}"

    async def disconnect(self, attachment: Attachment) -> None:
        """Delete the pair, then its record."""
        record = self._records.get(attachment)
        if record is None:
            return
        await self._links.delete(record.host, ALIAS)
        self._records.remove(attachment)

    async def check(self, attachment: Attachment, vif: VIFBase) -> None:
        """Compare the Pod's end with the VIF."""
        seen = await self._links.observe(attachment.netns, attachment.ifname)
        if missing := interface.missing(attachment, vif, seen):
            raise BindingError(missing)

    def attachments(self) -> Collection[Attachment]:
        """Return the attachments that have a record."""
        return [record.attachment for record in self._records.all()]

    def working(self, attachment: Attachment) -> bool:
        """Return whether the pair exists."""
        return not self.vanished(attachment)

    def vanished(self, attachment: Attachment) -> bool:
        """Return whether the node's end is gone: the kernel removes both ends together."""
        record = self._records.get(attachment)
        return record is None or not self._links.exists(record.host)
