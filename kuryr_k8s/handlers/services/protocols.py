"""Protocols between clients, load balancer and members, and health monitors. Pure."""

from dataclasses import dataclass

from kuryr_k8s.model.load_balancer import HTTP_MONITORS, HealthMonitor
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
    default_tls_container_ref: str | None = None


def wire_of(protocol: str, settings: Settings) -> Wire:
    """Return the protocols of a port; those of ports other than TCP ports never change."""
    if protocol != "TCP" or is_transparent(settings):
        return Wire(listener=protocol, pool=protocol)
    tls, headers = settings.default_tls_container_ref, settings.x_forwarded_for
    front = "TERMINATED_HTTPS" if tls else "HTTP" if headers else "TCP"
    return Wire(
        listener=front,
        pool=settings.proxy_protocol or ("HTTP" if tls or headers else "TCP"),
        insert_headers=(FORWARDED_FOR,) if headers else (),
        default_tls_container_ref=tls,
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
