"""Spec + EndpointSlices → the Service's load balancers, and what is told of them.

no spec yet, or a stale pair  → wait for the handler lbaas_spec
handled                       → the driver brings Octavia in line → outside → annotations, status
deleted, or not handled       → address, load balancers, annotations and finalizer go

A dual-stack Service has a load balancer for each of its ClusterIPs; the first one's state is
published. What it has outside is in lb_outside.py. Nothing that goes wrong with Kubernetes holds
up a cloud: they always come first; and nothing outside holds up the ClusterIPs.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import LBaaSDriver, PodSubnetsDriver, ServicePublicIPDriver
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.handlers.base import Handler, HandlerContext, Watch
from kuryr_k8s.handlers.services.desired import Given, Options, desired_of, owners_of
from kuryr_k8s.handlers.services.outside import Exposure, Outside
from kuryr_k8s.handlers.services.publishing import Publishing
from kuryr_k8s.handlers.services.ranges import ServiceRanges
from kuryr_k8s.handlers.services.reporting import Telling
from kuryr_k8s.handlers.services.requests import Outcome, Requests
from kuryr_k8s.handlers.services.settings import keeps_address, settings_of
from kuryr_k8s.handlers.services.slices import ServiceSlices
from kuryr_k8s.handlers.services.spec import ServiceSpecs, service_reference, text_of
from kuryr_k8s.handlers.services.sweep import sweeps_of
from kuryr_k8s.k8s.events import Reference
from kuryr_k8s.k8s.resources import ENDPOINTS, ENDPOINTSLICES, SERVICES, Key
from kuryr_k8s.model.annotations import SERVICE_FINALIZER
from kuryr_k8s.model.lbaas import LBaaSServiceSpec
from kuryr_k8s.model.load_balancer import FoundLoadBalancer
from kuryr_k8s.model.owner import Owner
from kuryr_k8s.model.service import Endpoints, Service
from kuryr_k8s.model.service_annotations import Settings
from kuryr_k8s.model.service_class import Classes, is_exposed, is_handled

SLICES_PATIENCE = 1.0  # seconds until a Service with a selector counts as one without slices
SPEC_PATIENCE = 30.0  # seconds: the pair's change is an event, this is for safety
ENDPOINTS_PATIENCE = 5.0  # seconds until a Service with a selector counts as one without Endpoints


class LoadBalancerHandler(Handler):
    """Gives each Service its load balancers, and its address outside."""

    def __init__(self, context: HandlerContext) -> None:
        super().__init__(context)
        self._service_specs = ServiceSpecs(context.drivers)
        self._public_ips = context.drivers[ServicePublicIPDriver]
        self._pod_subnets = context.drivers[PodSubnetsDriver]
        self._slices = ServiceSlices(context.informers.of(ENDPOINTSLICES))
        self._settings: dict[Key, tuple[str, Settings]] = {}  # uid, the last that could be read
        self._unsliced: dict[Key, float] = {}  # new Services without slices, and since when
        self._classes = Classes.read(context.conf)
        self._publishing = Publishing(context)
        self._telling = Telling(context, self._publishing)
        self._requests = Requests(context.drivers[LBaaSDriver], self.wake, self._telling.change)
        self._outside = Outside(context, self._requests)
        self._ranges = ServiceRanges(context)

    def watches(self) -> Sequence[Watch[Any]]:
        informers = self._context.informers
        return (
            Watch(informers.of(SERVICES), _of_service),
            Watch(informers.of(ENDPOINTSLICES), self._slices.changed),
            Watch(informers.of(ENDPOINTS), _of_endpoints),
        )

    async def start(self) -> None:
        """Check that ClusterIPs can be addresses of load balancers."""
        await self._ranges.check()

    def loops(self) -> Sequence[Controller[Any]]:
        """Return the sweeps of what no Service has, and the look at the ranges of ClusterIPs."""
        return (
            *(sweep.loop for sweep in sweeps_of(self._context, self._look_again)),
            self._ranges.loop,
        )

    def _look_again(self, key: Key) -> None:
        """Have a Service compared with what it has, when nothing more urgent is to be done."""
        self.queue.add(key, urgent=False)

    async def reconcile(self, key: Key) -> float | None:
        service = self._context.informers.of(SERVICES).get(key)
        await self._release_lost(key, service)
        if service is None or service.deleting or not is_handled(service, self._classes):
            if service is not None:
                await self._release(key, service)
            self._settings.pop(key, None)
            self._unsliced.pop(key, None)
            self._outside.forget(key)
            self._requests.finish(key)
            return None
        exposed = is_exposed(service, self._classes)
        settings, unreadable = settings_of(service, self._context.conf, exposed=exposed)
        if unreadable:  # as long as it is not mended, what was asked for before
            settings = self._last_settings(key, service.uid) or settings
        else:
            self._settings[key] = service.uid, settings
        specs = await self._specs(key, service)
        self._await_slices(key, service)
        options = await self._options(service)
        given = Given(
            service=service,
            specs=specs,
            slices=self._slices.of(key),
            options=options,
            settings=settings,
        )
        inner, problems = await self._ensure(key, given)
        exposure = None
        try:
            exposure = await self._ensure_outside(key, given, inner, unreadable, exposed=exposed)
            if exposure is not None and exposure.problem is not None:
                problems.append(exposure.problem)
        except errors.KuryrError as error:
            problems.append(error)
        again, unpublished = None, None
        try:
            if specs[0].ip in inner:
                again = await self._publish(key, service, inner[specs[0].ip].found, specs[0])
        except errors.KubeError as error:  # it is served all the same
            unpublished = error
        # a refusal is looked at again after minutes, and told as well when nothing is waited for
        problems.sort(key=lambda error: not isinstance(error, errors.Wait))
        await self._telling.all(key, service, inner, exposure, problems, exposed=exposed)
        if problems:
            raise problems[0]
        if unpublished is not None:
            raise unpublished
        return again

    def _last_settings(self, key: Key, uid: str) -> Settings | None:
        known_uid, settings = self._settings.get(key, ("", None))
        return settings if known_uid == uid else None

    # -- making

    async def _specs(self, key: Key, service: Service) -> tuple[LBaaSServiceSpec, ...]:
        """Those of the Service as it is now, once everybody can read them.

        Users may write annotations, of other projects too: so what is in them is compared with
        what the drivers say, and never taken for it.

        :raises errors.Wait: it is the other handler's turn.
        """
        try:
            specs = await self._service_specs.of(service)
        except errors.Refused as error:  # the other handler tells
            raise errors.Wait(str(error), delay=SPEC_PATIENCE) from error
        endpoints = self._context.informers.of(ENDPOINTS).get(key)
        wanted = (text_of(specs[0]), service.lbaas_spec_version)
        pair = [(one.lbaas_spec, one.lbaas_spec_version) for one in (service, endpoints) if one]
        if wanted[1] is None or any(one != wanted for one in pair):
            raise errors.Wait(f"the spec of Service {key} is stale", delay=SPEC_PATIENCE)
        if SERVICE_FINALIZER not in service.finalizers:
            raise errors.Wait(f"Service {key} has no finalizer yet", delay=SPEC_PATIENCE)
        return specs

    def _await_slices(self, key: Key, service: Service) -> None:
        """Kubernetes makes a slice of every Service with a selector right after it, though it be
        empty: members that come a moment later are a change of their own, which waits for its
        turn.

        :raises errors.Wait: there is none yet, and nothing was made for the Service so far.
        """
        if service.has_selector and key not in self._slices and not self._requests.owners(key):
            now = asyncio.get_running_loop().time()
            left = self._unsliced.setdefault(key, now) + SLICES_PATIENCE - now
            if left > 0:
                raise errors.Wait(f"Service {key} has no EndpointSlice yet", delay=left)
        self._unsliced.pop(key, None)

    async def _ensure(
        self, key: Key, given: Given
    ) -> tuple[dict[str, Outcome], list[errors.KuryrError]]:
        """The load balancers of the ClusterIPs, by them; what is wrong with one of them holds up
        no other."""
        service, specs, owners = given.service, given.specs, owners_of(given.service)
        plain = dataclasses.replace(given, settings=Settings())
        found: dict[str, Outcome] = {}
        problems: list[errors.KuryrError] = []
        for owner, spec in zip(owners, specs, strict=False):
            try:
                found[spec.ip or ""] = await self._requests.ensure(
                    service,
                    owner,
                    desired_of(given, spec),
                    plain=None if plain == given else desired_of(plain, spec),
                )
            except errors.KuryrError as error:
                problems.append(error)
        if not problems:
            for owner in owners[len(specs) :]:  # it was dual-stack
                try:
                    await self._requests.release(key, owner)
                except errors.KuryrError as error:  # such as: others share it
                    problems.append(error)
        return found, problems

    async def _ensure_outside(
        self,
        key: Key,
        given: Given,
        inner: Mapping[str, Outcome],
        unreadable: Sequence[str],
        *,
        exposed: bool,
    ) -> Exposure | None:
        """None: it has nothing outside. What cannot be read leaves all that there is."""
        if not exposed:
            keep = keeps_address(given.service)
            await self._outside.withdraw(key, given.service, keep=keep)
        if unreadable:
            raise errors.Refused("; ".join(unreadable))
        if not exposed or len(inner) < len(given.specs):
            return None  # what is wrong is in the problems
        return await self._outside.ensure(key, given, inner)

    async def _options(self, service: Service) -> Options:
        subnets = await self._pod_subnets.subnets_of(service.namespace)
        return Options.read(self._context.conf, subnets)

    # -- telling

    async def _publish(
        self, key: Key, service: Service, found: FoundLoadBalancer, spec: LBaaSServiceSpec
    ) -> float | None:
        """Where the Endpoints of a Service with a selector are not there yet, they will be."""
        if self._context.informers.of(ENDPOINTS).get(key) is None and service.has_selector:
            since = self._requests.since(key, owners_of(service)[0])
            left = since + ENDPOINTS_PATIENCE - asyncio.get_running_loop().time()
            if left > 0:
                return left
        await self._publishing.state(key, service, found, spec)
        return None

    # -- removing

    async def _release(self, key: Key, service: Service) -> None:
        if SERVICE_FINALIZER not in service.finalizers:
            return  # nothing was made, or all is gone
        if not service.deleting:
            await self._check_live(key, service)
        stuck: errors.Refused | None = None
        try:
            await self._outside.withdraw(key, service, keep=keeps_address(service))
        except errors.Refused as error:  # what depends on others holds up nothing else
            stuck = error
        for owner in owners_of(service):
            await self._requests.release(key, owner)
        if stuck is not None:
            raise stuck
        if not service.deleting:
            await self._publishing.no_state(key, service)
            await self._telling.nothing(key, service)
        answer = await self._context.kube.remove_finalizers(
            SERVICES, key, SERVICE_FINALIZER, uid=service.uid, known=service.finalizers
        )
        self._context.informers.of(SERVICES).learn(answer)

    async def _release_lost(self, key: Key, service: Service | None) -> None:
        """Somebody took our finalizer off: what we made for a Service that is gone would keep its
        address from the next one until the sweeper comes. The server itself must say so."""
        owners = self._requests.owners(key)
        lost = [owner for owner in owners if service is None or owner.uid != service.uid]
        if not lost:
            return
        live = await self._context.kube.find(SERVICES, key)
        for uid in {owner.uid for owner in lost}:
            owners = [owner for owner in lost if owner.uid == uid]
            if live is None or live["metadata"]["uid"] != uid:
                await self._release_unheld(key, uid, owners)
            for owner in owners:
                self._requests.forget(key, owner)

    async def _release_unheld(self, key: Key, uid: str, owners: Sequence[Owner]) -> None:
        """What others still use is left to the sweeper: the next Service is to be served."""
        known, public_ip = self._last_settings(key, uid), self._public_ips
        if not any([await self._requests.is_shared(key, owner) for owner in owners]):
            keep = known is None or known.keep_floating_ip
            await public_ip.release(Owner(uid), keep=keep)
        for owner in owners:
            with contextlib.suppress(errors.Refused):
                await self._requests.release(key, owner)

    async def _check_live(self, key: Key, service: Service) -> None:
        """The cache may lie: the API server itself must say that it is not handled any more.

        :raises errors.Wait: it does not.
        """
        live = await self._context.kube.find(SERVICES, key)
        if live is not None and live["metadata"]["uid"] == service.uid:
            now = Service.read(live)
            if is_handled(now, self._classes) and not now.deleting:
                raise errors.Wait(f"the cache lags behind Service {key}", delay=1.0)

    def about(self, key: Key) -> Reference | None:
        return service_reference(self._context.informers.of(SERVICES).get(key))


def _of_service(key: Key, _old: Service | None, _new: Service | None) -> Iterable[Key]:
    return (key,)


def _of_endpoints(key: Key, _old: Endpoints | None, _new: Endpoints | None) -> Iterable[Key]:
    return (key,)
