"""One list of all that a driver has made for Services, now and then, held against the Services:
load balancers, and likewise floating IPs.

Those that no Service wants go: such a one is left where somebody took our finalizer off, or where
a Service lost its second ClusterIP while nobody looked. It goes when two searches in a row have
found it, and a live list of the Services does not want it either; and the log says so. The others
are compared with what they are to be: the list makes the driver forget what others have changed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import Owned
from kuryr_k8s.handlers.services.desired import external_owner, owners_of, shared_owner
from kuryr_k8s.k8s.api import KubeApi
from kuryr_k8s.k8s.informer import Informer
from kuryr_k8s.k8s.resources import SERVICES, Key
from kuryr_k8s.model.annotations import SERVICE_FINALIZER
from kuryr_k8s.model.service import Service
from kuryr_k8s.model.service_class import Classes, is_exposed, is_handled

LOG = logging.getLogger(__name__)


class OrphanSweeper:
    """Searches at its start, then every ``interval`` seconds: a Controller runs it.

    :param kind: what it sweeps, in words.
    :param list_owned: the driver's, as ``release``.
    :param look_again: called for each Service after a search.
    """

    KEY = "orphans"

    def __init__(
        self,
        kind: str,
        list_owned: Callable[[], Awaitable[list[Owned]]],
        release: Callable[[str, Callable[[], None]], Awaitable[None]],
        kube: KubeApi,
        services: Informer[Service],
        interval: float,
        look_again: Callable[[Key], None],
        classes: Classes,
    ) -> None:
        self.wake: Callable[[str], None] = lambda _key: None  # set by whoever runs it
        self._kind = kind
        self._list_owned = list_owned
        self._release = release
        self._kube = kube
        self._services = services
        self._interval = interval
        self._look_again = look_again
        self._classes = classes
        self._suspects: dict[str, float] = {}  # owners, and when each was first found
        self._next = 0.0  # when the next search is due
        self._going: list[Owned] = []

    async def reconcile(self, _key: str) -> float:
        """One search, or what the last one has left to do; seconds until the next."""
        now = asyncio.get_running_loop().time()
        if now >= self._next:
            self._next = now + self._interval
            self._going = await self._search(now)
        await self._remove()
        return self._next - now

    async def _search(self, now: float) -> list[Owned]:
        """Those that are to go."""
        owned = await self._list_owned()
        unwanted = unwanted_of(owned, self._services.values(), self._classes)
        self._suspects = {one.owner: self._suspects.get(one.owner, now) for one in unwanted}
        for service in self._services.values():
            self._look_again(Key(service.namespace, service.name))
        again = [one for one in unwanted if now - self._suspects[one.owner] >= self._interval]
        if not again:
            return []
        pages = self._kube.list_pages(SERVICES, {})
        live = [Service.read(item) async for items, _version in pages for item in items]
        return unwanted_of(again, live, self._classes)

    async def _remove(self) -> None:
        """One that cannot be removed does not save the others."""
        failure: errors.KuryrError | None = None
        self._going = unwanted_of(self._going, self._services.values(), self._classes)
        for one in tuple(self._going):
            LOG.warning(
                "%s %s is of no Service (uid %s, namespace %s); it goes",
                self._kind,
                one.id,
                one.owner,
                one.namespace,
            )
            try:
                await self._release(one.owner, lambda: self.wake(self.KEY))
            except errors.KuryrError as error:
                failure = error
            else:
                self._going.remove(one)
        if failure is not None:
            raise failure


def unwanted_of(
    owned: Iterable[Owned], services: Iterable[Service], classes: Classes
) -> list[Owned]:
    """What no Service has, nor holds by our finalizer."""
    wanted: set[str] = set()
    for service in services:
        owners = owners_of(service)
        if is_handled(service, classes) and not service.deleting:
            wanted.update(owners[: len(service.cluster_ips)])
            if is_exposed(service, classes):
                # the handler removes what is not asked for
                wanted.update((external_owner(service), shared_owner(service)))
        elif SERVICE_FINALIZER in service.finalizers:
            # the handler removes them
            wanted.update((*owners, external_owner(service), shared_owner(service)))
    return [one for one in owned if one.owner not in wanted]
