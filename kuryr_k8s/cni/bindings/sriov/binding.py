"""The binding VIFSriov: a virtual function (VF) of a card moves into the Pod.

Its record is written first, with what the VF was like, and removed last: so whatever was done of
the way there and back, a VF without a record is as it was. A VF that a program drives (DPDK) stays
where it is: only the card learns MAC and VLAN.
"""

import dataclasses
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Self

from kuryr_k8s import errors
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
    Unusable,
)
from kuryr_k8s.cni.bindings.records import Record, Records
from kuryr_k8s.cni.bindings.sriov.cards import Cards, VirtualFunction
from kuryr_k8s.cni.bindings.sriov.devices import Devices
from kuryr_k8s.cni.parts import Loop
from kuryr_k8s.cni.result import Result
from kuryr_k8s.model.vif import VIFBase, VIFSriov


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SRIOVRecord(Record):
    """An attachment, its VF, and what that was like before.

    :param home: its interface; None for a VF that a program drives.
    :param ready: whether traffic could flow once.
    """

    pci_slot: str
    port_id: str
    before: netlink.Settings
    home: netlink.Home | None
    ready: bool = False

    @classmethod
    def read(cls, data: dict[str, Any]) -> Self:
        home = data["home"]
        return cls(
            **data
            | {
                "attachment": Attachment(**data["attachment"]),
                "before": netlink.Settings(**data["before"]),
                "home": None if home is None else netlink.Home(**home),
            }
        )

    @property
    def passing(self) -> str:
        """The name that the interface has on its way."""
        return f"tap{self.port_id}"[: netlink.virtual_functions.NAME_LENGTH]


class SRIOVBinding(Binding):
    """Plugs VFs, and names those of Pods. It needs no Open vSwitch."""

    def __init__(self, context: BindingContext) -> None:
        options = context.conf.sriov
        if not (options.resource_physnets or options.advertise):
            raise Unusable("[sriov] has neither resource_physnets nor advertise on this node")
        cards = list(options.advertise.values())
        for card in cards:
            if cards.count(card) > 1:
                raise errors.ConfigError(f"[sriov] advertise: {card} is in two physical networks")
        self._links = context.links
        self._functions = context.links.virtual_functions
        self._cards = Cards()
        self._records = Records(context.record_directory("sriov"), SRIOVRecord)
        self._devices = Devices(context, self._cards, self._in_use)

    def loops(self) -> Sequence[Loop]:
        """Return what names the VFs of Pods, and offers those of the node."""
        return self._devices.loops()

    def _in_use(self) -> Collection[str]:
        """Return the PCI addresses of all VFs that are plugged, or were not unplugged."""
        return {record.pci_slot for record in self._records.all()}

    async def connect(self, attachment: Attachment, vif: VIFBase) -> Result:
        """Give the Pod the VF, unless it has it."""
        if not isinstance(vif, VIFSriov):
            raise BindingError(f"{type(vif).__name__} is not a VIFSriov")
        known = self._records.get(attachment)
        try:
            if known is None or (known.pci_slot, known.port_id) != (vif.dev_address, vif.id):
                await self.disconnect(attachment)
                known = await self._record(attachment, vif)
            function = self._function(known)
            await self._functions.set(function.card, function.number, _settings(vif))
            if known.home is not None and not await self._is_in_pod(known, vif):
                await self._move(known, vif)
        except netlink.NamespaceError as error:
            raise NamespaceGone(str(error)) from error
        except netlink.LinkError as error:
            raise BindingError(f"cannot plug VF {vif.dev_address}: {error}") from error
        card_mac = await self._links.mac(function.card) or ""
        return interface.describe(attachment, vif, function.card, card_mac, pci_id=vif.dev_address)

    async def _record(self, attachment: Attachment, vif: VIFSriov) -> SRIOVRecord:
        """Record a VF as it is, before anything is changed.

        :raises BindingError: there is no such VF, or somebody has it.
        """
        function = self._free(vif.dev_address)
        home = None if function.is_in_userspace else await self._functions.home(function.ifname)
        record = SRIOVRecord(
            attachment=attachment,
            pci_slot=function.pci_slot,
            port_id=vif.id,
            before=await self._functions.settings(function.card, function.number),
            home=home,
        )
        self._free(vif.dev_address)  # again: another Pod may have been faster
        self._records.put(record)
        return record

    def _function(self, record: SRIOVRecord) -> VirtualFunction:
        """Find the VF of a record.

        :raises BindingError: the node has it no longer.
        """
        function = self._cards.find(record.pci_slot)
        if function is None:
            raise BindingError(f"this node has no VF {record.pci_slot}")
        return function

    def _free(self, pci_slot: str) -> VirtualFunction:
        for other in self._records.all():
            if other.pci_slot == pci_slot:
                raise BindingError(f"VF {pci_slot} is still that of {other.attachment}")
        function = self._cards.find(pci_slot)
        if function is None:
            raise BindingError(f"this node has no VF {pci_slot}")
        if not function.is_home:
            raise BindingError(f"VF {pci_slot} is in use by somebody else")
        return function

    async def _is_in_pod(self, record: SRIOVRecord, vif: VIFBase) -> bool:
        attachment = record.attachment
        seen = await self._links.observe(attachment.netns, attachment.ifname)
        if seen is None or seen.mac != (vif.address or "").lower():
            return False
        if not record.ready:  # the daemon may have died between moving and preparing it
            await self._links.prepare(attachment.netns, _wiring(attachment, vif))
        return True

    async def _move(self, record: SRIOVRecord, vif: VIFBase) -> None:
        """Move the VF's interface into the Pod, wherever an earlier attempt has left it."""
        netns = record.attachment.netns
        await self._functions.unplug(record.pci_slot, record.passing, netns)
        function = self._function(record)
        if not function.ifname:
            raise BindingError(f"VF {record.pci_slot} has no interface on this node")
        wiring = _wiring(record.attachment, vif)
        await self._functions.plug(function.ifname, record.passing, netns, wiring)

    async def ready(self, attachment: Attachment, vif: VIFBase) -> None:
        """Set the interface up, and announce its addresses: the card forwards at once."""
        record = self._records.get(attachment)
        if record is None:
            raise BindingError(f"there is no record of {attachment.ifname}")
        try:
            if record.home is not None:
                await self._links.activate(attachment.netns, _wiring(attachment, vif))
        except netlink.NamespaceError as error:
            raise NamespaceGone(str(error)) from error
        except netlink.LinkError as error:
            raise BindingError(f"cannot set {attachment.ifname} up: {error}") from error
        if not record.ready:
            self._records.put(dataclasses.replace(record, ready=True))

    def progress(self, vif: VIFBase) -> str:
        """Describe what is missing: nothing but our own work."""
        return f"plugging the VF of Neutron port {vif.id}"

    async def disconnect(self, attachment: Attachment) -> None:
        """Take the VF back, as it was.

        Where the namespace died first, the kernel has moved the interface back already, under its
        name in the Pod.

        :raises BindingError: the kernel refuses, or somebody has moved the interface elsewhere.
        """
        record = self._records.get(attachment)
        if record is None:
            return
        try:
            # the card first: some drivers refuse to once the interface has been changed
            if (function := self._cards.find(record.pci_slot)) is not None:
                await self._functions.set(function.card, function.number, record.before)
            if function is not None and record.home is not None:
                await self._functions.unplug(record.pci_slot, record.passing, attachment.netns)
                await self._go_home(record.pci_slot, record.home)
        except netlink.LinkError as error:
            raise BindingError(f"cannot take VF {record.pci_slot} back: {error}") from error
        self._records.remove(attachment)

    async def _go_home(self, pci_slot: str, home: netlink.Home) -> None:
        function = self._cards.find(pci_slot)
        if function is None or function.is_in_userspace:
            return  # the card is gone, or a program has been given the VF
        if not function.ifname:
            raise BindingError(f"VF {pci_slot} is in a namespace that is not its Pod's")
        await self._functions.restore(function.ifname, home)

    async def check(self, attachment: Attachment, vif: VIFBase) -> None:
        """Compare the VF, and its interface in the Pod, with the VIF."""
        record = self._records.get(attachment)
        if record is None:
            raise BindingError(f"there is no record of {attachment.ifname}")
        try:
            function = self._function(record)
            found = await self._functions.settings(function.card, function.number)
        except netlink.LinkError as error:
            raise BindingError(f"VF {record.pci_slot}: {error}") from error
        wanted = _settings(vif)
        if (found.mac, found.vlan) != (wanted.mac, wanted.vlan):
            raise BindingError(
                f"VF {record.pci_slot} has MAC {found.mac} and VLAN {found.vlan} on its card, not "
                f"{wanted.mac} and {wanted.vlan}"
            )
        if record.home is not None:
            seen = await self._links.observe(attachment.netns, attachment.ifname)
            if missing := interface.missing(attachment, vif, seen):
                raise BindingError(missing)

    def attachments(self) -> Collection[Attachment]:
        """Return the attachments that have a record."""
        return [record.attachment for record in self._records.all()]

    def working(self, attachment: Attachment) -> bool:
        """Return whether the interface was set up, and is still away from home."""
        record = self._records.get(attachment)
        return record is not None and record.ready and not self._is_back(record)

    def vanished(self, attachment: Attachment) -> bool:
        """Return whether the kernel has moved the interface back."""
        record = self._records.get(attachment)
        return record is None or self._is_back(record)

    def _is_back(self, record: SRIOVRecord) -> bool:
        """Return whether a VF is the node's again, or gone.

        One that a program drives, since before or since it is in the Pod, has no interface that
        the kernel could give back: it is the Pod's for as long as its namespace is there.
        """
        function = self._cards.find(record.pci_slot)
        if function is None:
            return True
        if record.home is None or function.is_in_userspace:
            return not Path(record.attachment.netns).exists()
        return bool(function.ifname)

    def watch(self, changed: Callable[[], None]) -> None:
        """Call a function when an interface that has the name of a VF's in a Pod has gone."""

        def gone(name: str, _number: int | None) -> None:
            if any(record.attachment.ifname == name for record in self._records.all()):
                changed()

        self._links.events.subscribe(gone)

    def suspects(self) -> Collection[str]:
        """Return the Pods whose VFs are back."""
        records = self._records.all()
        return {record.attachment.pod_uid for record in records if self._is_back(record)}

    async def lost(self, claims: Sequence[Claim]) -> list[Lost]:
        """Return what has a record and a namespace, and whose interface is not in it."""
        found = []
        for claim in claims:
            for record in self._records.all():
                attachment = record.attachment
                is_claimed = (record.port_id, attachment.pod_uid) == (claim.vif.id, claim.pod_uid)
                if is_claimed and await self._is_missing(record):
                    what = f"VF {record.pci_slot} was not in its namespace"
                    found.append(Lost(attachment=attachment, vif=claim.vif, what=what))
        return found

    async def _is_missing(self, record: SRIOVRecord) -> bool:
        function = self._cards.find(record.pci_slot)
        if record.home is None or function is None or function.is_in_userspace:
            return False  # there is no interface that could be missing
        try:
            return not await self._functions.find(record.pci_slot, record.attachment.netns)
        except netlink.NamespaceError:
            return False

    async def restore(self, lost: Sequence[Lost]) -> None:
        """Plug again what is not in its namespace.

        :raises BindingError: the first that could not be plugged; the others are.
        """
        failures: list[BindingError] = []
        for item in lost:
            record = self._records.get(item.attachment)
            if record is None or not await self._is_missing(record):
                continue
            self._records.put(dataclasses.replace(record, ready=False))
            try:
                await self.connect(item.attachment, item.vif)
            except BindingError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def restored(self) -> Collection[Attachment]:
        """Return what is plugged, and was not set up."""
        return [
            record.attachment
            for record in self._records.all()
            if not (record.ready or self._is_back(record))
        ]

    async def finish(self, attachment: Attachment, vif: VIFBase) -> None:
        """Set up an interface that was plugged again."""
        await self._links.prepare(attachment.netns, _wiring(attachment, vif))
        await self.ready(attachment, vif)


def _settings(vif: VIFBase) -> netlink.Settings:
    """Return what the card has to do for a VIF."""
    vlan = vif.network.vlan if vif.network else None
    return netlink.Settings(
        mac=(vif.address or "").lower(), vlan=vlan or 0, spoof_check=vif.has_traffic_filtering
    )


def _wiring(attachment: Attachment, vif: VIFBase) -> netlink.Wiring:
    return interface.wiring(attachment, vif, offload=True)
