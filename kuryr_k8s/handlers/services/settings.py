"""Settings of a Service's load balancers, from its user and the operator. Pure.

It also tells what no provider can do.
"""

import dataclasses
from collections.abc import Collection
from typing import Any

from oslo_config import cfg

from kuryr_k8s import errors
from kuryr_k8s.config.octavia import CLASS_PREFIX
from kuryr_k8s.drivers.base.granted import check_named
from kuryr_k8s.handlers.services.desired import KEEPS_TIMEOUT
from kuryr_k8s.model.load_balancer import HASHING
from kuryr_k8s.model.service import Service
from kuryr_k8s.model.service_annotations import (
    PREFIX,
    SHARED_WITH,
    SHOWN,
    WITHOUT_MEANING,
    Settings,
    no_guests,
    read_settings,
    read_timeouts,
)

DEFAULT_TIMEOUT = 10800  # seconds: what Kubernetes sets where the user says nothing
UNKEPT_TIMEOUT = "KuryrAffinityTimeoutNotKept"
UNKEPT_LOCALITY = "KuryrInternalTrafficPolicyIgnored"
UNKEPT_DISTRIBUTION = "KuryrTrafficDistributionIgnored"
UNKEPT_ANNOTATIONS = "KuryrAnnotationIgnored"
UNKEPT_EXTERNAL_IPS = "KuryrExternalIPsIgnored"
REASONS = (
    UNKEPT_TIMEOUT,
    UNKEPT_LOCALITY,
    UNKEPT_DISTRIBUTION,
    UNKEPT_EXTERNAL_IPS,
    UNKEPT_ANNOTATIONS,
)
KEEP = f"{PREFIX}keep-floatingip"


def settings_of(
    service: Service, conf: cfg.ConfigOpts, *, exposed: bool
) -> tuple[Settings, tuple[str, ...]]:
    """Return the settings, and what cannot be read, in words for users.

    :param exposed: the Service is of type LoadBalancer, and ours: only then do annotations of the
        cloud provider apply.
    """
    annotations = dict(service.annotations)
    if not exposed:
        return read_timeouts(annotations)
    found, problems = read_settings(annotations, service.load_balancer_ip, service.source_ranges)
    if found.enable_health_monitor is None:
        asked = found.health_monitor_type is not None
        enabled = asked or conf.octavia_defaults.enable_health_monitor
        found = dataclasses.replace(found, enable_health_monitor=enabled)
    if all(port.protocol != "TCP" for port in service.ports):
        if found.default_tls_container_ref:
            problems += ("a TLS container is of no use: the Service has no port of TCP",)
        if found.health_monitor_type:
            problems += ("health-monitor-type is of no use: the Service has no port of TCP",)
    if found.class_name is None:
        return found, problems
    group = f"{CLASS_PREFIX}{found.class_name.lower()}"
    if group not in conf:
        return found, (*problems, f"the operator has no [{group}] in kuryr.conf")
    return dataclasses.replace(found, **_of_class(conf, group)), problems


def check_containers(
    settings: Settings, namespace: str, project_id: str, conf: cfg.ConfigOpts
) -> None:
    """Make sure that the Service may use the containers of certificates that it names.

    Barbican checks who reads it, and that is our account, whoever names it. So only users of our
    own project may name any that is not granted by its reference.

    :param namespace: the Service's, like ``project_id``.
    :raises errors.Refused: it is another project, or the container is not granted.
    """
    if settings.default_tls_container_ref is None:
        return  # the others are nothing without this one
    named = (
        settings.default_tls_container_ref,
        *settings.sni_container_refs,
        settings.client_ca_tls_container_ref,
        settings.client_crl_container_ref,
    )
    by_reference = [
        check_named(conf, "tls_containers", namespace, container)
        for container in named
        if container is not None
    ]
    if not all(by_reference) and project_id != conf.neutron_defaults.project:
        raise errors.Refused(
            f"annotation {PREFIX}default-tls-container-ref: is for Services of kuryr's own "
            f"project, as Barbican would not be asked whether project {project_id} may use it"
        )


def keeps_address(service: Service) -> bool:
    """Return whether the floating IP outlives the Service.

    What cannot be read counts as a yes: a deleted address does not come back.
    """
    text = dict(service.annotations).get(KEEP, "false")
    return text.strip().lower() != "false"


def _of_class(conf: cfg.ConfigOpts, group: str) -> dict[str, Any]:
    """Return the settings of a class; they replace all annotations on the same subject."""
    given = {name: value for name, value in conf[group].items() if value}
    values: dict[str, Any] = {}
    for together in (
        ("floating_subnet_id", "floating_subnet", "floating_subnet_tags"),
        ("floating_network_id",),
        ("network_id", "subnet_id"),
    ):
        if any(name in given for name in together):
            values |= {name: given.get(name) for name in together}
    return values | {"of_class": frozenset(given)}


def unkept(service: Service, *, exposed: bool, providers: Collection[str]) -> dict[str, str]:
    """Return what has no effect of what is asked for: notes of Events by reason.

    :param providers: those of the Service's load balancers.
    """
    notes = {}
    keeping = () if any(provider in HASHING for provider in providers) else KEEPS_TIMEOUT
    without = [port for port in service.ports if port.protocol not in keeping]
    if service.session_timeout not in (None, DEFAULT_TIMEOUT) and without:
        protocols = sorted({port.protocol for port in without})
        numbers = sorted({port.port for port in without})
        notes[UNKEPT_TIMEOUT] = (
            f"sessionAffinity: the timeout of {service.session_timeout} s cannot be kept for "
            f"{', '.join(protocols)} (ports {', '.join(map(str, numbers))}); clients stay with "
            "their endpoint"
        )
    if service.traffic_local:
        notes[UNKEPT_LOCALITY] = (
            "internalTrafficPolicy: Local: a load balancer is the same for all nodes; connections "
            "go to endpoints of any node"
        )
    if service.traffic_distribution:
        notes[UNKEPT_DISTRIBUTION] = (
            f"trafficDistribution: {service.traffic_distribution}: a load balancer knows nothing "
            "of zones; connections go to all endpoints"
        )
    if service.external_ips:
        notes[UNKEPT_EXTERNAL_IPS] = (
            f"externalIPs: {', '.join(service.external_ips)}: no load balancer has such an "
            "address; type LoadBalancer gives the Service one, by loadBalancerIP a certain one"
        )
    ignored = _ignored(service, exposed=exposed)
    if ignored:
        notes[UNKEPT_ANNOTATIONS] = "; ".join(ignored)
    return notes


def _ignored(service: Service, *, exposed: bool) -> list[str]:
    """Return what is ignored of annotations, in words."""
    ignored = []
    names = [name for name, _text in service.annotations if name in WITHOUT_MEANING]
    if exposed and names:
        ignored.append(
            f"{', '.join(names)}: without a meaning here, as members are Pods and not nodes"
        )
    strange = ", ".join(map(repr, no_guests(dict(service.annotations))))
    if strange:
        ignored.append(f"annotation {SHARED_WITH}: no names of namespaces: {strange[:SHOWN]}")
    return ignored
