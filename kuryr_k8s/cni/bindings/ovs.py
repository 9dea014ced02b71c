"""VIFOpenVSwitch: a veth whose host end is a port of br-int, where OVN takes it over.

A port that is parked is there already, and is handed over; whenever that cannot be, it is plugged
in the ordinary way, anew.

Order is what keeps this repeatable. The veth is made and set up before the port is recorded in
Open vSwitch: where there is a row, there was a complete veth. The Pod's end goes up only after
OVN has installed the port's flows, so that the announcement of its addresses is not lost.
"""

import logging
from collections.abc import Collection

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
from kuryr_k8s.cni.bindings.ovs_parked import alias
from kuryr_k8s.cni.ovs.switch import OURS, Interface
from kuryr_k8s.cni.result import Result
from kuryr_k8s.model.vif import VIFBase, VIFOpenVSwitch, VIFPortProfileOpenVSwitch

LOG = logging.getLogger(__name__)
# Where an Attachment's fields stand in external_ids
IDS = {
    "container_id": OURS,
    "ifname": "kuryr-ifname",
    "request_ifname": "kuryr-request-ifname",
    "netns": "kuryr-netns",
    "pod_uid": "kuryr-pod-uid",
    "namespace": "kuryr-namespace",
    "pod": "kuryr-pod",
}


class OpenVSwitchBinding(Binding):
    """Needs ovn-controller on the node: it alone says when a port is ready."""

    def __init__(self, host: Host) -> None:
        self._links = host.links
        self._switch = host.switch
        self._parked = host.parked
        self._up: set[Attachment] = set()  # handed over, and announced already

    async def connect(self, attachment: Attachment, vif: VIFBase) -> Result:
        vif = _expect(vif)
        async with self._parked.held(vif.vif_name):
            known = self._switch.find(vif.vif_name)
            host_mac = None
            if known is not None and known.iface_id == _port_id(vif):
                if not known.attached:
                    host_mac = await self._hand_over(known, attachment, vif)
                elif _read(known) == attachment:
                    host_mac = await self._still_there(attachment, vif)
            if host_mac is None:
                host_mac = await self._connect(attachment, vif, anew=known is not None)
        return veth.describe(attachment, vif, vif.vif_name, host_mac)

    async def _hand_over(
        self, row: Interface, attachment: Attachment, vif: VIFOpenVSwitch
    ) -> str | None:
        wiring = self._wiring(attachment, vif)
        try:
            mac = await self._parked.hand_over(row, _ids(attachment), attachment.netns, wiring)
        except netlink.NamespaceError as error:
            raise NamespaceGone(str(error)) from error
        if mac is not None and row.installed:
            self._up.add(attachment)
        return mac

    async def _connect(self, attachment: Attachment, vif: VIFOpenVSwitch, *, anew: bool) -> str:
        if not self._switch.identity():
            raise BindingError("this node has no Open vSwitch ([cni_daemon] ovsdb_connection)")
        if anew:
            await self._switch.del_port(vif.vif_name)
        try:
            mac = await self._links.create(
                vif.vif_name,
                self._alias(attachment.container_id),
                attachment.netns,
                self._wiring(attachment, vif),
            )
        except netlink.NamespaceError as error:
            raise NamespaceGone(str(error)) from error
        except netlink.LinkError as error:
            raise BindingError(f"cannot make the veth {vif.vif_name}: {error}") from error
        await self._switch.add_port(vif.bridge_name, vif.vif_name, _external_ids(attachment, vif))
        return mac

    async def _still_there(self, attachment: Attachment, vif: VIFOpenVSwitch) -> str | None:
        """MAC of the node's end if the veth is whole, else None."""
        seen = await self._links.observe(attachment.netns, attachment.ifname)
        if seen is None or seen.mac != (vif.address or "").lower():
            return None
        return await self._links.mac(vif.vif_name)

    async def ready(self, attachment: Attachment, vif: VIFBase) -> None:
        vif = _expect(vif)
        if attachment in self._up:
            self._up.discard(attachment)
            return
        await self._switch.wait_installed(vif.vif_name, _port_id(vif))
        known, wiring = self._switch.find(vif.vif_name), self._wiring(attachment, vif)
        try:
            if known is not None and known.parked:
                await self._links.activate_parked(vif.vif_name, attachment.netns, wiring)
            else:
                await self._links.activate(attachment.netns, wiring)
        except netlink.NamespaceError as error:
            raise NamespaceGone(str(error)) from error
        except netlink.LinkError as error:
            raise BindingError(f"cannot set {attachment.ifname} up: {error}") from error

    def progress(self, vif: VIFBase) -> str:
        vif = _expect(vif)
        known = self._switch.find(vif.vif_name)
        if known is None:
            return f"port {vif.vif_name} is not in Open vSwitch"
        if known.error:
            return f"ovs-vswitchd reports: {known.error}"
        return (
            f"OVN has not installed Neutron port {_port_id(vif)} (interface {vif.vif_name}); is "
            f"ovn-controller running, and is the port bound to chassis {self._switch.host_id()}?"
        )

    async def disconnect(self, attachment: Attachment) -> None:
        self._up.discard(attachment)
        for row in self._rows(attachment):
            async with self._parked.held(row.name):
                if row in self._rows(attachment):
                    await self._disconnect(row, attachment)

    async def _disconnect(self, row: Interface, attachment: Attachment) -> None:
        if await self._parked.take_back(row, IDS.values(), attachment.netns, attachment.ifname):
            return
        await self._switch.del_port(row.name)
        await self._delete(row.name, "parked" if row.parked else attachment.container_id)

    async def _delete(self, name: str, container_id: str) -> None:
        try:
            await self._links.delete(name, self._alias(container_id))
        except netlink.LinkError as error:
            raise BindingError(f"cannot delete the veth {name}: {error}") from error

    async def check(self, attachment: Attachment, vif: VIFBase) -> None:
        vif = _expect(vif)
        known = self._switch.find(vif.vif_name)
        if known is None or _read(known) != attachment:
            raise BindingError(f"port {vif.vif_name} of Open vSwitch is missing")
        if known.error or not known.installed:
            raise BindingError(self.progress(vif))
        seen = await self._links.observe(attachment.netns, attachment.ifname)
        if missing := veth.missing(attachment, vif, seen):
            raise BindingError(missing)

    def attachments(self) -> Collection[Attachment]:
        return [_read(row) for row in self._switch.interfaces() if row.attached]

    def working(self, attachment: Attachment) -> bool:
        return any(row.installed for row in self._rows(attachment))

    def vanished(self, attachment: Attachment) -> bool:
        return not any(self._in_pod(row) for row in self._rows(attachment))

    def _in_pod(self, row: Interface) -> bool:
        return self._links.in_use(row.name) if row.parked else self._links.exists(row.name)

    async def strays(self) -> Collection[Stray]:
        known = {row.name for row in self._switch.interfaces()}
        if not self._switch.identity():
            return []
        prefix = self._alias("")
        return [
            Stray(alias.removeprefix(prefix), name)
            for name, alias in (await self._links.aliases()).items()
            if alias.startswith(prefix) and name not in known
        ]

    async def discard(self, stray: Stray) -> None:
        async with self._parked.held(stray.name):
            if self._switch.find(stray.name) is None:
                await self._delete(stray.name, stray.container_id)

    def _alias(self, container_id: str) -> str:
        return alias(self._switch.identity(), container_id)

    def _wiring(self, attachment: Attachment, vif: VIFOpenVSwitch) -> netlink.Wiring:
        offload = not self._switch.in_user_space(vif.bridge_name)
        return veth.wiring(attachment, vif, offload=offload)

    def _rows(self, attachment: Attachment) -> list[Interface]:
        rows = self._switch.interfaces()
        return [row for row in rows if row.attached and _read(row) == attachment]


def _expect(vif: VIFBase) -> VIFOpenVSwitch:
    if not isinstance(vif, VIFOpenVSwitch):
        raise BindingError(f"{type(vif).__name__} is no VIFOpenVSwitch")
    return vif


def _port_id(vif: VIFOpenVSwitch) -> str:
    """The Neutron port's id, as OVN looks for it."""
    profile = vif.port_profile
    return profile.interface_id if isinstance(profile, VIFPortProfileOpenVSwitch) else vif.id


def _ids(attachment: Attachment) -> dict[str, str]:
    return {key: getattr(attachment, name) for name, key in IDS.items()}


def _external_ids(attachment: Attachment, vif: VIFOpenVSwitch) -> dict[str, str]:
    return _ids(attachment) | {
        "iface-id": _port_id(vif),
        "iface-status": "active",
        "attached-mac": vif.address or "",
    }


def _read(row: Interface) -> Attachment:
    return Attachment(**{name: row.external_ids.get(key, "") for name, key in IDS.items()})
