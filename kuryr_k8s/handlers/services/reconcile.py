"""One reconcile of a Service: its input, and what has come of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any, NamedTuple, Self

from oslo_config import cfg

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.api import Subnet
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.lbaas import LBaaSServiceSpec
from kuryr_k8s.model.load_balancer import HASHING, FoundLoadBalancer
from kuryr_k8s.model.owner import Owner, Role
from kuryr_k8s.model.service import EndpointSlice, Service
from kuryr_k8s.model.service_annotations import Settings

Json = dict[str, Any]
Networks = Sequence[tuple[str, IPv4Network | IPv6Network]]  # the id of a subnet, and its addresses


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The operator's options for all load balancers.

    :param member_subnets: the subnets of Pods with the member mode ``L2``; None with ``L3``.
    :param timeout_client_data: milliseconds; None for Octavia's default.
    """

    provider: str | None = None
    lb_algorithm: str = "ROUND_ROBIN"
    member_subnets: tuple[Subnet, ...] | None = None
    timeout_client_data: int | None = None
    timeout_member_data: int | None = None

    def member_networks(self) -> Networks | None:
        """Return the subnets of members, for comparison with thousands of addresses."""
        if self.member_subnets is None:
            return None
        return [(each.id, ip_network(each.cidr)) for each in self.member_subnets]

    @classmethod
    def read(cls, conf: cfg.ConfigOpts, pod_subnets: tuple[Subnet, ...]) -> Self:
        """Read the options."""
        provider = conf.kubernetes.endpoints_driver_octavia_provider
        defaults = conf.octavia_defaults
        member_mode = defaults.member_mode or _default_member_mode(provider)
        return cls(
            provider=None if provider == "default" else provider,
            lb_algorithm=defaults.lb_algorithm or _default_algorithm(provider),
            member_subnets=pod_subnets if member_mode == "L2" else None,
            timeout_client_data=defaults.timeout_client_data or None,
            timeout_member_data=defaults.timeout_member_data or None,
        )


def _default_member_mode(provider: str) -> str:
    """Return how the provider can reach members."""
    return "L2" if provider in HASHING else "L3"


def _default_algorithm(provider: str) -> str:
    """Return an algorithm that the provider can do."""
    return "SOURCE_IP_PORT" if provider in HASHING else "ROUND_ROBIN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Input from which a Service's load balancers are made.

    :param specs: one for each ClusterIP, in their order.
    """

    service: Service
    specs: Sequence[LBaaSServiceSpec]
    slices: Sequence[EndpointSlice]
    options: Options
    settings: Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Place of a VIP that is no ClusterIP: in a subnet, in a network, or at a port.

    :param family: IPv4 or IPv6.
    :param additional_vips: subnets of further VIPs.
    :param member_subnet_id: the subnet of members that are in no subnet of Pods.
    """

    family: str
    subnet_id: str | None = None
    network_id: str | None = None
    port_id: str | None = None
    address: str | None = None
    additional_vips: tuple[str, ...] = ()
    member_subnet_id: str | None = None


class ServedPort(NamedTuple):
    """A port of the Service."""

    protocol: str
    port: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """A load balancer that was asked for.

    :param refused: why a port has no listener, by port.
    :param note: what else Octavia refused.
    """

    found: FoundLoadBalancer
    refused: Mapping[ServedPort, str] = field(default_factory=dict)
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """Ways in which a Service is reached from outside.

    :param load_balancer_id: the one that its first address leads to; empty if the user names it.
    :param refused: why a port is not reached, by port.
    :param note: what else Octavia refused.
    :param notes: notes of Events by reason, as with :func:`settings.unkept`.
    :param problem: why the Service is not reached at all.
    """

    load_balancer_id: str
    addresses: tuple[str, ...]
    ingress: tuple[Json, ...]
    refused: Mapping[ServedPort, str] = field(default_factory=dict)
    note: str | None = None
    notes: Mapping[str, str] = field(default_factory=dict)
    problem: errors.KuryrError | None = None


@dataclass(slots=True, kw_only=True)
class Reconcile:
    """State of one reconcile.

    :param exposed: the Service is of type LoadBalancer, and its class is ours.
    :param unreadable: what cannot be read of the annotations, in words for users.
    :param settings_known: the settings are what the annotations ask for, or asked for before.
    :param inner: outcomes for the ClusterIPs, by address.
    :param further: the load balancers outside that are none of a ClusterIP's, and as desired; or
        whose members at least are.
    :param asked: whose load balancers or parts outside Octavia was asked for.
    :param outside_settled: no load balancer outside is wanted that is not as desired.
    :param exposure: None if the Service has nothing outside.
    :param problems: what went wrong; one problem does not hold up the rest.
    """

    key: Key
    given: Given
    exposed: bool
    unreadable: Sequence[str] = ()
    settings_known: bool = True
    inner: dict[str, Outcome] = field(default_factory=dict)
    further: list[Outcome] = field(default_factory=list)
    asked: set[Owner] = field(default_factory=set)
    outside_settled: bool = False
    exposure: Exposure | None = None
    problems: list[errors.KuryrError] = field(default_factory=list)

    @property
    def service(self) -> Service:
        """The Service as the caches have it."""
        return self.given.service

    @property
    def settings(self) -> Settings:
        """The settings of the user and the operator."""
        return self.given.settings

    def owner(self, role: Role = Role.FIRST) -> Owner:
        """Return the owner of that role."""
        return Owner(self.service.uid, role)

    def settled(self) -> list[FoundLoadBalancer] | None:
        """Return all load balancers of the Service, if all are as desired, and ACTIVE."""
        wanted = [spec.ip or "" for spec in self.given.specs]
        if not self.outside_settled or not self.inner.keys() >= set(wanted):
            return None
        return [outcome.found for outcome in (*self.inner.values(), *self.further)]

    def is_waiting(self) -> bool:
        """Return whether a cloud is still at work: soon there is more to report."""
        return any(isinstance(problem, errors.Wait) for problem in self.problems)
