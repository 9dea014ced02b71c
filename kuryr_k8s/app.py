"""The controller, READ FIRST: options → clients → caches → drivers → handlers → one TaskGroup.

Everything is made here, once, and handed in; nothing below looks anything up.
"""

import asyncio
import functools
import gc
import socket
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from oslo_config import cfg
from prometheus_client import CollectorRegistry

from kuryr_k8s.admin.pools import PoolAdmin
from kuryr_k8s.admin.status import Status
from kuryr_k8s.cloud import connect as cloud_connect
from kuryr_k8s.cloud.connect import ServiceAdapter
from kuryr_k8s.cloud.metrics import CallMetrics, LimitMetrics
from kuryr_k8s.cloud.neutron.api import Neutron
from kuryr_k8s.cloud.octavia.api import Octavia
from kuryr_k8s.cloud.transport import Transport
from kuryr_k8s.drivers import registry
from kuryr_k8s.drivers.base import DriverContext
from kuryr_k8s.drivers.lbaas.lbaasv2 import LBaaSv2
from kuryr_k8s.drivers.pools.metrics import PoolCollector
from kuryr_k8s.drivers.pools.shared import PoolWork
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.engine.health import HealthServer
from kuryr_k8s.engine.metrics import QueueMetrics, ReconcileMetrics
from kuryr_k8s.engine.systemd import notify
from kuryr_k8s.engine.workqueue import WorkQueue
from kuryr_k8s.handlers.base import Drivers, Handler, HandlerContext, Informers
from kuryr_k8s.handlers.pods.takeover import Takeover
from kuryr_k8s.handlers.pools.worker import PoolWorker, pools_of
from kuryr_k8s.handlers.services.loadbalancer import LoadBalancerHandler
from kuryr_k8s.handlers.services.ranges import ServiceRanges
from kuryr_k8s.handlers.sweeps import controllers as sweeps
from kuryr_k8s.handlers.sweeps.controllers import SLOWEST
from kuryr_k8s.handlers.sweeps.ports import PortSweeper
from kuryr_k8s.k8s import connect as kube_connect
from kuryr_k8s.k8s.api import KubeApi
from kuryr_k8s.k8s.events import EventRecorder
from kuryr_k8s.k8s.informer import Informer
from kuryr_k8s.k8s.leader import Lease
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.process import HostLock, reach, start

NAME = "kuryr-k8s-controller"
STARTING = 8.0  # seconds that one call may take before we lead
POOL_WORKERS = 128  # creations, and rounds of upkeep, at the same time
SOON = 2.0  # seconds until Neutron's ports are searched through after one was missing
MARGIN = 1 / 9  # of the Lease's duration, before its end: the last write must be over by then


def main() -> None:
    """Entry point of ``kuryr-k8s-controller``."""
    sys.exit(start(NAME, sys.argv[1:], ControllerApp))


class ControllerApp:
    """One controller process. Tests run it in their own loop."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self.conf = conf
        self.registry = CollectorRegistry()
        self._reconciles = ReconcileMetrics(self.registry)
        self.leading = asyncio.Event()
        self._lease: Lease | None = None
        self._admin = PoolAdmin()
        self._fenced = False  # from now on, no call without the Lease

    async def run(self) -> None:
        """Until cancelled; then waits for the calls in flight and gives the Lease back.

        :raises errors.ConfigError: the configuration is wrong.
        """
        async with AsyncExitStack() as stack:
            lock = stack.enter_context(HostLock(Path(self.conf.kubernetes.lock_file)))
            kube = await kube_connect.connect(self.conf, deadline=self._left)
            stack.push_async_callback(kube.close)
            # the Lease is not to wait behind the work that it stands for
            lease_kube = await kube_connect.connect(self.conf, connections=1)
            stack.push_async_callback(lease_kube.close)
            self._lease = lease = self._make_lease(lease_kube, lock)
            neutron, octavia = self._transports()
            stack.callback(neutron.close)
            stack.callback(octavia.close)
            calls = {
                "neutron": lambda: neutron.limit.taken,
                "octavia": lambda: octavia.limit.taken,
            }
            status = Status(lease, self.leading.is_set, calls, self.registry)
            group = await stack.enter_async_context(asyncio.TaskGroup())
            group.create_task(self._health(status).run(), name="health")
            clouds = Neutron(neutron), Octavia(octavia)
            await self._run(group, kube, *clouds, lease, status)

    async def _run(
        self,
        group: asyncio.TaskGroup,
        kube: KubeApi,
        neutron: Neutron,
        octavia: Octavia,
        lease: Lease,
        status: Status,
    ) -> None:
        informers = Informers.of(kube)
        drivers = Drivers.load(
            DriverContext(
                conf=self.conf,
                neutron=neutron,
                namespaces=informers.namespaces,
                octavia=octavia,
            )
        )
        events = EventRecorder(
            kube, NAME, socket.gethostname(), enabled=self.conf.kubernetes.use_events
        )
        context = HandlerContext(
            conf=self.conf,
            kube=kube,
            neutron=neutron,
            events=events,
            informers=informers,
            drivers=drivers,
        )
        controllers = self._controllers(context)
        with_services = _watch_any(controllers, informers.of_services())
        caches = informers.of_pods() + (informers.of_services() if with_services else ())
        status.caches = caches
        pools = self._pools(context)
        self._admin.context, self._admin.leading = context, status.is_leading
        status.queues = {controller.name: controller.queue for _, controller in controllers}
        status.queues |= {controller.name: controller.queue for controller in pools}
        self.registry.register(QueueMetrics(status.queues))
        takeover = Takeover(kube, informers.kuryrports, context.incarnation)
        searches = self._sweeps(context, neutron, octavia, controllers)
        for pool in pools_of(drivers.vif_pool):
            pool.pools.lost = lambda: searches[0].queue.add_after(PortSweeper.KEY, SOON)
        for informer in caches:
            await reach("Kubernetes", functools.partial(kube.probe, informer.resource))
        for driver in drivers.of_pods():
            await reach("Neutron", driver.start)
        for driver in drivers.of_services() if with_services else ():
            await reach("OpenStack", driver.start)
        if with_services:
            await reach("Kubernetes", ServiceRanges(context).check)
        for informer in caches:
            group.create_task(informer.run(), name=f"informer-{informer.resource.plural}")
        for informer in caches:
            await informer.synced.wait()
        gc.freeze()  # the collector need not go through the caches again and again
        notify("READY=1")
        await lease.hold(lambda: self._lead(takeover, controllers, pools, searches))

    async def _lead(
        self,
        takeover: Takeover,
        controllers: Sequence[tuple[Handler, Controller[Key]]],
        pools: Sequence[Controller[PoolWork]],
        searches: Sequence[Controller[str]],
    ) -> None:
        self._fenced = True
        await reach("Kubernetes", takeover.run)
        self.leading.set()
        async with asyncio.TaskGroup() as group:
            for pool in pools:
                group.create_task(pool.run(), name=pool.name)
            for handler, controller in controllers:
                # not before: who stands by would gather keys for ever
                _follow(handler, controller)
                group.create_task(controller.run(), name=controller.name)
            for search in searches:
                group.create_task(search.run(), name=search.name)

    def _pools(self, context: HandlerContext) -> list[Controller[PoolWork]]:
        """One controller for each driver that keeps ports."""
        controllers, kept = [], {}
        for pool in pools_of(context.drivers.vif_pool):
            worker = PoolWorker(context, pool)
            name = f"pool-{pool.name}"
            controller = Controller[PoolWork](
                name,
                worker.reconcile,
                queue=WorkQueue(cap=SLOWEST),  # Pods wait for pools
                workers=POOL_WORKERS,
                report=worker.report,
                observe=self._reconciles,
            )
            pool.pools.wake = controller.queue.add
            pool.pools.wake_later = controller.queue.add_after
            controllers.append(controller)
            kept[pool.name] = pool.pools
        self.registry.register(PoolCollector(kept))
        return controllers

    def _sweeps(
        self,
        context: HandlerContext,
        neutron: Neutron,
        octavia: Octavia,
        controllers: Sequence[tuple[Handler, Controller[Key]]],
    ) -> list[Controller[str]]:
        """For ports; and for what Services have, where any are served."""
        found = [sweeps.of_ports(context, neutron)]
        for handler, controller in controllers:
            if isinstance(handler, LoadBalancerHandler):
                calmly = functools.partial(controller.queue.add, urgent=False)
                found.append(sweeps.of_load_balancers(context, calmly))
                found.append(sweeps.of_public_ips(context, calmly))
                found.append(sweeps.of_vip_ports(context, neutron, octavia))
                found.append(sweeps.of_service_ranges(ServiceRanges(context)))
        if isinstance(context.drivers.endpoints_lbaas, LBaaSv2):
            found.append(sweeps.of_pending(context.drivers.endpoints_lbaas.pending))
        return found

    def _make_lease(self, kube: KubeApi, lock: HostLock) -> Lease:
        options = self.conf.kubernetes
        key = Key(options.lease_namespace, options.lease_name)
        return Lease(kube, key, lock.identity, duration=options.lease_duration)

    def _transports(self) -> tuple[Transport, Transport]:
        """To Neutron and to Octavia: one account and token, and a limit for each."""
        limits = self.conf.neutron.max_calls, self.conf.octavia_defaults.max_calls
        connection = cloud_connect.connect(self.conf, connections=max(limits))
        return (
            self._transport("neutron", ServiceAdapter(connection, "network"), limits[0]),
            self._transport("octavia", ServiceAdapter(connection, "load_balancer"), limits[1]),
        )

    def _transport(self, name: str, adapter: ServiceAdapter, limit: int) -> Transport:
        transport = Transport(
            adapter,
            limit=limit,
            deadline=self._deadline,
            observe=CallMetrics(name, self.registry),
        )
        self.registry.register(LimitMetrics(name, transport.limit))
        return transport

    def _deadline(self) -> float:
        """Seconds that a call of OpenStack may take, which knows no fencing."""
        timeout = float(self.conf.neutron.call_timeout)
        return min(timeout, self._left() if self._fenced else STARTING)

    def _left(self) -> float:
        """Seconds for writes: none of ours may be under way when the Lease ends."""
        margin = MARGIN * float(self.conf.kubernetes.lease_duration)
        return self._lease.remaining - margin if self._lease is not None else 0.0

    def _health(self, status: Status) -> HealthServer:
        options = self.conf.health_server
        checks = {"caches synced": status.synced}
        routes = [*status.routes(), *self._admin.routes()]
        return HealthServer(options.address, options.port, checks, self.registry, routes)

    def _controllers(self, context: HandlerContext) -> list[tuple[Handler, Controller[Key]]]:
        """One controller with its own queue for each enabled handler."""
        controllers = []
        for name in self.conf.kubernetes.enabled_handlers:
            kind: type[Handler] = registry.load_class(
                "kuryr_k8s.controller.handlers",
                name,
                Handler,
                "[kubernetes] enabled_handlers",
            )
            handler = kind(context)
            controller = Controller[Key](
                name,
                handler.reconcile,
                workers=self.conf.kubernetes.pod_workers,
                report=handler.report,
                observe=self._reconciles,
            )
            handler.wake = controller.queue.add
            controllers.append((handler, controller))
        return controllers


def _watch_any(
    controllers: Sequence[tuple[Handler, Controller[Key]]], informers: Sequence[Informer[Any]]
) -> bool:
    """Whether a handler watches any of these."""
    return any(
        watch.informer in informers for handler, _ in controllers for watch in handler.watches()
    )


def _follow(handler: Handler, controller: Controller[Key]) -> None:
    """Changes of what the handler watches become keys in its queue.

    What is there already is not urgent: somebody may be waiting for what comes.
    """
    for watch in handler.watches():

        def changed(key: Key, old: Any, new: Any, watch: Any = watch) -> None:
            for concerned in watch.to_keys(key, old, new):
                controller.queue.add(concerned, urgent=not watch.informer.replaying)

        watch.informer.subscribe(changed)
