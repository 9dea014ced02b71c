"""The adoption of ports that a version without marks made for this cluster."""

import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import (
    CONTESTED,
    POOL_TAG,
    PodVIFDriver,
    PooledVIFDriver,
    Records,
    VIFPoolDriver,
    maker_of,
)
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.k8s.resources import NODES

LOG = logging.getLogger(__name__)
Json = dict[str, Any]
AT_ONCE = 100  # ports that are marked after a search


class Adoption:
    """Recognizes unmarked ports that are ours, and marks them later, some at a time.

    A Pod's port is ours if a KuryrPort and the port name each other. A port of a pool is ours if
    it is one Pod's beyond doubt, or if it is available at the host or trunk of one of our Nodes:
    tenants can neither bind ports to hosts nor attach them to trunks of our project.
    """

    def __init__(self, context: HandlerContext) -> None:
        self._neutron = context.neutron
        self._drivers = context.drivers
        self._pool = context.drivers[VIFPoolDriver]
        self._nodes = context.informers.of(NODES)
        self._to_mark: dict[str, Json] = {}  # ports by their ids, adopted, and not marked yet

    @property
    def is_pending(self) -> bool:
        """Return whether ports remain to be marked."""
        return bool(self._to_mark)

    async def adopt(self, unmarked: Sequence[Json], recorded: Records) -> list[Json]:
        """Return those of the ports that are ours; they are to be marked.

        :param unmarked: ports that drivers of ours made, as Neutron shows them.
        :param recorded: from a live list.
        :raises errors.CloudError: Neutron does not tell where a port or a node is.
        """
        adopted, available = [], []
        for port in unmarked:
            pod_uid = self._pod_uid_of(port)
            holder = recorded.holder_of(port["id"], port["device_id"])
            is_pooled = POOL_TAG in port["tags"]
            if pod_uid in recorded.pods or (is_pooled and holder not in (None, CONTESTED)):
                adopted.append(port)
            elif is_pooled and holder is None:
                available.append(port)
        adopted += await self._at_our_nodes(available)
        for port in adopted:
            self._neutron.own_ports.note(port, (*port["tags"], self._neutron.mark.tag))
        self._to_mark |= {port["id"]: port for port in adopted}
        return adopted

    async def mark_some(self) -> bool:
        """Mark some of the adopted ports; return False if one has to be tried again later."""
        marked = [await self._mark(port_id) for port_id in tuple(self._to_mark)[:AT_ONCE]]
        return all(marked)

    async def _mark(self, port_id: str) -> bool:
        port = self._to_mark.pop(port_id)
        try:
            await self._neutron.mark_port(port)
        except errors.NotFound:
            return True
        except errors.CloudError as error:
            LOG.warning("port %s stays without a mark: %s", port_id, error)
            if error.status == 403:  # another project's: it is adopted again after a start
                return True
            self._to_mark[port_id] = port
            return False
        return True

    def _pod_uid_of(self, port: Json) -> str | None:
        maker = maker_of(port, self._drivers.of_slot(PodVIFDriver))
        return maker.pod_uid_of(port) if maker is not None else None

    async def _at_our_nodes(self, ports: Sequence[Json]) -> list[Json]:
        """Return the ports of pools that are at the host or trunk of one of our Nodes."""
        places = await self._places() if ports else {}
        found: set[str] = set()
        for driver, ours in places.items():
            pooled = await driver.find_pooled(ports)
            found.update(port.id for port in pooled if port.key.place in ours)
        return [port for port in ports if port["id"] in found]

    async def _places(self) -> dict[PooledVIFDriver, set[str]]:
        """Return the hosts or trunks of our Nodes, by the drivers that make ports for them."""
        places: defaultdict[PooledVIFDriver, set[str]] = defaultdict(set)
        for node in self._nodes.values():
            try:
                for driver in self._pool.part_of(node).vif_drivers():
                    if isinstance(driver, PooledVIFDriver):
                        places[driver].add(await driver.place(node))
            except errors.Refused as error:  # its ports stay unmarked until it is known
                LOG.debug("node %s: %s", node.name, error)
        return places
