"""Protocols between clients, load balancer and members, and health monitors. Pure."""

import dataclasses
from dataclasses import dataclass

from kuryr_k8s.model.load_balancer import (
    HTTP_MONITORS,
    MANDATORY,
    NO_AUTHENTICATION,
    TERMINATED_HTTPS,
    HealthMonitor,
    Listener,
)
from kuryr_k8s.model.service_annotations import Settings

FORWARDED_FOR = "X-Forwarded-For"
# The health monitors of the cloud provider, where nothing is said.
MONITORS = {"TCP": "TCP", "UDP": "UDP-CONNECT", "SCTP": "SCTP"}
DELAY, TIMEOUT, RETRIES, RETRIES_DOWN = 5, 3, 1, 3
METHOD, PATH, CODES = "GET", "/", "200"  # Octavia's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """Protocols of a listener, which clients speak, and of a pool, which members speak."""

    listener: str
    pool: str
    insert_headers: tuple[str, ...] = ()


def wire_of(protocol: str, settings: Settings) -> Wire:
    """Return the protocols of a port; those of ports other than TCP ports never change."""
    if protocol != "TCP" or is_transparent(settings):
        return Wire(listener=protocol, pool=protocol)
    tls, headers = settings.default_tls_container_ref, settings.x_forwarded_for
    front = TERMINATED_HTTPS if tls else "HTTP" if headers else "TCP"
    return Wire(
        listener=front,
        pool=settings.proxy_protocol or ("HTTP" if tls or headers else "TCP"),
        insert_headers=(FORWARDED_FOR,) if headers else (),
    )


def with_tls(listener: Listener, settings: Settings) -> Listener:
    """Return the listener with what TERMINATED_HTTPS can have.

    Where a certificate authority for clients is named and nothing else is said, they must show a
    certificate.
    """
    if listener.protocol != TERMINATED_HTTPS:
        return listener
    checked = settings.client_ca_tls_container_ref is not None
    default = MANDATORY if checked else NO_AUTHENTICATION
    return dataclasses.replace(
        listener,
        default_tls_container_ref=settings.default_tls_container_ref,
        sni_container_refs=settings.sni_container_refs,
        tls_versions=settings.tls_versions,
        tls_ciphers=settings.tls_ciphers,
        client_authentication=settings.client_authentication or default,
        client_ca_tls_container_ref=settings.client_ca_tls_container_ref,
        client_crl_container_ref=settings.client_crl_container_ref,
    )


def is_transparent(settings: Settings) -> bool:
    """Return whether members receive exactly what clients send."""
    return not (
        settings.proxy_protocol or settings.x_forwarded_for or settings.default_tls_container_ref
    )


def monitor_of(protocol: str, settings: Settings) -> HealthMonitor | None:
    """Return the health monitor of a port, with the cloud provider's defaults.

    A timeout is never longer than a delay. The type is chosen for TCP ports alone.
    """
    if not settings.enable_health_monitor:
        return None
    timeout = settings.health_monitor_timeout
    delay = settings.health_monitor_delay or max(DELAY, timeout or 0)
    asked = settings.health_monitor_type if protocol == "TCP" else None
    requests = asked in HTTP_MONITORS
    return HealthMonitor(
        type=asked or MONITORS.get(protocol, protocol),
        delay=delay,
        timeout=timeout or min(TIMEOUT, delay),
        max_retries=settings.health_monitor_max_retries or RETRIES,
        max_retries_down=settings.health_monitor_max_retries_down or RETRIES_DOWN,
        http_method=(settings.health_monitor_http_method or METHOD) if requests else None,
        url_path=(settings.health_monitor_url_path or PATH) if requests else None,
        expected_codes=(settings.health_monitor_expected_codes or CODES) if requests else None,
    )
