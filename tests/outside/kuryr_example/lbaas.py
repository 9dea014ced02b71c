"""A driver of load balancers that has another one make them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kuryr_k8s.drivers.base import DriverContext, LBaaSDriver, Owned
from kuryr_k8s.drivers.lbaas.lbaasv2 import LBaaSv2
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.model.load_balancer import FoundLoadBalancer, LoadBalancer
from kuryr_k8s.model.owner import Owner


class Delegating(LBaaSDriver):
    """Is no subclass of the driver of kuryr_k8s: all that it has is the contract."""

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        self._driver = LBaaSv2(context)
        self._driver.subscribe(self.wake)

    async def start(self) -> None:
        """Check the configuration."""
        await self._driver.start()

    def loops(self) -> Sequence[Controller[Any]]:
        """Return the watch of what is PENDING, among others."""
        return self._driver.loops()

    async def ensure(self, owner: Owner, desired: LoadBalancer) -> FoundLoadBalancer:
        """Pass it on."""
        return await self._driver.ensure(owner, desired)

    async def follow(
        self, owner: Owner, wanted: Callable[[FoundLoadBalancer], LoadBalancer]
    ) -> list[FoundLoadBalancer]:
        """Pass it on."""
        return await self._driver.follow(owner, wanted)

    async def attach(
        self, owner: Owner, load_balancer_id: str, desired: LoadBalancer
    ) -> FoundLoadBalancer:
        """Pass it on."""
        return await self._driver.attach(owner, load_balancer_id, desired)

    async def wish(self, owner: Owner, load_balancer_id: str) -> None:
        """Pass it on."""
        await self._driver.wish(owner, load_balancer_id)

    async def ids_of(self, owner: Owner) -> frozenset[str]:
        """Pass it on."""
        return await self._driver.ids_of(owner)

    async def owner_of(self, load_balancer_id: str, asking: Owner) -> Owned | None:
        """Pass it on."""
        return await self._driver.owner_of(load_balancer_id, asking)

    async def places_of(self, owner: Owner) -> frozenset[str]:
        """Pass it on."""
        return await self._driver.places_of(owner)

    async def last_seen(self, owner: Owner) -> FoundLoadBalancer | None:
        """Pass it on."""
        return await self._driver.last_seen(owner)

    async def is_shared(self, owner: Owner) -> bool:
        """Pass it on."""
        return await self._driver.is_shared(owner)

    async def release(self, owner: Owner) -> None:
        """Pass it on."""
        await self._driver.release(owner)

    async def list_owned(self) -> list[Owned]:
        """Pass it on."""
        return await self._driver.list_owned()

    def made(self, port: Mapping[str, Any]) -> bool:
        """Pass it on."""
        return self._driver.made(port)
