"""All resources by kind and id, with indexes for what is asked often."""

from __future__ import annotations

import uuid
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

from . import errors
from .ipam import INTERFACE, Allocator, eui64_address, is_automatic

Json = dict[str, Any]


class Store:
    """Plain dictionaries by id; change ports only through the methods, for the indexes' sake."""

    def __init__(self) -> None:
        self.networks: dict[str, Json] = {}
        self.subnets: dict[str, Json] = {}
        self.ports: dict[str, Json] = {}
        self.security_groups: dict[str, Json] = {}
        self.security_group_rules: dict[str, Json] = {}
        self.rbac_policys: dict[str, Json] = {}
        self.policys: dict[str, Json] = {}
        self.trunks: dict[str, Json] = {}
        self.routers: dict[str, Json] = {}
        self.floatingips: dict[str, Json] = {}
        self.quotas: dict[str, dict[str, int]] = {}
        self.allocators: dict[str, Allocator] = {}
        self.hosts: set[str] = set()
        self.ports_by_device: defaultdict[str, set[str]] = defaultdict(set)
        self.ports_by_tag: defaultdict[str, set[str]] = defaultdict(set)
        self.ports_by_network: defaultdict[str, set[str]] = defaultdict(set)
        self._ports_of_project: defaultdict[str, int] = defaultdict(int)

    def of(self, kind: str) -> dict[str, Json]:
        """The resources of a kind, by its name in the singular."""
        resources: dict[str, Json] = getattr(self, f"{kind}s")
        return resources

    def get(self, kind: str, resource_id: str) -> Json:
        """The resource, or 404."""
        found = self.of(kind).get(resource_id)
        if found is None:
            raise errors.missing(kind, resource_id)
        return found

    def add(self, kind: str, body: Json) -> Json:
        """Give the resource an id, times and a revision, and keep it."""
        project = body.get("project_id", "")
        resource = body | {"id": str(uuid.uuid4()), "tenant_id": project, "project_id": project}
        if kind != "rbac_policy":
            now = _now()
            resource |= {"created_at": now, "updated_at": now, "revision_number": 1}
        self.of(kind)[resource["id"]] = resource
        if kind == "port":
            self._index(resource)
        return resource

    def change(self, kind: str, resource: Json, changes: Json) -> None:
        """Change the resource; its revision rises."""
        if kind == "port":
            self._unindex(resource)
        resource.update(changes)
        if "revision_number" in resource:
            resource["revision_number"] += 1
            resource["updated_at"] = _now()
        if kind == "port":
            self._index(resource)

    def remove(self, kind: str, resource: Json) -> None:
        """Forget the resource."""
        del self.of(kind)[resource["id"]]
        if kind == "port":
            self._unindex(resource)

    def count(self, kind: str, project_id: str) -> int:
        """How many resources of the kind the project has."""
        if kind == "port":
            return self._ports_of_project[project_id]
        return sum(resource["project_id"] == project_id for resource in self.of(kind).values())

    def is_shared(self, network: Json, project_id: str | None) -> bool:
        """Whether an RBAC policy gives the network to the project; None: to everybody."""
        targets = {"*"} if project_id is None else {"*", project_id}
        return any(
            policy["object_id"] == network["id"]
            and policy["action"] == "access_as_shared"
            and policy["target_tenant"] in targets
            for policy in self.rbac_policys.values()
        )

    def trunk_on(self, port_id: str) -> Json | None:
        """The trunk whose parent the port is."""
        return next((trunk for trunk in self.trunks.values() if trunk["port_id"] == port_id), None)

    def trunk_carrying(self, port_id: str) -> Json | None:
        """The trunk whose subport the port is."""
        if self.ports.get(port_id, {}).get("device_owner") != "trunk:subport":
            return None
        for trunk in self.trunks.values():
            if any(subport["port_id"] == port_id for subport in trunk["sub_ports"]):
                return trunk
        return None

    def default_group(self, project_id: str) -> Json:
        """The project's group named default, which is there as soon as it is needed."""
        for group in self.security_groups.values():
            if group["project_id"] == project_id and group["name"] == "default":
                return group
        group = {"name": "default", "description": "Default security group", "stateful": True}
        return self.add_group(group | {"tags": [], "project_id": project_id})

    def add_group(self, body: Json) -> Json:
        """A security group with the rules that let everything out."""
        default = body["name"] == "default"
        group = self.add("security_group", body | {"shared": False, "is_default": default})
        for ethertype in ("IPv4", "IPv6"):
            self.add("security_group_rule", _egress(group, ethertype))
        return group

    def attach_subnet(self, network: Json, subnet: Json) -> None:
        """Let ports have addresses of the subnet; all ports there are, if it is automatic."""
        self.allocators[subnet["id"]] = Allocator(subnet["allocation_pools"])
        network["subnets"].append(subnet["id"])
        for port_id in self.ports_by_network[network["id"]] if is_automatic(subnet) else ():
            port = self.ports[port_id]
            if port["device_owner"] != INTERFACE:
                address = eui64_address(subnet["cidr"], port["mac_address"])
                port["fixed_ips"].append({"subnet_id": subnet["id"], "ip_address": address})

    def _index(self, port: Json) -> None:
        self.ports_by_network[port["network_id"]].add(port["id"])
        self._ports_of_project[port["project_id"]] += 1
        self.ports_by_device[port["device_id"]].add(port["id"])
        for tag in port["tags"]:
            self.ports_by_tag[tag].add(port["id"])

    def _unindex(self, port: Json) -> None:
        self.ports_by_network[port["network_id"]].discard(port["id"])
        self._ports_of_project[port["project_id"]] -= 1
        self.ports_by_device[port["device_id"]].discard(port["id"])
        if not self.ports_by_device[port["device_id"]]:
            del self.ports_by_device[port["device_id"]]
        for tag in port["tags"]:
            self.ports_by_tag[tag].discard(port["id"])


def _egress(group: Json, ethertype: str) -> Json:
    nothing = ("remote_group_id", "protocol", "port_range_min", "port_range_max")
    return dict.fromkeys((*nothing, "remote_ip_prefix", "remote_address_group_id")) | {
        "security_group_id": group["id"],
        "project_id": group["project_id"],
        "direction": "egress",
        "ethertype": ethertype,
        "description": "",
        "normalized_cidr": None,
        "belongs_to_default_sg": group["is_default"],
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
