"""The sweep of ports that users made for Pods that are gone."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence

from kuryr_k8s.cloud.neutron.specific_ports import PARENT, TakenPort
from kuryr_k8s.engine.sweep import Sweep
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.k8s.resources import KURYRPORTS
from kuryr_k8s.model.kuryrport import KuryrPort

LOG = logging.getLogger(__name__)


class SpecificPortSweep(Sweep[TakenPort]):
    """The sweep that gives back ports of users whose Pods are gone.

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
        return _of_nobody(items, self._kuryrports.values())

    async def confirm(self, items: Sequence[TakenPort]) -> list[TakenPort]:
        pages = self._kube.list_pages(KURYRPORTS, {})
        live = [KuryrPort.read(item) async for items, _version in pages for item in items]
        return _of_nobody(items, live)

    async def remove(self, item: TakenPort) -> None:
        """Give the port back, bound to no host, or undo what is left of an attachment."""
        if item.pod_uid:
            LOG.warning("port %s is given back: Pod %s is gone", item.id, item.pod_uid)
            await self._neutron.specific_ports.give_back(item.id, item.pod_uid, {})
        elif item.parent:
            LOG.warning("port %s is detached: it was attached after its Pod was gone", item.id)
            await self._neutron.specific_ports.detach_late(item.id, item.revision)
        else:
            await self._neutron.specific_ports.clear(item.id, item.revision)


def _of_nobody(ports: Sequence[TakenPort], kuryrports: Iterable[KuryrPort]) -> list[TakenPort]:
    """Return the ports whose Pods are gone, and those without a Pod that no KuryrPort records.

    One that is attached has to be recorded with its parent port.
    """
    live = list(kuryrports)
    pods = {recorded.pod_uid for recorded in live}
    parents: defaultdict[str, set[str]] = defaultdict(set)
    for recorded in live:
        for port_id, fields in recorded.specific_ports:
            parents[port_id].add(dict(fields).get(PARENT, ""))

    def is_wanted(port: TakenPort) -> bool:
        if port.pod_uid:
            return port.pod_uid in pods
        return port.parent in parents[port.id] if port.parent else port.id in parents

    return [port for port in ports if not is_wanted(port)]
