"""Events (events.k8s.io/v1) that users see in ``kubectl describe``, one for each condition.

The same (object, reason, note) is reported once, and again only if the object was well in between,
or after an hour. A report never fails, and delays a reconcile by one call at most.
"""

import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol, Self

from kuryr_k8s import errors
from kuryr_k8s.k8s.api import KubeApi
from kuryr_k8s.k8s.resources import EVENTS, NAMESPACES, NODES, Resource
from kuryr_k8s.model.pod import Node

LOG = logging.getLogger(__name__)
REMEMBERED = 10_000  # conditions; beyond it the oldest are forgotten
AGAIN = 3600.0
NOTE_LIMIT = 1000  # the API server takes a little more
# Errors that a user or the operator can mend
REPORTED_AT_ONCE = (errors.Refused, errors.OverQuota, errors.NotFound)
REPORT_AFTER = 3  # failures in a row before users hear of something that may pass by itself


class Named(Protocol):
    """The attributes of a view that tell its object from all others."""

    @property
    def namespace(self) -> str:
        """The object's namespace."""

    @property
    def name(self) -> str:
        """The object's name."""

    @property
    def uid(self) -> str:
        """The object's uid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The object that an Event is about."""

    resource: Resource[Any]
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, resource: Resource[Any], view: Named) -> Self:
        """Return the object of which a view is."""
        return cls(resource=resource, namespace=view.namespace, name=view.name, uid=view.uid)

    @classmethod
    def of_cluster(cls, uid: str) -> Self:
        """Return the namespace kube-system, which stands for the cluster.

        :param uid: The namespace's.
        """
        return cls(resource=NAMESPACES, namespace="", name="kube-system", uid=uid)


class EventRecorder:
    """Reports to users by Events.

    :param component: the program that reports, for example ``kuryr-k8s-controller``.
    """

    def __init__(
        self,
        api: KubeApi,
        component: str,
        instance: str,
        *,
        enabled: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._component = component
        self._instance = instance
        self._enabled = enabled
        self._clock = clock
        self._reported: OrderedDict[tuple[str, str], tuple[str, str, float]] = OrderedDict()

    async def warn(self, source: str, about: Reference, reason: str, note: str) -> None:
        """Report that something is wrong with an object, unless that is reported already.

        :param source: who noticed: one handler may find the object well, and another may not.
        """
        condition = (source, about.uid)
        reported = self._reported.get(condition)
        if reported and reported[:2] == (reason, note) and self._clock() - reported[2] < AGAIN:
            return
        self._reported[condition] = (reason, note, self._clock())
        self._reported.move_to_end(condition)
        if len(self._reported) > REMEMBERED:
            self._reported.popitem(last=False)
        if not await self._post(about, "Warning", reason, note):
            self._reported.pop(condition, None)

    async def note(
        self, about: Reference, reason: str, note: str, *, warning: bool = False
    ) -> None:
        """Report what has happened to an object, every time."""
        await self._post(about, "Warning" if warning else "Normal", reason, note)

    def well(self, source: str, about: Reference) -> None:
        """Forget what ``source`` reported: nothing is wrong with the object any more."""
        self._reported.pop((source, about.uid), None)

    async def _post(self, about: Reference, kind: str, reason: str, note: str) -> bool:
        """Post an Event.

        :returns: whether the server accepted it. It may refuse for ever, so there is no retry.
        """
        if not self._enabled:
            return True
        namespace = about.namespace or "default"
        body = {
            "metadata": {"namespace": namespace, "name": f"{about.name[:200]}.{uuid.uuid4().hex}"},
            "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": self._component,
            "reportingInstance": self._instance,
            "type": kind,
            "reason": reason,
            "action": "Reconcile",
            "note": note[:NOTE_LIMIT],
            "regarding": {
                "apiVersion": about.resource.api_version,
                "kind": about.resource.kind,
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
            },
        }
        try:
            await self._api.create(EVENTS, body)
        except errors.KubeError as error:
            LOG.debug("Event %s for %s was not taken: %s", reason, about.name, error)
            return False
        return True


def words_for_users(error: Exception, failures: int) -> tuple[str, str] | None:
    """Return an Event's reason and note; None for an error that may still pass by itself.

    :param failures: how many attempts in a row have failed.
    """
    if not isinstance(error, REPORTED_AT_ONCE) and failures < REPORT_AFTER:
        return None
    reason = getattr(error, "reason", errors.KuryrError.reason)
    return reason, getattr(error, "brief", str(error)) or type(error).__name__


def node_reference(node: Node | None) -> Reference | None:
    """Return the reference of an Event about a Node."""
    if node is None:
        return None
    return Reference(resource=NODES, namespace="", name=node.name, uid=node.uid)
