"""The caches of the daemon, made for whoever needs one."""

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar, cast

from prometheus_client.registry import Collector

from kuryr_k8s.cni.parts import Job, Part
from kuryr_k8s.engine.clock import CLOCK, Clock
from kuryr_k8s.k8s.api import KubeApi
from kuryr_k8s.k8s.contact import Contact, ContactMetrics
from kuryr_k8s.k8s.informer import Informer
from kuryr_k8s.k8s.resources import Resource, Versioned
from kuryr_k8s.patience import PATIENCE, Patience
from kuryr_k8s.process import Waiting, reach

T = TypeVar("T", bound=Versioned)


class Caches(Part):
    """Informers that fill themselves as long as the daemon runs.

    ``waiting`` is the metric of all waits for the API at the start.
    """

    def __init__(self, api: KubeApi, patience: Patience = PATIENCE, clock: Clock = CLOCK) -> None:
        self._api = api
        self._patience = patience
        self._clock = clock
        self.waiting = Waiting()
        self._jobs: list[Job] = []
        self._contacts: dict[str, Contact] = {}
        self._made: dict[Hashable, Informer[Any]] = {}
        self._sealed = False

    def follow(
        self,
        resource: Resource[T],
        selectors: Mapping[str, str],
    ) -> Informer[T]:
        """Return the cache of the objects that the selectors choose; make it for the first caller.

        :param resource: the kind of object, with the view that the cache keeps.
        :param selectors: ``labelSelector`` and ``fieldSelector``.
        :raises LookupError: the daemon has started: nothing would fill the cache.
        """
        asked = resource, resource.view, tuple(sorted(selectors.items()))
        if asked in self._made:
            return cast("Informer[T]", self._made[asked])
        if self._sealed:
            raise LookupError(f"ask for the cache of {resource.plural} before the start")
        informer = Informer(
            self._api,
            resource,
            resource.view,
            selectors=selectors,
            patience=self._patience,
            clock=self._clock,
        )
        self._made[asked] = informer
        self._contacts[resource.plural] = informer.contact
        self._jobs.append(Job(resource.plural, functools.partial(self._fill, informer)))
        return informer

    def loops(self) -> Sequence[Job]:
        """Return a loop for each cache."""
        self._sealed = True
        return self._jobs

    def checks(self) -> Mapping[str, Callable[[], bool]]:
        """Return the checks whether the API server tells each cache of its objects, and us all."""
        return {"caches followed": self._followed, "nothing refused": self._api.refusals.none}

    def _followed(self) -> bool:
        return all(contact.is_alive for contact in self._contacts.values())

    def collectors(self) -> Sequence[Collector]:
        """Return the ages of the caches, and what shows that the API is waited for or refuses."""
        return [ContactMetrics(self._contacts), self.waiting, self._api.refusals]

    async def _fill(self, informer: Informer[Any]) -> None:
        probe = functools.partial(self._api.probe, informer.resource)
        await reach("Kubernetes", probe, self.waiting, self._patience, self._clock)
        await informer.run()
