"""Ports of running Pods that have lost their row of Open vSwitch, or a link.

A row is made again where three agree: the alias of the node's end, the KuryrPort, and the Pod's
namespace, which has the other end. A link is made again where the row, the KuryrPort and a
namespace agree. Alias or row stand before anything else is done and after it, so the daemon may
die at any point. The Pod's end is set up after OVN has installed the port; until then the row has
a mark, from before the link is made.
"""

import dataclasses
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack

from kuryr_k8s import errors
from kuryr_k8s.cni.bindings.base import Attachment, BindingError, Claim, Lost
from kuryr_k8s.cni.bindings.ovs_records import (
    RESTORED,
    alias,
    expect,
    external_ids,
    ids,
    read,
    remembered,
    user_of,
)
from kuryr_k8s.cni.bindings.parked_ports import ParkedPorts
from kuryr_k8s.cni.netlink import LinkError, Links, NamespaceError, Wiring
from kuryr_k8s.cni.netlink.parked_pairs import lower
from kuryr_k8s.cni.ovs.switch import PARKED, InterfaceRow, NewPort, OpenVSwitch, OVSError
from kuryr_k8s.model.vif import VIFBase, VIFOpenVSwitch

LOG = logging.getLogger(__name__)
NO_ROW = "its port was missing in Open vSwitch"
NO_LINK = "its interface was missing"


class LostPorts:
    """Finds lost ports and makes them again.

    :param wiring: returns the Pod's end of an attachment.
    """

    def __init__(
        self,
        links: Links,
        switch: OpenVSwitch,
        parked_ports: ParkedPorts,
        wiring: Callable[[Attachment, VIFOpenVSwitch], Wiring],
    ) -> None:
        self._links = links
        self._switch = switch
        self._parked_ports = parked_ports
        self._wiring = wiring
        self._gone: set[str] = set()  # links that may be those of Pods

    def watch(self, changed: Callable[[], None]) -> None:
        """Call a function when a row or a link may have been lost, or OVN has installed a port."""

        def gone(name: str, number: int | None) -> None:
            if number is None and name:
                self._gone.add(f"tap{name[4:]}"[:14] if name.startswith("park") else name)
                changed()

        self._switch.subscribe_ports(changed)
        self._links.events.subscribe(gone)

    def suspects(self) -> Collection[str]:
        """Return the uids of Pods of which a link has gone since the last call."""
        gone, self._gone = self._gone, set()
        rows = filter(None, map(self._switch.find, gone))
        return {read(row).pod_uid for row in rows if row.attached}

    async def find(self, claims: Sequence[Claim]) -> list[Lost]:
        """Return what is lost of these interfaces, and bring the aliases of the others up to date.

        Aliases were shorter in earlier versions, and another database has another name.
        """
        unknown: dict[str, Claim] = {}
        recorded: dict[str, tuple[InterfaceRow, Claim]] = {}
        for claim in claims:
            vif = expect(claim.vif)
            row = self._switch.find(vif.vif_name)
            if row is None or not row.attached:
                unknown[vif.vif_name] = claim
            elif claim.is_of(read(row)):
                recorded[vif.vif_name] = row, claim
        lost = await self._without_row(unknown)
        for row, claim in recorded.values():
            if not self._has_link(row) and await self._is_lost(read(row), row.name):
                lost.append(Lost(attachment=read(row), vif=claim.vif, what=NO_LINK))
        await self._set_aliases({name: read(row) for name, (row, _) in recorded.items()})
        return lost

    async def _without_row(self, claims: Mapping[str, Claim]) -> list[Lost]:
        lost = []
        known = {
            name: remembered(text)
            for name, text in (await self._links.aliases_of(list(claims))).items()
        }
        namespaces = await self._links.mounted_namespaces() if any(known.values()) else {}
        for name, alias_read in known.items():
            found = alias_read.located(namespaces) if alias_read else None
            attachment = found.attachment(claims[name]) if found else None
            if attachment is not None and await self._has_namespace(attachment, name):
                lost.append(Lost(attachment=attachment, vif=claims[name].vif, what=NO_ROW))
        return lost

    def _has_link(self, row: InterfaceRow) -> bool:
        return self._links.in_use(row.name) if row.parked else self._links.exists(row.name)

    async def _is_lost(self, attachment: Attachment, name: str) -> bool:
        try:
            return not await self._links.connects(name, attachment.netns, attachment.ifname)
        except NamespaceError:
            return False

    async def _has_namespace(self, attachment: Attachment, name: str) -> bool:
        try:
            await self._links.connects(name, attachment.netns, attachment.ifname)
        except NamespaceError:
            return False
        return True

    async def _set_aliases(self, attachments: Mapping[str, Attachment]) -> None:
        known = await self._links.aliases_of(list(attachments))
        for name, attachment in attachments.items():
            if name in known and known[name] != self._alias(attachment):
                async with self._parked_ports.held(name):
                    row = self._switch.find(name)
                    if row is not None and row.attached and read(row) == attachment:
                        await self._links.set_alias(name, self._alias(attachment))

    async def restore(self, lost: Sequence[Lost]) -> None:
        """Make rows and links again, except where nothing is lost any more.

        :raises errors.KuryrError: of the first that could not be made; the others are.
        """
        failures: list[errors.KuryrError] = []
        async with AsyncExitStack() as stack:
            for name in sorted({expect(item.vif).vif_name for item in lost}):
                await stack.enter_async_context(self._parked_ports.held(name))
            ports: list[tuple[NewPort, Attachment]] = []
            for item in lost:
                try:
                    if (
                        port := await self._restore(item.attachment, expect(item.vif))
                    ) is not None:
                        ports.append((port, item.attachment))
                except (LinkError, OVSError, BindingError) as error:
                    failures.append(error)
            if ports:
                await self._switch.add_ports([port for port, _ in ports])
            for port, attachment in ports:
                await self._links.set_alias(port.name, self._alias(attachment))
        if failures:
            raise failures[0]

    async def _restore(self, attachment: Attachment, vif: VIFOpenVSwitch) -> NewPort | None:
        """Make a link again.

        :returns: the row that is to be made again; None if there is none.
        """
        name = vif.vif_name
        row = self._switch.find(name)
        attached = row is not None and row.attached
        if row is not None and attached and read(row) != attachment:
            return None
        if not attached and not await self._is_remembered(attachment, name):
            return None
        whole = await self._links.connects(name, attachment.netns, attachment.ifname)
        whole = whole or self._links.occupied(name)  # a Pod may rename its interface
        if not whole:
            await self._restore_link(row, attachment, vif)
        elif row is None:
            return self._row(attachment, vif)
        elif not attached:
            await self._switch.mark(row.row, ids(attachment) | {RESTORED: "true"})
        return None

    async def _is_remembered(self, attachment: Attachment, name: str) -> bool:
        found = remembered((await self._links.aliases_of([name])).get(name, ""))
        return found is not None and found.is_of(attachment)

    def _row(self, attachment: Attachment, vif: VIFOpenVSwitch) -> NewPort:
        columns = external_ids(attachment, vif) | {RESTORED: "true"}
        if self._links.exists(lower(vif.vif_name)):
            columns[PARKED] = "true"
        return NewPort(vif.bridge_name, vif.vif_name, columns)

    async def _restore_link(
        self, row: InterfaceRow | None, attachment: Attachment, vif: VIFOpenVSwitch
    ) -> None:
        """Hand a parked pair over again if it is whole, else make a veth.

        The veth, with its alias, is made before the old row goes: one of them tells what the Pod
        has.
        """
        name, columns = vif.vif_name, ids(attachment) | {RESTORED: "true"}
        if row is not None and row.parked and self._links.exists(lower(name)):
            user = user_of(attachment, self._switch.identity())
            wiring = self._wiring(attachment, vif)
            if await self._parked_ports.hand_over(row, columns, user, attachment.netns, wiring):
                return
        elif row is not None:
            await self._switch.mark(row.row, columns)
        await self._links.create(
            name, self._alias(attachment), attachment.netns, self._wiring(attachment, vif)
        )
        await self._switch.del_port(name)
        await self._switch.add_ports([self._row(attachment, vif)])

    def restored(self) -> list[Attachment]:
        """Return what was made again and OVN has installed, and is not set up yet."""
        rows = self._switch.interfaces()
        return [read(row) for row in rows if _is_restored(row)]

    async def prepare(self, attachment: Attachment, vif: VIFBase) -> None:
        """Prepare the Pod's end again: the daemon may have died between making and doing that.

        :raises LinkError: the Pod has no such interface.
        """
        row = self._switch.find(expect(vif).vif_name)
        wiring = self._wiring(attachment, expect(vif))
        if row is not None and row.parked:  # the lower end computes checksums
            wiring = dataclasses.replace(wiring, offload=True)
        await self._links.prepare(attachment.netns, wiring)

    async def finished(self, attachment: Attachment, vif: VIFBase) -> None:
        """Remove the mark of an attachment that was made again, now that it is set up."""
        row = self._switch.find(expect(vif).vif_name)
        if row is not None and row.attached and read(row) == attachment:
            await self._switch.mark(row.row, {RESTORED: None})

    async def forget(self, lost: Lost) -> None:
        """Delete the veth of an attachment, if it still is its own and has no row."""
        name = expect(lost.vif).vif_name
        async with self._parked_ports.held(name):
            row = self._switch.find(name)
            attached = row is not None and row.attached
            if attached or not await self._is_remembered(lost.attachment, name):
                return
            if row is not None:
                await self._switch.del_port(name)
            await self._links.delete(name, (await self._links.aliases_of([name]))[name])

    def _alias(self, attachment: Attachment) -> str:
        identity = self._switch.identity()
        return alias(identity, user_of(attachment, identity))


def _is_restored(row: InterfaceRow) -> bool:
    return row.attached and row.installed and RESTORED in row.external_ids
