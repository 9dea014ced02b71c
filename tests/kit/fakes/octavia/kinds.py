"""Which attributes each kind of resource has, and what of a request's body is refused.

A letter per attribute: c may be given at creation, u may be updated.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any

from . import errors

Json = dict[str, Any]
_COMMON = {"name": "cu", "admin_state_up": "cu", "tags": "cu", "project_id": "c", "tenant_id": "c"}
_TIMEOUTS = {
    "timeout_client_data": 50000,
    "timeout_member_connect": 5000,
    "timeout_member_data": 50000,
    "timeout_tcp_inspect": 0,
}


@dataclass(frozen=True)
class Kind:
    """A kind of resource: what it is called in bodies, in paths and in messages."""

    name: str
    title: str
    attributes: dict[str, str]
    defaults: Json
    required: tuple[str, ...] = ()
    filters: tuple[str, ...] = field(default=())

    @property
    def plural(self) -> str:
        """The key of a list, and the collection in a path."""
        return f"{self.name[:-1]}ies" if self.name.endswith("y") else f"{self.name}s"

    def check_create(self, body: Json, *, inside: bool = False) -> Json:
        """The body with the defaults; 400 for what may not be there.

        :param inside: of another's body, which says whose it is.
        """
        self._check(body, "c")
        for name in () if inside else self.required:
            if body.get(name) is None:
                raise errors.bad_input(name, "None", "Mandatory field missing.")
        given = {name: value for name, value in body.items() if value is not None}
        given.pop("tenant_id", None)
        return {name: _copy(value) for name, value in self.defaults.items()} | given

    def check_update(self, body: Json) -> Json:
        """The changes; null is the default. 400 for what may not be changed."""
        self._check(body, "u")
        return {
            name: _copy(self.defaults.get(name)) if value is None else value
            for name, value in body.items()
        }

    def _check(self, body: Json, letter: str) -> None:
        for name, value in body.items():
            if letter not in self.attributes.get(name, ""):
                raise errors.unknown(self.name, name)
            reason = _CHECKS[name](value) if name in _CHECKS and value is not None else None
            if reason:
                raise errors.bad_input(name, value, reason)


def _copy(value: Any) -> Any:
    return value.copy() if isinstance(value, (list, dict)) else value


def _one_of(*values: str) -> Callable[[Any], str | None]:
    listed = ", ".join(sorted(values))
    return lambda value: None if value in values else f"Value should be one of: {listed}"


def _number(lowest: int, highest: int) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        if not isinstance(value, int) or isinstance(value, bool):
            return "Wrong type. Expected '<class 'int'>'"
        if value < lowest:
            return f"Value should be greater or equal to {lowest}"
        return f"Value should be lower or equal to {highest}" if value > highest else None

    return check


def _text(value: Any) -> str | None:
    if not isinstance(value, str):
        return "Wrong type. Expected '<class 'str'>'"
    return "Value should have a maximum character requirement of 255" if len(value) > 255 else None


def _address(value: Any) -> str | None:
    try:
        ip_address(value)
    except ValueError:
        return "Value should be IPv4 or IPv6 format"
    return None


def _cidrs(value: Any) -> str | None:
    try:
        for cidr in value:
            ip_network(cidr, strict=False)
    except ValueError:
        return "Value should be IPv4 or IPv6 CIDR format"
    return None


def _path(value: Any) -> str | None:
    fits = value.startswith("/") and not value.startswith("//") and " " not in value
    return None if fits else "Value must be a valid URL Path string"


def _codes(value: Any) -> str | None:
    pattern = r"^(\d{3}(\s*,\s*\d{3})*)$|^(\d{3}-\d{3})$"
    return None if re.search(pattern, value) else f"Value should match the pattern {pattern}"


def _tags(value: Any) -> str | None:
    return next((reason for tag in value if (reason := _text(tag))), None)


_CHECKS: dict[str, Callable[[Any], str | None]] = {
    "name": _text,
    "description": _text,
    "tags": _tags,
    "vip_address": _address,
    "address": _address,
    "allowed_cidrs": _cidrs,
    "protocol_port": _number(1, 65535),
    "connection_limit": _number(-1, 2**63 - 1),
    "type": _one_of(
        "HTTP",
        "HTTPS",
        "PING",
        "SCTP",
        "TCP",
        "TLS-HELLO",
        "UDP-CONNECT",
        "COOKIE",
        "FILE_TYPE",
        "HEADER",
        "HOST_NAME",
        "PATH",
    ),
    "compare_type": _one_of("CONTAINS", "ENDS_WITH", "EQUAL_TO", "REGEX", "STARTS_WITH"),
    "action": _one_of("REDIRECT_PREFIX", "REDIRECT_TO_POOL", "REDIRECT_TO_URL", "REJECT"),
    "position": _number(1, 2**31 - 1),
    "value": _text,
    "delay": _number(0, 2**31 - 1),
    "timeout": _number(0, 2**31 - 1),
    "max_retries": _number(1, 10),
    "max_retries_down": _number(1, 10),
    "http_method": _one_of(
        "CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"
    ),
    "url_path": _path,
    "expected_codes": _codes,
    "weight": _number(0, 256),
    "lb_algorithm": _one_of("LEAST_CONNECTIONS", "ROUND_ROBIN", "SOURCE_IP", "SOURCE_IP_PORT"),
    "client_authentication": _one_of("MANDATORY", "NONE", "OPTIONAL"),
    "protocol": _one_of(
        "HTTP", "HTTPS", "PROMETHEUS", "PROXY", "PROXYV2", "SCTP", "TCP", "TERMINATED_HTTPS", "UDP"
    ),
    **{name: _number(0, 31536000000) for name in _TIMEOUTS},
}

LOAD_BALANCER = Kind(
    "loadbalancer",
    "Load Balancer",
    _COMMON
    | dict.fromkeys(("provider", "flavor_id", "availability_zone", "listeners", "pools"), "c")
    | dict.fromkeys(("vip_subnet_id", "vip_network_id", "vip_port_id", "vip_address"), "c")
    | {"description": "cu", "vip_sg_ids": "cu", "additional_vips": "c"},
    defaults={
        "name": "", "description": "", "admin_state_up": True, "tags": [], "listeners": [],
        "pools": [], "vip_qos_policy_id": None, "vip_sg_ids": [], "additional_vips": [],
        "flavor_id": None, "availability_zone": None, "vip_vnic_type": "normal",
    },
    filters=("vip_address", "vip_port_id", "vip_subnet_id", "vip_network_id", "provider"),
)  # fmt: skip

LISTENER = Kind(
    "listener",
    "Listener",
    _COMMON
    | dict.fromkeys(("protocol", "protocol_port", "loadbalancer_id", "default_pool"), "c")
    | {"l7policies": "c"}
    | dict.fromkeys(("description", "default_pool_id", "connection_limit"), "cu")
    | dict.fromkeys(("insert_headers", "allowed_cidrs", *_TIMEOUTS), "cu")
    | dict.fromkeys(("default_tls_container_ref", "sni_container_refs", "tls_ciphers"), "cu")
    | dict.fromkeys(("tls_versions", "client_authentication"), "cu")
    | dict.fromkeys(("client_ca_tls_container_ref", "client_crl_container_ref"), "cu"),
    defaults={
        "name": "", "description": "", "admin_state_up": True, "tags": [], "connection_limit": -1,
        "default_pool_id": None, "insert_headers": {}, "l7policies": [], "allowed_cidrs": [],
        "default_tls_container_ref": None, "sni_container_refs": [], "tls_ciphers": None,
        "tls_versions": [], "alpn_protocols": [], "client_authentication": "NONE",
        "client_ca_tls_container_ref": None, "client_crl_container_ref": None,
        "hsts_max_age": None, "hsts_include_subdomains": False, "hsts_preload": False,
        **_TIMEOUTS,
    },
    required=("protocol", "protocol_port", "loadbalancer_id"),
    filters=("protocol", "protocol_port", "default_pool_id", "loadbalancer_id"),
)  # fmt: skip

POOL = Kind(
    "pool",
    "Pool",
    _COMMON
    | dict.fromkeys(("protocol", "listener_id", "loadbalancer_id", "members"), "c")
    | {"healthmonitor": "c"}
    | dict.fromkeys(("description", "lb_algorithm", "session_persistence"), "cu")
    | dict.fromkeys(("tls_enabled", "ca_tls_container_ref"), "cu")
    | dict.fromkeys(("tls_ciphers", "tls_versions", "alpn_protocols"), "cu"),
    defaults={
        "name": "", "description": "", "admin_state_up": True, "tags": [],
        "session_persistence": None, "tls_container_ref": None,
        "ca_tls_container_ref": None, "crl_container_ref": None, "tls_enabled": False,
        "tls_ciphers": None, "tls_versions": [], "alpn_protocols": [],
    },
    required=("protocol", "lb_algorithm"),
    filters=("protocol", "lb_algorithm", "loadbalancer_id"),
)  # fmt: skip

MEMBER = Kind(
    "member",
    "Member",
    _COMMON
    | dict.fromkeys(("address", "protocol_port", "subnet_id"), "c")
    | dict.fromkeys(("weight", "backup", "monitor_address", "monitor_port"), "cu"),
    defaults={
        "name": "", "admin_state_up": True, "tags": [], "weight": 1, "backup": False,
        "subnet_id": None, "monitor_address": None, "monitor_port": None, "vnic_type": "normal",
    },
    required=("address", "protocol_port"),
    filters=("address", "protocol_port", "weight", "subnet_id"),
)  # fmt: skip

HEALTH_MONITOR = Kind(
    "healthmonitor",
    "Health Monitor",
    _COMMON
    | dict.fromkeys(("type", "pool_id"), "c")
    | dict.fromkeys(("delay", "timeout", "max_retries", "max_retries_down"), "cu")
    | dict.fromkeys(("http_method", "url_path", "expected_codes"), "cu")
    | dict.fromkeys(("http_version", "domain_name"), "cu"),
    defaults={
        "name": "", "admin_state_up": True, "tags": [], "max_retries_down": 3,
        "http_method": None, "url_path": None, "expected_codes": None, "http_version": None,
        "domain_name": None,
    },
    required=("type", "delay", "timeout", "max_retries", "pool_id"),
    filters=("type", "delay", "timeout", "max_retries", "max_retries_down", "pool_id"),
)  # fmt: skip

L7POLICY = Kind(
    "l7policy",
    "L7Policy",
    _COMMON
    | dict.fromkeys(("listener_id", "rules", "redirect_pool"), "c")
    | dict.fromkeys(("description", "action", "position", "redirect_pool_id"), "cu")
    | dict.fromkeys(("redirect_url", "redirect_prefix", "redirect_http_code"), "cu"),
    defaults={
        "name": "", "description": "", "admin_state_up": True, "tags": [],
        "position": 2**31 - 1, "redirect_pool_id": None, "redirect_url": None,
        "redirect_prefix": None, "redirect_http_code": None,
    },
    required=("action", "listener_id"),
    filters=("action", "listener_id", "redirect_pool_id"),
)  # fmt: skip

L7RULE = Kind(
    "rule",
    "L7Rule",
    _COMMON | dict.fromkeys(("type", "compare_type", "key", "value", "invert"), "cu"),
    defaults={"admin_state_up": True, "tags": [], "key": None, "invert": False},
    required=("type", "compare_type", "value"),
    filters=("type", "compare_type", "value"),
)
