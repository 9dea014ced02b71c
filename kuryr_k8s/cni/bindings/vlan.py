"""VIFVlanNested: on a node that is a VM, a VLAN interface of the VM's trunk port, in the Pod.

There is nothing on the node's side but the link. An interface that was made is in the Pod's
namespace, where we might not find it again: so the record comes first, and goes last. It may
tell of an interface that was never made; none is made without it.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Collection
from pathlib import Path

from kuryr_k8s.cni import netlink
from kuryr_k8s.cni.bindings import veth
from kuryr_k8s.cni.bindings.base import (
    Attachment,
    Binding,
    BindingError,
    Host,
    NamespaceGone,
    Stray,
)
from kuryr_k8s.cni.bindings.records import Record, Records
from kuryr_k8s.cni.result import Result
from kuryr_k8s.model.vif import VIFBase, VIFVlanNested

LOG = logging.getLogger(__name__)
PATIENCE = 5.0  # seconds that a gateway gets to answer; there may be none behind its address


class VlanBinding(Binding):
    """Needs no Open vSwitch: what tags and forwards is outside of the VM."""

    def __init__(self, host: Host) -> None:
        options = host.conf.binding
        self._links = host.links
        self._vlans = host.links.vlans
        self._link_iface = str(options.link_iface or "")
        self._records = Records(Path(options.state_dir))

    async def connect(self, attachment: Attachment, vif: VIFBase) -> Result:
        vif = _expect(vif)
        try:
            vlan = netlink.Vlan(link=await self._link(), vlan_id=vif.vlan_id)
            known = self._records.get(attachment)
            mac = None
            if known is not None and (known.vlan, known.port_id) == (vlan, vif.id):
                mac = await self._still_there(attachment, vif, vlan)
            if mac is None:
                mac = await self._connect(attachment, vif, vlan)
        except netlink.NamespaceError as error:
            raise NamespaceGone(str(error)) from error
        except netlink.LinkError as error:
            raise BindingError(f"cannot make VLAN {vif.vlan_id}: {error}") from error
        return veth.describe(attachment, vif, vlan.link, mac)

    async def _connect(
        self, attachment: Attachment, vif: VIFVlanNested, vlan: netlink.Vlan
    ) -> str:
        await self.disconnect(attachment)  # what an earlier attempt may have made
        number = await self._vlans.number(attachment.netns)
        record = Record(
            attachment=attachment, vlan=vlan, number=number, name=vif.vif_name, port_id=vif.id
        )
        self._records.put(record)
        wiring = _wiring(attachment, vif)
        return await self._vlans.create(vlan, vif.vif_name, attachment.netns, wiring)

    async def _link(self) -> str:
        if not self._link_iface:
            self._link_iface = await self._vlans.default_link()
            LOG.info("the link of Pods' VLANs is %s", self._link_iface)
        return self._link_iface

    async def _still_there(
        self, attachment: Attachment, vif: VIFVlanNested, vlan: netlink.Vlan
    ) -> str | None:
        """MAC of the link if the Pod's interface is whole, else None."""
        seen = await self._links.observe(attachment.netns, attachment.ifname)
        if seen is None or seen.mac != (vif.address or "").lower():
            return None
        return await self._links.mac(vlan.link)

    async def ready(self, attachment: Attachment, vif: VIFBase) -> None:
        """Nothing on the node tells when its port forwards. When a gateway answers, it does."""
        vif = _expect(vif)
        wiring = _wiring(attachment, vif)
        gateways = [gateway for _, gateway in veth.addresses(vif) if gateway]
        try:
            await self._links.activate(attachment.netns, wiring)
            if not await self._answers(attachment, gateways):
                await self._patiently(attachment, gateways)
                await self._vlans.announce(attachment.netns, wiring)
        except netlink.NamespaceError as error:
            raise NamespaceGone(str(error)) from error
        except netlink.LinkError as error:
            raise BindingError(f"cannot set {attachment.ifname} up: {error}") from error
        record = self._records.get(attachment)
        if record is not None and not record.ready:
            self._records.put(dataclasses.replace(record, ready=True))

    async def _patiently(self, attachment: Attachment, gateways: list[str]) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                while not await self._answers(attachment, gateways):
                    pass
        except TimeoutError:
            message = "Pod %s/%s: none of %s answers; its port may not forward yet"
            LOG.warning(message, attachment.namespace, attachment.pod, gateways)

    async def _answers(self, attachment: Attachment, gateways: list[str]) -> bool:
        return await self._vlans.answers(attachment.netns, attachment.ifname, gateways)

    def progress(self, vif: VIFBase) -> str:
        return f"waiting for the gateways of Neutron port {vif.id} to answer"

    async def disconnect(self, attachment: Attachment) -> None:
        """Where another attachment has got the VLAN, the interface is its: even in a namespace of
        the same number, since numbers are given anew.

        :raises BindingError: the interface is there, but not to be found.
        """
        record = self._records.get(attachment)
        if record is None:
            return
        vlan = record.vlan
        try:
            others = [each for each in self._records.all() if each.vlan == vlan and each != record]
            if all(other.number != record.number for other in others):
                names = (attachment.ifname, record.name)
                await self._vlans.delete(vlan, record.number, *names)
            hidden = not others and self._vlans.exists(vlan)
        except netlink.LinkError as error:
            raise BindingError(f"cannot delete VLAN {vlan.vlan_id}: {error}") from error
        if hidden:
            message = f"the interface of VLAN {vlan.vlan_id} of {vlan.link} is not to be found"
            raise BindingError(message)
        self._records.remove(attachment)

    async def check(self, attachment: Attachment, vif: VIFBase) -> None:
        vif = _expect(vif)
        if self._records.get(attachment) is None:
            raise BindingError(f"there is no record of {attachment.ifname}")
        seen = await self._links.observe(attachment.netns, attachment.ifname)
        if missing := veth.missing(attachment, vif, seen):
            raise BindingError(missing)

    def attachments(self) -> Collection[Attachment]:
        return [record.attachment for record in self._records.all()]

    def working(self, attachment: Attachment) -> bool:
        record = self._records.get(attachment)
        return record is not None and record.ready

    def vanished(self, attachment: Attachment) -> bool:
        record = self._records.get(attachment)
        return record is None or not self._vlans.exists(record.vlan)

    async def strays(self) -> Collection[Stray]:
        return []  # nothing is made without a record

    async def discard(self, stray: Stray) -> None:
        raise NotImplementedError


def _expect(vif: VIFBase) -> VIFVlanNested:
    if not isinstance(vif, VIFVlanNested):
        raise BindingError(f"{type(vif).__name__} is no VIFVlanNested")
    return vif


def _wiring(attachment: Attachment, vif: VIFVlanNested) -> netlink.Wiring:
    """The link's own offloads: the packets leave the VM by it."""
    return veth.wiring(attachment, vif, offload=True)
