"""Slot of L7 routers."""

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kuryr_k8s.drivers.base.driver import Driver
from kuryr_k8s.model.authority import Authority
from kuryr_k8s.model.certificate import Certificate
from kuryr_k8s.model.l7router import ListenerSettings
from kuryr_k8s.model.load_balancer import FoundLoadBalancer, Pool
from kuryr_k8s.model.owner import Owner
from kuryr_k8s.model.routes import Route


@dataclass(frozen=True, slots=True, kw_only=True)
class L7Router:
    """Desired state of an L7 router.

    :param routes: of requests in plain HTTP, at port 80; each leads to a pool of that name.
    :param secure_routes: of requests over TLS, at port 443, where there is a certificate at all.
    :param certificates: those that clients are shown, each if they ask for a name of it; the
        first one also if they ask for another name. Empty: nobody listens at port 443.
    :param pools: those to which routes lead, with their members.
    :param authorities: the CAs that have signed the certificates of members, by the names of
        their pools; members of others are not verified.
    :param vip_subnet: the name or the id of the VIP's subnet; None for that of Services.
    :param vip_address: the address in it; None for any.
    :param former_vip_address: the one that it is said to have had; it gets it again, if it has to
        be made anew and nobody else has it by then.
    :param floating_ip: the address outside; None for any.
    :param has_floating_ip: False: it is to have no address outside.
    :param flavor_id: like ``availability_zone``, chosen at the creation; None for the default.
    :param settings: of all listeners.
    """

    owner: Owner
    name: str
    project_id: str
    routes: tuple[Route, ...] = ()
    secure_routes: tuple[Route, ...] = ()
    certificates: tuple[Certificate, ...] = ()
    pools: tuple[Pool, ...] = ()
    authorities: Mapping[str, Authority] = field(default_factory=dict)
    vip_subnet: str | None = None
    vip_address: str | None = None
    former_vip_address: str | None = None
    floating_ip: str | None = None
    has_floating_ip: bool = True
    flavor_id: str | None = None
    availability_zone: str | None = None
    settings: ListenerSettings = field(default_factory=ListenerSettings)

    @property
    def secrets(self) -> tuple[Certificate | Authority, ...]:
        """Certificates and CAs that its listeners and pools name, to be stored in Barbican."""
        return (*self.certificates, *self.authorities.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundL7Router:
    """An L7 router as found in the cloud.

    :param found: its load balancer as it was when last read.
    :param floating_ip: its address outside; None if it has none.
    :param served: the names of the routes that are as desired.
    :param refused: why routes are left out, by their names.
    :param limited: why routes are left out in plain HTTP or over TLS alone.
    :param waiting: the names of the routes that would be served over TLS, and whose certificates
        the cloud does not take.
    :param outdated_certificates: the names of the routes that are served with the certificate
        that they had before, as the cloud does not take the new one.
    :param outdated_authorities: the names of the routes whose members are verified by the CAs
        that there were before, as the cloud does not take the new ones.
    """

    found: FoundLoadBalancer
    floating_ip: str | None = None
    served: frozenset[str] = frozenset()
    refused: dict[str, str] = field(default_factory=dict)
    limited: dict[str, str] = field(default_factory=dict)
    waiting: frozenset[str] = frozenset()
    outdated_certificates: frozenset[str] = frozenset()
    outdated_authorities: frozenset[str] = frozenset()

    @property
    def address(self) -> str:
        """The address by which clients reach it."""
        return self.floating_ip or self.found.vip_address


class L7RouterDriver(Driver):
    """Makes L7 routers that do what their routes say. One call at a time for each owner."""

    slot = "l7_router"
    asks = "OpenStack"

    @abc.abstractmethod
    def subscribe(self, woken: Callable[[Owner], None]) -> None:
        """Call ``woken`` for each router whose :meth:`ensure` can go on."""

    @abc.abstractmethod
    async def ensure(self, router: L7Router) -> FoundL7Router:
        """Return the router's state, after bringing it in line with what is desired.

        :raises errors.Wait: the cloud is at work on it.
        :raises errors.Refused: something of it cannot be had; :meth:`state` tells what is so.
        :raises errors.CloudError: the cloud has refused a call, or has not answered.
        """

    @abc.abstractmethod
    async def state(self, router: L7Router) -> FoundL7Router | None:
        """Return the router's state as far as it is known.

        :returns: None if there is no router, or none that has been ACTIVE and has its address.
        """

    @abc.abstractmethod
    async def release(self, owner: Owner) -> None:
        """Remove a router with its addresses; return when it is gone.

        :raises errors.Wait: the cloud is at work on it.
        """

    @abc.abstractmethod
    async def review(self) -> list[Owner]:
        """Read what the cloud has, so that :meth:`ensure` corrects what others have changed.

        :returns: the owners of all routers of this cluster that there are.
        """
