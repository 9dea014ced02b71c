"""Status of Services: how they are reached, and conditions. Nobody else writes it.

It is written only when it changes. Conditions of others, and the ingress of a Service that is not
ours, stay as they are.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from kuryr_k8s.handlers.lag import written
from kuryr_k8s.k8s.api import KubeApi
from kuryr_k8s.k8s.informer import Informer
from kuryr_k8s.k8s.resources import SERVICES, Key
from kuryr_k8s.model.service import Condition, Service, ingress_text

Json = dict[str, Any]
# True: the Service is reached as its type LoadBalancer asks.
READY = "kuryr.openstack.org/LoadBalancerReady"
# True: something that the Service asks for cannot be done; the rest is done.
UNSUPPORTED = "kuryr.openstack.org/Unsupported"
MESSAGE_LIMIT = 1000


class Verdict(NamedTuple):
    """Content of a condition.

    :param reason: one CamelCase word.
    """

    status: bool
    reason: str
    message: str = ""


class ServiceStatus:
    """Writer of the status of Services."""

    def __init__(self, kube: KubeApi, services: Informer[Service]) -> None:
        self._kube = kube
        self._services = services

    def says(self, key: Key, uid: str, kind: str, verdict: Verdict | None) -> bool:
        """Return whether the Service has this condition already; None: whether it has none."""
        service = self._services.get(key)
        if service is None or service.uid != uid:
            return False
        return _conditions(service.conditions, {kind: verdict}) == service.conditions

    async def write(
        self,
        key: Key,
        uid: str,
        verdicts: Mapping[str, Verdict | None],
        ingress: Sequence[Json] | None,
    ) -> None:
        """Write the status.

        :param verdicts: our conditions; None removes one, and those that are not named stay.
        :param ingress: None leaves it as it is.
        :raises errors.Wait: the Service has changed in the meantime.
        """
        service = self._services.get(key)  # as our own last write has left it
        if service is None or service.uid != uid:
            return
        status: Json = {}
        conditions = _conditions(service.conditions, verdicts)
        if conditions != service.conditions:
            status["conditions"] = [condition.to_json() for condition in conditions]
        if ingress is not None and ingress_text(ingress) != service.ingress:
            status["loadBalancer"] = {"ingress": list(ingress) or None}
        if not status:
            return
        meta = {"uid": uid, "resourceVersion": service.resource_version}
        patch = {"metadata": meta, "status": status}
        patched = self._kube.merge_patch(SERVICES, key, patch, subresource="status")
        await written(patched, self._services, f"Service {key}")


def _conditions(
    existing: tuple[Condition, ...], verdicts: Mapping[str, Verdict | None]
) -> tuple[Condition, ...]:
    """Return the conditions in their order, with ours replaced.

    One whose status stays the same keeps its time of transition.
    """
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    by_type = {condition.type: condition for condition in existing}
    for kind, verdict in verdicts.items():
        if verdict is None:
            by_type.pop(kind, None)
            continue
        status = str(verdict.status)
        before = by_type.get(kind)
        same = before is not None and before.status == status
        by_type[kind] = Condition(
            type=kind,
            status=status,
            reason=verdict.reason,
            message=verdict.message[:MESSAGE_LIMIT],
            last_transition_time=before.last_transition_time if before and same else now,
        )
    return tuple(by_type.values())
