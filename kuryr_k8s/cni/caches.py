"""The caches of the daemon, made for whoever needs one."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from kuryr_k8s.cni.parts import Job, Part
from kuryr_k8s.k8s.api import KubeApi
from kuryr_k8s.k8s.informer import Informer
from kuryr_k8s.k8s.resources import Resource, Versioned
from kuryr_k8s.process import reach

T = TypeVar("T", bound=Versioned)


class Caches(Part):
    """Informers that fill themselves as long as the daemon runs."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._jobs: list[Job] = []

    def follow(
        self,
        resource: Resource[Any],
        view: Callable[[dict[str, Any]], T],
        selectors: Mapping[str, str],
    ) -> Informer[T]:
        """Make a cache of the objects that the selectors choose. Call this before the start.

        :param view: reduces an object to what the daemon reads of it.
        :param selectors: ``labelSelector`` and ``fieldSelector``.
        """
        informer = Informer(self._api, resource, view, selectors=selectors)
        self._jobs.append(Job(resource.plural, functools.partial(self._fill, informer)))
        return informer

    def loops(self) -> Sequence[Job]:
        """Return a loop for each cache; the first one that the API refuses ends the daemon."""
        return self._jobs

    async def _fill(self, informer: Informer[Any]) -> None:
        await reach("Kubernetes", functools.partial(self._api.probe, informer.resource))
        await informer.run()
