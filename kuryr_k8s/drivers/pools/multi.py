"""The vif_pool driver ``multi_pool``: nodes of several kinds in one cluster.

A Node's label ``pod_vif`` names the pod_vif driver for its Pods (without it: ``[kubernetes]
pod_vif_driver``), and ``[vif_pool] vif_pool_mapping`` the pool driver that stands before it.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from prometheus_client.registry import Collector

from kuryr_k8s import errors
from kuryr_k8s.drivers import registry
from kuryr_k8s.drivers.base import (
    DriverContext,
    PodVIFDriver,
    PortRequest,
    VIFPoolDriver,
    releaser_of,
)
from kuryr_k8s.drivers.base.driver import NAMESPACE
from kuryr_k8s.drivers.pools.metrics import JointCollector
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.model.pod import Node
from kuryr_k8s.model.vif import VIFBase

MAPPING = "[vif_pool] vif_pool_mapping"


class MultiPool(VIFPoolDriver):
    """Hands each request to the pool driver that the Pod's node asks for."""

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        options = context.conf.vif_pool
        mapping = {vif: pool for pool, vif in options.pools_vif_drivers.items()}
        mapping |= options.vif_pool_mapping
        self._default = context.conf.kubernetes.pod_vif_driver
        mapping.setdefault(self._default, "noop")
        self._pools: dict[str, VIFPoolDriver] = {}
        self._vifs: dict[str, PodVIFDriver] = {}
        for vif, pool in mapping.items():
            if pool == "multi_pool":
                raise errors.ConfigError(f"{MAPPING}: multi_pool cannot choose itself")
            self._load(context, vif, pool)

    def _load(self, context: DriverContext, vif: str, pool: str) -> None:
        driver = context.drivers.named(PodVIFDriver, vif, MAPPING)
        kind = registry.load_class(f"{NAMESPACE}.vif_pool", pool, VIFPoolDriver, MAPPING)
        self._vifs[vif] = driver
        self._pools[vif] = kind(context, driver)

    async def start(self) -> None:
        for pool in self._pools.values():
            await pool.start()

    def loops(self) -> Sequence[Controller[Any]]:
        """Return the loops of all pool drivers, each with a name of its own."""
        loops = [(vif, loop) for vif, pool in self._pools.items() for loop in pool.loops()]
        names = Counter(loop.name for _, loop in loops)
        return [
            loop.renamed(f"{loop.name}-{vif}") if names[loop.name] > 1 else loop
            for vif, loop in loops
        ]

    def collectors(self) -> Sequence[Collector]:
        """Return the metrics of all pool drivers, each metric once."""
        return (JointCollector({vif: pool.collectors() for vif, pool in self._pools.items()}),)

    def on_lost(self, callback: Callable[[], None]) -> None:
        for pool in self._pools.values():
            pool.on_lost(callback)

    def vif_drivers(self) -> Sequence[PodVIFDriver]:
        return tuple(self._vifs.values())

    def part_of(self, node: Node) -> VIFPoolDriver:
        name = node.pod_vif or self._default
        if name not in self._pools:
            known = ", ".join(sorted(self._pools))
            raise errors.Refused(
                f"node {node.name} has the label pod_vif={name}, which {MAPPING} does not name "
                f"({known})"
            )
        return self._pools[name]

    def parts(self) -> tuple[VIFPoolDriver, ...]:
        return tuple(self._pools.values())

    async def request(self, request: PortRequest) -> VIFBase:
        return await self.part_of(request.node).request(request)

    async def holds(self, vif: VIFBase, pod_uid: str) -> bool | None:
        return await self._of_vif(vif).holds(vif, pod_uid)

    async def update_security_groups(self, vif: VIFBase, groups: tuple[str, ...]) -> None:
        await self._of_vif(vif).update_security_groups(vif, groups)

    async def release(self, vif: VIFBase, pod_uid: str) -> None:
        await self._of_vif(vif).release(vif, pod_uid)

    def _of_vif(self, vif: VIFBase) -> VIFPoolDriver:
        driver = releaser_of(vif, self._vifs.values())
        for name, pool in self._pools.items():
            if self._vifs[name] is driver:
                return pool
        raise errors.Refused(f"no driver of {MAPPING} knows a {type(vif).__name__}")

    async def release_unrecorded(self, pod_uid: str) -> int:
        return sum([await pool.release_unrecorded(pod_uid) for pool in self._pools.values()])
