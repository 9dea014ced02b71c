"""Slots of Services: their projects and subnets, and their public addresses."""

import abc
from dataclasses import dataclass
from typing import NamedTuple

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.api import Subnet
from kuryr_k8s.drivers.base.driver import Driver
from kuryr_k8s.model.owner import Owner
from kuryr_k8s.model.service import Service


class ServiceProjectDriver(Driver):
    """Chooses the project of a Service."""

    slot = "service_project"

    @abc.abstractmethod
    async def project(self, service: Service) -> str:
        """Return the id of the project that the Service's load balancer belongs to.

        It is one that ``[neutron_defaults] project`` or ``[policy] projects`` names: what is in
        another project is nobody's, so a Service in one is refused.

        :raises kuryr_k8s.errors.Refused: the namespace asks for what is not granted to it.
        """


class ServiceSubnetsDriver(Driver):
    """Chooses the subnets of a Service's ClusterIPs."""

    slot = "service_subnets"

    @abc.abstractmethod
    async def subnets(self, service: Service, project_id: str) -> tuple[Subnet, ...]:
        """Return one subnet of the Service's ClusterIPs for each address family.

        :raises kuryr_k8s.errors.Refused: the network is neither the project's own nor shared
            with it.
        """

    async def all_subnets(self) -> tuple[Subnet, ...]:
        """Return all subnets of ClusterIPs, as far as they are known.

        The range of ClusterIPs is compared with them at the start.
        """
        return ()


class ServiceSecurityGroupsDriver(Driver):
    """Chooses the security groups of a Service."""

    slot = "service_security_groups"

    @abc.abstractmethod
    async def security_groups(self, service: Service, project_id: str) -> tuple[str, ...]:
        """Return the ids of the security groups of the Service's ClusterIPs, sorted."""


class Owned(NamedTuple):
    """A public address or a load balancer that was made in this cluster for an owner.

    The owner may have parts only in the load balancer.

    :param namespace: may be empty.
    :param clusters: the uids of the clusters whose marks it bears. Nothing is swept that does not
        bear the mark of this cluster, and of this cluster only.
    :param elsewhere: it is in a project that no Service can belong to: it is reported only.
    """

    owner: Owner
    namespace: str
    id: str
    clusters: frozenset[str] = frozenset()
    elsewhere: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicIPRequest:
    """Request of a Service, or a Pod, for its public address.

    :param port_id: the port that the address leads to: of the VIP, or the Pod's.
    :param vip_address: the VIP's, or the Pod's, own address.
    :param address: the address that is wanted; None if any will do. One that exists in the same
        project, and that nobody uses, is taken.
    :param network_id: the external network; None if the operator's choice applies.
    :param subnet_ids: subnets, one of which is used; empty if any will do. They are of that
        network, or of the one in which the owner has an address by the operator's choice.
    :param existing: the address or the id of a floating IP of the project, which alone will do;
        empty: none is named.
    :param keep: an address that is replaced stays the project's, as with ``release``. That is
        noted on the address itself, for when nobody can ask the Service any more.
    """

    owner: Owner
    namespace: str
    name: str
    project_id: str
    port_id: str
    vip_address: str
    address: str | None = None
    network_id: str | None = None
    subnet_ids: tuple[str, ...] = ()
    existing: str = ""
    keep: bool = False


class PublicIPInUse(errors.Refused):
    """Others have the address, or people gave the port another one."""

    reason = "KuryrFloatingIPInUse"


class ServicePublicIPDriver(Driver):
    """Makes a VIP, or a Pod, reachable from outside. One call at a time for each owner."""

    slot = "service_public_ip"

    @property
    def default_network(self) -> str | None:
        """The external network that is the operator's choice, once the driver has started."""
        named: str | None = self._context.conf.neutron_defaults.external_svc_net
        return named or None

    @abc.abstractmethod
    async def ensure(self, request: PublicIPRequest) -> str | None:
        """Return a public address that leads to the VIP's port, making it if need be.

        What was asked for before, and is not any more, is released. The operator's choice of a
        network and of subnets counts where an address is made: one that exists stays, whatever
        that is now. But an address leaves a network that the Service has named and names no more,
        and one that is not in the network or the subnets that the Service names.

        :returns: None if the operator has chosen no external network, nor does the Service name
            one.
        :raises errors.Refused: there is no such network, subnet or address; or others have it.
        :raises errors.OverQuota: no address is left.
        """

    @abc.abstractmethod
    async def has(self, owner: Owner) -> bool:
        """Return whether the owner has a public address."""

    async def networks_by_default(self, owner: Owner) -> frozenset[str]:
        """Return the networks of the owner's public addresses that were the operator's choice."""
        return frozenset()

    @abc.abstractmethod
    async def leads_to(self, owner: Owner) -> frozenset[str]:
        """Return the ports to which public addresses of the owner lead."""

    @abc.abstractmethod
    async def detach(self, owner: Owner) -> None:
        """Let the public address lead nowhere until it is asked for again; the owner keeps it."""

    @abc.abstractmethod
    async def release(self, owner: Owner, *, keep: bool | None) -> None:
        """Remove the public address; it is no error if there is none.

        :param keep: the address stays the project's, without a mark of ours; None: as was noted
            on the address. An address that existed before stays always.
        """

    @abc.abstractmethod
    async def list_owned(self) -> list[Owned]:
        """List all public addresses of this cluster, as the cloud has them."""
