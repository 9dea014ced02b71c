"""The life of a port: addresses, groups, binding."""

from __future__ import annotations

import random
from typing import Any

from tests.kit.fakes.faults import Answer

from . import errors, ipam
from .kinds import PORT
from .policy import Context, Policy
from .store import Store

Json = dict[str, Any]

VIF_DETAILS = {
    "port_filter": True,
    "connectivity": "l2",
    "ovs_create_tap": True,
    "bridge_name": "br-int",
    "datapath_type": "netdev",
    "bound_drivers": {"0": "ovn"},
}


class Ports:
    """What the plugin does with ports; every method is complete before anybody else runs."""

    def __init__(self, store: Store, policy: Policy) -> None:
        self._store = store
        self._policy = policy

    def create(self, context: Context, body: Json) -> Json:
        """A port with addresses, bound if it names a host."""
        body = PORT.check_create(body)
        self._policy.check_create(context, "port", body)
        self._check_quota(body["project_id"])
        network = self._store.get("network", body["network_id"])
        groups = self._groups(context, body)
        if body.get("qos_policy_id"):  # whosever it is: Neutron asks no policy of its own
            self._store.get("policy", body["qos_policy_id"])
        mac = body.get("mac_address") or self._new_mac()
        addresses = self._allocate(network, body.get("fixed_ips"))
        port = body | {
            "mac_address": mac,
            "fixed_ips": addresses + self._automatic(network, mac),
            "security_groups": groups,
            "status": "DOWN",
            **_pairs(body, mac),
        }
        return self._store.add("port", port | self._binding(port))

    def update(self, port: Json, context: Context, changes: Json) -> None:
        """Change what was given; giving a host binds, taking it away unbinds."""
        PORT.check_update(changes)
        self._policy.check_change(context, "port", port, "update")
        self._policy.check_binding(context, changes, "update")
        if "security_groups" in changes:
            changes["security_groups"] = self._groups(context, changes | _project(port))
        if "fixed_ips" in changes:
            changes["fixed_ips"] = self._move(port, changes["fixed_ips"])
        changes |= _pairs(changes, port["mac_address"])
        if any(name.startswith("binding:") for name in changes):
            changes |= self._binding(port | changes)
        bound = (None, "ovs", "hw_veb", port["binding:vif_type"])
        if changes.get("binding:vif_type") not in bound:
            changes["status"] = "DOWN"
        self._store.change("port", port, changes)

    def unbind(self, port: Json) -> None:
        """Be without the binding that the port's host should have given."""
        changes = {"binding:vif_type": "unbound", "binding:vif_details": {}}
        self._store.change("port", port, changes)

    def delete(self, port: Json) -> None:
        """Remove the port, unless it is part of a trunk; its addresses are free at once."""
        self._check_no_trunk(port["id"])
        self._free(port["fixed_ips"])
        self._store.remove("port", port)
        for floating_ip in self._store.floatingips.values():
            if floating_ip["port_id"] == port["id"]:
                nowhere = {"port_id": None, "fixed_ip_address": None, "router_id": None}
                self._store.change("floatingip", floating_ip, nowhere)

    def _check_no_trunk(self, port_id: str) -> None:
        if trunk := self._store.trunk_carrying(port_id):
            message = f"Port {port_id} is currently a subport for trunk {trunk['id']}."
            raise Answer(409, "PortInUseAsSubPort", message)
        if trunk := self._store.trunk_on(port_id):
            message = f"Port {port_id} is currently a parent port for trunk {trunk['id']}."
            raise Answer(409, "PortInUseAsTrunkParent", message)

    def _check_quota(self, project_id: str) -> None:
        limit = self._store.quotas.get(project_id, {}).get("port", -1)
        if 0 <= limit <= self._store.count("port", project_id):
            raise errors.over_quota("port")

    def _groups(self, context: Context, body: Json) -> list[str]:
        asked = body.get("security_groups")
        if asked is None:
            trusted = body.get("device_owner", "").startswith("network:")
            enabled = body.get("port_security_enabled", True) and not trusted
            return [self._store.default_group(body["project_id"])["id"]] if enabled else []
        for group_id in asked:
            group = self._store.security_groups.get(group_id)
            if group is None or not (context.is_admin or self._has(body["project_id"], group)):
                raise errors.missing("security_group", group_id)
        return sorted(set(asked))

    def _has(self, project_id: str, group: Json) -> bool:
        """Whether the group is the project's own, or shared with it."""
        return group["project_id"] == project_id or any(
            policy["object_id"] == group["id"] and policy["target_tenant"] in (project_id, "*")
            for policy in self._store.rbac_policys.values()
        )

    def _binding(self, port: Json) -> Json:
        if not port["binding:host_id"]:
            return {"binding:vif_type": "unbound", "binding:vif_details": {}}
        if port["binding:host_id"] not in self._store.hosts:
            return {"binding:vif_type": "binding_failed", "binding:vif_details": {}}
        if port["binding:vnic_type"] in ("direct", "macvtap"):
            return self._binding_to_card(self._store.networks[port["network_id"]])
        return {"binding:vif_type": "ovs", "binding:vif_details": dict(VIF_DETAILS)}

    def _binding_to_card(self, network: Json) -> Json:
        """Each host has a card on each physical network, and a NIC Switch agent."""
        if not network["provider:physical_network"]:
            return {"binding:vif_type": "binding_failed", "binding:vif_details": {}}
        vlan = str(network["provider:segmentation_id"] or 0)
        details = {"port_filter": False, "connectivity": "l2", "vlan": vlan}
        return {"binding:vif_type": "hw_veb", "binding:vif_details": details}

    def _new_mac(self) -> str:
        return ":".join(["fa", "16", "3e", *(f"{random.randrange(256):02x}" for _ in range(3))])

    def _allocate(self, network: Json, asked: list[Json] | None) -> list[Json]:
        """One address of each family, or those asked for; all or none."""
        subnets = [self._store.subnets[subnet_id] for subnet_id in network["subnets"]]
        done: list[Json] = []
        try:
            if asked is None:
                chosen = [subnet for subnet in subnets if not ipam.is_automatic(subnet)]
                for version in (4, 6):
                    of_version = [subnet for subnet in chosen if subnet["ip_version"] == version]
                    if of_version:
                        done.append(self._any_of(network, of_version))
            for item in sorted(asked or (), key=lambda item: "ip_address" not in item):
                subnet = self._subnet_for(network, subnets, item)
                if not _is_implied(subnet, item):
                    done.append(self._one(network, subnet, item))
        except BaseException:
            self._free(done)
            raise
        return done

    def _any_of(self, network: Json, subnets: list[Json]) -> Json:
        for subnet in subnets:
            try:
                address = self._store.allocators[subnet["id"]].take_any()
            except ipam.Exhausted:
                continue
            return {"subnet_id": subnet["id"], "ip_address": address}
        message = f"No more IP addresses available on network {network['id']}."
        raise Answer(409, "IpAddressGenerationFailure", message)

    def _automatic(self, network: Json, mac: str) -> list[Json]:
        """Addresses of the subnets from which every port of the network has one, asked or not."""
        subnets = [self._store.subnets[subnet_id] for subnet_id in network["subnets"]]
        return [
            {"subnet_id": subnet["id"], "ip_address": ipam.eui64_address(subnet["cidr"], mac)}
            for subnet in subnets
            if ipam.is_automatic(subnet)
        ]

    def _one(self, network: Json, subnet: Json, item: Json) -> Json:
        address = item.get("ip_address")
        if address is None:
            return self._any_of(network, [subnet])
        try:
            taken = self._store.allocators[subnet["id"]].take(address)
        except ipam.Taken:
            message = f"IP address {address} already allocated in subnet {subnet['id']}"
            raise Answer(409, "IpAddressAlreadyAllocated", message) from None
        return {"subnet_id": subnet["id"], "ip_address": taken}

    def _subnet_for(self, network: Json, subnets: list[Json], item: Json) -> Json:
        if not subnets:
            raise errors.invalid_input("IP allocation requires subnets for network")
        address, subnet_id = item.get("ip_address"), item.get("subnet_id")
        if subnet_id is not None:
            subnet = self._store.get("subnet", subnet_id)
            if subnet not in subnets:
                raise errors.invalid_input(
                    f"Failed to create port on network {network['id']}, because fixed_ips"
                    f" included invalid subnet {subnet_id}"
                )
            if address is not None and not ipam.check_inside(subnet["cidr"], address):
                message = f"IP address {address} is not a valid IP for the specified subnet."
                raise Answer(400, "InvalidIpForSubnet", message)
            return subnet
        if address is None:
            raise errors.invalid_input("IP allocation requires subnet_id or ip_address")
        for subnet in subnets:
            if ipam.check_inside(subnet["cidr"], address):
                return subnet
        message = (
            f"IP address {address} is not a valid IP for any of the subnets on the specified"
            " network."
        )
        raise Answer(400, "InvalidIpForNetwork", message)

    def _move(self, port: Json, asked: list[Json]) -> list[Json]:
        """Other addresses for the port; one that is asked for again stays."""
        kept = [
            fixed_ip
            for fixed_ip in port["fixed_ips"]
            if fixed_ip in asked or _same_subnet(fixed_ip, asked)
        ]
        new = [item for item in asked if item not in kept and not _same_subnet(item, kept)]
        network = self._store.networks[port["network_id"]]
        added = self._allocate(network, new)
        self._free([fixed_ip for fixed_ip in port["fixed_ips"] if fixed_ip not in kept])
        return kept + added

    def _free(self, addresses: list[Json]) -> None:
        for address in addresses:
            allocator = self._store.allocators.get(address["subnet_id"])
            if allocator is not None:
                allocator.free(address["ip_address"])


def _is_implied(subnet: Json, item: Json) -> bool:
    """Whether every port has such an address, so that asking for it changes nothing."""
    if ipam.is_automatic(subnet) and "ip_address" in item:
        raise errors.not_automatic(item["ip_address"], subnet["id"])
    return ipam.is_automatic(subnet)


def _same_subnet(one: Json, others: list[Json]) -> bool:
    """Whether one of the others asks for any address of the same subnet, or the other way."""
    return any(
        one.get("subnet_id") == other.get("subnet_id")
        and "ip_address" not in (one.keys() & other.keys())
        for other in others
    )


def _pairs(body: Json, mac: str) -> Json:
    """Return the allowed address pairs of a body: without a MAC, they get that of the port."""
    if "allowed_address_pairs" not in body:
        return {}
    pairs = [{"mac_address": mac, **pair} for pair in body["allowed_address_pairs"]]
    return {"allowed_address_pairs": pairs}


def _project(port: Json) -> Json:
    return {"project_id": port["project_id"], "device_owner": port["device_owner"]}
