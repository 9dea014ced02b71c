"""A pool driver that has another one keep the ports, and says how often Pods asked for one."""

from collections.abc import Callable, Sequence
from typing import Any

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from kuryr_k8s.drivers.base import (
    DriverContext,
    KeepsPorts,
    ParkablePort,
    PodVIFDriver,
    PooledPort,
    PoolKey,
    PoolView,
    PortRequest,
    Records,
)
from kuryr_k8s.drivers.pools.port_pool import NeutronPool
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.model.pod import Node
from kuryr_k8s.model.vif import VIFBase


class AskedPool(KeepsPorts, Collector):
    """Is no subclass of any pool driver of kuryr_k8s: all that it has is the contract."""

    name = "example-asked"

    def __init__(self, context: DriverContext, vif: PodVIFDriver | None = None) -> None:
        super().__init__(context, vif)
        self._pool = NeutronPool(context, vif)
        self._asked = 0

    async def start(self) -> None:
        """Check the configuration of the pool."""
        await self._pool.start()

    def loops(self) -> Sequence[Controller[Any]]:
        """Return the workers of the pool."""
        return self._pool.loops()

    def collectors(self) -> Sequence[Collector]:
        """Return the metrics of the pool, and this driver's own."""
        return (*self._pool.collectors(), self)

    def collect(self) -> Sequence[CounterMetricFamily]:
        """Return how often Pods asked for a port."""
        return (CounterMetricFamily("example_asked", "Requests of Pods", value=self._asked),)

    async def request(self, request: PortRequest) -> VIFBase:
        """Count the request, and pass it on."""
        self._asked += 1
        return await self._pool.request(request)

    async def update_security_groups(self, vif: VIFBase, groups: tuple[str, ...]) -> None:
        """Pass it on."""
        await self._pool.update_security_groups(vif, groups)

    async def release(self, vif: VIFBase, pod_uid: str) -> None:
        """Pass it on."""
        await self._pool.release(vif, pod_uid)

    async def release_unrecorded(self, pod_uid: str) -> int:
        """Pass it on."""
        return await self._pool.release_unrecorded(pod_uid)

    def on_change(self, callback: Callable[[str], None]) -> None:
        """Pass it on."""
        self._pool.on_change(callback)

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Pass it on."""
        self._pool.on_lost(callback)

    @property
    def recovered(self) -> bool:
        """Whether the pool has recovered."""
        return self._pool.recovered

    def known(self) -> frozenset[str]:
        """Return the pool's ports."""
        return self._pool.known()

    async def survey(
        self, known: frozenset[str], ports: list[dict[str, Any]], records: Records
    ) -> list[dict[str, Any]]:
        """Pass it on."""
        return await self._pool.survey(known, ports, records)

    async def locate(self, node: Node) -> str:
        """Pass it on."""
        return await self._pool.locate(node)

    def close_node(self, name: str) -> None:
        """Pass it on."""
        self._pool.close_node(name)

    def close_unlocated(self) -> None:
        """Pass it on."""
        self._pool.close_unlocated()

    async def ports_to_park(self, place: str) -> list[ParkablePort]:
        """Return what the pool has parked."""
        return await self._pool.ports_to_park(place)

    def set_parked(self, place: str, parked: frozenset[str], leaving: frozenset[str]) -> None:
        """Pass it on."""
        self._pool.set_parked(place, parked, leaving)

    def pools(self, place: str | None = None) -> list[PoolView]:
        """Return the pools."""
        return self._pool.pools(place)

    def ports(self, key: PoolKey) -> list[tuple[PooledPort, str]]:
        """Return the ports of one of them."""
        return self._pool.ports(key)

    async def key_of(self, request: PortRequest) -> PoolKey:
        """Return the pool that would serve the request."""
        return await self._pool.key_of(request)

    def populate(self, key: PoolKey, count: int) -> None:
        """Pass it on."""
        self._pool.populate(key, count)

    def free(self, key: PoolKey, count: int | None) -> int:
        """Pass it on."""
        return self._pool.free(key, count)
