"""Services on the load balancer of another Service, or of the operator: the user names its id.

The Service keeps the load balancers of its ClusterIPs. Its parts in the other one, listeners and
pools as an external one would have, have the role SHARED. The rest of the load balancer, its
address included, is its owner's.
"""

from dataclasses import dataclass

from kuryr_k8s.drivers.base import LBaaSDriver
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.handlers.services.desired import shared_of
from kuryr_k8s.handlers.services.reconcile import Outcome, Reconcile
from kuryr_k8s.handlers.services.requests import Requests
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.load_balancer import FoundLoadBalancer
from kuryr_k8s.model.owner import Owner, Role
from kuryr_k8s.model.service import Service
from kuryr_k8s.model.service_annotations import Settings

REFRESH = 60.0  # seconds after which Neutron is asked again for the floating IP


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
        self._neutron = context.neutron
        self._clock = context.clock
        self._requests = requests
        self._addresses: dict[str, _Address] = {}  # by the VIP's port
        self._reads: dict[Key, str] = {}  # the VIP's port whose address a Service reads

    async def names_another(self, reconcile: Reconcile) -> bool:
        """Return whether the settings name a load balancer that is not one of the Service's."""
        named = reconcile.settings.load_balancer_id
        if named is None:
            return False
        owners = [reconcile.owner(role) for role in Role if role is not Role.SHARED]
        return not any([named in await self._lbaas.ids_of(owner) for owner in owners])

    async def ensure(self, reconcile: Reconcile) -> Outcome:
        """Return the load balancer that the settings name, with the Service's parts in it.

        :raises errors.Wait: Octavia is at work.
        :raises errors.Refused: it cannot be used, or others have all of the ports.
        """
        return await self._requests.ensure(
            reconcile.service,
            reconcile.owner(Role.SHARED),
            shared_of(reconcile.given),
            into=reconcile.settings.load_balancer_id,
        )

    async def address_of(self, key: Key, found: FoundLoadBalancer, settings: Settings) -> str:
        """Return the floating IP that leads to the load balancer's VIP, or else the VIP."""
        port_id = found.vip_port_id
        if settings.internal or self._reads.get(key) != port_id:
            self.forget(key)
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
        """Note that the Service reads no address any more."""
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
        self.forget(key)
        await self._requests.release(key, Owner(service.uid, Role.SHARED), refused=refused)

    async def is_shared(self, key: Key, service: Service) -> bool:
        """Return whether others have parts in a load balancer of the Service.

        If so, the Service is looked at again when they have left.
        """
        owners = Owner(service.uid), Owner(service.uid, Role.EXTERNAL)
        return any([await self._requests.is_shared(key, owner) for owner in owners])
