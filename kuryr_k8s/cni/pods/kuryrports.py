"""The KuryrPorts of this node: what the controller wants plugged here."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from kuryr_k8s import errors
from kuryr_k8s.cni.parts import Part
from kuryr_k8s.cni.patience import USUAL, Patience
from kuryr_k8s.k8s.resources import KURYRPORTS, Key, Resource
from kuryr_k8s.model.annotations import NODE_FINALIZER
from kuryr_k8s.model.kuryrport import KuryrPort


class Cache(Protocol):
    """The part of an informer that this module needs."""

    synced: asyncio.Event

    def get(self, key: Key) -> KuryrPort | None:
        """Return an object as last reported."""

    def values(self) -> Iterator[KuryrPort]:
        """Generate all objects as last reported."""

    def subscribe(
        self, subscriber: Callable[[Key, KuryrPort | None, KuryrPort | None], None]
    ) -> None:
        """Call a function at each change."""


class Api(Protocol):
    """The part of the API's client that this module needs."""

    async def find(self, resource: Resource[Any], key: Key) -> dict[str, Any] | None:
        """Read an object; None if it does not exist."""


class KuryrPorts(Part):
    """The KuryrPorts of this node, for which ADDs wait without asking the API."""

    def __init__(self, cache: Cache, api: Api, patience: Patience = USUAL) -> None:
        self.synced = cache.synced
        self._patience = patience.kuryrport
        self._cache = cache
        self._api = api
        self._waiting: dict[Key, set[asyncio.Event]] = {}
        cache.subscribe(self._wake)

    def checks(self) -> Mapping[str, Callable[[], bool]]:
        """Return the check of the cache."""
        return {"caches": self.synced.is_set}

    def get(self, key: Key) -> KuryrPort | None:
        """Return a KuryrPort as last reported."""
        return self._cache.get(key)

    def usable(self, key: Key, pod_uid: str) -> KuryrPort | None:
        """Return the KuryrPort if this Pod may be plugged by it now, else None.

        One that is being deleted cannot be used, nor one without the node's finalizer: its ports
        may go to another Pod before this node has unplugged them.
        """
        port = self._cache.get(key)
        if port is None or port.pod_uid != pod_uid:
            return None
        return port if self._may_be_used(port) else None

    def all(self) -> Iterator[KuryrPort]:
        """Generate the KuryrPorts that Pods may be plugged by now."""
        for port in self._cache.values():
            if self._may_be_used(port):
                yield port

    def of_pod(self, pod_uid: str) -> KuryrPort | None:
        """Return the KuryrPort that this Pod may be plugged by now, whatever its name."""
        return next((port for port in self.all() if port.pod_uid == pod_uid), None)

    def _may_be_used(self, port: KuryrPort) -> bool:
        return not port.deleting and port.has_vifs and NODE_FINALIZER in port.finalizers

    async def wait(self, key: Key, pod_uid: str) -> KuryrPort:
        """Wait until there is a usable KuryrPort.

        :raises errors.Wait: there was none for a while; or it goes before it has interfaces. As a
            rule the Pod is being deleted then, for which the kubelet waits for this answer. If
            the Pod is still wanted, the kubelet asks again.
        """
        with self._listening(key) as changed:
            was_empty = False
            while (port := self.usable(key, pod_uid)) is None:
                known = self._cache.get(key)
                ours = known if known is not None and known.pod_uid == pod_uid else None
                is_empty = ours is not None and not ours.has_vifs
                if (is_empty and ours is not None and ours.deleting) or (was_empty and not ours):
                    raise errors.Wait(f"KuryrPort {key} goes without interfaces", delay=1.0)
                was_empty = is_empty
                changed.clear()
                try:
                    async with asyncio.timeout(None if known else self._patience):
                        await changed.wait()
                except TimeoutError as error:
                    raise errors.Wait(self.progress(key, pod_uid), delay=1.0) from error
            return port

    def progress(self, key: Key, pod_uid: str) -> str:
        """Describe for users what ``wait`` is waiting for."""
        port = self._cache.get(key)
        if port is None:
            return (
                f"there is no KuryrPort {key}: is kuryr-k8s-controller running, and does it serve "
                "the Pod ([kubernetes] pod_selection)?"
            )
        if port.pod_uid != pod_uid:
            return (
                f"KuryrPort {key} still belongs to an earlier Pod (uid {port.pod_uid}), and has "
                f"to go first"
            )
        if port.deleting:
            return f"KuryrPort {key} is being deleted"
        if not port.has_vifs:
            return (
                f"KuryrPort {key} has no interfaces yet: the Pod's or the Node's Events tell why"
            )
        return f"KuryrPort {key} lacks the finalizer {NODE_FINALIZER}"

    async def abandoned(self, key: Key, pod_uid: str) -> bool:
        """Return whether this Pod has no KuryrPort. The cache may lag, so the API decides.

        :raises errors.KubeError: the API does not answer.
        """
        port = self._cache.get(key)
        if port is not None and port.pod_uid == pod_uid:
            return False
        live = await self._api.find(KURYRPORTS, key)
        return live is None or live["spec"]["podUid"] != pod_uid

    @contextlib.contextmanager
    def _listening(self, key: Key) -> Iterator[asyncio.Event]:
        changed = asyncio.Event()
        self._waiting.setdefault(key, set()).add(changed)
        try:
            yield changed
        finally:
            self._waiting[key].discard(changed)
            if not self._waiting[key]:
                del self._waiting[key]

    def _wake(self, key: Key, _old: KuryrPort | None, _new: KuryrPort | None) -> None:
        for changed in self._waiting.get(key, ()):
            changed.set()
