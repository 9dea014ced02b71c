"""Annotations by which users configure the load balancers of a Service. Pure.

The vocabulary is that of the OpenStack cloud provider, with the same meanings
(kubernetes/cloud-provider-openstack, docs/openstack-cloud-controller-manager), and some of our
own. docs/service-annotations.md describes each of them. A value that cannot be read is a problem,
described in words for users; the other annotations apply all the same.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kuryr_k8s.model import annotation_values as values
from kuryr_k8s.model.load_balancer import HTTP_MONITORS, MANDATORY, NO_AUTHENTICATION, OPTIONAL

PREFIX = "loadbalancer.openstack.org/"
INTERNAL = "service.beta.kubernetes.io/openstack-internal-load-balancer"
SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
ADDRESS = "openstack.org/kuryr-load-balancer-ip"
# On the owner of a load balancer: other namespaces whose Services may have ports there.
SHARED_WITH = "openstack.org/kuryr-load-balancer-shared-with"
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
MONITORS = ("HTTP", "HTTPS", "TCP", "TLS-HELLO")  # types for TCP ports
TLS_VERSIONS = ("SSLv3", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
SHOWN = 100  # characters of a value that cannot be read
METHODS = ("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE")


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
    :param of_class: the fields that the operator's class has set.
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
    additional_vip_subnet_ids: tuple[str, ...] = ()
    vip_sg_ids: tuple[str, ...] = ()
    flavor_id: str | None = None
    availability_zone: str | None = None
    connection_limit: int | None = None
    proxy_protocol: str | None = None
    x_forwarded_for: bool = False
    default_tls_container_ref: str | None = None
    sni_container_refs: tuple[str, ...] = ()
    tls_versions: tuple[str, ...] = ()
    tls_ciphers: str | None = None
    client_authentication: str | None = None
    client_ca_tls_container_ref: str | None = None
    client_crl_container_ref: str | None = None
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
    health_monitor_type: str | None = None
    health_monitor_http_method: str | None = None
    health_monitor_url_path: str | None = None
    health_monitor_expected_codes: str | None = None
    source_ranges: tuple[str, ...] = ()
    of_class: frozenset[str] = frozenset()


# field → annotation, and the function that reads its value
FIELDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "internal": (INTERNAL, values.flag),
    "address": (ADDRESS, values.address),
    "source_ranges": (SOURCE_RANGES, values.networks),
} | {
    field: (f"{PREFIX}{name}", parse)
    for field, name, parse in (
        ("keep_floating_ip", "keep-floatingip", values.flag),
        ("hostname", "hostname", values.hostname),
        ("floating_network_id", "floating-network-id", values.identifier),
        ("floating_subnet_id", "floating-subnet-id", values.identifier),
        ("floating_subnet", "floating-subnet", values.pattern),
        ("floating_subnet_tags", "floating-subnet-tags", values.text),
        ("class_name", "class", values.text),
        ("subnet_id", "subnet-id", values.identifier),
        ("network_id", "network-id", values.identifier),
        ("port_id", "port-id", values.identifier),
        ("load_balancer_id", "load-balancer-id", values.identifier),
        (
            "additional_vip_subnet_ids",
            "additional-vip-subnet-ids",
            values.listed(values.identifier),
        ),
        ("vip_sg_ids", "vip-sg-ids", values.listed(values.identifier)),
        ("flavor_id", "flavor-id", values.identifier),
        ("availability_zone", "availability-zone", values.text),
        ("connection_limit", "connection-limit", values.connections),
        (
            "proxy_protocol",
            "proxy-protocol",
            values.one_of({"true": "PROXY", "v1": "PROXY", "v2": "PROXYV2", "false": None}),
        ),
        ("x_forwarded_for", "x-forwarded-for", values.flag),
        ("default_tls_container_ref", "default-tls-container-ref", values.text),
        ("sni_container_refs", "sni-container-refs", values.listed(values.container)),
        ("tls_versions", "tls-versions", values.listed(values.choice(*TLS_VERSIONS))),
        ("tls_ciphers", "tls-ciphers", values.ciphers),
        (
            "client_authentication",
            "client-authentication",
            values.choice(MANDATORY, OPTIONAL, NO_AUTHENTICATION),
        ),
        ("client_ca_tls_container_ref", "client-ca-tls-container-ref", values.container),
        ("client_crl_container_ref", "client-crl-container-ref", values.container),
        (
            "lb_method",
            "lb-method",
            values.choice("ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP", "SOURCE_IP_PORT"),
        ),
        ("timeout_client_data", "timeout-client-data", values.milliseconds),
        ("timeout_member_connect", "timeout-member-connect", values.milliseconds),
        ("timeout_member_data", "timeout-member-data", values.milliseconds),
        ("timeout_tcp_inspect", "timeout-tcp-inspect", values.milliseconds),
        ("enable_health_monitor", "enable-health-monitor", values.flag),
        ("health_monitor_delay", "health-monitor-delay", values.seconds),
        ("health_monitor_timeout", "health-monitor-timeout", values.seconds),
        ("health_monitor_max_retries", "health-monitor-max-retries", values.retries),
        ("health_monitor_max_retries_down", "health-monitor-max-retries-down", values.retries),
        ("health_monitor_type", "health-monitor-type", values.choice(*MONITORS)),
        ("health_monitor_http_method", "health-monitor-http-method", values.choice(*METHODS)),
        ("health_monitor_url_path", "health-monitor-url-path", values.path),
        ("health_monitor_expected_codes", "health-monitor-expected-codes", values.codes),
    )
}
# settings that only a listener that terminates TLS can have
WITH_TLS = (
    "sni_container_refs",
    "tls_versions",
    "tls_ciphers",
    "client_authentication",
    "client_ca_tls_container_ref",
    "client_crl_container_ref",
)
# What the caches keep of a Service's annotations.
NAMES = frozenset(
    {
        *(name for name, _parse in FIELDS.values()),
        *OWN_TIMEOUTS.values(),
        *WITHOUT_MEANING,
        LOAD_BALANCER_ADDRESS,
        WRITTEN_ID,
        SHARED_WITH,
    }
)


def is_shared_with(annotations: Mapping[str, str], namespace: str) -> bool:
    """Return whether Services of another namespace may have ports on a Service's load balancers.

    What else stands there, and is no namespace's name, takes nothing back.
    """
    return not _guests(annotations).isdisjoint({namespace, "*"})


def no_guests(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Return what stands among those namespaces and is no namespace's name."""
    return tuple(sorted(each for each in _guests(annotations) if not values.is_namespace(each)))


def _guests(annotations: Mapping[str, str]) -> set[str]:
    return {text.strip() for text in annotations.get(SHARED_WITH, "").split(",")} - {""}


def read_settings(
    annotations: Mapping[str, str], address: str | None, source_ranges: tuple[str, ...]
) -> tuple[Settings, tuple[str, ...]]:
    """Return what a Service of type LoadBalancer asks for, and what cannot be read, in words.

    :param annotations: of the Service.
    :param address: ``spec.loadBalancerIP``; it goes before the annotation.
    :param source_ranges: ``spec.loadBalancerSourceRanges``; they go before the annotation.
    """
    read, problems = _parse(annotations, FIELDS)
    own, own_problems = _parse(
        annotations, {field: (name, values.milliseconds) for field, name in OWN_TIMEOUTS.items()}
    )
    read = own | read
    problems += own_problems
    if annotations.get(LOAD_BALANCER_ID) == annotations.get(WRITTEN_ID):
        read.pop("load_balancer_id", None)
    try:
        if address:
            read["address"] = values.address(address)
        if source_ranges:
            read["source_ranges"] = values.networks(",".join(source_ranges))
    except ValueError as error:
        problems.append(f"spec.loadBalancerIP or spec.loadBalancerSourceRanges {error}")
    found = Settings(**read)
    return found, (*problems, *_contradictions(found))


def read_timeouts(annotations: Mapping[str, str]) -> tuple[Settings, tuple[str, ...]]:
    """Return what a Service of any other type asks for, see :func:`read_settings`.

    Only annotations of our own apply to it.
    """
    read, problems = _parse(
        annotations, {field: (name, values.milliseconds) for field, name in OWN_TIMEOUTS.items()}
    )
    return Settings(**read), tuple(problems)


def _parse(
    annotations: Mapping[str, str], fields: Mapping[str, tuple[str, Callable[[str], Any]]]
) -> tuple[dict[str, Any], list[str]]:
    read: dict[str, Any] = {}
    problems = []
    for field, (name, parse) in fields.items():
        text = annotations.get(name)
        if text is None:
            continue
        try:
            read[field] = parse(text.strip())
        except ValueError as error:
            problems.append(f"annotation {name}: {text[:SHOWN]!r} {error}")
    return read, problems


def _useless(settings: Settings, fields: Sequence[str], why: str) -> list[str]:
    """Return the problems of annotations that are of no use without another one."""
    return [f"annotation {FIELDS[name][0]}: {why}" for name in fields if getattr(settings, name)]


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
    if settings.source_ranges and settings.vip_sg_ids:
        found.append(f"annotation {PREFIX}vip-sg-ids and source ranges exclude each other")
    if settings.health_monitor_type not in HTTP_MONITORS:
        found += _useless(
            settings,
            (
                "health_monitor_http_method",
                "health_monitor_url_path",
                "health_monitor_expected_codes",
            ),
            "only a monitor of health-monitor-type HTTP or HTTPS sends requests",
        )
    if settings.default_tls_container_ref is None:
        found += _useless(settings, WITH_TLS, "there is no TLS without default-tls-container-ref")
    elif settings.client_ca_tls_container_ref is None:
        clients = ["client_crl_container_ref"]
        if settings.client_authentication != NO_AUTHENTICATION:
            clients.append("client_authentication")
        why = "no client's certificate can be checked without client-ca-tls-container-ref"
        found += _useless(settings, clients, why)
    return found
