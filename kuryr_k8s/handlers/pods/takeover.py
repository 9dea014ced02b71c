"""The first act of a new leader: no late write of the old leader may follow its own.

The old leader may have been frozen, or its request be late: a PATCH of ``status.vifs`` that it
sent may still arrive. That PATCH applies to one resourceVersion of the KuryrPort. Therefore each
KuryrPort without interfaces gets a new resourceVersion before anything is handed out.
"""

import asyncio
import logging

from kuryr_k8s import errors
from kuryr_k8s.k8s.api import Json, KubeApi
from kuryr_k8s.k8s.informer import Informer
from kuryr_k8s.k8s.resources import KURYRPORTS, Key
from kuryr_k8s.model import annotations
from kuryr_k8s.model.kuryrport import KuryrPort

LOG = logging.getLogger(__name__)


class Takeover:
    """Makes late writes of an earlier leader void, before any handler and any pool runs.

    :param incarnation: Names this life of the process.
    """

    def __init__(self, kube: KubeApi, kuryrports: Informer[KuryrPort], incarnation: str) -> None:
        self._kube = kube
        self._kuryrports = kuryrports
        self._incarnation = incarnation

    async def run(self) -> None:
        """List all KuryrPorts by quorum, and patch each one that has no interfaces.

        Afterwards the cache knows each KuryrPort at least as it was when the Lease became ours,
        and no earlier leader can give it interfaces any more. May be called again.

        :raises errors.KubeError: It must be called again.
        """
        async for items, _version in self._kube.list_pages(KURYRPORTS, {}):
            failures: list[errors.KubeError] = []
            async with asyncio.TaskGroup() as group:
                for item in items:
                    if self._is_open(item):
                        group.create_task(self._touch(item, failures))
                    else:
                        self._kuryrports.learn(item)
            if failures:
                raise failures[0]

    def _is_open(self, item: Json) -> bool:
        """Return whether an earlier leader could still add interfaces.

        A deletion has changed the resourceVersion, too.
        """
        if "deletionTimestamp" in item["metadata"] or (item.get("status") or {}).get("vifs"):
            return False
        return annotations.annotation(item, annotations.LEADER) != self._incarnation

    async def _touch(self, item: Json, failures: list[errors.KubeError]) -> None:
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
            else:
                failures.append(error)
