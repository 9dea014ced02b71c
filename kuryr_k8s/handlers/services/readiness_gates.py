"""Readiness gates: a Pod that lists ours is Ready once load balancers lead to it.

containers ready, other gates True → the Pod is a member, though it is not Ready
member in the settled load balancers of every Service that selects it, and healthy where there
is a health monitor               → the gate is True, by one PATCH, and stays so

Without such a Service, by the API server's own word, the gate is True at once: else the Pod would
never be Ready. A gate is never made False, so neither a Service that comes later nor trouble in
Octavia takes away a Pod that is Ready. Pods that do not list the gate cost a comparison.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from prometheus_client import Histogram
from prometheus_client.registry import Collector

from kuryr_k8s import errors
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.engine.metrics import SECONDS, gauge
from kuryr_k8s.engine.workqueue import WorkQueue
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.handlers.services.gated_members import GatedMembers, Lack
from kuryr_k8s.handlers.services.reconcile import Reconcile
from kuryr_k8s.handlers.services.selectors import Selectors
from kuryr_k8s.k8s.events import Reference, words_for_users
from kuryr_k8s.k8s.resources import PODS, SERVICES, Key
from kuryr_k8s.model.annotations import READINESS_GATE
from kuryr_k8s.model.pod import Pod
from kuryr_k8s.model.service import EndpointSlice, Service
from kuryr_k8s.model.service_class import is_handled

LOG = logging.getLogger(__name__)
SOURCE = "ReadinessGates"
WAITING = "KuryrReadinessGateWaiting"
MESSAGE_LIMIT = 1000


@dataclass(slots=True)
class _Waiting:
    """A Pod that waits for its gate.

    :param service: the Service that it waits for.
    :param told: users know.
    """

    uid: str
    since: float
    service: Key | None = None
    told: bool = False


class ReadinessGates:
    """The gates of all Pods; ``loop`` makes them True."""

    def __init__(self, context: HandlerContext) -> None:
        self._kube = context.kube
        self._events = context.events
        self._clock = context.clock
        self._patience = context.patience
        self._pods = context.informers.of(PODS)
        self._selectors = Selectors()
        self._members = GatedMembers(context, self._wake)
        self._waiting: dict[Key, _Waiting] = {}
        self._awaited: defaultdict[Key, set[Key]] = defaultdict(set)  # Pods by Service
        self._seconds = Histogram(
            "kuryr_readiness_gate_seconds",
            "Time for which Pods that were Ready but for their gate waited for load balancers",
            buckets=SECONDS,
            registry=None,
        )
        self.loop = Controller[Key](
            "readiness-gates",
            self.reconcile,
            queue=WorkQueue(
                context.clock,
                base=context.patience.first_retry,
                cap=context.patience.longest_health_look,
            ),
            report=self._report,
            observe=context.observe,
            patience=context.patience,
        )

    def collectors(self) -> Sequence[Collector]:
        """Return the metrics of Pods that wait, and of how long Pods have waited."""
        waiting = gauge(
            "kuryr_readiness_gates_waiting",
            "Pods that are Ready but for their readiness gate, and wait for load balancers",
            lambda: len(self._waiting),
        )
        return (waiting, self._seconds)

    # -- what happens to Pods and Services

    def pod_changed(self, key: Key, old: Pod | None, new: Pod | None) -> Iterable[Key]:
        """Note a change of a Pod; return the Services whose members it changes."""
        gated = [pod for pod in (old, new) if pod is not None and pod.gate is not None]
        if not gated:
            return ()
        if key in self._waiting or (new is not None and _waits(new)):
            self.loop.queue.add(key)
        before, now = (pod.uid if pod is not None and pod.is_gated else None for pod in (old, new))
        selecting = [self._selectors.of(pod).keys() for pod in gated]
        services = selecting[0] ^ selecting[-1] if before == now else set().union(*selecting)
        if before is not None:  # it may be a member no more when it is one again
            self._members.lost(services, before)
        return services

    def service_changed(self, key: Key, old: Service | None, new: Service | None) -> None:
        """Note a change of a Service, which may select other Pods by now."""
        self._selectors.note(key, old, new)
        is_other = old is not None and new is not None and old.selector != new.selector
        if new is None or is_other or not is_handled(new):
            self._members.forget(key)
        self._wake(key)

    def admit(self, service: Service, slices: Sequence[EndpointSlice]) -> list[EndpointSlice]:
        """Return the slices with the endpoints ready that only our gate keeps from it."""
        return self._members.admit(service, slices)

    def note(self, reconcile: Reconcile) -> None:
        """Note what has come of a Service's reconcile."""
        if self._members.note(reconcile):
            self._wake(reconcile.key)

    def note_failure(self, key: Key, service: Service, error: errors.KuryrError) -> None:
        """Note that a Service's reconcile has failed before anything could be asked for."""
        self._members.note_failure(key, service, error)

    def _wake(self, service: Key) -> None:
        """Look again at the Pods that wait for the Service."""
        for pod in self._awaited.pop(service, ()):
            self.loop.queue.add(pod)

    # -- gates

    async def reconcile(self, key: Key) -> None:
        """Make the gate True, if it is time.

        :raises errors.Wait: it is not.
        """
        pod = self._pods.get(key)
        if pod is None or not _waits(pod):
            self._forget(key)
            return
        waiting = self._waiting.get(key)
        if waiting is None or waiting.uid != pod.uid:
            self._forget(key)
            waiting = self._waiting[key] = _Waiting(pod.uid, self._clock.now())
        services = self._selectors.of(pod)
        for name, service in services.items():
            self._await(key, waiting, name)  # whatever goes wrong now
            lack = await self._members.lack(name, service, pod)
            if lack is not None:
                raise await self._wait(key, pod, waiting, lack)
        if not services:
            await self._check_live(pod)
        if self._pods.get(key) is pod:  # if not, the key is in the queue again
            await self._pass(key, pod, waiting, services)

    async def _check_live(self, pod: Pod) -> None:
        """Make sure that the API server too knows no Service that selects the Pod.

        :raises errors.Wait: it does: the cache is not up to date.
        """
        live = Selectors()
        async for items, _version in self._kube.list_pages(SERVICES, {}, pod.namespace):
            for service in map(Service.read, items):
                live.note(Key(service.namespace, service.name), None, service)
        if selecting := live.of(pod):
            names = ", ".join(sorted(service.name for service in selecting))
            raise errors.Wait(f"the cache does not show yet that {names} selects it", delay=1.0)

    async def _wait(self, key: Key, pod: Pod, waiting: _Waiting, lack: Lack) -> errors.Wait:
        """Return the error to wait with; tell users if the Pod has waited for long."""
        delay = self._patience.slow_gate
        left = waiting.since + delay - self._clock.now()
        if left > 0:
            delay = left
        else:
            if not waiting.told:
                LOG.warning("Pod %s waits for its readiness gate: %s", key, lack.text)
            waiting.told = True
            await self._events.warn(SOURCE, _reference(pod), WAITING, lack.text)
        return errors.Wait(lack.text, delay=min(delay, lack.look_after))

    async def _pass(self, key: Key, pod: Pod, waiting: _Waiting, services: Iterable[Key]) -> None:
        """Make the gate True.

        :raises errors.Wait: another Pod has the name by now.
        """
        names = ", ".join(sorted(service.name for service in services))
        message = f"member of {names}" if names else "no Service with load balancers selects it"
        condition = {
            "type": READINESS_GATE,
            "status": "True",
            "reason": "LoadBalancerMember" if names else "NoService",
            "message": message[:MESSAGE_LIMIT],
            "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        try:
            answer = await self._kube.patch_conditions(PODS, key, [condition], uid=pod.uid)
        except errors.KubeNotFound:
            return  # gone in the meantime
        except errors.KubeConflict as error:
            raise errors.Wait(f"the cache lags behind Pod {key}", delay=1.0) from error
        if names:
            self._seconds.observe(self._clock.now() - waiting.since)
        self._forget(key)
        self._pods.learn(answer)

    def _await(self, key: Key, waiting: _Waiting, service: Key) -> None:
        """Wait for a Service, and for no other one."""
        self._await_nothing(key, waiting)
        waiting.service = service
        self._awaited[service].add(key)

    def _await_nothing(self, key: Key, waiting: _Waiting) -> None:
        service = waiting.service
        if service is not None and service in self._awaited:
            self._awaited[service].discard(key)
            if not self._awaited[service]:
                del self._awaited[service]

    def _forget(self, key: Key) -> None:
        """Note that the Pod of this name does not wait."""
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            self._await_nothing(key, waiting)

    async def _report(self, key: Key, error: Exception | None, failures: int) -> None:
        """Report to users that a gate cannot be decided or written, or forget what was told."""
        pod = self._pods.get(key)
        if pod is None:
            return
        if error is None:
            self._events.well(SOURCE, _reference(pod))
        elif words := words_for_users(error, failures):
            await self._events.warn(SOURCE, _reference(pod), *words)


def _waits(pod: Pod) -> bool:
    """Return whether the Pod is Ready as soon as its gate is True."""
    return pod.gate is not None and pod.is_gated and not pod.gate.passed and not pod.finished


def _reference(pod: Pod) -> Reference:
    return Reference(resource=PODS, namespace=pod.namespace, name=pod.name, uid=pod.uid)
