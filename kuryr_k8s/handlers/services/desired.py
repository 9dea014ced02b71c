"""Desired state of a Service's load balancers. Pure.

Each port of the Service has one listener with one pool. A ClusterIP's load balancer is
transparent, whatever the Service asks for: clients within the cluster speak to Pods. So it follows
only those settings that do not show on the wire (timeouts, limits, algorithm, health monitors);
the external one follows all.
"""

import dataclasses
import functools
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from kuryr_k8s import errors
from kuryr_k8s.handlers.services.protocols import (
    Wire,
    is_transparent,
    monitor_of,
    wire_of,
    with_tls,
)
from kuryr_k8s.handlers.services.reconcile import Given, Networks, Place
from kuryr_k8s.model.lbaas import LBaaSPortSpec, LBaaSServiceSpec
from kuryr_k8s.model.load_balancer import SOURCE_IP, Listener, LoadBalancer, Pool
from kuryr_k8s.model.members import NAME_LIMIT, members_of
from kuryr_k8s.model.owner import Owner, Role
from kuryr_k8s.model.service import EndpointSlice, Service
from kuryr_k8s.model.service_annotations import Settings

MOST_MEMBERS = (
    20_000  # of one load balancer: to list more takes seconds, in which nothing else runs
)
KEEPS_TIMEOUT = ("UDP", "SCTP")  # protocols whose persistence has a timeout in Octavia
UNLIMITED = -1  # connections: said, so that a limit that is taken away goes


def owners_of(service: Service) -> tuple[Owner, Owner]:
    """Return the owners of the load balancers of the Service's first and second ClusterIP."""
    return Owner(service.uid), Owner(service.uid, Role.SECOND)


def external_owners_of(service: Service) -> tuple[Owner, Owner]:
    """Return the owners of the load balancers outside, one for each address family."""
    return Owner(service.uid, Role.EXTERNAL), Owner(service.uid, Role.EXTERNAL_SECOND)


def family_of(address: str) -> str:
    """Return IPv4 or IPv6."""
    return f"IPv{ipaddress.ip_address(address).version}"


def desired_of(given: Given, spec: LBaaSServiceSpec) -> LoadBalancer:
    """Return the load balancer of one ClusterIP.

    :param spec: the ClusterIP's.
    """
    family, service = family_of(spec.ip or ""), given.service
    name = f"{service.namespace}/{service.name}"
    if spec.ip != service.cluster_ips[0]:
        name = f"{name}/{family}"
    tree = _Tree(name, family, given, spec.subnet_id)
    return dataclasses.replace(
        tree.load_balancer(),
        vip_subnet_id=spec.subnet_id or "",
        vip_address=spec.ip,
        provider=given.options.provider,
    )


def external_of(given: Given, place: Place, role: Role = Role.EXTERNAL) -> LoadBalancer:
    """Return the load balancer whose VIP is no ClusterIP, or which is not transparent."""
    name, settings = f"{given.service.namespace}/{given.service.name}/external", given.settings
    if role is Role.EXTERNAL_SECOND:
        name = f"{name}/{place.family}"
    tree = _Tree(name, place.family, given, place.member_subnet_id, transparent=False)
    return dataclasses.replace(
        tree.load_balancer(),
        vip_subnet_id=place.subnet_id,
        vip_network_id=place.network_id,
        vip_port_id=place.port_id,
        vip_address=place.address,
        additional_vips=place.additional_vips,
        provider=given.options.provider,
        vip_sg_ids=settings.vip_sg_ids,
        flavor_id=settings.flavor_id,
        availability_zone=settings.availability_zone,
    )


def shared_of(given: Given) -> LoadBalancer:
    """Return the listeners and pools for the load balancer of another owner.

    They are not transparent. Their members are IPv4 if the Service has an IPv4 ClusterIP. They
    have all source ranges, as the VIP is not known here.
    """
    first = given.specs[0]
    spec = next((each for each in given.specs if family_of(each.ip or "") == "IPv4"), first)
    name = f"{given.service.namespace}/{given.service.name}/shared"
    family = family_of(spec.ip or "")
    wanted = _Tree(name, family, given, spec.subnet_id, transparent=False).load_balancer()
    ranges = given.settings.source_ranges
    return dataclasses.replace(
        wanted,
        listeners=tuple(
            dataclasses.replace(listener, allowed_cidrs=ranges) for listener in wanted.listeners
        ),
    )


def needs_external(settings: Settings, cluster_ips: Sequence[str], subnets: Sequence[str]) -> bool:
    """Return whether the settings need a load balancer besides those of the ClusterIPs.

    :param subnets: of the ClusterIPs' load balancers.
    """
    elsewhere = settings.internal and settings.address not in (None, *cluster_ips)
    return bool(
        elsewhere
        or settings.subnet_id not in (None, *subnets)
        or settings.network_id
        or settings.port_id
        or settings.source_ranges
        or settings.additional_vip_subnet_ids
        or settings.vip_sg_ids
        or settings.flavor_id
        or settings.availability_zone
        or not is_transparent(settings)
    )


def ranges_of(settings: Settings, family: str) -> tuple[str, ...]:
    """Return the source ranges of an address family."""
    return tuple(cidr for cidr in settings.source_ranges if (":" in cidr) == (family == "IPv6"))


@dataclass(frozen=True, slots=True)
class _Tree:
    """One load balancer, port by port.

    :param subnet_id: the subnet of members that are in no subnet of Pods.
    """

    name: str
    family: str
    given: Given
    subnet_id: str | None
    transparent: bool = True

    def load_balancer(self) -> LoadBalancer:
        """Return the load balancer without its place.

        :raises errors.Refused: it would have too many members.
        """
        spec = self.given.specs[0]
        count = len(spec.ports) * sum(len(each.endpoints) for each in self._slices())
        if count > MOST_MEMBERS:
            raise errors.Refused(
                f"the Service's ports and endpoints make {count} members of a load balancer; "
                f"at most {MOST_MEMBERS} are allowed"
            )
        return LoadBalancer(
            name=self.name,
            project_id=spec.project_id or "",
            vip_subnet_id=None,
            vip_address=None,
            provider=None,
            namespace=self.given.service.namespace,
            listeners=tuple(self.listener(port) for port in spec.ports),
            pools=tuple(self.pool(port) for port in spec.ports),
        )

    def listener(self, port: LBaaSPortSpec) -> Listener:
        """Return the listener of a port."""
        settings, options, wire = self.given.settings, self.given.options, self._wire(port)
        client, member = settings.timeout_client_data, settings.timeout_member_data
        listener = Listener(
            name=self._front(port),
            protocol=wire.listener,
            port=port.port,
            pool=self._front(port),
            allowed_cidrs=() if self.transparent else ranges_of(settings, self.family),
            connection_limit=_first(settings.connection_limit, UNLIMITED),
            insert_headers=wire.insert_headers,
            timeout_client_data=_first(client, options.timeout_client_data),
            timeout_member_data=_first(member, options.timeout_member_data),
            timeout_member_connect=settings.timeout_member_connect,
            timeout_tcp_inspect=settings.timeout_tcp_inspect,
        )
        return with_tls(listener, settings)

    def pool(self, port: LBaaSPortSpec) -> Pool:
        """Return the pool of a port."""
        given, service = self.given, self.given.service
        affine = service.session_timeout is not None
        keeps_timeout = port.protocol in KEEPS_TIMEOUT
        subnet_of = functools.partial(_subnet_of, self.subnet_id, given.options.member_networks())
        return Pool(
            name=self._front(port),
            protocol=self._wire(port).pool,
            lb_algorithm=given.settings.lb_method or given.options.lb_algorithm,
            persistence=SOURCE_IP if affine else None,
            persistence_timeout=service.session_timeout if keeps_timeout else None,
            members=members_of(port, service, self._slices(), subnet_of),
            health_monitor=monitor_of(port.protocol, given.settings),
        )

    def _slices(self) -> list[EndpointSlice]:
        return [each for each in self.given.slices if each.family == self.family]

    def _wire(self, port: LBaaSPortSpec) -> Wire:
        return wire_of(port.protocol, Settings() if self.transparent else self.given.settings)

    def _front(self, port: LBaaSPortSpec) -> str:
        return f"{self.name}:{port.protocol}:{port.port}"[:NAME_LIMIT]


def _subnet_of(subnet_id: str | None, networks: Networks | None, address: str) -> str | None:
    """Return the Pods' subnet that contains a member, or else the VIP's subnet.

    API servers, for example, are in no subnet of Pods; the ovn provider needs one.
    """
    if networks is None:
        return None
    where = ipaddress.ip_address(address)
    near = (near_id for near_id, network in networks if where in network)
    return next(near, subnet_id)


def _first(asked: int | None, default: int | None) -> int | None:
    return default if asked is None else asked
