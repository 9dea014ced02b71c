"""Services on the load balancer of another Service, or of the operator: the user names its id.

The Service keeps the load balancers of its ClusterIPs. Its parts in the other one, listeners and
pools as an external one would have, have the role SHARED. The rest of the load balancer, its
address included, is its owner's.

Within a namespace nobody has to be asked. A Service of another namespace says by an annotation
with whom it shares. Which namespaces have ports on a load balancer of no Service is the operator's
word. Where it is said no more, what is there is removed, whatever else is wrong with the Service
that has it: nobody else's deletion waits for it.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import LBaaSDriver, Owned, granted
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.handlers.services.desired import shared_of
from kuryr_k8s.handlers.services.reconcile import Outcome, Reconcile
from kuryr_k8s.handlers.services.requests import Requests
from kuryr_k8s.k8s.resources import SERVICES, Key
from kuryr_k8s.model.load_balancer import FoundLoadBalancer
from kuryr_k8s.model.owner import Owner, Role
from kuryr_k8s.model.service import Service
from kuryr_k8s.model.service_annotations import (
    SHARED_WITH,
    WRITTEN_ID,
    Settings,
    is_shared_with,
)

REFRESH = 60.0  # seconds after which Neutron is asked again for the floating IP


class NotShared(errors.Refused):
    """The load balancer is a Service's that does not share it with the namespace."""

    reason = "KuryrLoadBalancerNotShared"


@dataclass(slots=True)
class _Address:
    """Address at which a VIP is reached, since when it is known, and which Services read it."""

    address: str
    since: float
    readers: set[Key]


class Sharing:
    """Parts of Services in the load balancers of others."""

    def __init__(self, context: HandlerContext, requests: Requests) -> None:
        self._lbaas = context.drivers[LBaaSDriver]
        self._conf = context.conf
        self._kube = context.kube
        self._services = context.informers.of(SERVICES)
        self._neutron = context.neutron
        self._clock = context.clock
        self._requests = requests
        self._addresses: dict[str, _Address] = {}  # by the VIP's port
        self._reads: dict[Key, str] = {}  # the VIP's port whose address a Service reads
        self._guests: defaultdict[str, set[Key]] = defaultdict(set)  # who asks, by owner's uid
        self._leaving: dict[Key, tuple[str, str]] = {}  # uids of guests, and what they must leave

    async def names_another(self, reconcile: Reconcile) -> bool:
        """Return whether the settings name a load balancer that is not one of the Service's."""
        named = reconcile.settings.load_balancer_id
        if named is None:
            return False
        owners = [reconcile.owner(role) for role in Role if role is not Role.SHARED]
        return not any([named in await self._lbaas.ids_of(owner) for owner in owners])

    def concerned(self, old: Service | None, new: Service | None) -> Iterable[Key]:
        """Return the Services that are to be looked at again when another one has changed."""
        if old is None or (
            new is not None and (old.uid, _consent(old)) == (new.uid, _consent(new))
        ):
            return ()
        return tuple(self._guests.get(old.uid, ()))

    async def withdraw(self, key: Key, service: Service) -> None:
        """Remove the Service's parts from load balancers where it may have none any more.

        Of an owner's consent, the API server itself must say so, once until they are gone.

        :raises errors.Wait: Octavia is at work, or the cache is not up to date.
        """
        owner = Owner(service.uid, Role.SHARED)
        for load_balancer_id in await self._lbaas.places_of(owner):
            owned = await self._lbaas.owner_of(load_balancer_id, owner)
            leaving = service.uid, load_balancer_id
            try:
                self._check(service, load_balancer_id, owned)
            except (NotShared, granted.NotGranted) as refusal:
                known = self._leaving.get(key) == leaving
                if owned and not known and await self._shares_live(owned, service.namespace):
                    raise errors.Wait(f"the cache lags: {refusal}", delay=1.0) from refusal
                self._leaving[key] = leaving
                await self.release(key, service, refused=True)
                break
        self._leaving.pop(key, None)

    async def had_to_leave(self, reconcile: Reconcile) -> bool:
        """Return whether the address that is published is one that the Service had to leave.

        It has no parts in any load balancer of others, and may have none in the one that it names.

        :raises errors.Wait: that is not known yet.
        """
        service, owner = reconcile.service, reconcile.owner(Role.SHARED)
        published = dict(service.annotations).get(WRITTEN_ID) == ""  # with an id that users wrote
        if not published or await self._lbaas.places_of(owner):
            return False
        named = reconcile.settings.load_balancer_id
        if named is None:
            return True
        try:
            self._check(service, named, await self._lbaas.owner_of(named, owner))
        except (NotShared, granted.NotGranted):
            return True
        return False

    def is_leaving(self, key: Key) -> bool:
        """Return whether the Service's parts are being removed, as it may have none any more."""
        return key in self._leaving

    async def ensure(self, reconcile: Reconcile) -> Outcome:
        """Return the load balancer that the settings name, with the Service's parts in it.

        :raises errors.Wait: Octavia is at work.
        :raises NotShared: its owner does not share it with the namespace.
        :raises granted.NotGranted: it is no Service's, and not granted to the namespace.
        :raises errors.Refused: it cannot be used, or others have all of the ports.
        """
        named, service = reconcile.settings.load_balancer_id or "", reconcile.service
        owned = await self._lbaas.owner_of(named, reconcile.owner(Role.SHARED))
        try:
            self._check(service, named, owned)
        except (NotShared, granted.NotGranted):
            await self._leave_others(reconcile, named, owned)
            await self._lbaas.wish(reconcile.owner(Role.SHARED), named)
            raise
        reconcile.asked.add(reconcile.owner(Role.SHARED))
        return await self._requests.ensure(
            service,
            reconcile.owner(Role.SHARED),
            shared_of(reconcile.given),
            into=reconcile.settings.load_balancer_id,
        )

    def _check(self, service: Service, load_balancer_id: str, owned: Owned | None) -> None:
        """Check that a Service may have parts in a load balancer.

        :param owned: None if it is no Service's.
        :raises NotShared: its owner does not share it with the namespace.
        :raises granted.NotGranted: it is no Service's, and not granted to the namespace.
        """
        namespace = service.namespace
        if owned is None:
            granted.check_named(self._conf, "load_balancers", namespace, load_balancer_id)
        elif not self._is_shared_with(service, owned):
            raise NotShared(
                f"load balancer {load_balancer_id} is a Service's of namespace {owned.namespace}, "
                f"whose annotation {SHARED_WITH} does not name namespace {namespace}"
            )

    def _is_shared_with(self, service: Service, owned: Owned) -> bool:
        """Return whether a Service may have parts in another one's load balancer.

        If that changes, it is looked at again.
        """
        self._guests[owned.owner.uid].add(Key(service.namespace, service.name))
        return _shares(self._services.values(), owned, service.namespace)

    async def _leave_others(
        self, reconcile: Reconcile, load_balancer_id: str, owned: Owned | None
    ) -> None:
        """Remove the Service's parts from load balancers that it no longer names.

        :param load_balancer_id: the one that it names, like ``owned``.
        """
        named = await self._lbaas.ids_of(owned.owner) if owned is not None else frozenset()
        places = await self._lbaas.places_of(reconcile.owner(Role.SHARED))
        if places - named - {load_balancer_id}:
            await self.release(reconcile.key, reconcile.service, refused=True)

    async def _shares_live(self, owned: Owned, namespace: str) -> bool:
        """Return whether the owner, as the API server has it, shares with the namespace."""
        cached = next((each for each in self._services.values() if _is_of(each, owned)), None)
        if cached is None:
            live = await self._kube.list_views(SERVICES, owned.namespace)
        else:
            item = await self._kube.find(SERVICES, Key(cached.namespace, cached.name))
            live = [] if item is None else [Service.read(item)]
        return _shares(live, owned, namespace)

    async def address_of(self, key: Key, found: FoundLoadBalancer, settings: Settings) -> str:
        """Return the floating IP that leads to the load balancer's VIP, or else the VIP."""
        port_id = found.vip_port_id
        if settings.internal or self._reads.get(key) != port_id:
            self._forget_address(key)
        if settings.internal:
            return found.vip_address
        now, known = self._clock.now(), self._addresses.get(port_id)
        if known is None or now - known.since > REFRESH:
            floating = await self._neutron.floating_ips.list_all({"port_id": port_id})
            leading = [each for each in floating if each.fixed_ip_address == found.vip_address]
            address = leading[0].address if leading else found.vip_address
            known = self._addresses.get(port_id)  # others may have asked meanwhile
            readers = known.readers if known is not None else set()
            known = self._addresses[port_id] = _Address(address, now, readers)
        known.readers.add(key)
        self._reads[key] = port_id
        return known.address

    def leads(self, address: str | None, port_id: str) -> None:
        """Note where an address leads by our own doing; wake the Services that read otherwise.

        :param address: the floating IP; None if there is none.
        :param port_id: the VIP's port.
        """
        for known_port, known in list(self._addresses.items()):
            if (known_port == port_id) != (known.address == address):
                del self._addresses[known_port]
                for key in known.readers:
                    self._requests.wake(key)

    def forget(self, key: Key) -> None:
        """Note that the Service reads no address any more, and asks no owner."""
        for uid, guests in list(self._guests.items()):
            guests.discard(key)
            if not guests:
                del self._guests[uid]
        self._leaving.pop(key, None)
        self._forget_address(key)

    def _forget_address(self, key: Key) -> None:
        port_id = self._reads.pop(key, None)
        known = self._addresses.get(port_id or "")
        if port_id is not None and known is not None:
            known.readers.discard(key)
            if not known.readers:
                del self._addresses[port_id]

    async def release(self, key: Key, service: Service, *, refused: bool = False) -> None:
        """Remove the Service's parts; what never existed costs nothing.

        :param refused: they are still asked for, and cannot be had.
        :raises errors.Wait: Octavia is at work.
        """
        self._forget_address(key)
        await self._requests.release(key, Owner(service.uid, Role.SHARED), refused=refused)

    async def is_shared(self, key: Key, service: Service) -> bool:
        """Return whether others have parts in a load balancer of the Service.

        If so, the Service is looked at again when they have left.
        """
        owners = Owner(service.uid), Owner(service.uid, Role.EXTERNAL)
        return any([await self._requests.is_shared(key, owner) for owner in owners])


def _shares(services: Iterable[Service], owned: Owned, namespace: str) -> bool:
    """Return whether the owner of a load balancer shares it with a namespace.

    One that is gone shares with its own namespace only.
    """
    for service in services:
        if _is_of(service, owned):
            return service.namespace == namespace or is_shared_with(
                dict(service.annotations), namespace
            )
    return owned.namespace == namespace


def _is_of(service: Service, owned: Owned) -> bool:
    return service.uid == owned.owner.uid


def _consent(service: Service) -> str | None:
    return dict(service.annotations).get(SHARED_WITH)
