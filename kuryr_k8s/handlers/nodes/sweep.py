"""The sweep of Neutron ports whose Nodes are gone, or are to have no port any more."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from kuryr_k8s.engine.limit import Priority, prioritized
from kuryr_k8s.engine.sweep import Sweep
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.handlers.nodes.ports import PortsOfNodes
from kuryr_k8s.k8s.resources import NODES
from kuryr_k8s.model.pod import Node

LOG = logging.getLogger(__name__)
Json = dict[str, Any]
CONFIRM_AFTER = 30.0  # seconds


class NodePortSweep(Sweep[Json]):
    """Held against the Nodes, cached and live.

    Without ``[neutron_defaults] node_subnet`` no Node is to have a port: it searches until nothing
    of an earlier setting is left, and then rests.

    :param named: Whether the option is set.
    :param review: Called with all ports, for what is wrong with those that Nodes have.
    """

    def __init__(
        self,
        context: HandlerContext,
        ports: PortsOfNodes,
        *,
        named: bool,
        review: Callable[[Sequence[Json]], Awaitable[None]],
    ) -> None:
        super().__init__(
            "node-port-sweeper",
            interval=context.conf.neutron_defaults.sweep_interval,
            confirm_after=CONFIRM_AFTER,
            patience=context.patience,
            clock=context.clock,
            observe=context.observe,
        )
        self._kube = context.kube
        self._nodes = context.informers.of(NODES)
        self._strangers = context.strangers
        self._ports = ports
        self._named = named
        self._review = review
        self._cleared = False  # nothing of an earlier setting is left

    async def search(self) -> list[Json]:
        """Return the ports of no Node; have the others reviewed."""
        if self._cleared:
            return []
        with prioritized(Priority.CLEANUP):
            ports = await self._ports.all()
            if self._named:
                await self._review(ports)
            else:
                self._cleared = not ports
        return self._of_nobody(ports, self._nodes.values())

    def identity(self, item: Json) -> str:
        """Return the port's id."""
        return str(item["id"])

    async def confirm(self, items: Sequence[Json]) -> list[Json]:
        """Return those whose Nodes a live list lacks, too."""
        return self._of_nobody(items, await self._kube.list_views(NODES))

    def still_unwanted(self, items: Sequence[Json]) -> list[Json]:
        """Return those that no Node has come to own."""
        return self._of_nobody(items, self._nodes.values())

    def _of_nobody(self, ports: Sequence[Json], nodes: Iterable[Node]) -> list[Json]:
        if self._strangers.overlap:
            return []
        owners = {node.uid for node in nodes if self._named and not node.foreign}
        return [port for port in ports if port["device_id"] not in owners]

    async def remove(self, item: Json) -> None:
        """Delete the port."""
        LOG.info("port %s (%s) belongs to no Node any more; it goes", item["id"], item["name"])
        with prioritized(Priority.CLEANUP):
            await self._ports.release(item)
