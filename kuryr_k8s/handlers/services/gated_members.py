"""Members whose Pods wait for our readiness gate, and how far load balancers lead to them.

Such a Pod is not Ready, and so is its endpoint. It is taken for ready where the gate alone is
missing: the endpoint names the very Pod, its containers are ready, and its other gates are True.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import LBaaSDriver
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.handlers.services.reconcile import Reconcile
from kuryr_k8s.handlers.services.selectors import served
from kuryr_k8s.k8s.resources import PODS, SERVICES, Key
from kuryr_k8s.model.load_balancer import FoundLoadBalancer
from kuryr_k8s.model.pod import Pod
from kuryr_k8s.model.service import Endpoint, EndpointSlice, Service

Labels = Sequence[tuple[str, str]]


class Lack(NamedTuple):
    """Lack of a Pod, in words, and the seconds after which the Pod is to be looked at again.

    :param look_after: infinite if the next reconcile of the Service will tell.
    """

    text: str
    look_after: float = math.inf


class _Member(NamedTuple):
    """A Pod as a member, under one of its addresses."""

    pod_uid: str
    address: str


@dataclass(slots=True)
class _Served:
    """State of the load balancers of a Service, as far as known.

    :param uid: the Service's.
    :param members: Pods that are not Ready and were members when all was last settled. They are
        still while other members come and go, so Pods that wait do not hold up each other.
    :param monitored: the load balancers with health monitors.
    :param healthy: addresses that the monitors had found healthy at the last look.
    :param look_at: when the next look may be, and how long it is from there to the one after it.
    :param problem: why it is not settled now; empty if it is, or if something is still to come.
    """

    uid: str
    members: set[_Member] = field(default_factory=set)
    monitored: Sequence[FoundLoadBalancer] = ()
    healthy: frozenset[str] = frozenset()
    look_at: float = 0.0
    look_after: float = 0.0
    problem: str = ""


class GatedMembers:
    """Members that wait for the gate, of all Services.

    :param looked: called for a Service when a look has found further members to be healthy.
    """

    def __init__(self, context: HandlerContext, looked: Callable[[Key], None]) -> None:
        self._looked = looked
        self._clock = context.clock
        self._patience = context.patience
        self._lbaas = context.drivers[LBaaSDriver]
        self._pods = context.informers.of(PODS)
        self._services = context.informers.of(SERVICES)
        self._served: dict[Key, _Served] = {}

    def admit(self, service: Service, slices: Sequence[EndpointSlice]) -> list[EndpointSlice]:
        """Return the slices with the endpoints ready that only our gate keeps from it."""
        if not service.has_selector:
            return list(slices)
        return [self._admit(each) for each in slices]

    def _admit(self, found: EndpointSlice) -> EndpointSlice:
        missing = [not each.ready and self._is_gated(found, each) for each in found.endpoints]
        if not any(missing):
            return found
        endpoints = tuple(
            dataclasses.replace(endpoint, ready=True) if is_missing else endpoint
            for endpoint, is_missing in zip(found.endpoints, missing, strict=True)
        )
        return dataclasses.replace(found, endpoints=endpoints)

    def _is_gated(self, found: EndpointSlice, endpoint: Endpoint, labels: Labels = ()) -> bool:
        """Return whether the endpoint's Pod may be a member before it is Ready.

        :param labels: which it must have.
        """
        if endpoint.pod is None or endpoint.pod_uid is None:
            return False
        pod = self._pods.get(Key(found.namespace, endpoint.pod))
        if pod is None or pod.uid != endpoint.pod_uid or pod.gate is None:
            return False
        return pod.is_gated and pod.gate.labels.issuperset(labels)

    def note(self, reconcile: Reconcile) -> bool:
        """Note what has come of a Service's reconcile; return whether all is settled."""
        key, service = reconcile.key, reconcile.service
        current = self._services.get(key)
        if current is None or (current.uid, current.selector) != (service.uid, service.selector):
            return False
        known = self._served.get(key)
        if known is None or known.uid != service.uid:
            known = self._served[key] = _Served(service.uid)
        settled = reconcile.settled()
        if settled is None:
            known.problem = _words_of(reconcile.problems)
            return False
        known.problem = ""
        known.members = self._members_of(reconcile)
        known.monitored = [found for found in settled if _is_monitored(found)]
        known.healthy, known.look_at = frozenset(), 0.0
        known.look_after = self._patience.first_health_look
        return True

    def note_failure(self, key: Key, service: Service, error: errors.KuryrError) -> None:
        """Note that a Service's reconcile has failed before anything could be asked for."""
        current, known = self._services.get(key), self._served.get(key)
        if current is None or current.uid != service.uid:
            return
        problem = _words_of([error])
        if problem and (known is None or known.uid != service.uid):
            known = self._served[key] = _Served(service.uid)
        if known is not None:
            known.problem = problem

    def _members_of(self, reconcile: Reconcile) -> set[_Member]:
        """Return the Pods that are not Ready and are members.

        One that has ceased to be gated during the reconcile is about to be removed, and so is one
        that the Service does not select any more.
        """
        service = reconcile.service
        return {
            _Member(endpoint.pod_uid, endpoint.address)
            for each in reconcile.given.slices
            for endpoint in each.endpoints
            if endpoint.pod_uid
            and (endpoint.ready or service.publish_not_ready_addresses)
            and self._is_gated(each, endpoint, service.selector)
        }

    def lost(self, services: Iterable[Key], pod_uid: str) -> None:
        """Note that the Pod is no member of these Services, or will soon be none."""
        for key in services:
            if known := self._served.get(key):
                known.members = {each for each in known.members if each.pod_uid != pod_uid}

    def forget(self, key: Key) -> None:
        """Note that there is no such Service any more, or that it selects other Pods."""
        self._served.pop(key, None)

    async def lack(self, key: Key, service: Service, pod: Pod) -> Lack | None:
        """Return what the Pod lacks to get connections from all load balancers of the Service.

        Health monitors are asked about: one look is for all Pods that wait for the Service.

        :raises errors.CloudError: the cloud does not tell of the health monitors.
        """
        known, wanted = self._served.get(key), _wanted(service, pod)
        if known is None or known.uid != service.uid:
            return Lack(f"Service {key.name} has no load balancer yet")
        if not known.members >= wanted:
            why = f": {known.problem}" if known.problem else " yet"
            return Lack(f"it is no member of the load balancers of Service {key.name}{why}")
        addresses = {member.address for member in wanted}
        if not known.monitored or known.healthy >= addresses:
            return None
        if self._clock.now() >= known.look_at:
            await self._look(key, known)
            if known.healthy >= addresses:
                return None
        text = f"the health monitor of Service {key.name} has not found it healthy yet"
        return Lack(text, max(0.0, known.look_at - self._clock.now()))

    async def _look(self, key: Key, known: _Served) -> None:
        """Ask which members are healthy; who else waits for that learns of it."""
        known.look_at = self._clock.now() + known.look_after
        known.look_after = min(2 * known.look_after, self._patience.longest_health_look)
        monitored, healthy = known.monitored, {member.address for member in known.members}
        for found in monitored:
            healthy -= await self._lbaas.not_online(found)
        if known.monitored is not monitored:
            return  # this look was at what was before
        before, known.healthy = known.healthy, frozenset(healthy)
        if not known.healthy <= before:
            self._looked(key)


def _wanted(service: Service, pod: Pod) -> set[_Member]:
    """Return the members that the Pod is to be."""
    addresses = pod.addresses if pod.gate is not None else ()
    return {_Member(pod.uid, address) for address in served(service, addresses)}


def _words_of(problems: Sequence[errors.KuryrError]) -> str:
    """Return the first problem in words; empty if all of them are only waited for.

    Who waits because something is refused has that refusal for a problem.
    """
    causes = [
        each.__cause__
        if isinstance(each, errors.Wait) and isinstance(each.__cause__, errors.Refused)
        else each
        for each in problems
    ]
    first = next((each for each in causes if not isinstance(each, errors.Wait)), None)
    return str(getattr(first, "brief", first)) if first is not None else ""


def _is_monitored(found: FoundLoadBalancer) -> bool:
    return any(pool.pool.health_monitor is not None for pool in found.pools)
