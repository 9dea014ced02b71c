"""The sweep of ports that users made, and that no Pod has, or one has in part only."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence

from kuryr_k8s.cloud.neutron.specific_ports import PARENT, TakenPort
from kuryr_k8s.engine.sweep import Sweep
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.k8s.resources import KURYRPORTS
from kuryr_k8s.model.kuryrport import KuryrPort
from kuryr_k8s.model.vif import VIFVlanNested

LOG = logging.getLogger(__name__)


class SpecificPortSweep(Sweep[TakenPort]):
    """The sweep that gives back ports of users whose Pods are gone, and attaches those of others.

    Such ports are left where a late call of an earlier leader has taken one, or where somebody has
    removed our finalizer. What such a port was bound to before is not known any more. Of ports
    that were attached to trunks, tags are left: a late call may still attach one.
    """

    def __init__(self, context: HandlerContext) -> None:
        super().__init__(
            "specific-port-sweeper",
            interval=context.conf.neutron_defaults.sweep_interval,
            confirm_after=context.patience.late_attachment,
            patience=context.patience,
            clock=context.clock,
            observe=context.observe,
        )
        self._neutron = context.neutron
        self._kube = context.kube
        self._kuryrports = context.informers.of(KURYRPORTS)

    async def search(self) -> list[TakenPort]:
        return self.still_unwanted(await self._neutron.specific_ports.list_taken())

    def identity(self, item: TakenPort) -> TakenPort:
        """Return the item: a port that has changed is another one."""
        return item

    def still_unwanted(self, items: Sequence[TakenPort]) -> list[TakenPort]:
        return _amiss(items, self._kuryrports.values())

    async def confirm(self, items: Sequence[TakenPort]) -> list[TakenPort]:
        return _amiss(items, await self._kube.list_views(KURYRPORTS))

    async def remove(self, item: TakenPort) -> None:
        """Give the port back, bound to no host, or undo what is left of an attachment.

        One that a running Pod should have on a trunk is attached again.
        """
        runs = next(
            (each for each in self._kuryrports.values() if _runs_with(each, item.id)), None
        )
        if runs is not None:
            vif = next(vif for vif in runs.vifs().values() if vif.id == item.id)
            parent = dict(dict(runs.specific_ports)[item.id]).get(PARENT, "")
            if isinstance(vif, VIFVlanNested):
                LOG.warning("port %s is attached again: it was on its trunk no more", item.id)
                await self._neutron.specific_ports.reattach(
                    item.id, runs.pod_uid, parent, vif.vlan_id
                )
        elif item.pod_uid:
            LOG.warning("port %s is given back: Pod %s is gone", item.id, item.pod_uid)
            await self._neutron.specific_ports.give_back(item.id, item.pod_uid, {})
        elif item.parent:
            LOG.warning("port %s is detached: it was attached after its Pod was gone", item.id)
            await self._neutron.specific_ports.detach_late(item.id, item.revision)
        else:
            await self._neutron.specific_ports.clear(item.id, item.revision)


def _amiss(ports: Sequence[TakenPort], kuryrports: Iterable[KuryrPort]) -> list[TakenPort]:
    """Return the ports whose Pods are gone, and those without a Pod that no KuryrPort records.

    One that is attached has to be recorded with its parent port. One that a Pod runs with must be
    wholly attached.
    """
    live = list(kuryrports)
    pods = {recorded.pod_uid for recorded in live}
    parents: defaultdict[str, set[str]] = defaultdict(set)
    in_use: set[str] = set()
    for recorded in live:
        for port_id, fields in recorded.specific_ports:
            parents[port_id].add(dict(fields).get(PARENT, ""))
            if _runs_with(recorded, port_id):
                in_use.add(port_id)

    def is_in_order(port: TakenPort) -> bool:
        if port.pod_uid:
            return port.pod_uid in pods and not (port.is_cut_off and port.id in in_use)
        if port.parent:
            return port.parent in parents.get(port.id, ()) and port.id not in in_use
        return port.id in parents

    return [port for port in ports if not is_in_order(port)]


def _runs_with(recorded: KuryrPort, port_id: str) -> bool:
    """Return whether a Pod has a port as an interface, and is not being released."""
    is_recorded = port_id in dict(recorded.specific_ports)
    return is_recorded and not recorded.deleting and port_id in recorded.uuids()
