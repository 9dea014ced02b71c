"""Parked ports: plugged before a Pod has them, and still plugged after it.

A parked port is a :class:`~kuryr_k8s.cni.netlink.ParkedPair` and a row in Open vSwitch with a
mark. The ids of an attachment in that row state that a Pod has the port; they are written before
the Pod gets it, and erased when everything that the Pod had is gone. So whenever the daemon dies,
no port that a Pod may have looks available.
"""

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack

from kuryr_k8s import errors
from kuryr_k8s.cni.bindings.ovs_records import PARKED_USER, alias
from kuryr_k8s.cni.netlink import LinkError, Links, NamespaceError, ParkedPair, Wiring
from kuryr_k8s.cni.ovs.openflow import OpenFlow, OpenFlowError
from kuryr_k8s.cni.ovs.switch import PARKED, InterfaceRow, NewPort, OpenVSwitch
from kuryr_k8s.cni.serial import Serial
from kuryr_k8s.model.kuryrportpool import PoolPort

LOG = logging.getLogger(__name__)
IFNAME_LIMIT = 14  # of the node's end, as the controller names it in a VIF


def host_end(port_id: str) -> str:
    """Return the name of the node's end of a port's pair, the same as in its VIF."""
    return f"tap{port_id}"[:IFNAME_LIMIT]


class ParkedPorts:
    """The parked ports of the node.

    :param kept: tells whether the port with this id is parked again when its Pod leaves.
    """

    def __init__(
        self, links: Links, switch: OpenVSwitch, openflow: OpenFlow, kept: Callable[[str], bool]
    ) -> None:
        self._links = links
        self._switch = switch
        self._openflow = openflow
        self._kept = kept
        self._serial = Serial()

    def held(self, host: str) -> AbstractAsyncContextManager[None]:
        """Exclude all other work on the interface and the row of this name."""
        return self._serial.held(host)

    def rows(self) -> list[InterfaceRow]:
        """Return the rows of parked ports that no Pod has."""
        return [row for row in self._switch.interfaces() if row.parked and not row.attached]

    def ready(self, port_id: str) -> bool:
        """Return whether a port is parked, has no Pod, and is installed by OVN."""
        return any(row.iface_id == port_id and row.installed for row in self.rows())

    async def park(self, ports: Mapping[str, PoolPort]) -> None:
        """Plug these ports, by their ids, except those that are plugged already.

        :raises LinkError, OVSError: nothing is recorded; whatever was made is a leftover.
        """
        async with self._all_held(list(map(host_end, ports))):
            missing = {i: ports[i] for i in ports if not self._plugged(i)}
            pairs = [self._pair(port_id, port) for port_id, port in missing.items()]
            await self._links.park(pairs, self._alias())
            await self._switch.add_ports([_new_port(*item) for item in missing.items()])
        if missing:
            LOG.info("parked %s", ", ".join(missing))

    async def mend(self) -> None:
        """Unplug ports whose pair is gone, and block the others.

        A pair goes with the node's restart. An earlier daemon may have died while it handed a
        port over, and so left the pair open.
        """
        for row in self.rows():
            async with self.held(row.name):
                if self._is_parked(row) and not await self._links.block(row.name):
                    LOG.warning("the pair of parked port %s is gone", row.iface_id)
                    await self._unplug(row)

    async def unpark(self, rows: Sequence[InterfaceRow]) -> None:
        """Unplug these ports, except those that a Pod has got meanwhile."""
        for row in rows:
            async with self.held(row.name):
                if self._is_parked(row):
                    await self._unplug(row)
                    LOG.info("port %s is no longer parked", row.iface_id)

    async def hand_over(
        self, row: InterfaceRow, ids: Mapping[str, str], user: str, netns: str, wiring: Wiring
    ) -> str | None:
        """Give a Pod the port, with its end up if OVN has installed the port already.

        The caller holds the name.

        :param ids: the record of the attachment.
        :param user: the same for the alias.
        :returns: the MAC of the node's end; None if the port has to be plugged like any other.
        :raises NamespaceError: there is no Pod. The record stands; :meth:`take_back` erases it.
        """
        if not await self._switch.mark(row.row, ids):
            return None
        try:
            text = alias(self._switch.identity(), user)
            return await self._links.hand_over(row.name, text, netns, wiring, up=row.installed)
        except NamespaceError:
            raise
        except LinkError as error:
            LOG.warning("parked port %s cannot be handed over: %s", row.iface_id, error)
            return None

    async def take_back(
        self, row: InterfaceRow, ids: Collection[str], netns: str, ifname: str
    ) -> bool:
        """Take the port from a Pod, with its addresses, connections and record.

        The caller holds the name.

        :param ids: the keys of the record of the attachment.
        :returns: False if the port has to be unplugged.
        """
        zone = self._switch.zone(row.iface_id)
        if not row.parked or zone is None or not self._kept(row.iface_id):
            return False
        try:
            await self._links.take_back(row.name, self._alias(), netns, ifname)
            await self._openflow.forget_connections(*zone)
        except (LinkError, OpenFlowError) as error:
            LOG.warning("port %s cannot be parked again: %s", row.iface_id, error)
            return False
        return await self._switch.mark(row.row, dict.fromkeys(ids))

    @contextlib.asynccontextmanager
    async def _all_held(self, hosts: Sequence[str]) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for host in sorted(hosts):  # as all that hold several names
                await stack.enter_async_context(self.held(host))
            yield

    def occupied(self, port_id: str) -> bool:
        """Return whether a Pod has the interface of a port, whatever Open vSwitch says."""
        return self._links.occupied(host_end(port_id))

    def _plugged(self, port_id: str) -> bool:
        return any(row.iface_id == port_id for row in self._switch.interfaces())

    def _is_parked(self, row: InterfaceRow) -> bool:
        """Return whether the row still exists without a Pod, now that its name is held."""
        now = self._switch.find(row.name)
        return now is not None and now.row == row.row and not now.attached

    async def _unplug(self, row: InterfaceRow) -> None:
        await self._switch.del_port(row.name)
        with contextlib.suppress(errors.KuryrError):  # then it is a stray, and removed as such
            await self._links.delete(row.name, self._alias())

    def _pair(self, port_id: str, port: PoolPort) -> ParkedPair:
        offload = not self._switch.in_user_space(port.bridge)
        mtu = port.mtu or None
        return ParkedPair(host=host_end(port_id), mac=port.mac, mtu=mtu, offload=offload)

    def _alias(self) -> str:
        return alias(self._switch.identity(), PARKED_USER)


def _new_port(port_id: str, port: PoolPort) -> NewPort:
    ids = {
        PARKED: "true",
        "iface-id": port_id,
        "iface-status": "active",
        "attached-mac": port.mac,
    }
    return NewPort(port.bridge, host_end(port_id), ids)
