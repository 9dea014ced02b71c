"""The sweep of ports of no NeutronPort, and of NeutronPorts whose ports are not as recorded."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kuryr_k8s.engine.limit import Priority, prioritized
from kuryr_k8s.engine.sweep import Sweep
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.handlers.neutron_ports import plan
from kuryr_k8s.handlers.neutron_ports.ports import PortsOfNeutronPorts
from kuryr_k8s.k8s.resources import NEUTRONPORTS, Key
from kuryr_k8s.model.neutronport import NeutronPort

LOG = logging.getLogger(__name__)
Json = dict[str, Any]
AT_ONCE = 200  # NeutronPorts looked at in one go


class NeutronPortSweep(Sweep[Json]):
    """Held against the NeutronPorts, cached and live.

    :param look_at: called with the key of each NeutronPort whose port is lost, or was changed.
    """

    def __init__(
        self, context: HandlerContext, ports: PortsOfNeutronPorts, look_at: Callable[[Key], None]
    ) -> None:
        super().__init__(
            "neutron-port-sweeper",
            interval=context.conf.neutron_defaults.sweep_interval,
            confirm_after=context.patience.unneeded,
            patience=context.patience,
            clock=context.clock,
            observe=context.observe,
        )
        self._kube = context.kube
        self._strangers = context.strangers
        self._neutron_ports = context.informers.of(NEUTRONPORTS)
        self._ports = ports
        self._look_at = look_at
        self._existing: frozenset[str] = frozenset()  # ids of ports, as last listed

    async def search(self) -> list[Json]:
        with prioritized(Priority.CLEANUP):
            recorded = [port for port in self._neutron_ports.values() if port.port_id]
            listed = await self._ports.all_free()
            found = {live["id"]: live for live in listed}
            others = [port.port_id for port in recorded if port.port_id not in found]
            found |= {live["id"]: live for live in await self._ports.by_id(others)}
        self._existing = frozenset(found)
        for number, port in enumerate(recorded):
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)  # others want to work, too
            live = found.get(port.port_id)
            if live is None or self._is_amiss(live, port):
                self._look_at(Key(port.namespace, port.name))
        return self.still_unwanted(listed)

    def _is_amiss(self, live: Json, port: NeutronPort) -> bool:
        is_free = live["device_id"] == port.uid
        return is_free is not (port.bound_to is None) or plan.has_changed(live, port)

    def identity(self, item: Json) -> str:
        return str(item["id"])

    async def confirm(self, items: Sequence[Json]) -> list[Json]:
        return self._of_nobody(items, await self._kube.list_views(NEUTRONPORTS))

    def still_unwanted(self, items: Sequence[Json]) -> list[Json]:
        return self._of_nobody(items, self._neutron_ports.values())

    def _of_nobody(self, ports: Sequence[Json], objects: Iterable[NeutronPort]) -> list[Json]:
        """Return the ports whose NeutronPorts are gone, or have others that exist."""
        if self._strangers.overlap:
            return []
        port_ids = {each.uid: each.port_id for each in objects}
        return [
            port
            for port in ports
            if port["device_id"] not in port_ids
            or port_ids[port["device_id"]] in self._existing - {port["id"]}
        ]

    async def remove(self, item: Json) -> None:
        LOG.warning("port %s (%s) belongs to no NeutronPort; it goes", item["id"], item["name"])
        with prioritized(Priority.CLEANUP):
            await self._ports.discard(item)
