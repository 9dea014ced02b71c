"""Handler of Services' load balancers: from spec and EndpointSlices to Octavia, and reports.

no spec yet, or a stale one  → wait for the handler lbaas_spec
handled                      → the driver brings Octavia in line → outside → annotations, status
deleted, or not handled      → address, load balancers, annotations and finalizer go

A dual-stack Service has a load balancer for each of its ClusterIPs; the first one's state is
published. What the Service has outside is in outside.py. Clouds come first: nothing that goes
wrong with Kubernetes holds them up. Each load balancer is brought in line by itself, whatever
holds up the others, and an address needs only the load balancer that it leads to.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from prometheus_client.registry import Collector

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import LBaaSDriver, PodSubnetsDriver
from kuryr_k8s.drivers.base.granted import projects
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.handlers.base import Handler, HandlerContext, Watch
from kuryr_k8s.handlers.service_slices import ServiceSlices
from kuryr_k8s.handlers.services.desired import desired_of, owners_of
from kuryr_k8s.handlers.services.endpoints import PublishedEndpoints
from kuryr_k8s.handlers.services.outside import Outside
from kuryr_k8s.handlers.services.publishing import Publishing
from kuryr_k8s.handlers.services.ranges import ServiceRanges
from kuryr_k8s.handlers.services.readiness_gates import ReadinessGates
from kuryr_k8s.handlers.services.reconcile import Exposure, Given, Options, Reconcile
from kuryr_k8s.handlers.services.removal import Removal
from kuryr_k8s.handlers.services.reporting import Reports
from kuryr_k8s.handlers.services.requests import Requests
from kuryr_k8s.handlers.services.settings import keeps_address, settings_of
from kuryr_k8s.handlers.services.spec import ServiceSpecs, service_reference, text_of
from kuryr_k8s.handlers.services.sweep import sweeps_of
from kuryr_k8s.k8s.events import Reference
from kuryr_k8s.k8s.resources import ENDPOINTSLICES, PODS, SERVICES, Key
from kuryr_k8s.model.annotations import SERVICE_FINALIZER
from kuryr_k8s.model.lbaas import LBaaSServiceSpec
from kuryr_k8s.model.service import Service
from kuryr_k8s.model.service_annotations import Settings
from kuryr_k8s.model.service_class import Classes, is_exposed, is_handled


class _Settings(NamedTuple):
    """The last settings of a Service that could be read.

    :param exposed: as with :func:`settings_of`.
    """

    uid: str
    settings: Settings
    exposed: bool


class LoadBalancerHandler(Handler):
    """Gives each Service its load balancers, and its address outside."""

    def __init__(self, context: HandlerContext) -> None:
        super().__init__(context)
        self._service_specs = ServiceSpecs(context.drivers, projects(context.conf))
        self._pod_subnets = context.drivers[PodSubnetsDriver]
        self._services = context.informers.of(SERVICES)
        self._endpoints = PublishedEndpoints(context)
        self._slices = ServiceSlices(context.informers.of(ENDPOINTSLICES))
        self._settings: dict[Key, _Settings] = {}
        self._unsliced: dict[Key, float] = {}  # new Services without slices, and since when
        self._classes = Classes.read(context.conf)
        self._publishing = Publishing(context)
        self._reports = Reports(context, self._publishing)
        self._requests = Requests(
            context.drivers[LBaaSDriver], context.clock, self.queue.wake, self._reports.changed
        )
        self._outside = Outside(context, self._requests)
        self._removal = Removal(
            context, self._requests, self._outside, self._reports, self._last_settings
        )
        self._ranges = ServiceRanges(context)
        self._gates = ReadinessGates(context)

    def watches(self) -> Sequence[Watch[Any]]:
        return (
            Watch(self._services, self._service_changed),
            Watch(self._context.informers.of(PODS), self._gates.pod_changed),
            Watch(self._context.informers.of(ENDPOINTSLICES), self._slices.changed),
            *self._endpoints.watches(_same_key),
        )

    def _service_changed(
        self, key: Key, old: Service | None, new: Service | None
    ) -> Iterable[Key]:
        self._gates.service_changed(key, old, new)
        return (key, *self._outside.concerned(old, new))

    async def start(self) -> None:
        """Check that ClusterIPs can be addresses of load balancers."""
        await self._ranges.check()

    def loops(self) -> Sequence[Controller[Any]]:
        """Return what runs besides.

        The sweeps of what no Service has, the check of the ranges of ClusterIPs, and the writer of
        readiness gates.
        """
        return (
            *(sweep.loop for sweep in sweeps_of(self._context, self._compare_again)),
            self._ranges.loop,
            self._gates.loop,
        )

    def collectors(self) -> Sequence[Collector]:
        """Return the metrics of readiness gates."""
        return self._gates.collectors()

    def _compare_again(self, key: Key) -> None:
        """Compare a Service with what it has, when nothing more urgent is to be done."""
        self.queue.revisit(key)

    async def reconcile(self, key: Key) -> float | None:
        service = self._services.get(key)
        leaving: errors.KuryrError | None = None
        try:
            await self._removal.release_lost(key, service)
        except errors.KuryrError as error:
            if service is None:
                raise
            leaving = error  # the next Service of this name does not wait for it
        if service is None or service.deleting or not is_handled(service):
            if service is not None:
                await self._removal.release(key, service)
            self._forget(key)
            return None
        unwelcome: errors.KuryrError | None = None
        try:
            await self._outside.withdraw(key, service)
        except errors.KuryrError as error:
            unwelcome = error
        try:
            reconcile = await self._begin(key, service)
        except errors.KuryrError as error:
            self._gates.note_failure(key, service, error)
            raise
        if unwelcome is not None:
            reconcile.problems.append(unwelcome)
        await self._ensure_inner(reconcile)
        await self._ensure_outside(reconcile)
        self._gates.note(reconcile)
        again, unpublished = None, None
        try:
            again = await self._publish(reconcile)
        except errors.KubeError as error:  # the Service is served all the same
            unpublished = error
        reconcile.problems.sort(key=_turn)
        await self._reports.write(reconcile)
        if not reconcile.exposed and not reconcile.problems:
            await self._removal.let_go(key, service)
        for problem in (*reconcile.problems, unpublished, leaving):
            if problem is not None:
                raise problem
        return again

    def _forget(self, key: Key) -> None:
        self._settings.pop(key, None)
        self._unsliced.pop(key, None)
        self._outside.forget(key)
        self._requests.finish(key)

    # -- input

    async def _begin(self, key: Key, service: Service) -> Reconcile:
        """Collect what the Service asks for; if that cannot be read, what it asked for before.

        :raises errors.Wait: something is still to come.
        """
        exposed = is_exposed(service, self._classes)
        settings, unreadable = settings_of(service, self._context.conf, exposed=exposed)
        known = not unreadable
        if unreadable:
            if (last := self._last(key, service.uid)) is not None:
                settings, known = last.settings, last.exposed == exposed
        else:
            self._settings[key] = _Settings(service.uid, settings, exposed)
        specs = await self._specs(key, service)
        self._await_slices(key, service)
        subnets = await self._pod_subnets.subnets_of(service.namespace)
        given = Given(
            service=service,
            specs=specs,
            slices=self._gates.admit(service, self._slices.of(key)),
            options=Options.read(self._context.conf, subnets),
            settings=settings,
        )
        return Reconcile(
            key=key, given=given, exposed=exposed, unreadable=unreadable, settings_known=known
        )

    def _last_settings(self, key: Key, uid: str) -> Settings | None:
        last = self._last(key, uid)
        return last.settings if last is not None else None

    def _last(self, key: Key, uid: str) -> _Settings | None:
        last = self._settings.get(key)
        return last if last is not None and last.uid == uid else None

    async def _specs(self, key: Key, service: Service) -> tuple[LBaaSServiceSpec, ...]:
        """Return the Service's present specs, once they stand on the Service; Endpoints may wait.

        They are what the drivers say; what is in the annotations, which users may write too, is
        compared with that, and never used.

        :raises errors.Wait: it is the other handler's turn.
        """
        patience = self._context.patience.service_spec
        try:
            specs = await self._service_specs.of(service)
        except errors.Refused as error:  # the other handler reports it
            raise errors.Wait(str(error), delay=patience) from error
        if service.lbaas_spec != text_of(specs[0]) or service.lbaas_spec_version is None:
            raise errors.Wait(f"the spec of Service {key} is stale", delay=patience)
        exposed = is_exposed(service, self._classes)
        if exposed and SERVICE_FINALIZER not in service.finalizers:
            raise errors.Wait(f"Service {key} has no finalizer yet", delay=patience)
        return specs

    def _await_slices(self, key: Key, service: Service) -> None:
        """Wait for the first slice of a new Service with a selector.

        Kubernetes makes one right after the Service, even if it is empty. Members that come a
        moment later would be a change of their own, which has to wait for its turn.

        :raises errors.Wait: there is none yet, and nothing was made for the Service so far.
        """
        if service.has_selector and key not in self._slices and not self._requests.owners(key):
            now = self._context.clock.now()
            since = self._unsliced.setdefault(key, now)
            left = since + self._context.patience.service_slices - now
            if left > 0:
                raise errors.Wait(f"Service {key} has no EndpointSlice yet", delay=left)
        self._unsliced.pop(key, None)

    # -- making

    async def _ensure_inner(self, reconcile: Reconcile) -> None:
        """Ask for the load balancers of the ClusterIPs; a problem of one holds up no other."""
        service, given = reconcile.service, reconcile.given
        owners = owners_of(service)
        plain = dataclasses.replace(given, settings=Settings())
        for owner, spec in zip(owners, given.specs, strict=False):
            try:
                reconcile.inner[spec.ip or ""] = await self._requests.ensure(
                    service,
                    owner,
                    desired_of(given, spec),
                    plain=None if plain == given else desired_of(plain, spec),
                )
            except errors.KuryrError as error:
                reconcile.problems.append(error)
        for owner in owners[len(given.specs) :]:  # the Service was dual-stack
            try:
                await self._requests.release(reconcile.key, owner)
            except errors.KuryrError as error:  # for example: others share it
                reconcile.problems.append(error)

    async def _ensure_outside(self, reconcile: Reconcile) -> None:
        """Give the Service its address outside; note what goes wrong."""
        problem: errors.KuryrError | None = None
        try:
            reconcile.exposure = await self._exposure_of(reconcile)
            if reconcile.exposure is not None:
                problem = reconcile.exposure.problem
        except errors.KuryrError as error:
            problem = error
        if problem is not None:
            reconcile.problems.append(problem)
        refused = any(
            isinstance(each, errors.Refused | errors.OverQuota) for each in reconcile.problems
        )
        if refused and not isinstance(problem, errors.Wait):
            try:
                await self._outside.settle_refused(reconcile, problem)
            except errors.KuryrError as error:
                reconcile.problems.append(error)

    async def _exposure_of(self, reconcile: Reconcile) -> Exposure | None:
        """Return how the Service is reached from outside, after making it so.

        If annotations cannot be read, it is what they asked for before; where that is not known,
        everything but members stays.

        :returns: None if it is not.
        """
        if not reconcile.exposed:
            reconcile.outside_settled = True
            service = reconcile.service
            await self._outside.release(reconcile.key, service, keep=keeps_address(service))
        if reconcile.unreadable:
            unreadable = errors.Refused("; ".join(reconcile.unreadable))
            if not reconcile.settings_known:
                raise unreadable
            reconcile.problems.append(unreadable)
        return await self._outside.ensure(reconcile) if reconcile.exposed else None

    async def _publish(self, reconcile: Reconcile) -> float | None:
        """Publish the state of the first ClusterIP's load balancer.

        Kubernetes makes the Endpoints of a Service with a selector a moment after the Service.

        :returns: seconds to wait for the Endpoints; None if the state is published.
        """
        key, service, spec = reconcile.key, reconcile.service, reconcile.given.specs[0]
        outcome = reconcile.inner.get(spec.ip or "")
        if outcome is None:
            return None
        awaited = self._endpoints.expected and service.has_selector
        if awaited and self._endpoints.get(key) is None:
            since = self._requests.since(key, reconcile.owner())
            left = since + self._context.patience.service_endpoints - self._context.clock.now()
            if left > 0:
                return left
        await self._publishing.state(key, service, outcome.found, spec)
        return None

    def about(self, key: Key) -> Reference | None:
        return service_reference(self._services.get(key))


def _turn(problem: errors.KuryrError) -> float:
    """Return when a problem is to be looked at again, in comparison with others.

    A refusal is looked at again after minutes, and reported if nothing is waited for.
    """
    return problem.delay if isinstance(problem, errors.Wait) else math.inf


def _same_key(key: Key, _old: object, _new: object) -> Iterable[Key]:
    return (key,)
