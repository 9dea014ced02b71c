"""The slots of Services: where they are, their load balancers, and public addresses."""

import abc
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.api import Subnet
from kuryr_k8s.drivers.base.driver import Driver
from kuryr_k8s.model.load_balancer import FoundLoadBalancer, LoadBalancer
from kuryr_k8s.model.service import Service


class ServiceProjectDriver(Driver):
    slot = "service_project"

    @abc.abstractmethod
    async def project(self, service: Service) -> str:
        """Id of the project that the Service's load balancer belongs to.

        :raises kuryr_k8s.errors.Refused: the namespace asks for what is not granted to it.
        """


class ServiceSubnetsDriver(Driver):
    slot = "service_subnets"

    @abc.abstractmethod
    async def subnets(self, service: Service, project_id: str) -> tuple[Subnet, ...]:
        """Where the Service's ClusterIPs are: one subnet for each address family.

        :raises kuryr_k8s.errors.Refused: the network is neither the project's own nor shared
            with it.
        """

    async def all_subnets(self) -> tuple[Subnet, ...]:
        """All in which ClusterIPs may be, as far as that is known: at the start, the range of
        ClusterIPs is held against them."""
        return ()


class ServiceSecurityGroupsDriver(Driver):
    slot = "service_security_groups"

    @abc.abstractmethod
    async def security_groups(self, service: Service, project_id: str) -> tuple[str, ...]:
        """Ids of the security groups of the Service's ClusterIPs, sorted."""


class Owned(NamedTuple):
    """What was made in this cluster for a Service: a public IP; a load balancer, or one in which
    the Service has listeners.

    :param owner: as the driver was told it: it begins with the Service's uid.
    """

    owner: str
    namespace: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicIPRequest:
    """What a Service asks of its public address.

    :param owner: as with :class:`LBaaSDriver`.
    :param port_id: of the VIP that it leads to.
    :param vip_address: the VIP's own address.
    :param address: the one that is wanted; one that is there already, of the same project and
        nobody's use, is taken. None: any.
    :param network_id: external network. None: as the operator has decided.
    :param subnet_ids: of that network, any of them; empty: any at all.
    :param keep: an address that another one replaces stays the project's, as with ``release``.
    """

    owner: str
    namespace: str
    name: str
    project_id: str
    port_id: str
    vip_address: str
    address: str | None = None
    network_id: str | None = None
    subnet_ids: tuple[str, ...] = ()
    keep: bool = False


class ServicePublicIPDriver(Driver):
    """Makes a VIP reachable from outside. One call at a time for an owner."""

    slot = "service_public_ip"

    @abc.abstractmethod
    async def ensure(self, request: PublicIPRequest) -> str | None:
        """The public address, leading to the VIP's port. None: there is no external network here
        by the operator's decision, nor does the Service name one.

        What it asked for before and does not any more is released.

        :raises errors.Refused: no such network, subnet or address; or others have it.
        :raises errors.OverQuota: no address is to be had.
        """

    @abc.abstractmethod
    async def has(self, owner: str) -> bool:
        """Whether it has a public address."""

    @abc.abstractmethod
    async def detach(self, owner: str, ports: Collection[str] | None = None) -> bool:
        """The public address stays the owner's and leads nowhere, until it is asked for again.

        :param ports: of the VIPs to which it must not lead; None: any.
        :returns: whether the owner has one, and it leads nowhere now.
        """

    @abc.abstractmethod
    async def release(self, owner: str, *, keep: bool) -> None:
        """The VIP has no public address any more; gone already is as good.

        :param keep: the address stays the project's, without a mark of ours. One that we found
            and did not make stays always.
        """

    @abc.abstractmethod
    async def list_owned(self) -> list[Owned]:
        """All of this cluster, by the cloud's word; ``namespace`` may be empty."""


class OthersAtWork(errors.Wait):
    """The cloud is at work on a load balancer, and not for us."""


class PortTaken(errors.Refused):
    """Others have ports that are wanted on a load balancer; the rest is as it is to be.

    :param found: as it is.
    :param ports: (protocol, number) of the listeners that cannot be → who has the port, in words.
    """

    reason = "KuryrPortTaken"

    def __init__(self, found: FoundLoadBalancer, ports: Mapping[tuple[str, int], str]) -> None:
        which = ", ".join(f"{protocol} {port} {by}" for (protocol, port), by in ports.items())
        super().__init__(f"on load balancer {found.id} ports are taken: {which}")
        self.found = found
        self.ports = ports


class LBaaSDriver(Driver):
    """Makes load balancers as they are to be. ``owner`` is the uid of the Service; what stands on
    a load balancer that is made for it is told by :mod:`kuryr_k8s.drivers.lbaas.tags`.

    One call at a time for an owner. ``wake`` is called when a call that was answered with Wait, or
    refused for the sake of other owners, can go on, and when what was attached has to be made
    again; it is never called for anything else.
    """

    slot = "endpoints_lbaas"

    @abc.abstractmethod
    async def ensure(
        self, owner: str, desired: LoadBalancer, wake: Callable[[], None]
    ) -> FoundLoadBalancer:
        """The load balancer, made or changed if need be; all that it has is ACTIVE.

        :raises errors.Wait: the cloud is at work on it.
        :raises PortTaken: :meth:`attach` has given a port of it to another owner.
        :raises errors.Unsupported: the cloud or the provider cannot do something of it.
        :raises errors.Refused: it does not become ACTIVE, or not as it is to be.
        :raises errors.CloudError: it could not be asked for.
        """

    @abc.abstractmethod
    async def attach(
        self, owner: str, load_balancer_id: str, desired: LoadBalancer, wake: Callable[[], None]
    ) -> FoundLoadBalancer:
        """The listeners and pools of ``desired`` in a load balancer that others own: another
        owner's, found by any id that it has had, or one that is no Service's. Nothing else of it
        is changed. What the owner had in other load balancers is removed.

        :param owner: one who is never given to :meth:`ensure`.
        :param desired: its tags are on each part, with :func:`lb_tags.shared_tags_of`; of the
            rest, only the project matters. Of the source ranges those of the VIP's family count.
        :returns: the load balancer with what is the owner's in it.
        :raises errors.Wait: the cloud is at work on it.
        :raises PortTaken: others have ports that are wanted.
        :raises lb_parts.NobodyConnects: there are source ranges, and none is of that family.
        :raises errors.Refused: there is no such load balancer in the project, or it is in ERROR.
        """

    @abc.abstractmethod
    async def ids_of(self, owner: str) -> frozenset[str]:
        """Ids of the owner's load balancer: the one that it has now, and those of before that are
        known."""

    @abc.abstractmethod
    async def is_shared(self, owner: str, wake: Callable[[], None]) -> bool:
        """Whether others have something in the owner's load balancer; ``wake`` is called when
        they have changed it."""

    @abc.abstractmethod
    async def release(self, owner: str, wake: Callable[[], None]) -> None:
        """Remove all that was made for the owner; on return it is gone.

        :raises errors.Wait: the cloud is at work on it.
        :raises lb_parts.StillShared: others have listeners in it, and it stays until they have
            left.
        """

    @abc.abstractmethod
    async def list_owned(self) -> list[Owned]:
        """All load balancers of this cluster, and all parts of others, by the cloud's word.

        What is remembered and no longer true is forgotten by it: :meth:`ensure` puts right
        afterwards what others changed.
        """
