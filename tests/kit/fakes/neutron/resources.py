"""What the plugin does with everything but ports: networks, subnets, groups, rules, RBAC."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

from tests.kit.fakes.faults import Answer

from . import errors, ipam
from .kinds import (
    NETWORK,
    QOS_POLICY,
    RBAC_POLICY,
    SECURITY_GROUP,
    SECURITY_GROUP_RULE,
    SUBNET,
    Kind,
)
from .policy import Context, Policy
from .store import Store

Json = dict[str, Any]


class Resources:
    """Create, update, delete; the methods are synchronous, so each is atomic."""

    def __init__(self, store: Store, policy: Policy) -> None:
        self._store = store
        self._policy = policy

    def create(self, context: Context, kind: Kind, body: Json) -> Json:
        """A resource of the kind."""
        body = kind.check_create(body)
        self._policy.check_create(context, kind.name, body)
        make = {
            NETWORK.name: self._network,
            SUBNET.name: self._subnet,
            SECURITY_GROUP.name: self._store.add_group,
            SECURITY_GROUP_RULE.name: self._rule,
            RBAC_POLICY.name: self._rbac,
            QOS_POLICY.name: self._qos_policy,
        }
        return make[kind.name](body)

    def update(self, context: Context, kind: Kind, resource: Json, changes: Json) -> None:
        """Change what was given."""
        kind.check_update(changes)
        self._policy.check_change(context, kind.name, resource, "update")
        if kind is NETWORK and "shared" in changes:
            self._share(resource, shared=changes.pop("shared"))
        self._store.change(kind.name, resource, changes)

    def delete(self, kind: Kind, resource: Json) -> None:
        """Remove the resource, unless it is in use."""
        if kind is NETWORK:
            self._delete_network(resource)
        elif kind is SUBNET:
            self._delete_subnet(resource)
        elif kind is SECURITY_GROUP:
            self._delete_group(resource)
        self._store.remove(kind.name, resource)

    def _network(self, body: Json) -> Json:
        shared = body.pop("shared", False)
        network = self._store.add("network", body)
        self._share(network, shared=shared)
        return network

    def _qos_policy(self, body: Json) -> Json:
        shared = body.pop("shared", False)
        policy = self._store.add("policy", body | {"shared": shared})
        if shared:
            rule = {"object_type": "qos_policy", "object_id": policy["id"], "target_tenant": "*"}
            self._rbac(rule | {"action": "access_as_shared", "project_id": policy["project_id"]})
        return policy

    def _share(self, network: Json, *, shared: bool) -> None:
        if self._store.is_shared(network, None) == shared:
            return
        if shared:
            rule = {"object_type": "network", "object_id": network["id"], "target_tenant": "*"}
            self._rbac(rule | {"action": "access_as_shared", "project_id": network["project_id"]})
            return
        for policy in list(self._store.rbac_policys.values()):
            if policy["object_id"] == network["id"] and policy["target_tenant"] == "*":
                self._store.remove("rbac_policy", policy)

    def _subnet(self, body: Json) -> Json:
        network = self._store.get("network", body["network_id"])
        cidr = ipam.parse_cidr(body.get("cidr"))
        for subnet_id in network["subnets"]:
            self._check_overlap(self._store.subnets[subnet_id], cidr)
        gateway = body.get("gateway_ip", ipam.default_gateway(cidr))
        pools = body.get("allocation_pools") or ipam.default_pools(cidr, gateway)
        if (body["ipv6_ra_mode"] or body["ipv6_address_mode"]) and not body["enable_dhcp"]:
            raise errors.invalid_input(
                "ipv6_ra_mode or ipv6_address_mode cannot be set when enable_dhcp is set to False"
            )
        body |= {"cidr": cidr, "gateway_ip": gateway, "allocation_pools": pools}
        body.pop("prefixlen", None)
        subnet = self._store.add("subnet", body | {"router:external": network["router:external"]})
        self._store.attach_subnet(network, subnet)
        return subnet

    def _check_overlap(self, other: Json, cidr: str) -> None:
        one, two = ip_network(other["cidr"]), ip_network(cidr)
        if one.version == two.version and one.overlaps(two):
            raise errors.invalid_input(
                f"Requested subnet with cidr: {cidr} for network: {other['network_id']}"
                " overlaps with another subnet"
            )

    def _rule(self, body: Json) -> Json:
        group = self._store.get("security_group", body["security_group_id"])
        same = ("direction", "ethertype", "protocol", "port_range_min", "port_range_max")
        for rule in self._store.security_group_rules.values():
            if all(
                rule[name] == body[name]
                for name in (*same, "security_group_id", "remote_group_id", "remote_ip_prefix")
            ):
                message = f"Security group rule already exists. Rule id is {rule['id']}."
                raise Answer(409, "SecurityGroupRuleExists", message)
        extra = {"normalized_cidr": body["remote_ip_prefix"]}
        return self._store.add(
            "security_group_rule", body | extra | {"belongs_to_default_sg": group["is_default"]}
        )

    def _rbac(self, body: Json) -> Json:
        if body["object_type"] == "network":
            self._store.get("network", body["object_id"])
        return self._store.add("rbac_policy", body)

    def _delete_network(self, network: Json) -> None:
        if self._store.ports_by_network[network["id"]]:
            message = (
                f"Unable to complete operation on network {network['id']}. There are one or more"
                " ports still in use on the network."
            )
            raise Answer(409, "NetworkInUse", message)
        for subnet_id in list(network["subnets"]):
            self.delete(SUBNET, self._store.subnets[subnet_id])
        for policy in list(self._store.rbac_policys.values()):
            if policy["object_id"] == network["id"]:
                self._store.remove("rbac_policy", policy)

    def _delete_subnet(self, subnet: Json) -> None:
        for port_id in self._store.ports_by_network[subnet["network_id"]]:
            addresses = self._store.ports[port_id]["fixed_ips"]
            if any(address["subnet_id"] == subnet["id"] for address in addresses):
                message = (
                    f"Unable to complete operation on subnet {subnet['id']}: One or more ports"
                    " have an IP allocation from this subnet."
                )
                raise Answer(409, "SubnetInUse", message)
        self._store.networks[subnet["network_id"]]["subnets"].remove(subnet["id"])
        del self._store.allocators[subnet["id"]]

    def _delete_group(self, group: Json) -> None:
        if any(group["id"] in port["security_groups"] for port in self._store.ports.values()):
            message = f"Security Group {group['id']} in use."
            raise Answer(409, "SecurityGroupInUse", message)
        for rule in list(self._store.security_group_rules.values()):
            if rule["security_group_id"] == group["id"]:
                self._store.remove("security_group_rule", rule)
