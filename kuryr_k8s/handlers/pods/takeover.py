"""The first act of a new leader: no late write of the old leader may follow its own.

The old leader may have been frozen, or its request be late: a PATCH of ``status.vifs`` that it
sent may still arrive. That PATCH applies to one resourceVersion of the KuryrPort. Therefore each
KuryrPort without interfaces is signed before anything is handed out, which makes a new one.

What the API server refuses to sign, or twice in a row does not sign in time, waits, and all others
do not. The handler of KuryrPorts signs it before it asks for ports, each survey of pools tries as
well, and pools withhold the ports that the old leader may have given it.
"""

import asyncio
import logging
from collections.abc import Iterable

from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kuryr_k8s import errors
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.k8s.api import Json, KubeApi
from kuryr_k8s.k8s.informer import Informer
from kuryr_k8s.k8s.resources import KURYRPORTS, Key
from kuryr_k8s.model import annotations
from kuryr_k8s.model.kuryrport import KuryrPort

LOG = logging.getLogger(__name__)
# No answers about the object that was to be signed; a webhook that is down is a 500.
PASSING = (401, 404, 408, 409, 429, 502, 503, 504)
# Perhaps a webhook that takes longer than the request may.
UNANSWERED = (0, 504)


class Takeover(Collector):
    """Makes late writes of an earlier leader void, before any handler and any pool runs.

    :param incarnation: Names this life of the process.
    """

    def __init__(self, kube: KubeApi, kuryrports: Informer[KuryrPort], incarnation: str) -> None:
        self._kube = kube
        self._kuryrports = kuryrports
        self._incarnation = incarnation
        self._unanswered: set[str] = set()  # uids of KuryrPorts that were not signed in time
        self._done = False

    async def run(self) -> None:
        """List all KuryrPorts by quorum, and sign each one that has no interfaces.

        Afterwards the cache knows each KuryrPort at least as it was when the Lease became ours,
        and no earlier leader can give interfaces to one that is signed. May be called again.

        :raises errors.KubeError: It must be called again.
        """
        async for items, _version in self._kube.list_pages(KURYRPORTS, {}):
            failures: list[errors.KubeError] = []
            async with asyncio.TaskGroup() as group:
                for item in items:
                    self._kuryrports.learn(item)
                    if KuryrPort.read(item).may_be_given_vifs_by_another(self._incarnation):
                        group.create_task(self._touch(item, failures))
            if failures:
                raise failures[0]
        self._done = True

    async def _touch(self, item: Json, failures: list[errors.KubeError]) -> None:
        meta = item["metadata"]
        key = Key(meta["namespace"], meta["name"])
        patch = _signature(self._incarnation, uid=meta["uid"])
        try:
            self._kuryrports.learn(await self._kube.merge_patch(KURYRPORTS, key, patch))
        except (errors.KubeNotFound, errors.KubeConflict):
            pass  # gone, or made again by others' hands
        except errors.KubeError as error:
            if _is_refusal(error) or self._is_unanswered_again(meta["uid"], error):
                LOG.error("KuryrPort %s gets no port before it can be signed: %s", key, error)
            else:
                failures.append(error)

    def _is_unanswered_again(self, uid: str, error: errors.KubeError) -> bool:
        """Return whether this KuryrPort had no answer in the attempt before, either."""
        if error.status not in UNANSWERED or isinstance(error, errors.NoCredentials):
            return False
        if uid in self._unanswered:
            return True
        self._unanswered.add(uid)
        return False

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Count what still waits for its signature, where this controller leads."""
        known = self._kuryrports.values() if self._done else ()
        unsigned = sum(port.may_be_given_vifs_by_another(self._incarnation) for port in known)
        yield GaugeMetricFamily(
            "kuryr_unsigned_kuryrports",
            "KuryrPorts that get no port, since the API server refuses this leader's signature",
            value=unsigned,
        )


async def sign_late(context: HandlerContext, recorded: KuryrPort) -> KuryrPort:
    """Sign a KuryrPort after the takeover, so that what an earlier leader may still write is void.

    The takeover did not sign it: it could not, or an earlier leader's late request created it
    since. The signature may also be that of a newer leader; so the Lease is confirmed first.

    :returns: the KuryrPort as it is now.
    :raises errors.KubeError: it is not signed, so it may get no port.
    """
    await context.confirm_lease()
    key = Key(recorded.namespace, recorded.name)
    patch = _signature(
        context.incarnation, uid=recorded.uid, resourceVersion=recorded.resource_version
    )
    try:
        answer = await context.kube.merge_patch(KURYRPORTS, key, patch)
    except errors.KubeError as error:
        if not _is_refusal(error):
            raise
        text = f"the API server refuses the signature of this leader on the KuryrPort: {error}"
        raise errors.KubeError(text) from error
    context.informers.of(KURYRPORTS).learn(answer)
    return KuryrPort.read(answer)


async def sign_anew(context: HandlerContext, recorded: KuryrPort) -> KuryrPort:
    """Sign a KuryrPort once more, so that what this leader may still write of it is void.

    The same signature would change nothing; so the one that it has is withdrawn before.

    :returns: the KuryrPort as it is now.
    :raises errors.KubeConflict: it has changed: perhaps it has interfaces by now.
    """
    key = Key(recorded.namespace, recorded.name)
    patch = _signature(None, uid=recorded.uid, resourceVersion=recorded.resource_version)
    answer = await context.kube.merge_patch(KURYRPORTS, key, patch)
    context.informers.of(KURYRPORTS).learn(answer)
    return await sign_late(context, KuryrPort.read(answer))


def _signature(incarnation: str | None, **precondition: str) -> Json:
    """Return the patch by which a leader makes what earlier ones may still write void.

    :param precondition: ``uid``, and ``resourceVersion`` where the object must not have changed.
    """
    return {"metadata": precondition | {"annotations": {annotations.LEADER: incarnation}}}


def _is_refusal(error: errors.KubeError) -> bool:
    """Return whether the API server does not do it for this object; others may fare better."""
    return error.status >= 400 and error.status not in PASSING
