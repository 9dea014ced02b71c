"""The controller, READ FIRST: options → clients → caches → drivers → handlers → one TaskGroup.

Everything is made here, once, and handed in; nothing below looks anything up. What drivers and
handlers run besides reconciling, their metrics and the kinds that they follow, they declare.
"""

import asyncio
import functools
import gc
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from oslo_config import cfg
from prometheus_client import CollectorRegistry

from kuryr_k8s import errors
from kuryr_k8s.admin.l7_router import L7RouterAdmin
from kuryr_k8s.admin.pools import PoolAdmin
from kuryr_k8s.admin.server import AdminServer
from kuryr_k8s.admin.status import Status
from kuryr_k8s.cloud import connect as cloud_connect
from kuryr_k8s.cloud.account import Account
from kuryr_k8s.cloud.barbican.api import Barbican
from kuryr_k8s.cloud.connect import ServiceAdapter
from kuryr_k8s.cloud.mark import ClusterMark
from kuryr_k8s.cloud.metrics import CallMetrics, LimitMetrics
from kuryr_k8s.cloud.neutron.api import Neutron
from kuryr_k8s.cloud.octavia.api import Octavia
from kuryr_k8s.cloud.transport import Transport
from kuryr_k8s.drivers import registry
from kuryr_k8s.drivers.base import Driver, DriverContext, Drivers
from kuryr_k8s.engine.clock import CLOCK, Clock
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.engine.health import HealthServer
from kuryr_k8s.engine.metrics import QueueMetrics, ReconcileMetrics
from kuryr_k8s.engine.workqueue import WorkQueue
from kuryr_k8s.handlers.base import Handler, HandlerContext
from kuryr_k8s.handlers.pods.takeover import Takeover
from kuryr_k8s.handlers.strangers import Strangers
from kuryr_k8s.k8s import connect as kube_connect
from kuryr_k8s.k8s.api import KubeApi
from kuryr_k8s.k8s.contact import ContactMetrics
from kuryr_k8s.k8s.events import EventRecorder
from kuryr_k8s.k8s.informer import Informer, Informers
from kuryr_k8s.k8s.leader import Lease
from kuryr_k8s.k8s.refusals import Refusals
from kuryr_k8s.k8s.resources import KURYRPORTS, NAMESPACES, Key
from kuryr_k8s.patience import PATIENCE, Patience
from kuryr_k8s.process import HostLock, Waiting, notify, reach, start

NAME = "kuryr-k8s-controller"
HANDLERS = "kuryr_k8s.controller.handlers"
IDENTITY = Key("", "kube-system")  # the namespace whose uid identifies the cluster
BARBICAN_CALLS = 2  # in flight: certificates are stored one by one
MARGIN = 1 / 9  # of the Lease's duration, before its end: the last write must be over by then


def main() -> None:
    """Run ``kuryr-k8s-controller``."""
    sys.exit(start(NAME, sys.argv[1:], ControllerApp))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of one controller.

    :param drivers: in the order in which they start.
    :param handlers: each with the loop that reconciles its keys.
    :param loops: those that handlers and drivers run besides.
    """

    caches: Sequence[Informer[Any]]
    drivers: Sequence[Driver]
    handlers: Sequence[tuple[Handler, Controller[Key]]]
    loops: Sequence[Controller[Any]]
    takeover: Takeover


class ControllerApp:
    """One controller process. Tests run it in their own loop.

    ``handlers`` are those of the running controller.
    """

    def __init__(
        self, conf: cfg.ConfigOpts, patience: Patience = PATIENCE, clock: Clock = CLOCK
    ) -> None:
        self.conf = conf
        self.registry = CollectorRegistry()
        self.leading = asyncio.Event()
        self.handlers: Sequence[Handler] = ()
        self._reconciles = ReconcileMetrics(self.registry)
        self._waiting = Waiting()
        self.registry.register(self._waiting)
        self._refusals = Refusals(clock)
        self.registry.register(self._refusals)
        self._account = Account()
        self.registry.register(self._account)
        self._patience = patience
        self._clock = clock
        self._mark = ClusterMark()
        self._lease: Lease | None = None
        self._loops: Sequence[Controller[Any]] = ()  # of the running controller
        self._fenced = False  # from now on, no call without the Lease

    async def run(self) -> None:
        """Run until cancelled; then wait for the calls in flight and release the Lease.

        :raises errors.ConfigError: the configuration is wrong.
        """
        async with AsyncExitStack() as stack:
            lock = stack.enter_context(HostLock(Path(self.conf.kubernetes.lock_file)))
            kube = await kube_connect.connect(
                self.conf,
                time_left=self._left,
                heard=self._heard,
                refusals=self._refusals,
                patience=self._patience,
            )
            stack.push_async_callback(kube.close)
            # the Lease is not to wait behind the work that it stands for
            lease_kube = await kube_connect.connect(
                self.conf,
                calls=1,
                heard=self._heard,
                refusals=self._refusals,
                patience=self._patience,
            )
            stack.push_async_callback(lease_kube.close)
            self._lease = lease = self._make_lease(lease_kube, lock)
            clouds = self._transports()
            for transport in clouds.values():
                stack.callback(transport.close)
            context = self._context(kube, clouds, lease)
            health, admin, parts = self._build(context, lease, clouds)
            self.handlers = [handler for handler, _ in parts.handlers]
            self._loops = [*(loop for _, loop in parts.handlers), *parts.loops]
            group = await stack.enter_async_context(asyncio.TaskGroup())
            group.create_task(health.run(), name="health")
            group.create_task(admin.run(), name="admin")
            await health.serving.wait()
            await admin.serving.wait()
            # not later: the API server may be a Pod of a kubelet that starts after this unit
            notify("READY=1")
            await self._start(kube, parts, group)
            self._waiting.does(f"standby: waiting for the Lease {lease.key}")
            await lease.hold(functools.partial(self._lead, parts))

    # -- building

    def _context(
        self, kube: KubeApi, clouds: dict[str, Transport], lease: Lease
    ) -> HandlerContext:
        """Return what handlers are handed; the drivers in it have the same clients and caches."""
        neutron = Neutron(clouds["neutron"], self._mark, self._clock.now)
        octavia, barbican = Octavia(clouds["octavia"]), Barbican(clouds["barbican"])
        informers = Informers(kube, self._patience, self._clock)
        events = EventRecorder(
            kube, NAME, socket.gethostname(), enabled=self.conf.kubernetes.use_events
        )
        strangers = Strangers(events, self._mark)
        self.registry.register(strangers)

        def for_drivers(drivers: Drivers) -> DriverContext:
            return DriverContext(
                conf=self.conf,
                kube=kube,
                neutron=neutron,
                octavia=octavia,
                barbican=barbican,
                drivers=drivers,
                informers=informers,
                events=events,
                observe=self._reconciles,
                clock=self._clock,
                patience=self._patience,
            )

        return HandlerContext(
            conf=self.conf,
            kube=kube,
            neutron=neutron,
            events=events,
            informers=informers,
            drivers=Drivers(self.conf, for_drivers),
            strangers=strangers,
            confirm_lease=lease.confirm,
            observe=self._reconciles,
            clock=self._clock,
            patience=self._patience,
        )

    def _build(
        self, context: HandlerContext, lease: Lease, clouds: dict[str, Transport]
    ) -> tuple[HealthServer, AdminServer, Parts]:
        """Make everything; nothing runs yet."""
        handlers = self._handlers(context)
        takeover = Takeover(context.kube, context.informers.of(KURYRPORTS), context.incarnation)
        self.registry.register(takeover)
        loops = [loop for handler, _ in handlers for loop in handler.loops()]

        def leads() -> bool:
            """Return whether we work, and nobody else can."""
            return self.leading.is_set() and lease.remaining > 0

        # what a standby is asked about pools it refuses: only who leads knows them
        pools, router = PoolAdmin(context, leads), L7RouterAdmin(context.routing, leads)
        drivers = context.drivers.seal()
        loops += [loop for driver in drivers for loop in driver.loops()]
        queues = _queues([*(loop for _, loop in handlers), *loops])
        calls = {name: _in_flight(transport) for name, transport in clouds.items()}
        caches = context.informers.seal()
        status = Status(lease, leads, calls, caches, queues)
        self.registry.register(status)
        self.registry.register(QueueMetrics(queues))
        contacts = {cache.resource.plural: cache.contact for cache in caches}
        self.registry.register(ContactMetrics(contacts))
        for driver in drivers:
            self._register(driver)
        for handler, _ in handlers:
            self._register(handler)
        checks: dict[str, Callable[[], bool]] = {}
        for driver in drivers:
            checks |= driver.checks()
        options = self.conf.health_server
        reading = [*status.routes(), *pools.reading(), *router.reading()]
        health = HealthServer(
            options.address,
            options.port,
            {
                "caches synced": status.synced,
                "caches followed": status.followed,
                "nothing refused": self._refusals.none,
                "accepted by Keystone": self._account.is_accepted,
                **checks,
            },
            self.registry,
            reading,
        )
        changing = [*pools.changing(), *router.changing()]
        admin = AdminServer(Path(options.admin_socket), [*reading, *changing])
        parts = Parts(
            caches=caches, drivers=drivers, handlers=handlers, loops=loops, takeover=takeover
        )
        return health, admin, parts

    def _register(self, part: Driver | Handler) -> None:
        for collector in part.collectors():
            try:
                self.registry.register(collector)
            except ValueError as error:
                name = type(part).__qualname__
                raise errors.ConfigError(f"metrics of {name}: {error}") from error

    def _handlers(self, context: HandlerContext) -> list[tuple[Handler, Controller[Key]]]:
        """Make each enabled handler, with the loop that reconciles its keys."""
        handlers = []
        for name in self.conf.kubernetes.enabled_handlers:
            kind: type[Handler] = registry.load_class(
                HANDLERS, name, Handler, "[kubernetes] enabled_handlers"
            )
            handler = kind(context)
            handler.watches()  # asks for the caches
            controller = Controller[Key](
                name,
                handler.reconcile,
                queue=handler.queue,
                workers=self.conf.kubernetes.pod_workers,
                report=handler.report,
                observe=self._reconciles,
                patience=self._patience,
            )
            handlers.append((handler, controller))
        return handlers

    # -- running

    async def _start(self, kube: KubeApi, parts: Parts, group: asyncio.TaskGroup) -> None:
        """Reach all APIs, check the configuration, and fill the caches."""
        await self._reach("Kubernetes", functools.partial(self._identify, kube))
        for cache in parts.caches:
            await self._reach("Kubernetes", functools.partial(kube.probe, cache.resource))
        for driver in parts.drivers:
            await self._reach(driver.asks, driver.start)
        for handler, _ in parts.handlers:
            await self._reach("Kubernetes", handler.start)
        for cache in parts.caches:
            group.create_task(cache.run(), name=f"informer-{cache.resource.plural}")
        self._waiting.does("filling the caches")
        for cache in parts.caches:
            await cache.synced.wait()
        gc.freeze()  # the collector need not go through the caches again and again

    async def _identify(self, kube: KubeApi) -> None:
        """Read the uid that identifies the cluster; it never changes."""
        self._mark.uid = (await kube.get(NAMESPACES, IDENTITY))["metadata"]["uid"]

    async def _reach(self, what: str, call: Callable[[], Awaitable[None]]) -> None:
        await reach(what, call, self._waiting, self._patience, self._clock)

    async def _lead(self, parts: Parts) -> None:
        """Run all loops as long as the Lease is ours."""
        self._fenced = True
        await self._reach("Kubernetes", parts.takeover.run)
        self.leading.set()
        self._waiting.does("working")
        async with asyncio.TaskGroup() as group:
            for loop in parts.loops:
                group.create_task(loop.run(), name=loop.name)
            for handler, controller in parts.handlers:
                _follow(handler)  # not before: a standby would gather keys for ever
                group.create_task(controller.run(), name=controller.name)

    # -- clients

    def _make_lease(self, kube: KubeApi, lock: HostLock) -> Lease:
        options = self.conf.kubernetes
        key = Key(options.lease_namespace, options.lease_name)
        return Lease(kube, key, lock.identity, duration=options.lease_duration, clock=self._clock)

    def _transports(self) -> dict[str, Transport]:
        """Make the transports to the APIs of OpenStack: one token, and a limit for each."""
        neutron, octavia = self.conf.neutron, self.conf.octavia_defaults
        connection = cloud_connect.connect(
            self.conf,
            connections=max(neutron.max_calls, octavia.max_calls),
            patience=self._patience,
        )

        def adapter(service: Literal["network", "load_balancer", "key_manager"]) -> ServiceAdapter:
            return ServiceAdapter(connection, service, self._account, self._patience)

        return {
            "neutron": self._transport(
                "neutron", adapter("network"), neutron.max_calls, neutron.calls_per_second
            ),
            "octavia": self._transport("octavia", adapter("load_balancer"), octavia.max_calls),
            "barbican": self._transport("barbican", adapter("key_manager"), BARBICAN_CALLS),
        }

    def _transport(
        self, name: str, adapter: ServiceAdapter, limit: int, rate: float = 0.0
    ) -> Transport:
        transport = Transport(
            adapter,
            rate=rate,
            name=name,
            serves=self._resume,
            limit=limit,
            deadline=self._deadline,
            observe=CallMetrics(name, self.registry),
        )
        self.registry.register(LimitMetrics(name, transport.limit))
        return transport

    def _deadline(self) -> float:
        """Return the seconds that a call of OpenStack, which knows no fencing, may take."""
        timeout = float(self.conf.neutron.call_timeout)
        return min(timeout, self._left() if self._fenced else self._patience.starting_call)

    def _resume(self, api: str) -> None:
        for loop in self._loops:
            loop.resume(api)

    def _heard(self, date: str) -> None:
        if self._lease is not None:
            self._lease.hear(date)

    def _left(self) -> float:
        """Return the seconds left for writes: none may be under way when the Lease ends."""
        margin = MARGIN * float(self.conf.kubernetes.lease_duration)
        return self._lease.remaining - margin if self._lease is not None else 0.0


def _queues(loops: Sequence[Controller[Any]]) -> dict[str, WorkQueue[Any]]:
    """Return the queues by the names of their loops, under which metrics show them."""
    queues: dict[str, WorkQueue[Any]] = {}
    for loop in loops:
        if loop.name in queues:
            raise errors.ConfigError(f"two loops of handlers or drivers are named {loop.name!r}")
        queues[loop.name] = loop.queue
    return queues


def _in_flight(transport: Transport) -> Any:
    return lambda: transport.limit.taken


def _follow(handler: Handler) -> None:
    """Turn changes of what the handler watches into keys in its queue."""
    for watch in handler.watches():

        def changed(key: Key, old: Any, new: Any, watch: Any = watch) -> None:
            for concerned in watch.to_keys(key, old, new):
                urgent = handler.is_urgent(concerned)
                new = not watch.informer.replaying
                handler.queue.add(concerned, urgent=new if urgent is None else urgent)

        watch.informer.subscribe(changed)
