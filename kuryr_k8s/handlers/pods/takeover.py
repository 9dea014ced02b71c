"""The first act of a new leader: no late write of the old leader may follow its own.

The old leader may have been frozen, or its request be late: a PATCH of ``status.vifs`` that it
sent may still arrive. That PATCH applies to one resourceVersion of the KuryrPort. Therefore each
KuryrPort without interfaces gets a new resourceVersion before anything is handed out.
"""

import asyncio
import logging

from kuryr_k8s import errors
from kuryr_k8s.engine.clock import Clock
from kuryr_k8s.k8s.api import Json, KubeApi
from kuryr_k8s.k8s.informer import Informer
from kuryr_k8s.k8s.resources import KURYRPORTS, Key
from kuryr_k8s.model import annotations
from kuryr_k8s.model.kuryrport import KuryrPort
from kuryr_k8s.patience import Patience

LOG = logging.getLogger(__name__)
PASSING = (401, 408, 409, 429)  # no refusals of what was asked for


class Takeover:
    """Makes late writes of an earlier leader void, before any handler and any pool runs.

    :param incarnation: Names this life of the process.
    """

    def __init__(
        self,
        kube: KubeApi,
        kuryrports: Informer[KuryrPort],
        incarnation: str,
        *,
        clock: Clock,
        patience: Patience,
    ) -> None:
        self._kube = kube
        self._kuryrports = kuryrports
        self._incarnation = incarnation
        self._clock = clock
        self._patience = patience
        self._refused_since: float | None = None

    async def run(self) -> None:
        """List all KuryrPorts by quorum, and patch each one that has no interfaces.

        Afterwards the cache knows each KuryrPort at least as it was when the Lease became ours,
        and no earlier leader can give it interfaces any more. May be called again.

        A KuryrPort that the API server does not let us mark, for example because of an admission
        webhook, must not keep all others waiting. It is left aside in the end: what refuses our
        write refuses a late one, too.

        :raises errors.KubeError: It must be called again.
        """
        refusals: list[errors.KubeError] = []
        async for items, _version in self._kube.list_pages(KURYRPORTS, {}):
            failures: list[errors.KubeError] = []
            async with asyncio.TaskGroup() as group:
                for item in items:
                    if self._is_open(item):
                        group.create_task(self._touch(item, failures, refusals))
                    else:
                        self._kuryrports.learn(item)
            if failures:
                raise failures[0]
        self._judge(refusals)

    def _judge(self, refusals: list[errors.KubeError]) -> None:
        """Leave aside what was refused, if it has been for long enough.

        :raises errors.KubeError: It has not.
        """
        if not refusals:
            return
        now = self._clock.now()
        if self._refused_since is None:
            self._refused_since = now
        if now - self._refused_since < self._patience.takeover_refused:
            raise refusals[0]
        for refusal in refusals:
            LOG.error("left aside: %s", refusal)

    def _is_open(self, item: Json) -> bool:
        """Return whether an earlier leader could still add interfaces.

        A deletion has changed the resourceVersion, too.
        """
        if "deletionTimestamp" in item["metadata"] or (item.get("status") or {}).get("vifs"):
            return False
        return annotations.annotation(item, annotations.LEADER) != self._incarnation

    async def _touch(
        self, item: Json, failures: list[errors.KubeError], refusals: list[errors.KubeError]
    ) -> None:
        meta = item["metadata"]
        patch = {
            "metadata": {
                "uid": meta["uid"],
                "annotations": {annotations.LEADER: self._incarnation},
            }
        }
        key = Key(meta["namespace"], meta["name"])
        try:
            self._kuryrports.learn(await self._kube.merge_patch(KURYRPORTS, key, patch))
        except (errors.KubeNotFound, errors.KubeConflict):
            pass  # gone, or made again by others' hands
        except errors.KubeError as error:
            if error.status == 422:  # what the kind does not allow, nobody else can change either
                LOG.warning("KuryrPort %s: %s", key, error)
            elif 400 <= error.status < 500 and error.status not in PASSING:
                refusals.append(errors.KubeError(f"KuryrPort {key}: {error}", status=error.status))
            else:
                failures.append(error)
