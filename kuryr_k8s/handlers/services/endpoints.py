"""Endpoints of Services, on which annotations are published for others; deprecated by Kubernetes.

Members come from EndpointSlices. Where operators switch this off, or where a Service has no
Endpoints, the annotations stand on the Service alone.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kuryr_k8s.handlers.base import HandlerContext, Watch
from kuryr_k8s.k8s.resources import ENDPOINTS, Key
from kuryr_k8s.model.service import Endpoints

Json = dict[str, Any]


class PublishedEndpoints:
    """The Endpoints that bear annotations: all of them, or none (``annotate_endpoints``)."""

    def __init__(self, context: HandlerContext) -> None:
        self._kube = context.kube
        annotated = context.conf.kubernetes.annotate_endpoints
        self._informer = context.informers.of(ENDPOINTS) if annotated else None

    @property
    def expected(self) -> bool:
        """True if Services are to have some."""
        return self._informer is not None

    def watches(
        self, to_keys: Callable[[Key, Endpoints | None, Endpoints | None], Iterable[Key]]
    ) -> Sequence[Watch[Endpoints]]:
        """Return the watch of them, if there is anything to follow."""
        return () if self._informer is None else (Watch(self._informer, to_keys),)

    def get(self, key: Key) -> Endpoints | None:
        """Return the Service's Endpoints as the cache has them."""
        return None if self._informer is None else self._informer.get(key)

    async def patch(self, key: Key, meta: Json) -> None:
        """Change metadata of the Endpoints.

        :raises errors.KubeError: the API server refuses.
        """
        answer = await self._kube.merge_patch(ENDPOINTS, key, {"metadata": meta})
        if self._informer is not None:
            self._informer.learn(answer)
