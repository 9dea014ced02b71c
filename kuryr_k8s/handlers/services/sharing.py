"""Services on the load balancer of another Service, or of the operator: the user names its id.

The Service keeps the load balancers of its ClusterIPs. What it has in the other one, listeners and
pools as an `-external` one would have, has the owner `<uid>-shared`; the rest of it, its address
and where that is, is its owner's.
"""

import asyncio
from dataclasses import dataclass

from kuryr_k8s.drivers.base import LBaaSDriver
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.handlers.services.desired import (
    Given,
    owners_of,
    shared_of,
)
from kuryr_k8s.handlers.services.requests import Outcome, Requests
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.load_balancer import FoundLoadBalancer
from kuryr_k8s.model.owner import Owner, Role
from kuryr_k8s.model.service import Service
from kuryr_k8s.model.service_annotations import Settings

REFRESH = 60.0  # seconds after which Neutron is asked again for the floating IP


@dataclass(slots=True)
class _Address:
    """At which a VIP is reached, since when that is known, and by which Services."""

    address: str
    since: float
    readers: set[Key]


class Sharing:
    def __init__(self, context: HandlerContext, requests: Requests) -> None:
        self._context = context
        self._requests = requests
        self._addresses: dict[str, _Address] = {}  # of each VIP's port
        self._reads: dict[Key, str] = {}  # the VIP's port of the one on which each Service is

    async def names_another(self, given: Given) -> bool:
        """Whether the settings name a load balancer that is none of the Service's own."""
        named, service = given.settings.load_balancer_id, given.service
        if named is None:
            return False
        lbaas = self._context.drivers[LBaaSDriver]
        owners = (*owners_of(service), Owner(service.uid, Role.EXTERNAL))
        return not any([named in await lbaas.ids_of(owner) for owner in owners])

    async def ensure(self, given: Given) -> Outcome:
        """What it has in the load balancer that the settings name.

        :raises errors.Wait: Octavia is at work.
        :raises errors.Refused: it cannot be used, or others have all of the ports.
        """
        service, owner = given.service, Owner(given.service.uid, Role.SHARED)
        return await self._requests.ensure(
            service, owner, shared_of(given), into=given.settings.load_balancer_id
        )

    async def address_of(self, key: Key, found: FoundLoadBalancer, settings: Settings) -> str:
        """The one at which it is reached: the floating IP that leads to its VIP, or the VIP."""
        port_id = found.vip_port_id
        if settings.internal or self._reads.get(key) != port_id:
            self.forget(key)
        if settings.internal:
            return found.vip_address
        now, known = asyncio.get_running_loop().time(), self._addresses.get(port_id)
        if known is None or now - known.since > REFRESH:
            floating = await self._context.neutron.floating_ips.list_all({"port_id": port_id})
            leading = [one for one in floating if one.fixed_ip_address == found.vip_address]
            address = leading[0].address if leading else found.vip_address
            known = self._addresses.get(port_id)  # others may have asked meanwhile
            readers = known.readers if known is not None else set()
            known = self._addresses[port_id] = _Address(address, now, readers)
        known.readers.add(key)
        self._reads[key] = port_id
        return known.address

    def leads(self, address: str | None, port_id: str) -> None:
        """What leads to this port of a VIP, by our own doing: who was told otherwise looks again.

        :param address: the floating IP; None: there is none.
        """
        for one, known in list(self._addresses.items()):
            if (one == port_id) != (known.address == address):
                del self._addresses[one]
                for key in known.readers:
                    self._requests.look_again(key)

    def forget(self, key: Key) -> None:
        """It reads no address any more."""
        port_id = self._reads.pop(key, None)
        known = self._addresses.get(port_id or "")
        if port_id is not None and known is not None:
            known.readers.discard(key)
            if not known.readers:
                del self._addresses[port_id]

    async def withdraw(self, key: Key, service: Service, *, refused: bool = False) -> None:
        """It names none any more; what was never there costs nothing.

        :param refused: it does, and cannot have there what it asks for.
        :raises errors.Wait: Octavia is at work.
        """
        self.forget(key)
        await self._requests.release(key, Owner(service.uid, Role.SHARED), refused=refused)

    async def is_shared(self, key: Key, service: Service) -> bool:
        """Whether other Services have something in a load balancer of this one; it is looked at
        again when they have left."""
        owners = Owner(service.uid), Owner(service.uid, Role.EXTERNAL)
        return any([await self._requests.is_shared(key, owner) for owner in owners])
