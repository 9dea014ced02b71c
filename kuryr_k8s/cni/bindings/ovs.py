"""The binding VIFOpenVSwitch: a veth whose host end is a port of br-int, where OVN takes it over.

A parked port is in br-int already, and is handed over; where that is impossible, it is plugged
like any other.

The order of the steps makes them repeatable. The veth is made and set up before the port is
recorded in Open vSwitch: where there is a row, there was a complete veth. The Pod's end goes up
only after OVN has installed the port's flows, so that the announcement of its addresses is not
lost.
"""

import logging
from collections.abc import Callable, Collection, Sequence

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
    Stray,
    Unusable,
)
from kuryr_k8s.cni.bindings.lost_ports import LostPorts
from kuryr_k8s.cni.bindings.ovs_records import (
    IDS,
    PARKED_USER,
    RESTORED,
    alias,
    expect,
    external_ids,
    ids,
    port_id,
    read,
    remembered,
    user_of,
)
from kuryr_k8s.cni.bindings.parked_ports import ParkedPorts
from kuryr_k8s.cni.bindings.parking import Parking, may_keep
from kuryr_k8s.cni.ovs.openflow import OpenFlow
from kuryr_k8s.cni.ovs.switch import InterfaceRow, OpenVSwitch
from kuryr_k8s.cni.result import Result
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.k8s.resources import KURYRPORTPOOLS, Key
from kuryr_k8s.model.vif import VIFBase, VIFOpenVSwitch

LOG = logging.getLogger(__name__)


class OpenVSwitchBinding(Binding):
    """Plugs ports into Open vSwitch, and parks those of the Node's pool.

    It needs ovn-controller on the node, which alone reports when a port carries traffic.
    """

    def __init__(self, context: BindingContext) -> None:
        if context.switch is None:
            raise Unusable("this node has no Open vSwitch ([cni_daemon] ovsdb_connection)")
        self._links = context.links
        self._switch: OpenVSwitch = context.switch
        selectors = {"fieldSelector": f"metadata.name={context.node.name}"}
        pool = context.caches.follow(KURYRPORTPOOLS, selectors)
        self.parked_ports = ParkedPorts(
            context.links,
            context.switch,
            OpenFlow.beside(context.switch.remote, context.patience),
            lambda port_id: may_keep(pool, context.node, port_id),
        )
        parking = Parking(
            pool,
            context.api,
            self.parked_ports,
            context.switch,
            adds=context.adds,
            settled=context.settled,
            patience=context.patience,
        )
        self.parking = Controller("parking", parking.reconcile, workers=1)
        pool.subscribe(lambda key, _old, _new: self.parking.queue.add(key))
        context.switch.subscribe_ports(lambda: self.parking.queue.add(context.node))
        self._announced: set[Attachment] = set()  # those handed over with their end up
        self._lost_ports = LostPorts(
            context.links, context.switch, self.parked_ports, self._wiring
        )

    def loops(self) -> Sequence[Controller[Key]]:
        """Return the loop that parks ports."""
        return [self.parking]

    async def connect(self, attachment: Attachment, vif: VIFBase) -> Result:
        """Hand over the parked port, keep a veth that is whole, or make a new one."""
        vif = expect(vif)
        async with self.parked_ports.held(vif.vif_name):
            known = self._switch.find(vif.vif_name)
            host_mac = None
            if known is not None and known.iface_id == port_id(vif):
                if not known.attached:
                    host_mac = await self._hand_over(known, attachment, vif)
                # a row that was made again may have the veth of an ADD that ended half-way
                elif read(known) == attachment and RESTORED not in known.external_ids:
                    host_mac = await self._mac_if_whole(attachment, vif)
            if host_mac is None:
                if known is not None:
                    await self._switch.del_port(vif.vif_name)
                host_mac = await self._connect(attachment, vif)
        return interface.describe(attachment, vif, vif.vif_name, host_mac)

    async def _hand_over(
        self, row: InterfaceRow, attachment: Attachment, vif: VIFOpenVSwitch
    ) -> str | None:
        wiring = self._wiring(attachment, vif)
        user = user_of(attachment, self._switch.identity())
        try:
            mac = await self.parked_ports.hand_over(
                row, ids(attachment), user, attachment.netns, wiring
            )
        except netlink.NamespaceError as error:
            raise NamespaceGone(str(error)) from error
        if mac is not None and row.installed:
            self._announced.add(attachment)
        return mac

    async def _connect(self, attachment: Attachment, vif: VIFOpenVSwitch) -> str:
        try:
            mac = await self._links.create(
                vif.vif_name,
                self._alias(user_of(attachment, self._switch.identity())),
                attachment.netns,
                self._wiring(attachment, vif),
            )
        except netlink.NamespaceError as error:
            raise NamespaceGone(str(error)) from error
        except netlink.LinkError as error:
            raise BindingError(f"cannot make the veth {vif.vif_name}: {error}") from error
        await self._switch.add_port(vif.bridge_name, vif.vif_name, external_ids(attachment, vif))
        return mac

    async def _mac_if_whole(self, attachment: Attachment, vif: VIFOpenVSwitch) -> str | None:
        """Return the MAC of the node's end if the veth is whole, else None."""
        seen = await self._links.observe(attachment.netns, attachment.ifname)
        if seen is None or seen.mac != (vif.address or "").lower():
            return None
        return await self._links.mac(vif.vif_name)

    async def ready(self, attachment: Attachment, vif: VIFBase) -> None:
        """Wait until OVN has installed the port, then set the Pod's end up."""
        vif = expect(vif)
        if attachment in self._announced:
            self._announced.discard(attachment)
            return
        row = await self._switch.wait_installed(vif.vif_name, port_id(vif))
        wiring = self._wiring(attachment, vif)
        try:
            if row.parked:
                await self._links.activate_parked(vif.vif_name, attachment.netns, wiring)
            else:
                await self._links.activate(attachment.netns, wiring, host=vif.vif_name)
        except netlink.NamespaceError as error:
            raise NamespaceGone(str(error)) from error
        except netlink.LinkError as error:
            raise BindingError(f"cannot set {attachment.ifname} up: {error}") from error

    def progress(self, vif: VIFBase) -> str:
        """Describe what ovs-vswitchd or OVN has yet to do."""
        vif = expect(vif)
        known = self._switch.find(vif.vif_name)
        if known is None:
            return f"port {vif.vif_name} is not in Open vSwitch"
        if known.error:
            return f"ovs-vswitchd reports: {known.error}"
        return (
            f"OVN has not installed Neutron port {port_id(vif)} (interface {vif.vif_name}); is "
            f"ovn-controller running, and is the port bound to chassis {self._switch.host_id()}?"
        )

    async def disconnect(self, attachment: Attachment) -> None:
        """Take the port back into parking, or remove it from Open vSwitch with its veth."""
        self._announced.discard(attachment)
        for row in self._rows(attachment):
            async with self.parked_ports.held(row.name):
                if row in self._rows(attachment):
                    await self._disconnect(row, attachment)

    async def _disconnect(self, row: InterfaceRow, attachment: Attachment) -> None:
        keys, netns = (*IDS.values(), RESTORED), attachment.netns
        if await self.parked_ports.take_back(row, keys, netns, attachment.ifname):
            return
        await self._switch.del_port(row.name)
        await self._delete(row.name, attachment.container_id)
        if row.parked:  # handed over by an earlier version, or not quite
            await self._delete(row.name, PARKED_USER)

    async def _delete(self, name: str, container_id: str) -> None:
        try:
            await self._links.delete(name, self._alias(container_id))
        except netlink.LinkError as error:
            raise BindingError(f"cannot delete the veth {name}: {error}") from error

    async def check(self, attachment: Attachment, vif: VIFBase) -> None:
        """Compare the row of Open vSwitch and the Pod's end with the VIF."""
        vif = expect(vif)
        known = self._switch.find(vif.vif_name)
        if known is None or read(known) != attachment:
            raise BindingError(f"port {vif.vif_name} of Open vSwitch is missing")
        if known.error or not known.installed:
            raise BindingError(self.progress(vif))
        seen = await self._links.observe(attachment.netns, attachment.ifname)
        if missing := interface.missing(attachment, vif, seen):
            raise BindingError(missing)

    def attachments(self) -> Collection[Attachment]:
        """Return the attachments that rows of Open vSwitch record."""
        return [read(row) for row in self._switch.interfaces() if row.attached]

    def working(self, attachment: Attachment) -> bool:
        """Return whether OVN has installed the port."""
        return any(row.installed for row in self._rows(attachment))

    def vanished(self, attachment: Attachment) -> bool:
        """Return whether the Pod's end is gone."""
        return not any(self._in_pod(row) for row in self._rows(attachment))

    def _in_pod(self, row: InterfaceRow) -> bool:
        return self._links.in_use(row.name) if row.parked else self._links.exists(row.name)

    async def unpark(self, vif: VIFBase) -> None:
        """Unplug the port if it is parked: a macvlan has no peer that a plugin could work on."""
        wanted = port_id(expect(vif))
        rows = [row for row in self.parked_ports.rows() if row.iface_id == wanted]
        await self.parked_ports.unpark(rows)

    def parked(self, vif: VIFBase) -> bool:
        """Return whether the port is parked, has no Pod, and is installed by OVN."""
        return self.parked_ports.ready(vif.id)

    def states(self) -> dict[Attachment, bool]:
        """Return the attachments, and whether OVN has installed their ports."""
        return {read(row): row.installed for row in self._switch.interfaces() if row.attached}

    def watch(self, changed: Callable[[], None]) -> None:
        """Call a function when a row or a link of ours may have changed."""
        self._lost_ports.watch(changed)

    def suspects(self) -> Collection[str]:
        """Return the Pods of which a link has gone."""
        return self._lost_ports.suspects()

    async def lost(self, claims: Sequence[Claim]) -> list[Lost]:
        """Return what aliases or rows record, and what lacks its row or its link."""
        return await self._lost_ports.find(claims)

    async def restore(self, lost: Sequence[Lost]) -> None:
        """Make rows and links again."""
        await self._lost_ports.restore(lost)

    def restored(self) -> Collection[Attachment]:
        """Return what was made again, and is installed by OVN."""
        return self._lost_ports.restored()

    async def finish(self, attachment: Attachment, vif: VIFBase) -> None:
        """Set the Pod's end up, which tells its neighbours where it is."""
        await self._lost_ports.prepare(attachment, vif)
        await self.ready(attachment, vif)
        await self._lost_ports.finished(attachment, vif)

    async def forget(self, lost: Lost) -> None:
        """Delete the veth of an attachment that has no row."""
        await self._lost_ports.forget(lost)

    def trouble(self) -> str:
        """Return a message while the database cannot be reached, else an empty string."""
        connected = self._switch.connected.is_set()
        return "" if connected else "Open vSwitch's database cannot be reached"

    async def reachable(self) -> None:
        """Wait for the connection to the database."""
        await self._switch.connected.wait()

    async def strays(self) -> Collection[Stray]:
        """Return the veths that bear our alias and have no row."""
        known = {row.name for row in self._switch.interfaces()}
        if not self._switch.identity():
            return []
        prefix = self._alias("")
        strays = []
        for name, text in (await self._links.aliases()).items():
            if text.startswith(prefix) and name not in known:
                found = remembered(text)
                user = found.container_id if found else text.removeprefix(prefix)
                uid, asked = (found.pod_uid, found.request_ifname) if found else ("", "")
                strays.append(Stray(user, name, uid, asked))
        return strays

    async def discard(self, stray: Stray) -> None:
        """Delete a stray veth, unless it has a row by now."""
        async with self.parked_ports.held(stray.name):
            if self._switch.find(stray.name) is None:
                await self._delete(stray.name, stray.container_id)

    def _alias(self, container_id: str) -> str:
        return alias(self._switch.identity(), container_id)

    def _wiring(self, attachment: Attachment, vif: VIFOpenVSwitch) -> netlink.Wiring:
        offload = not self._switch.in_user_space(vif.bridge_name)
        return interface.wiring(attachment, vif, offload=offload)

    def _rows(self, attachment: Attachment) -> list[InterfaceRow]:
        rows = self._switch.interfaces()
        return [row for row in rows if row.attached and read(row) == attachment]
