"""Bindings of nodes that are VMs: interfaces of Pods on a link of the node.

Only the link is on the node's side. Once made, the interface is in the Pod's namespace, where it
may not be found again: so its record is written first, and removed last. A record may name an
interface that was never made; no interface is made without a record.
"""

import abc
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
from kuryr_k8s.model.vif import VIFBase

LOG = logging.getLogger(__name__)
NAME_LENGTH = 14  # of the first names of interfaces


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NestedRecord(Record):
    """An attachment and its interface on a link of the node.

    :param number: the number of the Pod's namespace.
    :param name: the name that the interface was made under.
    :param port_id: the Neutron port.
    :param ready: whether traffic could flow once.
    """

    nested: netlink.Nested
    number: int
    name: str
    port_id: str
    ready: bool = False

    @classmethod
    def read(cls, data: dict[str, Any]) -> Self:
        """Read a record from its JSON; earlier versions know the key ``vlan`` alone."""
        fields = {name: value for name, value in data.items() if name not in ("vlan", "macvlan")}
        if "vlan" in data:
            fields["nested"] = netlink.Vlan(**data["vlan"])
        else:
            fields["nested"] = netlink.Macvlan(**data["macvlan"])
        return cls(**fields | {"attachment": Attachment(**data["attachment"])})

    def write(self) -> dict[str, Any]:
        """Return the JSON that :meth:`read` reads."""
        fields = dataclasses.asdict(self)
        key = "vlan" if isinstance(self.nested, netlink.Vlan) else "macvlan"
        nested = fields.pop("nested")
        if not nested.get("covered", True):
            del nested["covered"]  # earlier versions do not know it
        return {**fields, key: nested}

    @property
    def place(self) -> tuple[netlink.Nested, int]:
        """Return what identifies the interface to :meth:`NestedLinks.exists`."""
        return self.nested, self.number


class NestedBinding(Binding):
    """Plugs interfaces on a link of the node. It needs no Open vSwitch.

    :param directory: of the records.
    """

    def __init__(self, context: BindingContext, directory: Path) -> None:
        self._links = context.links
        self._nested = context.links.nested
        self._link_iface = str(context.conf.binding.link_iface or "")
        self._records = Records(directory, NestedRecord)
        self._patience = context.patience.gateway
        self._gone: set[tuple[str, int | None]] = set()  # interfaces that may be those of Pods

    @abc.abstractmethod
    def _nested_of(self, vif: VIFBase, link: str) -> netlink.Nested:
        """Return the interface of a VIF on the link.

        :raises BindingError: the VIF is of another kind.
        """

    async def connect(self, attachment: Attachment, vif: VIFBase) -> Result:
        """Make the interface in the Pod's namespace, unless it is there and whole."""
        try:
            nested = self._nested_of(vif, await self._link())
            known = self._records.get(attachment)
            mac = None
            if known is not None and (known.nested, known.port_id) == (nested, vif.id):
                mac = await self._mac_if_whole(attachment, vif, nested)
                if mac is not None and not known.ready:
                    # the daemon may have died between making and preparing it
                    await self._links.prepare(attachment.netns, _wiring(attachment, vif))
            if mac is None:
                mac = await self._connect(attachment, vif, nested)
        except netlink.NamespaceError as error:
            raise NamespaceGone(str(error)) from error
        except netlink.LinkError as error:
            raise BindingError(f"cannot make the interface of port {vif.id}: {error}") from error
        return interface.describe(attachment, vif, nested.link, mac)

    async def _connect(self, attachment: Attachment, vif: VIFBase, nested: netlink.Nested) -> str:
        await self.disconnect(attachment)  # an earlier attempt may have made something
        number = await self._nested.number(attachment.netns)
        name = f"tap{vif.id}"[:NAME_LENGTH]
        record = NestedRecord(
            attachment=attachment, nested=nested, number=number, name=name, port_id=vif.id
        )
        self._records.put(record)
        wiring = _wiring(attachment, vif)
        return await self._nested.create(nested, name, attachment.netns, wiring)

    async def _link(self) -> str:
        if not self._link_iface:
            self._link_iface = await self._nested.default_link()
            LOG.info("the link of Pods' interfaces is %s", self._link_iface)
        return self._link_iface

    async def _mac_if_whole(
        self, attachment: Attachment, vif: VIFBase, nested: netlink.Nested
    ) -> str | None:
        """Return the MAC of the link if the Pod's interface is whole, else None."""
        seen = await self._links.observe(attachment.netns, attachment.ifname)
        if seen is None or seen.mac != (vif.address or "").lower():
            return None
        return await self._links.mac(nested.link)

    async def ready(self, attachment: Attachment, vif: VIFBase) -> None:
        """Wait until the gateways answer: nothing on the node reports that the port forwards."""
        wiring = _wiring(attachment, vif)
        gateways = [gateway for _, gateway in interface.addresses(vif) if gateway]
        try:
            await self._links.activate(attachment.netns, wiring)
            if not await self._answers(attachment, gateways):
                await self._wait_for_answers(attachment, gateways)
                await self._nested.announce(attachment.netns, wiring)
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
        return await self._nested.answers(attachment.netns, attachment.ifname, gateways)

    def progress(self, vif: VIFBase) -> str:
        """Describe what is missing: answers of the gateways."""
        return f"waiting for the gateways of Neutron port {vif.id} to answer"

    async def disconnect(self, attachment: Attachment) -> None:
        """Delete the interface, unless it is that of another attachment by now.

        Then the interface belongs to that attachment, even in a namespace of the same number:
        the kernel reuses numbers.

        :raises BindingError: the interface exists, but cannot be found.
        """
        record = self._records.get(attachment)
        if record is None:
            return
        nested = record.nested
        try:
            others = [
                other
                for other in self._records.all()
                if other.nested == nested and other != record
            ]
            if all(other.number != record.number for other in others):
                await self._nested.delete(*record.place)
            hidden = not others and self._nested.exists(*record.place)
        except netlink.LinkError as error:
            raise BindingError(f"cannot delete {nested}: {error}") from error
        if hidden:
            raise BindingError(f"cannot find the interface of {nested}")
        self._records.remove(attachment)

    async def check(self, attachment: Attachment, vif: VIFBase) -> None:
        """Compare the interface and its record with the VIF."""
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
        """Return whether the kernel has no such interface."""
        record = self._records.get(attachment)
        return record is None or not self._nested.exists(*record.place)

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
            or (record.nested.link, None) in gone
            or ("", None) in gone
        }

    async def lost(self, claims: Sequence[Claim]) -> list[Lost]:
        """Return what has a record and a namespace, and no interface any more."""
        found = []
        for claim in claims:
            vif = claim.vif
            for record in self._records.all():
                if (record.port_id, record.attachment.pod_uid) != (vif.id, claim.pod_uid):
                    continue
                if not await self._is_made(record) and await self._exists(record.attachment):
                    what = "its interface was missing"
                    found.append(Lost(attachment=record.attachment, vif=vif, what=what))
        return found

    async def _is_made(self, record: NestedRecord) -> bool:
        """Return whether there is the interface, and not under the name of its first moment."""
        exists = self._nested.exists(*record.place)
        covered = isinstance(record.nested, netlink.Vlan) and record.nested.covered
        if not exists or (record.ready and not covered):
            return exists
        attachment = record.attachment
        return await self._links.observe(attachment.netns, attachment.ifname) is not None

    async def _exists(self, attachment: Attachment) -> bool:
        try:
            await self._nested.number(attachment.netns)
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
                    await self._restore(record, item.vif)
            except netlink.LinkError as error:
                message = f"cannot make {record.nested} again: {error}"
                failures.append(BindingError(message))
        if failures:
            raise failures[0]

    async def _restore(self, record: NestedRecord, vif: VIFBase) -> None:
        netns = record.attachment.netns
        if self._nested.exists(*record.place):  # the daemon died before it had its name
            await self._nested.delete(*record.place)
        number = await self._nested.number(netns)
        self._records.put(dataclasses.replace(record, number=number, ready=False))
        wiring = _wiring(record.attachment, vif)
        await self._nested.create(record.nested, record.name, netns, wiring)

    def restored(self) -> Collection[Attachment]:
        """Return what exists, and has not been waited for."""
        records = [record for record in self._records.all() if not record.ready]
        return [record.attachment for record in records if self._nested.exists(*record.place)]

    async def finish(self, attachment: Attachment, vif: VIFBase) -> None:
        """Set the interface up, and wait for the gateways.

        The daemon may have died between making and preparing it.
        """
        await self._links.prepare(attachment.netns, _wiring(attachment, vif))
        await self.ready(attachment, vif)


def _wiring(attachment: Attachment, vif: VIFBase) -> netlink.Wiring:
    """Return the Pod's end, with the offloads of the link: packets leave the VM through it."""
    return interface.wiring(attachment, vif, offload=True)
