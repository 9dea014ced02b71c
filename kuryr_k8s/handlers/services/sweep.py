"""Sweeps of load balancers and public addresses that no Service needs.

Such objects are left where a Service was deleted while nobody watched, since only what is outside
is held by our finalizer, or lost its second ClusterIP then. An object is removed when two searches
in a row have found it and a live list of Services does not need it either; the log says so. Only
what bears the mark of this cluster is removed: what bears none, or that of another cluster, is
reported. All other objects are compared with their desired state: the search makes the driver
forget what others have changed.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from kuryr_k8s.drivers.base import LBaaSDriver, Owned, ServicePublicIPDriver
from kuryr_k8s.engine.sweep import Sweep
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.handlers.services.desired import external_owners_of, owners_of
from kuryr_k8s.k8s.resources import SERVICES, Key
from kuryr_k8s.model.annotations import SERVICE_FINALIZER
from kuryr_k8s.model.owner import Owner, Role
from kuryr_k8s.model.service import Service
from kuryr_k8s.model.service_class import Classes, is_exposed, is_handled

LOG = logging.getLogger(__name__)


class OrphanSweep(Sweep[Owned]):
    """Sweep of what one driver has made for Services.

    :param kind: what is swept, in words.
    :param list_owned: the driver's method.
    :param release: removes what the owner has.
    :param look_again: called for each Service after a search.
    """

    def __init__(
        self,
        context: HandlerContext,
        kind: str,
        list_owned: Callable[[], Awaitable[list[Owned]]],
        release: Callable[[Owner], Awaitable[None]],
        look_again: Callable[[Key], None],
    ) -> None:
        super().__init__(
            f"{kind.lower().replace(' ', '-')}-sweeper",
            interval=context.conf.neutron_defaults.sweep_interval,
            confirm_after=context.patience.unneeded,
            patience=context.patience,
            clock=context.clock,
            observe=context.observe,
        )
        self._kind = kind
        self._list_owned = list_owned
        self._release = release
        self._kube = context.kube
        self._mark = context.neutron.mark
        self._strangers = context.strangers
        self._services = context.informers.of(SERVICES)
        self._look_again = look_again
        self._classes = Classes.read(context.conf)

    def resume_if_removing(self, owner: Owner) -> None:
        """Go on with a removal that had to wait, if it is the owner's."""
        if any(item.owner == owner for item in self._leaving):
            self.resume()

    async def search(self) -> list[Owned]:
        """Have all Services looked at again; return what none of them needs."""
        listed = await self._list_owned()
        owned = [each for each in listed if not each.elsewhere]
        unmarked = self.still_unwanted([each for each in owned if not each.clusters])
        await self._strangers.listed(
            f"{self._kind}s",
            others=(each.id for each in owned if self._mark.others_of(each.clusters)),
            unmarked=(each.id for each in unmarked),
            elsewhere=(each.id for each in listed if each.elsewhere),
        )
        ours = [each for each in owned if each.clusters == {self._mark.uid}]
        unwanted = [] if self._strangers.overlap else self.still_unwanted(ours)
        for service in self._services.values():
            self._look_again(Key(service.namespace, service.name))
        return unwanted

    def identity(self, item: Owned) -> Owner:
        """Return the owner."""
        return item.owner

    async def confirm(self, items: Sequence[Owned]) -> list[Owned]:
        """Return what no Service of a live list needs; nothing while tags of clusters overlap."""
        if self._strangers.overlap:
            return []
        return unwanted_of(items, await self._kube.list_views(SERVICES), self._classes)

    def still_unwanted(self, items: Sequence[Owned]) -> list[Owned]:
        """Return what no Service has come to need."""
        return unwanted_of(items, self._services.values(), self._classes)

    async def remove(self, item: Owned) -> None:
        """Have the driver release what the owner has."""
        LOG.warning(
            "%s %s belongs to no Service (uid %s, namespace %s); it is removed",
            self._kind,
            item.id,
            item.owner,
            item.namespace,
        )
        await self._release(item.owner)


def sweeps_of(
    context: HandlerContext, look_again: Callable[[Key], None]
) -> tuple[OrphanSweep, OrphanSweep]:
    """Return the sweeps of load balancers and of public IPs."""
    load_balancers, public_ips = (
        context.drivers[LBaaSDriver],
        context.drivers[ServicePublicIPDriver],
    )

    async def release_public_ip(owner: Owner) -> None:
        await public_ips.release(owner, keep=None)

    sweep = OrphanSweep(
        context, "load balancer", load_balancers.list_owned, load_balancers.release, look_again
    )
    load_balancers.subscribe(sweep.resume_if_removing)
    return (
        sweep,
        OrphanSweep(context, "public IP", public_ips.list_owned, release_public_ip, look_again),
    )


def unwanted_of(
    owned: Iterable[Owned], services: Iterable[Service], classes: Classes
) -> list[Owned]:
    """Return what no Service needs, or holds by our finalizer; nothing of what others own."""
    wanted: set[Owner] = set()
    for service in services:
        owners = owners_of(service)
        others = (*external_owners_of(service), Owner(service.uid, Role.SHARED))
        if is_handled(service) and not service.deleting:
            wanted.update(owners[: len(service.cluster_ips)])
            if is_exposed(service, classes):
                # the handler removes what is not asked for
                wanted.update(others)
        elif SERVICE_FINALIZER in service.finalizers:
            # the handler removes them
            wanted.update((*owners, *others))
    return [each for each in owned if each.owner not in wanted and each.owner.is_service]
