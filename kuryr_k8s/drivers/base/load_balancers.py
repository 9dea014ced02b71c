"""Slot of Services' load balancers."""

import abc
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.drivers.base.driver import Driver, DriverContext
from kuryr_k8s.drivers.base.services import Owned
from kuryr_k8s.model.load_balancer import FoundLoadBalancer, LoadBalancer
from kuryr_k8s.model.owner import Owner


class OthersAtWork(errors.Wait):
    """The cloud is at work on a load balancer, and not for us."""


class StillShared(errors.Refused):
    """A load balancer cannot go while other owners have listeners on it."""

    reason = "KuryrLoadBalancerShared"


class NobodyConnects(errors.Refused):
    """The source ranges all have another address family than the VIP."""

    def __init__(self, ranges: Iterable[str], family: str) -> None:
        super().__init__(
            f"none of loadBalancerSourceRanges ({', '.join(ranges)}) is {family}, as the load "
            "balancer's address is: nobody could connect"
        )


class PortTaken(errors.Refused):
    """Other owners have ports that are wanted on a load balancer; the rest is as desired.

    :param found: the load balancer.
    :param ports: who has each port, in words, by (protocol, number) of the listener.
    """

    reason = "KuryrPortTaken"

    def __init__(self, found: FoundLoadBalancer, ports: Mapping[tuple[str, int], str]) -> None:
        which = ", ".join(f"{protocol} {port} {by}" for (protocol, port), by in ports.items())
        super().__init__(f"on load balancer {found.id} ports are taken: {which}")
        self.found = found
        self.ports = ports


class LBaaSDriver(Driver):
    """Makes load balancers that match their desired state. One call at a time for each owner.

    The driver notes the owner and its namespace on what it makes, and finds it again by that:
    nothing else records it. (:mod:`kuryr_k8s.drivers.base.tags` does so with tags.)

    When a call was answered with Wait, or was refused for the sake of other owners, the driver
    calls :meth:`wake` once the call can go on, and also when attached parts have to be made again.
    """

    slot = "endpoints_lbaas"
    asks = "OpenStack"

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        self._subscribers: list[Callable[[Owner], None]] = []

    def subscribe(self, woken: Callable[[Owner], None]) -> None:
        """Call ``woken`` for each owner that can go on."""
        self._subscribers.append(woken)

    def wake(self, owner: Owner) -> None:
        """Tell all subscribers that the owner can go on."""
        for woken in self._subscribers:
            woken(owner)

    @abc.abstractmethod
    async def ensure(self, owner: Owner, desired: LoadBalancer) -> FoundLoadBalancer:
        """Return the owner's load balancer, created or changed if need be, all of it ACTIVE.

        :raises errors.Wait: the cloud is at work on it.
        :raises PortTaken: :meth:`attach` has given a port of it to another owner.
        :raises errors.Unsupported: the cloud or the provider cannot do something of it.
        :raises errors.Refused: it does not become ACTIVE, or does not become as desired.
        :raises errors.CloudError: the cloud has refused the call, or has not answered.
        """

    async def follow(
        self, owner: Owner, wanted: Callable[[FoundLoadBalancer], LoadBalancer]
    ) -> list[FoundLoadBalancer]:
        """Change the members of what the owner has, in any load balancer, and nothing else of it.

        :param wanted: returns the desired state of a load balancer; only the members of its pools
            matter. Pools that it lacks lose all members.
        :returns: the load balancers with the owner's parts; empty if it has nothing.
        :raises errors.Wait: the cloud is at work on it.
        :raises errors.Refused: it is in ERROR.
        """
        return []

    @abc.abstractmethod
    async def attach(
        self, owner: Owner, load_balancer_id: str, desired: LoadBalancer
    ) -> FoundLoadBalancer:
        """Put the listeners and pools of ``desired`` into a load balancer of another owner.

        That is another owner's, found by any id that it has had, or one of an operator. Nothing
        else of it is changed. Parts that the owner had in other load balancers are removed.

        :param owner: one that is never given to :meth:`ensure`.
        :param desired: apart from listeners and pools, only its project and namespace matter.
            Of the source ranges, those of the VIP's address family apply.
        :returns: the load balancer with the owner's parts only.
        :raises errors.Wait: the cloud is at work on it.
        :raises PortTaken: others have ports that are wanted.
        :raises NobodyConnects: there are source ranges, and none is of that family.
        :raises errors.Refused: there is no such load balancer in the project, or it is in ERROR.
        """

    async def wish(self, owner: Owner, load_balancer_id: str) -> None:
        """Note that the owner names a load balancer in which it may have no parts yet.

        :meth:`attach` finds it by this id also if it is made anew in the meantime.
        """
        return

    @abc.abstractmethod
    async def ids_of(self, owner: Owner) -> frozenset[str]:
        """Return the ids that the owner's load balancer has and has had, as far as known."""

    async def exists(self, owner: Owner) -> bool:
        """Return whether the owner has a load balancer now, as far as known."""
        return bool(await self.ids_of(owner))

    @abc.abstractmethod
    async def owner_of(self, load_balancer_id: str, asking: Owner) -> Owned | None:
        """Return which owner of this cluster has, or had, a load balancer with this id.

        :param asking: the owner on whose behalf this is asked.
        :returns: None if none has.
        :raises errors.Wait: that is not known yet; the asking owner is woken when it is.
        """

    @abc.abstractmethod
    async def places_of(self, owner: Owner) -> frozenset[str]:
        """Return the ids of the load balancers of others in which the owner may have parts."""

    async def last_seen(self, owner: Owner) -> FoundLoadBalancer | None:
        """Return the owner's load balancer as it was when last read, however it is now.

        An address can lead there while the cloud is at work on it. If the owner has parts in that
        of another owner, it is that one, with those parts.

        :returns: None if there is none, or none that has been ACTIVE, or it has not been read yet;
            or if the owner is still to leave another one.
        """
        return None

    async def not_online(self, found: FoundLoadBalancer) -> frozenset[str]:
        """Return the addresses of members that get no connections yet, asking the cloud.

        These are those that a health monitor has not found healthy.

        :param found: what :meth:`ensure` or :meth:`attach` has returned.
        """
        return frozenset()

    @abc.abstractmethod
    async def is_shared(self, owner: Owner) -> bool:
        """Return whether others have parts in the owner's load balancer.

        If so, the owner is woken when they have changed it.
        """

    @abc.abstractmethod
    async def release(self, owner: Owner) -> None:
        """Remove all that was made for the owner; return when it is gone.

        :raises errors.Wait: the cloud is at work on it.
        :raises StillShared: others have listeners in it, and it stays until they have left.
        """

    @abc.abstractmethod
    async def list_owned(self) -> list[Owned]:
        """List all load balancers of this cluster, and all parts, as the cloud has them.

        The driver forgets what is no longer true: afterwards :meth:`ensure` corrects what others
        have changed.
        """

    @abc.abstractmethod
    def made(self, port: Mapping[str, Any]) -> bool:
        """Return whether a Neutron port was created for the VIP of a load balancer."""
