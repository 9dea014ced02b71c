"""What is told of a Service's load balancers: Events, annotations, conditions and ingress.

Only what is settled is told: not while a cloud is at work. What cannot be done and holds up
nothing is one Event for each reason, and one condition for all of them, by which it is known after
a restart that it has been told; what is refused is a condition, and the Event is the handler's.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.handlers.services.outside import FORCED_INTERNAL, SHARED, Exposure
from kuryr_k8s.handlers.services.publishing import Publishing
from kuryr_k8s.handlers.services.requests import Outcome
from kuryr_k8s.handlers.services.settings import REASONS, unkept
from kuryr_k8s.handlers.services.spec import service_reference
from kuryr_k8s.handlers.services.status import READY, UNSUPPORTED, ServiceStatus, Verdict
from kuryr_k8s.k8s.events import words_for_users
from kuryr_k8s.k8s.resources import SERVICES, Key
from kuryr_k8s.model.service import LOAD_BALANCER, Service
from kuryr_k8s.model.service_annotations import LOAD_BALANCER_ADDRESS, PREFIX, WRITTEN_ID

CHANGED = "KuryrLoadBalancerChanged"
REFUSED = "KuryrPortRefused"
HOSTNAME = f"{PREFIX}hostname"


class Telling:
    def __init__(self, context: HandlerContext, publishing: Publishing) -> None:
        self._events = context.events
        self._publishing = publishing
        self._status = ServiceStatus(context.kube, context.informers.of(SERVICES))

    async def change(self, service: Service) -> None:
        await self._event(service, CHANGED, "it was changed in Octavia; it is put right")

    async def _event(self, service: Service, reason: str, note: str | None) -> None:
        """Something about a load balancer that works all the same; None: it is no more so."""
        about = service_reference(service)
        if about is not None and note is not None:
            await self._events.warn(reason, about, reason, note)
        elif about is not None:
            self._events.well(reason, about)

    async def all(
        self,
        key: Key,
        service: Service,
        inner: Mapping[str, Outcome],
        exposure: Exposure | None,
        problems: Sequence[errors.KuryrError],
        *,
        exposed: bool,
    ) -> None:
        """Events, annotations and the status."""
        if any(isinstance(error, errors.Wait) for error in problems):
            return  # soon there is more to tell
        notes = unkept(service, exposed=exposed)
        refused = {port: text for one in inner.values() for port, text in one.refused.items()}
        texts = [one.note for one in inner.values() if one.note]
        if exposure is not None:
            notes |= exposure.notes
            refused |= exposure.refused
        texts += [f"{port.protocol} {port.port}: {text}" for port, text in refused.items()]
        if texts:
            notes[REFUSED] = "; ".join(dict.fromkeys(texts))
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
        elif exposed:
            words = words_for_users(problems[0], 0) if problems else None
            if words is None:
                del verdicts[READY]
            else:
                verdicts[READY] = Verdict(False, *words)
            if exposure is not None:
                ingress = exposure.ingress
                await self._publishing.no_outside(key, service)
        elif not problems:
            ingress = _of_nothing(service)
        await self._status.write(key, service.uid, verdicts, ingress)
        if not exposed and not problems:
            await self._publishing.no_outside(key, service)

    async def nothing(self, key: Key, service: Service) -> None:
        """It has nothing of ours any more."""
        gone = {READY: None, UNSUPPORTED: None}
        await self._status.write(key, service.uid, gone, _of_nothing(service))
        await self._publishing.no_outside(key, service)


def _of_nothing(service: Service) -> Sequence[Any] | None:
    """The ingress of a Service that has nothing outside; another one's is not ours to touch. By
    the annotations it is seen whose it is: they go after it."""
    if service.type != LOAD_BALANCER:
        return ()
    marks = dict(service.marks)
    ours = {*marks.get(LOAD_BALANCER_ADDRESS, "").split(","), marks.get(HOSTNAME)}
    told = json.loads(service.ingress or "[]")
    is_ours = WRITTEN_ID in marks and all(
        one.get("ip", one.get("hostname")) in ours for one in told
    )
    return () if is_ours else None
