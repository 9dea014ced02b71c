"""Reports on a Service's load balancers: Events, annotations, conditions and ingress.

While a cloud is at work, nothing is reported but the first address. What cannot be done, but holds
up nothing, is one Event for each reason and one condition for all of them: after a restart, the
condition shows that it was reported. What is refused is a condition, and the handler's Event.
"""

import json
from collections.abc import Sequence
from typing import Any

from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.handlers.services.addresses import FORCED_INTERNAL, SHARED
from kuryr_k8s.handlers.services.publishing import Publishing
from kuryr_k8s.handlers.services.reconcile import Reconcile
from kuryr_k8s.handlers.services.settings import REASONS, unkept
from kuryr_k8s.handlers.services.spec import service_reference
from kuryr_k8s.handlers.services.status import READY, UNSUPPORTED, ServiceStatus, Verdict
from kuryr_k8s.k8s.events import words_for_users
from kuryr_k8s.k8s.resources import SERVICES, Key
from kuryr_k8s.model.service import LOAD_BALANCER, Service, ingress_text
from kuryr_k8s.model.service_annotations import LOAD_BALANCER_ADDRESS, PREFIX, WRITTEN_ID

CHANGED = "KuryrLoadBalancerChanged"
REFUSED = "KuryrPortRefused"
HOSTNAME = f"{PREFIX}hostname"


class Reports:
    """Writer of all reports on Services."""

    def __init__(self, context: HandlerContext, publishing: Publishing) -> None:
        self._events = context.events
        self._publishing = publishing
        self._status = ServiceStatus(context.kube, context.informers.of(SERVICES))

    async def changed(self, service: Service) -> None:
        """Report that somebody else has changed a load balancer."""
        await self._event(
            service,
            CHANGED,
            "the load balancer was changed in Octavia; the change is being undone",
        )

    async def _event(self, service: Service, reason: str, note: str | None) -> None:
        """Write an Event about a load balancer that works all the same.

        :param note: None if there is no reason for it any more.
        """
        about = service_reference(service)
        if about is not None and note is not None:
            await self._events.warn(reason, about, reason, note)
        elif about is not None:
            self._events.well(reason, about)

    async def write(self, reconcile: Reconcile) -> None:
        """Write Events, annotations and the status."""
        key, service = reconcile.key, reconcile.service
        if reconcile.is_waiting():
            first = reconcile.exposure
            if first is not None and first.problem is None and service.ingress == ingress_text(()):
                await self._status.write(key, service.uid, {}, first.ingress)
            return
        exposure, problems = reconcile.exposure, reconcile.problems
        notes = _notes_of(reconcile)
        verdicts: dict[str, Verdict | None] = {UNSUPPORTED: None, READY: None}
        if notes:
            verdicts[UNSUPPORTED] = Verdict(True, min(notes), "; ".join(sorted(notes.values())))
        if not self._status.says(key, service.uid, UNSUPPORTED, verdicts[UNSUPPORTED]):
            for reason in (*REASONS, FORCED_INTERNAL, REFUSED, SHARED):
                await self._event(service, reason, notes.get(reason))
        ingress: Sequence[Any] | None = None
        if exposure is not None and exposure.problem is None:
            ingress = exposure.ingress
            verdicts[READY] = Verdict(True, "Ready")
            address = ",".join(exposure.addresses)
            await self._publishing.outside(key, service, exposure.load_balancer_id, address)
        if reconcile.exposed and (problems or exposure is None):
            words = words_for_users(problems[0], 0) if problems else None
            if words is None:
                del verdicts[READY]
            else:
                verdicts[READY] = Verdict(False, *words)
            if exposure is not None and exposure.problem is not None:
                ingress = exposure.ingress
                await self._publishing.no_outside(key, service)
        elif not reconcile.exposed and not problems:
            ingress = _of_nothing(service)
        await self._status.write(key, service.uid, verdicts, ingress)
        if not reconcile.exposed and not problems:
            await self._publishing.no_outside(key, service)

    async def clear(self, key: Key, service: Service) -> None:
        """Take everything off a Service that has nothing of ours any more."""
        await self._publishing.no_state(key, service)
        gone = {READY: None, UNSUPPORTED: None}
        await self._status.write(key, service.uid, gone, _of_nothing(service))
        await self._publishing.no_outside(key, service)


def _notes_of(reconcile: Reconcile) -> dict[str, str]:
    """Return notes on what cannot be done, by reason."""
    outcomes = reconcile.inner.values()
    providers = {outcome.found.provider for outcome in outcomes}
    notes = unkept(reconcile.service, exposed=reconcile.exposed, providers=providers)
    refused = {port: text for outcome in outcomes for port, text in outcome.refused.items()}
    texts = [outcome.note for outcome in outcomes if outcome.note]
    if reconcile.exposure is not None:
        notes |= reconcile.exposure.notes
        refused |= reconcile.exposure.refused
        texts += [reconcile.exposure.note] if reconcile.exposure.note else []
    texts += [f"{port.protocol} {port.port}: {text}" for port, text in refused.items()]
    if texts:
        notes[REFUSED] = "; ".join(dict.fromkeys(texts))
    return notes


def _of_nothing(service: Service) -> Sequence[Any] | None:
    """Return the ingress of a Service that has nothing outside.

    The annotations tell whether it is ours: they are removed after it.

    :returns: None if the ingress is another controller's.
    """
    if service.type != LOAD_BALANCER:
        return ()
    annotations = dict(service.annotations)
    ours = {*annotations.get(LOAD_BALANCER_ADDRESS, "").split(","), annotations.get(HOSTNAME)}
    ingress = json.loads(service.ingress or "[]")
    is_ours = WRITTEN_ID in annotations and all(
        each.get("ip", each.get("hostname")) in ours for each in ingress
    )
    return () if is_ours else None
