"""The binding VIFVlanNested: a VLAN of the trunk port of a node that is a VM.

Only the link is on the node's side. Once made, the interface is in the Pod's namespace, where it
may not be found again: so its record is written first, and removed last. A record may name an
interface that was never made; no interface is made without a record.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Self

from kuryr_k8s.cni import netlink
from kuryr_k8s.cni.bindings import interface
from kuryr_k8s.cni.bindings.base import (
    Attachment,
    Binding,
    BindingContext,
    BindingError,
    Claim,
    Lost,
    NamespaceGone,
)
from kuryr_k8s.cni.bindings.records import Record, Records
from kuryr_k8s.cni.result import Result
from kuryr_k8s.model.vif import VIFBase, VIFVlanNested

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class VlanRecord(Record):
    """An attachment and its VLAN.

    :param number: the number of the Pod's namespace.
    :param name: the name that the interface was made under.
    :param port_id: the Neutron port.
    :param ready: whether traffic could flow once.
    """

    vlan: netlink.Vlan
    number: int
    name: str
    port_id: str
    ready: bool = False

    @classmethod
    def read(cls, data: dict[str, Any]) -> Self:
        """Read a record from its JSON."""
        attachment, vlan = Attachment(**data["attachment"]), netlink.Vlan(**data["vlan"])
        return cls(**data | {"attachment": attachment, "vlan": vlan})


class VlanBinding(Binding):
    """Plugs VLANs. It needs no Open vSwitch: tagging and forwarding happen outside of the VM."""

    def __init__(self, context: BindingContext) -> None:
        options = context.conf.binding
        self._links = context.links
        self._vlans = context.links.vlans
        self._link_iface = str(options.link_iface or "")
        self._records = Records(Path(options.state_dir), VlanRecord)
        self._patience = context.patience.gateway
        self._gone: set[tuple[str, int | None]] = set()  # interfaces that may be those of Pods

    async def connect(self, attachment: Attachment, vif: VIFBase) -> Result:
        """Make the VLAN interface in the Pod's namespace, unless it is there and whole."""
        vif = _expect(vif)
        try:
            vlan = netlink.Vlan(link=await self._link(), vlan_id=vif.vlan_id)
            known = self._records.get(attachment)
            mac = None
            if known is not None and (known.vlan, known.port_id) == (vlan, vif.id):
                mac = await self._mac_if_whole(attachment, vif, vlan)
                if mac is not None and not known.ready:
                    # the daemon may have died between making and preparing it
                    await self._links.prepare(attachment.netns, _wiring(attachment, vif))
            if mac is None:
                mac = await self._connect(attachment, vif, vlan)
        except netlink.NamespaceError as error:
            raise NamespaceGone(str(error)) from error
        except netlink.LinkError as error:
            raise BindingError(f"cannot make VLAN {vif.vlan_id}: {error}") from error
        return interface.describe(attachment, vif, vlan.link, mac)

    async def _connect(
        self, attachment: Attachment, vif: VIFVlanNested, vlan: netlink.Vlan
    ) -> str:
        await self.disconnect(attachment)  # an earlier attempt may have made something
        number = await self._vlans.number(attachment.netns)
        record = VlanRecord(
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

    async def _mac_if_whole(
        self, attachment: Attachment, vif: VIFVlanNested, vlan: netlink.Vlan
    ) -> str | None:
        """Return the MAC of the link if the Pod's interface is whole, else None."""
        seen = await self._links.observe(attachment.netns, attachment.ifname)
        if seen is None or seen.mac != (vif.address or "").lower():
            return None
        return await self._links.mac(vlan.link)

    async def ready(self, attachment: Attachment, vif: VIFBase) -> None:
        """Wait until the gateways answer: nothing on the node reports that the port forwards."""
        vif = _expect(vif)
        wiring = _wiring(attachment, vif)
        gateways = [gateway for _, gateway in interface.addresses(vif) if gateway]
        try:
            await self._links.activate(attachment.netns, wiring)
            if not await self._answers(attachment, gateways):
                await self._wait_for_answers(attachment, gateways)
                await self._vlans.announce(attachment.netns, wiring)
        except netlink.NamespaceError as error:
            raise NamespaceGone(str(error)) from error
        except netlink.LinkError as error:
            raise BindingError(f"cannot set {attachment.ifname} up: {error}") from error
        record = self._records.get(attachment)
        if record is not None and not record.ready:
            self._records.put(dataclasses.replace(record, ready=True))

    async def _wait_for_answers(self, attachment: Attachment, gateways: list[str]) -> None:
        try:
            async with asyncio.timeout(self._patience):
                while not await self._answers(attachment, gateways):
                    pass
        except TimeoutError:
            message = "Pod %s/%s: not all of %s answer; its port may not forward yet"
            LOG.warning(message, attachment.namespace, attachment.pod, gateways)

    async def _answers(self, attachment: Attachment, gateways: list[str]) -> bool:
        return await self._vlans.answers(attachment.netns, attachment.ifname, gateways)

    def progress(self, vif: VIFBase) -> str:
        """Describe what is missing: answers of the gateways."""
        return f"waiting for the gateways of Neutron port {vif.id} to answer"

    async def disconnect(self, attachment: Attachment) -> None:
        """Delete the interface, unless another attachment has the VLAN by now.

        Then the interface belongs to that attachment, even in a namespace of the same number:
        the kernel reuses numbers.

        :raises BindingError: the interface exists, but cannot be found.
        """
        record = self._records.get(attachment)
        if record is None:
            return
        vlan = record.vlan
        try:
            others = [
                other for other in self._records.all() if other.vlan == vlan and other != record
            ]
            if all(other.number != record.number for other in others):
                names = (attachment.ifname, record.name)
                await self._vlans.delete(vlan, record.number, *names)
            hidden = not others and self._vlans.exists(vlan)
        except netlink.LinkError as error:
            raise BindingError(f"cannot delete VLAN {vlan.vlan_id}: {error}") from error
        if hidden:
            message = f"cannot find the interface of VLAN {vlan.vlan_id} of {vlan.link}"
            raise BindingError(message)
        self._records.remove(attachment)

    async def check(self, attachment: Attachment, vif: VIFBase) -> None:
        """Compare the interface and its record with the VIF."""
        vif = _expect(vif)
        if self._records.get(attachment) is None:
            raise BindingError(f"there is no record of {attachment.ifname}")
        seen = await self._links.observe(attachment.netns, attachment.ifname)
        if missing := interface.missing(attachment, vif, seen):
            raise BindingError(missing)

    def attachments(self) -> Collection[Attachment]:
        """Return the attachments that have a record."""
        return [record.attachment for record in self._records.all()]

    def working(self, attachment: Attachment) -> bool:
        """Return whether the gateways had their chance to answer."""
        record = self._records.get(attachment)
        return record is not None and record.ready

    def vanished(self, attachment: Attachment) -> bool:
        """Return whether the kernel has no interface for the VLAN, in any namespace."""
        record = self._records.get(attachment)
        return record is None or not self._vlans.exists(record.vlan)

    def watch(self, changed: Callable[[], None]) -> None:
        """Call a function when an interface may have gone."""

        def gone(name: str, number: int | None) -> None:
            self._gone.add((name, number))
            changed()

        self._links.events.subscribe(gone)

    def suspects(self) -> Collection[str]:
        """Return the Pods of which an interface has gone, or all after a change of the link."""
        gone, self._gone = self._gone, set()
        return {
            record.attachment.pod_uid
            for record in self._records.all()
            if (record.attachment.ifname, record.number) in gone
            or (record.vlan.link, None) in gone
            or ("", None) in gone
        }

    async def lost(self, claims: Sequence[Claim]) -> list[Lost]:
        """Return what has a record and a namespace, and no interface any more."""
        found = []
        for claim in claims:
            vif = _expect(claim.vif)
            for record in self._records.all():
                if (record.port_id, record.attachment.pod_uid) != (vif.id, claim.pod_uid):
                    continue
                if not await self._is_made(record) and await self._exists(record.attachment):
                    what = "its interface was missing"
                    found.append(Lost(attachment=record.attachment, vif=vif, what=what))
        return found

    async def _is_made(self, record: VlanRecord) -> bool:
        """Return whether there is the interface, and not under the name of its first moment."""
        if record.ready or not self._vlans.exists(record.vlan):
            return self._vlans.exists(record.vlan)
        attachment = record.attachment
        return await self._links.observe(attachment.netns, attachment.ifname) is not None

    async def _exists(self, attachment: Attachment) -> bool:
        try:
            await self._vlans.number(attachment.netns)
        except netlink.NamespaceError:
            return False
        return True

    async def restore(self, lost: Sequence[Lost]) -> None:
        """Make the interfaces again, unless they are there.

        :raises BindingError: the first that could not be made; the others are.
        """
        failures: list[BindingError] = []
        for item in lost:
            record = self._records.get(item.attachment)
            if record is None:
                continue
            try:
                if not await self._is_made(record):
                    await self._restore(record, _expect(item.vif))
            except netlink.LinkError as error:
                message = f"cannot make VLAN {record.vlan.vlan_id} again: {error}"
                failures.append(BindingError(message))
        if failures:
            raise failures[0]

    async def _restore(self, record: VlanRecord, vif: VIFVlanNested) -> None:
        netns, vlan = record.attachment.netns, record.vlan
        if self._vlans.exists(vlan):  # the daemon died before the interface had its name
            await self._vlans.delete(vlan, record.number, record.name)
        number = await self._vlans.number(netns)
        self._records.put(dataclasses.replace(record, number=number, ready=False))
        wiring = _wiring(record.attachment, vif)
        await self._vlans.create(vlan, record.name, netns, wiring)

    def restored(self) -> Collection[Attachment]:
        """Return what exists, and has not been waited for."""
        records = [record for record in self._records.all() if not record.ready]
        return [record.attachment for record in records if self._vlans.exists(record.vlan)]

    async def finish(self, attachment: Attachment, vif: VIFBase) -> None:
        """Set the interface up, and wait for the gateways.

        The daemon may have died between making and preparing it.
        """
        await self._links.prepare(attachment.netns, _wiring(attachment, _expect(vif)))
        await self.ready(attachment, vif)


def _expect(vif: VIFBase) -> VIFVlanNested:
    if not isinstance(vif, VIFVlanNested):
        raise BindingError(f"{type(vif).__name__} is not a VIFVlanNested")
    return vif


def _wiring(attachment: Attachment, vif: VIFVlanNested) -> netlink.Wiring:
    """Return the Pod's end, with the offloads of the link: packets leave the VM through it."""
    return interface.wiring(attachment, vif, offload=True)
