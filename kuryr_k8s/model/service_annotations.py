"""Annotations by which users configure the load balancers of a Service. Pure.

The vocabulary is that of the OpenStack cloud provider, with the same meanings
(kubernetes/cloud-provider-openstack, docs/openstack-cloud-controller-manager), and some of our
own. docs/service-annotations.md describes each of them. A value that cannot be read is a problem,
described in words for users; the other annotations apply all the same.
"""

import ipaddress
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

PREFIX = "loadbalancer.openstack.org/"
INTERNAL = "service.beta.kubernetes.io/openstack-internal-load-balancer"
SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
ADDRESS = "openstack.org/kuryr-load-balancer-ip"
OWN_TIMEOUTS = {
    "timeout_client_data": "openstack.org/kuryr-timeout-client-data",
    "timeout_member_data": "openstack.org/kuryr-timeout-member-data",
}
# Written by us, as by the cloud provider; the third one says which id we wrote: it is no wish.
LOAD_BALANCER_ID = f"{PREFIX}load-balancer-id"
LOAD_BALANCER_ADDRESS = f"{PREFIX}load-balancer-address"
WRITTEN_ID = "openstack.org/kuryr-load-balancer-id"
# Members are Pods: no nodes are chosen, and their subnets are those of the Pods.
WITHOUT_MEANING = (f"{PREFIX}member-subnet-id", f"{PREFIX}node-selector")

LONGEST = 365 * 24 * 3600 * 1000  # milliseconds: Octavia's limit of timeouts
MOST = 2**31 - 1
LONGEST_NAME = 255  # characters, in Neutron
MOST_NETWORKS = 1000  # of a list: each reconcile reads all of them
SHOWN = 100  # characters of a value that cannot be read
_HOSTNAME = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
)
# Kubernetes takes this for an address, and no hostname in a status, with leading zeros or without
_LIKE_ADDRESS = re.compile(r"[0-9]+(\.[0-9]+){3}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a Service; None where nothing is asked for.

    Timeouts are in milliseconds, those of health monitors in seconds.

    :param address: the public address that is wanted; with ``internal``, the VIP.
    :param floating_subnet: a pattern for names, see :mod:`kuryr_k8s.model.subnet_patterns`.
    :param floating_subnet_tags: a pattern for tags.
    :param class_name: a group ``[load_balancer_class:NAME]`` of kuryr.conf.
    :param proxy_protocol: PROXY or PROXYV2, the protocol of pools.
    :param load_balancer_id: the load balancer on which the Service is to have listeners; not the
        id that we wrote.
    :param source_ranges: canonical; empty if everybody may connect.
    """

    internal: bool = False
    address: str | None = None
    keep_floating_ip: bool = False
    hostname: str | None = None
    floating_network_id: str | None = None
    floating_subnet_id: str | None = None
    floating_subnet: str | None = None
    floating_subnet_tags: str | None = None
    class_name: str | None = None
    subnet_id: str | None = None
    network_id: str | None = None
    port_id: str | None = None
    load_balancer_id: str | None = None
    flavor_id: str | None = None
    availability_zone: str | None = None
    connection_limit: int | None = None
    proxy_protocol: str | None = None
    x_forwarded_for: bool = False
    default_tls_container_ref: str | None = None
    lb_method: str | None = None
    timeout_client_data: int | None = None
    timeout_member_connect: int | None = None
    timeout_member_data: int | None = None
    timeout_tcp_inspect: int | None = None
    enable_health_monitor: bool | None = None
    health_monitor_delay: int | None = None
    health_monitor_timeout: int | None = None
    health_monitor_max_retries: int | None = None
    health_monitor_max_retries_down: int | None = None
    source_ranges: tuple[str, ...] = ()


def _text(value: str) -> str:
    if not value:
        raise ValueError("is empty")
    return value


def _pattern(value: str) -> str:
    """Read a pattern, see :mod:`kuryr_k8s.model.subnet_patterns`, but no regular expression.

    Some take years to say that a name does not match, and nobody would be served meanwhile.
    """
    if value.removeprefix("!").startswith("~"):
        raise ValueError(
            "is a regular expression, which is for the operator to write: in a group "
            f"[load_balancer_class:NAME] of kuryr.conf, to be named by {PREFIX}class"
        )
    if len(value) > LONGEST_NAME:
        raise ValueError(f"is longer than {LONGEST_NAME} characters, as no name is")
    return _text(value)


def _flag(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("is neither true nor false")
    return value.lower() == "true"


def _one_of(values: Mapping[str, Any]) -> Callable[[str], Any]:
    def parse(value: str) -> Any:
        if value not in values:
            raise ValueError(f"is none of {', '.join(values)}")
        return values[value]

    return parse


def _number(lowest: int, highest: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,12}", value) or not lowest <= int(value) <= highest:
            raise ValueError(f"is no number from {lowest} to {highest}")
        return int(value)

    return parse


def _id(value: str) -> str:
    try:
        return str(uuid.UUID(value))
    except ValueError:
        raise ValueError("is no id (UUID)") from None


def _address(value: str) -> str:
    try:
        return str(ipaddress.ip_address(value))
    except ValueError:
        raise ValueError("is no IP address") from None


def _hostname(value: str) -> str:
    if not _HOSTNAME.fullmatch(value) or _LIKE_ADDRESS.fullmatch(value):
        raise ValueError("is no DNS name")
    return value


def networks(value: str) -> tuple[str, ...]:
    """Read a list of networks.

    :returns: empty if each address family that is named is open to everybody. A family that is
        open does not open the other one.
    :raises ValueError: something in the list is no network, or they are too many.
    """
    if value.count(",") >= MOST_NETWORKS:
        raise ValueError(f"has more than {MOST_NETWORKS} networks")
    try:
        found = {ipaddress.ip_network(text.strip(), strict=False) for text in value.split(",")}
    except ValueError:
        raise ValueError("is no list of networks (10.0.0.0/8,192.0.2.0/24)") from None
    families = {network.version for network in found}
    opened = {network.version for network in found if network.prefixlen == 0}
    return () if families == opened else tuple(sorted(map(str, found)))


_MILLISECONDS = _number(0, LONGEST)
_SECONDS = _number(1, MOST)
_RETRIES = _number(1, 10)
# field → annotation, and the function that reads its value
FIELDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "internal": (INTERNAL, _flag),
    "address": (ADDRESS, _address),
    "source_ranges": (SOURCE_RANGES, networks),
} | {
    field: (f"{PREFIX}{name}", parse)
    for field, name, parse in (
        ("keep_floating_ip", "keep-floatingip", _flag),
        ("hostname", "hostname", _hostname),
        ("floating_network_id", "floating-network-id", _id),
        ("floating_subnet_id", "floating-subnet-id", _id),
        ("floating_subnet", "floating-subnet", _pattern),
        ("floating_subnet_tags", "floating-subnet-tags", _text),
        ("class_name", "class", _text),
        ("subnet_id", "subnet-id", _id),
        ("network_id", "network-id", _id),
        ("port_id", "port-id", _id),
        ("load_balancer_id", "load-balancer-id", _id),
        ("flavor_id", "flavor-id", _id),
        ("availability_zone", "availability-zone", _text),
        ("connection_limit", "connection-limit", _number(-1, MOST)),
        (
            "proxy_protocol",
            "proxy-protocol",
            _one_of({"true": "PROXY", "v1": "PROXY", "v2": "PROXYV2", "false": None}),
        ),
        ("x_forwarded_for", "x-forwarded-for", _flag),
        ("default_tls_container_ref", "default-tls-container-ref", _text),
        (
            "lb_method",
            "lb-method",
            _one_of(
                {
                    name: name
                    for name in ("ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP", "SOURCE_IP_PORT")
                }
            ),
        ),
        ("timeout_client_data", "timeout-client-data", _MILLISECONDS),
        ("timeout_member_connect", "timeout-member-connect", _MILLISECONDS),
        ("timeout_member_data", "timeout-member-data", _MILLISECONDS),
        ("timeout_tcp_inspect", "timeout-tcp-inspect", _MILLISECONDS),
        ("enable_health_monitor", "enable-health-monitor", _flag),
        ("health_monitor_delay", "health-monitor-delay", _SECONDS),
        ("health_monitor_timeout", "health-monitor-timeout", _SECONDS),
        ("health_monitor_max_retries", "health-monitor-max-retries", _RETRIES),
        ("health_monitor_max_retries_down", "health-monitor-max-retries-down", _RETRIES),
    )
}
# What the caches keep of a Service's annotations.
NAMES = frozenset(
    {
        *(name for name, _parse in FIELDS.values()),
        *OWN_TIMEOUTS.values(),
        *WITHOUT_MEANING,
        LOAD_BALANCER_ADDRESS,
        WRITTEN_ID,
    }
)


def read_settings(
    annotations: Mapping[str, str], address: str | None, source_ranges: tuple[str, ...]
) -> tuple[Settings, tuple[str, ...]]:
    """Return what a Service of type LoadBalancer asks for, and what cannot be read, in words.

    :param annotations: of the Service.
    :param address: ``spec.loadBalancerIP``; it goes before the annotation.
    :param source_ranges: ``spec.loadBalancerSourceRanges``; they go before the annotation.
    """
    values, problems = _parse(annotations, FIELDS)
    own, own_problems = _parse(
        annotations, {field: (name, _MILLISECONDS) for field, name in OWN_TIMEOUTS.items()}
    )
    values = own | values
    problems += own_problems
    if annotations.get(LOAD_BALANCER_ID) == annotations.get(WRITTEN_ID):
        values.pop("load_balancer_id", None)
    try:
        if address:
            values["address"] = _address(address)
        if source_ranges:
            values["source_ranges"] = networks(",".join(source_ranges))
    except ValueError as error:
        problems.append(f"spec.loadBalancerIP or spec.loadBalancerSourceRanges {error}")
    found = Settings(**values)
    return found, (*problems, *_contradictions(found))


def read_timeouts(annotations: Mapping[str, str]) -> tuple[Settings, tuple[str, ...]]:
    """Return what a Service of any other type asks for, see :func:`read_settings`.

    Only annotations of our own apply to it.
    """
    values, problems = _parse(
        annotations, {field: (name, _MILLISECONDS) for field, name in OWN_TIMEOUTS.items()}
    )
    return Settings(**values), tuple(problems)


def _parse(
    annotations: Mapping[str, str], fields: Mapping[str, tuple[str, Callable[[str], Any]]]
) -> tuple[dict[str, Any], list[str]]:
    values: dict[str, Any] = {}
    problems = []
    for field, (name, parse) in fields.items():
        text = annotations.get(name)
        if text is None:
            continue
        try:
            values[field] = parse(text.strip())
        except ValueError as error:
            problems.append(f"annotation {name}: {text[:SHOWN]!r} {error}")
    return values, problems


def _contradictions(settings: Settings) -> list[str]:
    found = []
    if settings.proxy_protocol and settings.x_forwarded_for:
        found.append(f"annotations {PREFIX}proxy-protocol and x-forwarded-for exclude each other")
    delay, timeout = settings.health_monitor_delay, settings.health_monitor_timeout
    if delay is not None and timeout is not None and timeout > delay:
        found.append(
            f"annotation {PREFIX}health-monitor-timeout: {timeout} s is more than "
            f"health-monitor-delay ({delay} s)"
        )
    return found
