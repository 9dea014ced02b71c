"""Which attributes each kind of resource has, and what of a request's body is refused.

A letter per attribute: c may be given at creation, u may be updated, f can be filtered by.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import errors

Json = dict[str, Any]
MAX_NAME = 255


@dataclass(frozen=True)
class Kind:
    """A kind of resource, its names in paths and bodies, and its attributes."""

    name: str
    attributes: dict[str, str]
    defaults: Json = field(default_factory=dict)
    required: tuple[str, ...] = ()
    prefix: str = ""

    @property
    def plural(self) -> str:
        """The key of a list in a body."""
        return f"{self.name.removesuffix('y')}ies" if self.name[-1] == "y" else f"{self.name}s"

    @property
    def path(self) -> str:
        """The collection's path."""
        return f"/v2.0/{self.prefix}{self.plural.replace('_', '-')}"

    def check_create(self, body: Json) -> Json:
        """The body with the defaults; 400 for what may not be there."""
        self._check_known(body)
        for name in self.required:
            if name not in body:
                raise errors.malformed(
                    f"Failed to parse request. Required attribute '{name}' not specified"
                )
        for name in body:
            if "c" not in self.attributes[name]:
                raise errors.malformed(f"Attribute '{name}' not allowed in POST")
        _check_values(body)
        return {name: _copy(value) for name, value in self.defaults.items()} | body

    def check_update(self, body: Json) -> None:
        """400 for what may not be changed."""
        self._check_known(body)
        for name in body:
            if "u" not in self.attributes[name]:
                raise errors.malformed(f"Cannot update read-only attribute {name}")
        _check_values(body)

    def _check_known(self, body: Json) -> None:
        unknown = [name for name in body if name not in self.attributes]
        if unknown:
            raise errors.malformed(f"Unrecognized attribute(s) '{', '.join(unknown)}'")


def _copy(value: Any) -> Any:
    return value.copy() if isinstance(value, (list, dict)) else value


def _check_values(body: Json) -> None:
    for name, value in body.items():
        check = _CHECKS.get(name)
        reason = check(value) if check else None
        if reason:
            raise errors.malformed(f"Invalid input for {name}. Reason: {reason}.")


def _text(value: Any) -> str | None:
    if not isinstance(value, str):
        return f"'{value}' is not a valid string"
    return f"'{value}' exceeds maximum length of {MAX_NAME}" if len(value) > MAX_NAME else None


def _uuid(value: Any) -> str | None:
    try:
        uuid.UUID(value)
    except (AttributeError, TypeError, ValueError):
        return f"'{value}' is not a valid UUID"
    return None


def _uuids(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, list):
        return f"'{value}' is not a list"
    return next((reason for item in value if (reason := _uuid(item))), None)


def _tags(value: Any) -> str | None:
    if not isinstance(value, list):
        return f"'{value}' is not a list"
    if len(set(map(str, value))) != len(value):
        return f"Duplicate items in the list: '{', '.join(map(str, value))}'"
    return next((reason for item in value if (reason := _text(item))), None)


def _fixed_ips(value: Any) -> str | None:
    if not isinstance(value, list):
        return f"Invalid data format for fixed IP: '{value}'"
    for item in value:
        if not isinstance(item, dict) or not item.keys() <= {"subnet_id", "ip_address"}:
            return f"Invalid data format for fixed IP: '{item}'"
        if "subnet_id" in item and (reason := _uuid(item["subnet_id"])):
            return reason
    return None


_CHECKS: dict[str, Callable[[Any], str | None]] = {
    "name": _text,
    "device_id": _text,
    "device_owner": _text,
    "description": _text,
    "network_id": _uuid,
    "floating_network_id": _uuid,
    "security_groups": _uuids,
    "tags": _tags,
    "fixed_ips": _fixed_ips,
}

# What every kind has that carries tags and revisions.
_STANDARD = {
    "id": "f", "name": "cuf", "description": "cuf", "tenant_id": "cf", "project_id": "cf",
    "created_at": "f", "updated_at": "f", "revision_number": "f",
    "tags": "f", "tags-any": "f", "not-tags": "f", "not-tags-any": "f",
}  # fmt: skip

NETWORK = Kind(
    "network",
    _STANDARD
    | {
        "admin_state_up": "cuf", "status": "f", "subnets": "", "shared": "cuf",
        "router:external": "cuf", "mtu": "cuf", "port_security_enabled": "cu",
        "provider:network_type": "cuf", "provider:physical_network": "cuf",
        "provider:segmentation_id": "cuf", "availability_zone_hints": "c",
        "availability_zones": "", "ipv4_address_scope": "", "ipv6_address_scope": "",
        "is_default": "cuf", "qos_policy_id": "cu", "dns_domain": "cuf", "vlan_transparent": "c",
    },
    defaults={
        "name": "", "description": "", "admin_state_up": True, "status": "ACTIVE", "subnets": [],
        "router:external": False, "mtu": 1442, "port_security_enabled": True,
        "provider:network_type": "geneve", "provider:physical_network": None,
        "provider:segmentation_id": None, "availability_zone_hints": [],
        "availability_zones": [], "ipv4_address_scope": None, "ipv6_address_scope": None,
        "is_default": None, "qos_policy_id": None, "dns_domain": "", "tags": [],
    },
)  # fmt: skip

SUBNET = Kind(
    "subnet",
    _STANDARD
    | {
        "network_id": "cf", "ip_version": "cf", "cidr": "cf", "gateway_ip": "cuf",
        "allocation_pools": "cu", "dns_nameservers": "cu", "host_routes": "cu",
        "enable_dhcp": "cuf", "ipv6_ra_mode": "cf", "ipv6_address_mode": "cf", "shared": "f",
        "subnetpool_id": "cf", "service_types": "cu", "segment_id": "cuf", "prefixlen": "c",
        "dns_publish_fixed_ip": "cu", "router:external": "f",
    },
    defaults={
        "name": "", "description": "", "dns_nameservers": [], "host_routes": [],
        "enable_dhcp": True, "ipv6_ra_mode": None, "ipv6_address_mode": None,
        "subnetpool_id": None, "service_types": [], "segment_id": None,
        "dns_publish_fixed_ip": False, "tags": [],
    },
    required=("network_id", "ip_version"),
)  # fmt: skip

PORT = Kind(
    "port",
    _STANDARD
    | {
        "network_id": "cf", "admin_state_up": "cuf", "status": "f", "mac_address": "cuf",
        "fixed_ips": "cuf", "device_id": "cuf", "device_owner": "cuf", "security_groups": "cuf",
        "allowed_address_pairs": "cu", "extra_dhcp_opts": "cu", "port_security_enabled": "cu",
        "binding:host_id": "cuf", "binding:profile": "cu", "binding:vnic_type": "cuf",
        "binding:vif_type": "", "binding:vif_details": "", "dns_name": "cuf", "dns_domain": "cuf",
        "dns_assignment": "", "qos_policy_id": "cuf", "qos_network_policy_id": "f",
        "propagate_uplink_status": "cu", "ip_allocation": "", "resource_request": "",
        "numa_affinity_policy": "cu", "hints": "c", "trusted": "c", "tags": "cf",
    },
    defaults={
        "name": "", "description": "", "admin_state_up": True, "device_id": "",
        "device_owner": "", "allowed_address_pairs": [], "extra_dhcp_opts": [],
        "port_security_enabled": True, "binding:host_id": "", "binding:profile": {},
        "binding:vnic_type": "normal", "dns_name": "", "dns_assignment": [],
        "qos_policy_id": None, "qos_network_policy_id": None, "tags": [],
    },
    required=("network_id",),
)  # fmt: skip

SECURITY_GROUP = Kind(
    "security_group",
    _STANDARD | {"security_group_rules": "", "stateful": "cuf", "shared": "f", "is_default": "f"},
    defaults={"name": "", "description": "", "stateful": True, "tags": []},
)

SECURITY_GROUP_RULE = Kind(
    "security_group_rule",
    {name: letters for name, letters in _STANDARD.items() if name != "name" and "tag" not in name}
    | {
        "security_group_id": "cf", "remote_group_id": "cf", "direction": "cf", "protocol": "cf",
        "port_range_min": "cf", "port_range_max": "cf", "ethertype": "cf",
        "remote_ip_prefix": "cf", "remote_address_group_id": "cf", "normalized_cidr": "f",
        "belongs_to_default_sg": "f", "tags": "",
    },
    defaults={
        "description": "", "remote_group_id": None, "protocol": None, "port_range_min": None,
        "port_range_max": None, "ethertype": "IPv4", "remote_ip_prefix": None,
        "remote_address_group_id": None,
    },
    required=("security_group_id", "direction"),
)  # fmt: skip

RBAC_POLICY = Kind(
    "rbac_policy",
    {
        "id": "f", "object_type": "cf", "object_id": "cf", "action": "cf",
        "target_tenant": "cuf", "tenant_id": "cf", "project_id": "cf",
    },
    required=("object_type", "object_id", "action", "target_tenant"),
)  # fmt: skip

QOS_POLICY = Kind(
    "policy",
    _STANDARD | {"shared": "cuf", "is_default": "cuf", "rules": ""},
    defaults={"name": "", "description": "", "is_default": False, "rules": [], "tags": []},
    prefix="qos/",
)

TRUNK = Kind(
    "trunk",
    _STANDARD | {"admin_state_up": "cuf", "port_id": "cf", "status": "f", "sub_ports": "c"},
    defaults={"name": "", "description": "", "admin_state_up": True, "sub_ports": [], "tags": []},
    required=("port_id",),
)

ROUTER = Kind(
    "router",
    _STANDARD
    | {
        "admin_state_up": "cuf", "status": "f", "external_gateway_info": "cu", "routes": "u",
        "distributed": "c", "ha": "c", "flavor_id": "cf", "enable_ndp_proxy": "cu",
    },
    defaults={
        "name": "", "description": "", "admin_state_up": True, "status": "ACTIVE",
        "external_gateway_info": None, "routes": [], "tags": [],
    },
)  # fmt: skip

FLOATING_IP = Kind(
    "floatingip",
    {name: letters for name, letters in _STANDARD.items() if name != "name"}
    | {
        "floating_ip_address": "cf", "floating_network_id": "cf", "subnet_id": "c",
        "port_id": "cuf", "fixed_ip_address": "cuf", "router_id": "cuf", "status": "f",
        "qos_policy_id": "cuf", "dns_name": "cf", "dns_domain": "cf", "port_forwardings": "",
        "port_details": "",
    },
    defaults={
        "description": "", "floating_ip_address": None, "port_id": None,
        "fixed_ip_address": None, "qos_policy_id": None, "dns_name": "", "dns_domain": "",
        "tags": [],
    },
    required=("floating_network_id",),
)  # fmt: skip

KINDS = (
    NETWORK,
    SUBNET,
    PORT,
    SECURITY_GROUP,
    SECURITY_GROUP_RULE,
    RBAC_POLICY,
    QOS_POLICY,
    TRUNK,
    ROUTER,
    FLOATING_IP,
)
