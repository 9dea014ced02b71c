"""KuryrPorts as the node sees them: what the controller wants plugged here."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from kuryr_k8s import errors
from kuryr_k8s.k8s.resources import KURYRPORTS, Key, Resource
from kuryr_k8s.model.annotations import NODE_FINALIZER
from kuryr_k8s.model.kuryrport import KuryrPort

PATIENCE = 30.0  # seconds; a controller restarts in less


class Cache(Protocol):
    """The part of an informer that we need."""

    def get(self, key: Key) -> KuryrPort | None: ...
    def subscribe(
        self, subscriber: Callable[[Key, KuryrPort | None, KuryrPort | None], None]
    ) -> None: ...


class Api(Protocol):
    """The part of the API's client that we need."""

    async def find(self, resource: Resource, key: Key) -> dict[str, Any] | None: ...


class Ports:
    """Waits for KuryrPorts without asking the API for them.

    :param patience: seconds without any KuryrPort after which to give up for now.
    """

    def __init__(self, cache: Cache, api: Api, *, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._cache = cache
        self._api = api
        self._waiting: dict[Key, set[asyncio.Event]] = {}
        cache.subscribe(self._heard)

    def get(self, key: Key) -> KuryrPort | None:
        return self._cache.get(key)

    def usable(self, key: Key, pod_uid: str) -> KuryrPort | None:
        """The KuryrPort, if this Pod may be plugged by it now.

        Not by one that is being deleted, nor by one without our finalizer: we would not be
        asked before its ports go to another Pod.
        """
        port = self._cache.get(key)
        if port is None or port.pod_uid != pod_uid or port.deleting:
            return None
        return port if port.has_vifs and NODE_FINALIZER in port.finalizers else None

    async def wait(self, key: Key, pod_uid: str) -> KuryrPort:
        """Wait until there is a usable KuryrPort.

        :raises errors.Wait: nothing came for PATIENCE seconds; or it goes before it had
            interfaces. As a rule that is since the Pod is being deleted, for which the kubelet
            waits for us; if the Pod is wanted, it asks again.
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
        """What ``wait`` is waiting for, for users."""
        port = self._cache.get(key)
        if port is None:
            return f"there is no KuryrPort {key}: is kuryr-k8s-controller running?"
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
        """Does no KuryrPort stand for this Pod? A cache may lag, so the API has the last word.

        :raises kuryr_k8s.errors.KubeError: it cannot be told.
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

    def _heard(self, key: Key, _old: KuryrPort | None, _new: KuryrPort | None) -> None:
        for changed in self._waiting.get(key, ()):
            changed.set()
