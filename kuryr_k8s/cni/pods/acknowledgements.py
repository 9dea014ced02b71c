"""The node's word on KuryrPorts: which interfaces are up, and which have left the node."""

import asyncio
import logging
from typing import Any, Protocol

from kuryr_k8s import errors
from kuryr_k8s.cni.bindings.base import Attachment
from kuryr_k8s.cni.pods.attachments import Attachments, say
from kuryr_k8s.cni.pods.wanted import Cache
from kuryr_k8s.k8s.resources import KURYRPORTS, Key, Resource
from kuryr_k8s.model.annotations import NODE_FINALIZER
from kuryr_k8s.model.kuryrport import DEFAULT_IFNAME, KuryrPort

LOG = logging.getLogger(__name__)
LOOK_AGAIN = 30.0  # seconds; for what no event tells


class Api(Protocol):
    """The part of the API's client that we need."""

    async def merge_patch(
        self, resource: Resource, key: Key, patch: dict[str, Any], *, subresource: str = ""
    ) -> dict[str, Any]: ...

    async def remove_finalizers(
        self, resource: Resource, key: Key, *names: str, uid: str, known: tuple[str, ...]
    ) -> object: ...


class Switch(Protocol):
    """The part of :class:`~kuryr_k8s.cni.ovs.switch.OpenVSwitch` that we need."""

    connected: asyncio.Event


class ParkedPorts(Protocol):
    """The part of :class:`~kuryr_k8s.cni.bindings.ovs_parked.Parked` that we need."""

    def ready(self, port_id: str) -> bool: ...


class KuryrPortAcknowledger:
    """Reconciles KuryrPorts, by key, on the node's side.

    It writes two things and nothing else: ``active`` of an interface that works, and the
    absence of the node's finalizer, by which the controller may give the port away.
    """

    def __init__(
        self,
        cache: Cache,
        api: Api,
        attachments: Attachments,
        switch: Switch,
        parked: ParkedPorts,
    ) -> None:
        self._cache = cache
        self._api = api
        self._attachments = attachments
        self._switch = switch
        self._parked = parked

    async def reconcile(self, key: Key) -> float | None:
        """:raises errors.KubeError: to be tried again."""
        port = self._cache.get(key)
        if port is None:
            return None
        if port.deleting:
            return await self._release(key, port)
        await self._mark(key, port)
        attached = self._attachments.of_pod(port.pod_uid)
        if all(binding.working(attachment) for binding, attachment in attached):
            return None
        return LOOK_AGAIN  # OVN may take it over (again) without anybody saying so

    async def _release(self, key: Key, port: KuryrPort) -> float | None:
        """Let go of the port, unless it may still be on the node. No new ADD will take it: it
        is being deleted.
        """
        if NODE_FINALIZER not in port.finalizers:
            return None
        self._require_knowledge()
        if self._attachments.flights.plugging(port.pod_uid):
            raise errors.Wait("an ADD is at work", delay=5.0)
        for binding, attachment in self._attachments.of_pod(port.pod_uid):
            if binding.vanished(attachment):
                LOG.info("%s has left with its namespace", say(attachment))
                await self._attachments.unplug(binding, attachment)
        self._require_knowledge()  # it may have been lost meanwhile
        if self._attachments.of_pod(port.pod_uid):
            return LOOK_AGAIN
        LOG.info("KuryrPort %s (Pod %s) has left the node", key, port.pod_uid)
        await self._api.remove_finalizers(
            KURYRPORTS, key, NODE_FINALIZER, uid=port.uid, known=port.finalizers
        )
        return None

    def _require_knowledge(self) -> None:
        if not (self._attachments.settled.is_set() and self._switch.connected.is_set()):
            raise errors.Wait("it is not known what is attached", delay=1.0)

    async def _mark(self, key: Key, port: KuryrPort) -> None:
        """Record which interfaces work, and which do not any more.

        The controller has told of one that is parked already; it works before the Pod has it.
        """
        if self._attachments.flights.plugging(port.pod_uid) or not port.has_vifs:
            return
        self._require_knowledge()
        vifs = port.vifs()
        working = {
            _name(attachment)
            for binding, attachment in self._attachments.of_pod(port.pod_uid)
            if binding.working(attachment)
        } | {name for name, vif in vifs.items() if self._parked.ready(vif.id)}
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
            LOG.debug("KuryrPort %s is gone, or another", key)


def _name(attachment: Attachment) -> str:
    """An interface's name in the KuryrPort."""
    default = attachment.ifname == attachment.request_ifname
    return DEFAULT_IFNAME if default else attachment.ifname
