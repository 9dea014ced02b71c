"""What is refused of a listener, whatever the provider."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

from tests.kit.fakes.faults import Answer

from . import errors, tls

Json = dict[str, Any]
_POOLS_OF = {
    "TCP": ("HTTP", "HTTPS", "PROXY", "PROXYV2", "TCP"),
    "HTTP": ("HTTP", "PROXY", "PROXYV2"),
    "HTTPS": ("HTTPS", "PROXY", "PROXYV2", "TCP"),
    "TERMINATED_HTTPS": ("HTTP", "PROXY", "PROXYV2"),
    "UDP": ("UDP",),
    "SCTP": ("SCTP",),
}
_HEADERS = (
    "X-Forwarded-For", "X-Forwarded-Port", "X-Forwarded-Proto", "X-Forwarded-IP", "X-Client-IP",
    "X-Real-IP",
)  # fmt: skip
_TLS = tls.PROTOCOL


def check_created(
    load_balancer: Json, others: list[Json], listener: Json, certificates: set[str]
) -> None:
    """400 for what does not fit together, and 409 where another one has the port.

    :param certificates: references that there are.
    """
    protocol = listener["protocol"]
    _check_headers(protocol, listener.get("insert_headers") or {})
    own = listener.get("default_tls_container_ref") or listener.get("sni_container_refs")
    if protocol == _TLS and not own:
        raise errors.invalid(
            "An SNI or default certificate container reference must be provided for"
            f" {protocol} protocol listeners."
        )
    tls.check(protocol, {}, listener, certificates)
    _check_duplicates(others, listener)
    _check_cidrs(load_balancer, listener.get("allowed_cidrs") or [])


def check_updated(
    load_balancer: Json, listener: Json, changes: Json, certificates: set[str]
) -> None:
    """As for a new one, except that the words for headers with UDP and SCTP are others."""
    protocol, headers = listener["protocol"], changes.get("insert_headers")
    if headers and protocol in ("UDP", "SCTP"):
        text = f"{protocol} protocol listener does not support TLS or header insertion."
        raise errors.invalid(text)
    _check_headers(protocol, headers or {})
    tls.check(protocol, listener, changes, certificates)
    _check_cidrs(load_balancer, changes.get("allowed_cidrs") or [])


def check_protocols(listener: str, pool: str) -> None:
    """400 where a listener of this protocol cannot have a pool of that."""
    if pool not in _POOLS_OF[listener]:
        raise errors.invalid(
            f"The pool protocol '{pool}' is invalid while the listener protocol is '{listener}'."
        )


def _check_headers(protocol: str, headers: Json) -> None:
    if headers and protocol not in ("HTTP", _TLS):
        text = f"insert-headers is not a valid option for a {protocol} protocol listener."
        raise Answer(400, message=text)
    if headers.keys() - set(_HEADERS):
        text = f"dict_keys({list(headers)}) is not a valid option for insert_headers"
        raise Answer(400, message=text)


def _check_cidrs(load_balancer: Json, cidrs: list[str]) -> None:
    vip = load_balancer["vip_address"]
    if cidrs and load_balancer["vip_sg_ids"]:
        text = "Allowed CIDRs are not allowed when using custom VIP Security Groups."
        raise errors.invalid(text)
    for cidr in cidrs:
        if ip_network(cidr, strict=False).version != ip_address(vip).version:
            text = f"CIDR {cidr} IP version incompatible with all VIPs ['{vip}'] IP version."
            raise errors.invalid(text)


def _check_duplicates(listeners: list[Json], body: Json) -> None:
    """409 where one has the port already, unless it is UDP or SCTP and the other is not."""
    for listener in listeners:
        same = _transport(listener["protocol"]) == _transport(body["protocol"])
        if same and listener["protocol_port"] == body["protocol_port"]:
            text = (
                "Another Listener on this Load Balancer is already using protocol"
                f" {listener['protocol']} and protocol_port {body['protocol_port']}"
            )
            raise Answer(409, message=text)


def _transport(protocol: str) -> str:
    return protocol if protocol in ("UDP", "SCTP") else "TCP"
