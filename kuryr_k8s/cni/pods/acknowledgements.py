"""The node's reports in KuryrPorts: interfaces that work, and Pods that have left the node."""

import logging
from collections.abc import Sequence
from typing import Any, Protocol

from kuryr_k8s import errors
from kuryr_k8s.cni.parts import Part
from kuryr_k8s.cni.patience import USUAL, Patience
from kuryr_k8s.cni.pods.attachments import Attachments
from kuryr_k8s.cni.pods.kuryrports import Cache
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.k8s.resources import KURYRPORTS, Key, Resource
from kuryr_k8s.model.annotations import NODE_FINALIZER
from kuryr_k8s.model.kuryrport import KuryrPort

LOG = logging.getLogger(__name__)
WORKERS = 8


class Api(Protocol):
    """The part of the API's client that this module needs."""

    async def merge_patch(
        self, resource: Resource[Any], key: Key, patch: dict[str, Any], *, subresource: str = ""
    ) -> dict[str, Any]:
        """Patch an object and return it."""

    async def remove_finalizers(
        self, resource: Resource[Any], key: Key, *names: str, uid: str, known: tuple[str, ...]
    ) -> object:
        """Remove finalizers of an object."""


class Acknowledgements(Part):
    """Reconciles the KuryrPorts of this node, by key.

    It writes two things and nothing else: ``active`` of an interface that works, and the absence
    of the node's finalizer, which allows the controller to give the port away.
    """

    def __init__(
        self, cache: Cache, api: Api, attachments: Attachments, patience: Patience = USUAL
    ) -> None:
        self._cache = cache
        self._api = api
        self._attachments = attachments
        self._look_again = patience.look_again
        self._controller = Controller("kuryrport", self.reconcile, workers=WORKERS)
        cache.subscribe(lambda key, _old, _new: self._controller.queue.add(key))
        attachments.subscribe(self._controller.queue.add)

    def loops(self) -> Sequence[Controller[Key]]:
        """Return the loop that reconciles KuryrPorts."""
        return [self._controller]

    async def reconcile(self, key: Key) -> float | None:
        """Write what has changed on the node.

        :returns: seconds until the next look, None if an event will report the next change.
        :raises errors.KubeError: to be tried again.
        """
        port = self._cache.get(key)
        if port is None:
            return None
        if port.deleting:
            return await self._release(key, port)
        await self._mark(key, port)
        attached = self._attachments.of_pod(port.pod_uid)
        if all(binding.working(attachment) for binding, attachment in attached):
            return None
        return self._look_again  # no event reports that OVN takes the port over (again)

    async def _release(self, key: Key, port: KuryrPort) -> float | None:
        """Remove the node's finalizer, unless the port may still be on the node.

        No new ADD takes the port, and nothing begins to make its interface again, since its
        KuryrPort is being deleted.
        """
        if NODE_FINALIZER not in port.finalizers:
            return None
        self._require_knowledge()
        if self._attachments.adds.plugging(port.pod_uid):
            raise errors.Wait("an ADD is being done", delay=5.0)
        if self._attachments.busy(port.pod_uid):
            raise errors.Wait("its interfaces are being changed", delay=0.5)
        for binding, attachment in self._attachments.of_pod(port.pod_uid):
            if binding.vanished(attachment):
                LOG.info("%s has gone with its namespace", attachment)
                await self._attachments.unplug(binding, attachment)
        self._require_knowledge()  # the connection may have been lost meanwhile
        if self._attachments.of_pod(port.pod_uid):
            return self._look_again
        LOG.info("KuryrPort %s (Pod %s) has left the node", key, port.pod_uid)
        await self._api.remove_finalizers(
            KURYRPORTS, key, NODE_FINALIZER, uid=port.uid, known=port.finalizers
        )
        return None

    def _require_knowledge(self) -> None:
        if not self._attachments.settled.is_set() or self._attachments.trouble():
            raise errors.Wait("it is not known what is attached", delay=1.0)

    async def _mark(self, key: Key, port: KuryrPort) -> None:
        """Record which interfaces work, and which do not any more.

        The controller has marked the interface of a parked port already; it works before the Pod
        has it.
        """
        if self._attachments.adds.plugging(port.pod_uid) or not port.has_vifs:
            return
        self._require_knowledge()
        vifs = port.vifs()
        working = {
            attachment.name_in(vifs)
            for binding, attachment in self._attachments.of_pod(port.pod_uid)
            if binding.working(attachment)
        } | {name for name, vif in vifs.items() if self._attachments.parked(vif)}
        changed = {
            name: {"vif": {"versioned_object.data": {"active": name in working}}}
            for name, vif in vifs.items()
            if vif.active != (name in working)
        }
        if not changed:
            return
        patch = {"metadata": {"uid": port.uid}, "status": {"vifs": changed}}
        try:
            await self._api.merge_patch(KURYRPORTS, key, patch, subresource="status")
        except (errors.KubeNotFound, errors.KubeConflict):
            LOG.debug("KuryrPort %s is gone, or has been replaced", key)
