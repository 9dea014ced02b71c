"""Ports that are plugged before a Pod has them, and stay plugged after it: how that is done.

A parked port is a pair in ``netlink.parked``'s sense and a row in Open vSwitch with a mark. The
row with the ids of an attachment in it is what says that a Pod has the port; it is written before
the Pod gets it, and erased when all that the Pod had is gone. So whatever dies in between, no
port that a Pod may have looks free.
"""

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack

from kuryr_k8s import errors
from kuryr_k8s.cni.netlink import LinkError, Links, NamespaceError, Pair, Wiring
from kuryr_k8s.cni.ovs.openflow import OpenFlow, OpenFlowError
from kuryr_k8s.cni.ovs.switch import PARKED, Interface, NewPort, OpenVSwitch
from kuryr_k8s.cni.pods.flights import Serial
from kuryr_k8s.model.kuryrportpool import PoolPort

LOG = logging.getLogger(__name__)
IFNAME_LIMIT = 14  # of the node's end, as the controller names it in a VIF


def host_end(port_id: str) -> str:
    """Name of the node's end of a port's pair, the same as in its VIF."""
    return f"tap{port_id}"[:IFNAME_LIMIT]


class Parked:
    """:param kept: is the port with this id to be parked when a Pod leaves it?"""

    def __init__(
        self, links: Links, switch: OpenVSwitch, openflow: OpenFlow, kept: Callable[[str], bool]
    ) -> None:
        self._links = links
        self._switch = switch
        self._openflow = openflow
        self._kept = kept
        self._serial = Serial()

    def held(self, host: str) -> AbstractAsyncContextManager[None]:
        """Nobody else works on what has this name on the node meanwhile."""
        return self._serial.held(host)

    def rows(self) -> list[Interface]:
        """Those that are parked, and that no Pod has."""
        return [row for row in self._switch.interfaces() if row.parked and not row.attached]

    def ready(self, port_id: str) -> bool:
        """Is it parked, in no Pod, and installed by OVN?"""
        return any(row.iface_id == port_id and row.installed for row in self.rows())

    async def park(self, ports: Mapping[str, PoolPort]) -> None:
        """Plug these ports, by their ids, save those that are plugged already.

        :raises LinkError, OVSError: nothing is recorded; what was made is a leftover.
        """
        async with self._all_held(list(map(host_end, ports))):
            missing = {i: ports[i] for i in ports if not self._plugged(i)}
            pairs = [self._pair(port_id, port) for port_id, port in missing.items()]
            await self._links.park(pairs, self._alias())
            await self._switch.add_ports([_new_port(*each) for each in missing.items()])
        if missing:
            LOG.info("parked %s", ", ".join(missing))

    async def mend(self) -> None:
        """Unplug what lost its pair with the node's restart; see to it that nothing passes the
        others, whatever an earlier daemon had begun.
        """
        for row in self.rows():
            async with self.held(row.name):
                if self._is_parked(row) and not await self._links.rest(row.name):
                    LOG.warning("the pair of parked port %s is gone", row.iface_id)
                    await self._unplug(row)

    async def unpark(self, rows: Sequence[Interface]) -> None:
        """Unplug these, save what a Pod has got meanwhile."""
        for row in rows:
            async with self.held(row.name):
                if self._is_parked(row):
                    await self._unplug(row)
                    LOG.info("port %s is parked no more", row.iface_id)

    async def hand_over(
        self, row: Interface, ids: Mapping[str, str], netns: str, wiring: Wiring
    ) -> str | None:
        """Give a Pod the port; its end is up where OVN has installed the port already. The name
        must be held.

        :param ids: the record of the attachment.
        :returns: MAC of the node's end, None if it has to be done in the ordinary way.
        :raises NamespaceError: there is no Pod. The record stands, to be taken back.
        """
        if not await self._switch.mark(row.row, ids):
            return None
        try:
            return await self._links.hand_over(row.name, netns, wiring, up=row.installed)
        except NamespaceError:
            raise
        except LinkError as error:
            LOG.warning("parked port %s cannot be handed over: %s", row.iface_id, error)
            return None

    async def take_back(
        self, row: Interface, ids: Collection[str], netns: str, ifname: str
    ) -> bool:
        """Take the port from a Pod, with all that reminds of it. The name must be held.

        :param ids: the keys of the record of the attachment, which is erased.
        :returns: False if it has to be unplugged.
        """
        where = self._switch.zone(row.iface_id)
        if not row.parked or where is None or not self._kept(row.iface_id):
            return False
        try:
            await self._links.withdraw(row.name, netns, ifname)
            await self._openflow.forget_connections(*where)
        except (LinkError, OpenFlowError) as error:
            LOG.warning("port %s cannot be parked again: %s", row.iface_id, error)
            return False
        return await self._switch.mark(row.row, dict.fromkeys(ids))

    @contextlib.asynccontextmanager
    async def _all_held(self, hosts: Sequence[str]) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for host in hosts:
                await stack.enter_async_context(self.held(host))
            yield

    def _plugged(self, port_id: str) -> bool:
        return any(row.iface_id == port_id for row in self._switch.interfaces())

    def _is_parked(self, row: Interface) -> bool:
        """Is this row there, and no Pod's, now that its name is held?"""
        now = self._switch.find(row.name)
        return now is not None and now.row == row.row and not now.attached

    async def _unplug(self, row: Interface) -> None:
        await self._switch.del_port(row.name)
        with contextlib.suppress(errors.KuryrError):  # it is a leftover then, and swept
            await self._links.delete(row.name, self._alias())

    def _pair(self, port_id: str, port: PoolPort) -> Pair:
        offload = not self._switch.in_user_space(port.bridge)
        return Pair(host=host_end(port_id), mac=port.mac, mtu=port.mtu or None, offload=offload)

    def _alias(self) -> str:
        return alias(self._switch.identity(), "parked")


def alias(identity: str, what: str) -> str:
    """The alias of a node's end. It names the database that the port is to be recorded in: what
    another one's daemon plugged on the same machine must not look like a leftover.
    """
    return f"kuryr:{identity}:{what}"


def _new_port(port_id: str, port: PoolPort) -> NewPort:
    ids = {
        PARKED: "true",
        "iface-id": port_id,
        "iface-status": "active",
        "attached-mac": port.mac,
    }
    return NewPort(port.bridge, host_end(port_id), ids)
