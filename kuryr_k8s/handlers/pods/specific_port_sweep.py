"""The sweep of ports that users made for Pods that are gone."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from kuryr_k8s.engine.sweep import Sweep
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.k8s.resources import KURYRPORTS
from kuryr_k8s.model.kuryrport import KuryrPort

LOG = logging.getLogger(__name__)
Json = dict[str, Any]


class SpecificPortSweep(Sweep[Json]):
    """The sweep that gives back ports of users whose Pods are gone.

    Such ports are left where a late call of an earlier leader has taken one, or where somebody has
    removed our finalizer. What such a port was bound to before is not known any more.
    """

    def __init__(self, context: HandlerContext) -> None:
        super().__init__(
            "specific-port-sweeper",
            interval=context.conf.neutron_defaults.sweep_interval,
            confirm_after=context.patience.unneeded,
            patience=context.patience,
            clock=context.clock,
            observe=context.observe,
        )
        self._neutron = context.neutron
        self._kube = context.kube
        self._kuryrports = context.informers.of(KURYRPORTS)

    async def search(self) -> list[Json]:
        return self.still_unwanted(await self._neutron.specific_ports.list_taken())

    def identity(self, item: Json) -> tuple[str, str]:
        """Return the ids of the port and of its Pod."""
        return item["id"], item["device_id"]

    def still_unwanted(self, items: Sequence[Json]) -> list[Json]:
        return _of_nobody(items, self._kuryrports.values())

    async def confirm(self, items: Sequence[Json]) -> list[Json]:
        pages = self._kube.list_pages(KURYRPORTS, {})
        live = [KuryrPort.read(item) async for items, _version in pages for item in items]
        return _of_nobody(items, live)

    async def remove(self, item: Json) -> None:
        """Give the port back, bound to no host."""
        LOG.warning("port %s is given back: Pod %s is gone", item["id"], item["device_id"])
        await self._neutron.specific_ports.give_back(item["id"], item["device_id"], {})


def _of_nobody(ports: Sequence[Json], kuryrports: Iterable[KuryrPort]) -> list[Json]:
    pods = {recorded.pod_uid for recorded in kuryrports}
    return [port for port in ports if port["device_id"] not in pods]
