"""The handler of Pods: a KuryrPort exists while its Pod needs a network, and no longer."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.handlers.base import Handler, HandlerContext, Watch
from kuryr_k8s.handlers.pods.selection import PodSelection
from kuryr_k8s.k8s.api import Json
from kuryr_k8s.k8s.events import Reference
from kuryr_k8s.k8s.informer import Informer
from kuryr_k8s.k8s.resources import KURYRPORTS, NAMESPACES, NODES, PODS, Key
from kuryr_k8s.model import annotations
from kuryr_k8s.model.kuryrport import KuryrPort
from kuryr_k8s.model.pod import Namespace, Node, Pod

LOG = logging.getLogger(__name__)
LABEL_LIMIT = 63


class VIFHandler(Handler):
    """Creates the KuryrPort of a scheduled Pod, and deletes it when the Pod is over."""

    def __init__(self, context: HandlerContext) -> None:
        super().__init__(context)
        self._selection = PodSelection(context.drivers, context.conf)
        self._begun: dict[Key, str] = {}  # uids of Pods whose creation was seen, untouched so far
        self._ended: dict[Key, str] = {}  # uids of Pods whose deletion was seen
        self._missed: dict[Key, float] = {}  # since when mirror Pods are missing

    async def start(self) -> None:
        """Check the options that select Pods."""
        self._selection.check()

    def watches(self) -> Sequence[Watch[Any]]:
        informers = self._context.informers
        watches: list[Watch[Any]] = [
            Watch(informers.of(PODS), self._of_pod),
            Watch(informers.of(KURYRPORTS), _of_kuryrport),
            Watch(informers.of(NODES), self._of_node),
        ]
        if self._selection.default_is_others:
            watches.append(Watch(informers.of(NAMESPACES), self._of_namespace))
        return watches

    def _of_pod(self, key: Key, old: Pod | None, new: Pod | None) -> Iterable[Key]:
        """Note the server's own word that a Pod is new, or gone; a list proves neither."""
        seen = not self._context.informers.of(PODS).replaying
        if new is not None:
            if old is None and seen and not new.static:
                self._begun[key] = new.uid
            if self._ended.get(key) == new.uid:
                del self._ended[key]  # etcd was set back
        else:
            self._begun.pop(key, None)
            if old is not None and seen and not old.static:
                self._ended[key] = old.uid
        return (key,)

    def _of_node(self, key: Key, old: Node | None, new: Node | None) -> Iterable[Key]:
        """Return the node's Pods if it has become a foreign one, or one of ours."""
        if new is None or new.foreign == (old is not None and old.foreign):
            return ()
        pods = self._context.informers.of(PODS).values()
        return [Key(pod.namespace, pod.name) for pod in pods if pod.node == key.name]

    def _of_namespace(
        self, key: Key, _old: Namespace | None, new: Namespace | None
    ) -> Iterable[Key]:
        """Return the Pods of a Namespace that has come, or changed: it may name their network."""
        if new is None or self._context.informers.of(NAMESPACES).replaying:
            return ()  # Pods are replayed themselves
        pods = self._context.informers.of(PODS).values()
        return [Key(pod.namespace, pod.name) for pod in pods if pod.namespace == key.name]

    def is_urgent(self, key: Key) -> bool:
        """Return whether a Pod waits for its network: not where one is over."""
        pod = self._context.informers.of(PODS).get(key)
        recorded = self._context.informers.of(KURYRPORTS).get(key)
        return (
            pod is not None
            and self._gets_kuryrport(pod)
            and not (recorded is not None and is_needed(recorded, pod))
        )

    async def reconcile(self, key: Key) -> float | None:
        pod = self._context.informers.of(PODS).get(key)
        recorded = self._context.informers.of(KURYRPORTS).get(key)
        if pod is not None:
            self._missed.pop(key, None)
        if recorded is None:
            self._missed.pop(key, None)
            self._ended.pop(key, None)
            if pod is not None and self._gets_kuryrport(pod):
                await self._create(key, pod)
            return None
        if recorded.pod_uid == self._begun.get(key):
            del self._begun[key]
        if recorded.deleting:
            return None
        if not is_awaited(recorded, pod):
            await self._delete(key, recorded)
        elif pod is not None and not recorded.has_vifs and self._is_on_foreign_node(pod):
            # made before the Node was known, or marked; a Pod with interfaces keeps them
            await self._remove(key, recorded)
        return None

    def _gets_kuryrport(self, pod: Pod) -> bool:
        if not wants_network(pod) or pod.deleting or self._is_on_foreign_node(pod):
            return False
        return self._selection.takes(pod)

    def _is_on_foreign_node(self, pod: Pod) -> bool:
        node = self._context.informers.of(NODES).get(Key("", pod.node or ""))
        return node is not None and node.foreign

    async def _create(self, key: Key, pod: Pod) -> None:
        if pod.static:
            refuse_twin(self._context.informers.of(KURYRPORTS), key, pod.identity)
        untouched = self._begun.get(key) == pod.uid
        body = kuryrport_of(pod, self._context.incarnation, vouches=untouched)
        try:
            answer = await self._context.kube.create(KURYRPORTS, body)
        except errors.KubeConflict as error:
            # our cache lags; or it is an earlier Pod's and on its way out
            raise errors.Wait(f"there is a KuryrPort {key} already", delay=1.0) from error
        except errors.KubeNamespaceEnds:
            return  # the Pod goes with it
        self._begun.pop(key, None)
        self._context.informers.of(KURYRPORTS).learn(answer)

    async def _delete(self, key: Key, recorded: KuryrPort) -> None:
        """Delete the KuryrPort if the API server itself confirms that the Pod is done."""
        if not self._is_over(key, recorded):
            live = await self._context.kube.find(PODS, key)
            if live is not None and is_awaited(recorded, Pod.read(live)):
                raise errors.Wait(f"the cache lags behind: Pod {key} needs its port", delay=1.0)
            if live is None and recorded.static:
                self._wait_for_mirror(key)
        LOG.debug("Pod %s (%s) is done; its KuryrPort goes", key, recorded.pod_uid)
        await self._remove(key, recorded)

    async def _remove(self, key: Key, recorded: KuryrPort) -> None:
        try:
            answer = await self._context.kube.delete(KURYRPORTS, key, uid=recorded.uid)
        except errors.KubeConflict as error:
            raise errors.Wait(f"KuryrPort {key} is another one by now", delay=1.0) from error
        self._context.informers.of(KURYRPORTS).learn(answer)

    def _is_over(self, key: Key, recorded: KuryrPort) -> bool:
        """Return whether the API server has reported an irreversible end of the Pod.

        That is: this very Pod was deleted, or has finished, or is being deleted before it had
        interfaces.
        """
        if self._ended.get(key) == recorded.pod_uid:
            return True
        pod = self._context.informers.of(PODS).get(key)
        if pod is None or pod.identity != recorded.pod_uid:
            return False
        return pod.finished or (pod.deleting and not is_awaited(recorded, pod))

    def _wait_for_mirror(self, key: Key) -> None:
        """Wait, since the kubelet recreates a deleted mirror Pod while the static Pod runs on.

        :raises errors.Wait: It has not been missing for long enough.
        """
        now = self._context.clock.now()
        left = self._missed.setdefault(key, now) + self._context.patience.mirror_pod - now
        if left > 0:
            raise errors.Wait(f"mirror Pod {key} may be made again", delay=left)

    def about(self, key: Key) -> Reference | None:
        return reference(self._context.informers.of(PODS).get(key))


def _of_kuryrport(key: Key, old: KuryrPort | None, new: KuryrPort | None) -> Iterable[Key]:
    """Return the key if it matters: the KuryrPort is new, other or gone, or got interfaces."""

    def matters(port: KuryrPort | None) -> object:
        return port and (port.uid, port.deleting, port.has_vifs)

    return () if matters(old) == matters(new) else (key,)


def wants_network(pod: Pod) -> bool:
    """Return whether the Pod is on a node, not over, and in a network namespace of its own."""
    return pod.node is not None and not pod.host_network and not pod.finished


def is_needed(recorded: KuryrPort, pod: Pod | None) -> bool:
    """Return whether the KuryrPort belongs to this very Pod, and the Pod is not over."""
    return pod is not None and pod.identity == recorded.pod_uid and wants_network(pod)


def is_awaited(recorded: KuryrPort, pod: Pod | None) -> bool:
    """Return whether the KuryrPort is needed, or may still come to be.

    A Pod that is deleted before it has interfaces gets none any more. Its ADD may be waiting for
    them, and the kubelet for the ADD: the deletion of the KuryrPort tells the node to give up.
    """
    if pod is None or not is_needed(recorded, pod):
        return False
    return not pod.deleting or recorded.static or recorded.has_vifs


def has_twin(kuryrports: Informer[KuryrPort], key: Key, pod_uid: str) -> bool:
    """Return whether another KuryrPort is for the same Pod.

    Of static Pods, users may write what identifies them: see :class:`Pod`.
    """
    return any(
        other.pod_uid == pod_uid and Key(other.namespace, other.name) != key
        for other in kuryrports.values()
    )


def refuse_twin(kuryrports: Informer[KuryrPort], key: Key, pod_uid: str) -> None:
    """Check that no other KuryrPort is for the same Pod.

    :raises errors.Refused: there is one; its name is not told, since it may be another tenant's.
    """
    if has_twin(kuryrports, key, pod_uid):
        raise errors.Refused("another static Pod has the same kubernetes.io/config.hash")


def kuryrport_of(pod: Pod, leader: str, *, vouches: bool) -> Json:
    """Return the KuryrPort of a Pod, complete from its creation: it contains both finalizers.

    The mirror of a static Pod is not its owner: it is deleted and recreated while the Pod runs on.

    :param leader: The run of the process that creates it.
    :param vouches: Whether it vouches that nobody can have made ports for the Pod.
    """
    node = pod.node or ""
    meta: Json = {
        "namespace": pod.namespace,
        "name": pod.name,
        "finalizers": [annotations.KURYRPORT_FINALIZER, annotations.NODE_FINALIZER],
        "annotations": {annotations.LEADER: leader},
    }
    if vouches:
        meta["annotations"][annotations.CREATOR] = leader
    if len(node) <= LABEL_LIMIT:
        meta["labels"] = {annotations.NODE_NAME_LABEL: node}
    if not pod.static:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
        meta["ownerReferences"] = [owner]
    spec = {"podUid": pod.identity, "podNodeName": node, "podStatic": pod.static}
    return {"metadata": meta, "spec": spec}


def reference(pod: Pod | None) -> Reference | None:
    """Return a reference to the Pod for an Event."""
    if pod is None:
        return None
    return Reference(resource=PODS, namespace=pod.namespace, name=pod.name, uid=pod.uid)
