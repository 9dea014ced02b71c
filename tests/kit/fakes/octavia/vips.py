"""The address of a load balancer, and the port that has it."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

from tests.kit.fakes.faults import Answer
from tests.kit.fakes.neutron.api import NeutronAPI
from tests.kit.fakes.neutron.policy import Context
from tests.kit.fakes.neutron.store import Store as Neutron

from . import errors

Json = dict[str, Any]
# What Octavia is in Neutron.
_SERVICE = Context("service", frozenset({"admin", "service"}))


def choose(neutron: Neutron, body: Json) -> None:
    """Complete the body of a load balancer: of port, network and subnet one is enough."""
    if body.get("vip_port_id"):
        _choose_by_port(neutron, body)
    elif body.get("vip_network_id"):
        _choose_by_network(neutron, body)
    elif body.get("vip_subnet_id"):
        subnet = _find(neutron.subnets, "Subnet", body["vip_subnet_id"])
        body["vip_network_id"] = subnet["network_id"]
    else:
        text = "VIP must contain one of: vip_port_id, vip_network_id, vip_subnet_id."
        raise errors.invalid(text)
    _check_additional(neutron, body)


def plug(neutron: NeutronAPI, load_balancer: Json) -> None:
    """Make the VIP's port, as each of the providers does, where it is not there already."""
    if load_balancer.get("vip_port_id"):
        return
    identifier, provider = load_balancer["id"], load_balancer["provider"]
    fixed_ip = {"subnet_id": load_balancer["vip_subnet_id"]}
    if load_balancer.get("vip_address"):
        fixed_ip["ip_address"] = load_balancer["vip_address"]
    by_ovn = provider == "ovn"
    others = [] if by_ovn else load_balancer["additional_vips"]
    body = {
        "name": f"ovn-lb-vip-{identifier}" if by_ovn else f"octavia-lb-{identifier}",
        "device_owner": "ovn-lb:vip" if by_ovn else "Octavia",
        "device_id": f"lb-{identifier}",
        "admin_state_up": by_ovn,
        "network_id": load_balancer["vip_network_id"],
        "fixed_ips": [fixed_ip, *({"subnet_id": vip["subnet_id"]} for vip in others)],
        "project_id": load_balancer["project_id"],
    }
    try:
        port = neutron.add_port(_SERVICE, body)
    except Answer as refusal:
        if refusal.status == 409:
            text = f"The VIP IP address is already in use: {refusal.message}"
            raise Answer(409, message=text) from None
        raise errors.broken(provider, refusal.message) from None
    load_balancer["vip_port_id"] = port["id"]
    load_balancer["vip_address"] = port["fixed_ips"][0]["ip_address"]
    if by_ovn:
        _plug_additional(neutron, load_balancer, body)
        return
    for vip, fixed_ip in zip(load_balancer["additional_vips"], port["fixed_ips"][1:], strict=True):
        vip |= {"ip_address": fixed_ip["ip_address"], "port_id": port["id"]}


def _plug_additional(neutron: NeutronAPI, load_balancer: Json, first: Json) -> None:
    """With ovn each has a port."""
    for number, vip in enumerate(load_balancer["additional_vips"], start=1):
        name = f"ovn-lb-vip-additional-{number}-{load_balancer['id']}"
        own = {"name": name, "fixed_ips": [{"subnet_id": vip["subnet_id"]}]}
        port = neutron.add_port(_SERVICE, first | own)
        vip |= {"ip_address": port["fixed_ips"][0]["ip_address"], "port_id": port["id"]}


def unplug(neutron: NeutronAPI, load_balancer: Json) -> None:
    """Delete the VIPs' ports, if they were made for the load balancer."""
    others = (vip["port_id"] for vip in load_balancer["additional_vips"])
    for port_id in {load_balancer["vip_port_id"], *others}:
        port = neutron.store.ports.get(port_id)
        if port is not None and port["device_id"] == f"lb-{load_balancer['id']}":
            neutron.remove_port(port["id"])


def _check_additional(neutron: Neutron, body: Json) -> None:
    """400 where a subnet is named twice, or is of another network."""
    subnets = [body["vip_subnet_id"], *(vip["subnet_id"] for vip in body["additional_vips"])]
    if len(set(subnets)) < len(subnets):
        text = "Duplicate VIP subnet(s) specified. Only one IP can be bound per subnet."
        raise errors.invalid(text)
    networks = set()
    for subnet_id in subnets:
        if subnet_id not in neutron.subnets:
            raise errors.invalid(f"Subnet {subnet_id} not found")
        networks.add(neutron.subnets[subnet_id]["network_id"])
    if len(networks) > 1:
        raise errors.invalid("All VIP subnets must belong to the same network.")


def _choose_by_port(neutron: Neutron, body: Json) -> None:
    port = _find(neutron.ports, "Port", body["vip_port_id"])
    if port["device_id"]:
        text = f"Port {port['id']} is already used by device {port['device_id']} "
        raise errors.invalid(text)
    body["vip_network_id"] = port["network_id"]
    own = port["fixed_ips"]
    for name, wanted in (("subnet_id", body.get("vip_subnet_id")),
                         ("ip_address", body.get("vip_address"))):  # fmt: skip
        if wanted is not None:
            own = [fixed_ip for fixed_ip in own if fixed_ip[name] == wanted]
            if not own:
                text = (
                    "No VIP address found on the specified VIP port within the specified subnet."
                    if name == "subnet_id"
                    else "Specified VIP address not found on the specified VIP port."
                )
                raise errors.invalid(text)
            break
    else:
        if len(own) > 1:
            text = "VIP port's subnet could not be determined. Please specify either a VIP"
            raise errors.invalid(f"{text} subnet or address.")
    body["vip_subnet_id"], body["vip_address"] = own[0]["subnet_id"], own[0]["ip_address"]


def _choose_by_network(neutron: Neutron, body: Json) -> None:
    """Without an address: in a subnet of IPv4, if there is one."""
    network = _find(neutron.networks, "Network", body["vip_network_id"])
    subnets = [neutron.subnets[subnet_id] for subnet_id in network["subnets"]]
    address = body.get("vip_address")
    if body.get("vip_subnet_id"):
        return
    if address is not None:
        near = (subnet for subnet in subnets if ip_address(address) in ip_network(subnet["cidr"]))
        text = "Supplied network does not contain a subnet for VIP address specified."
    else:
        near = iter(sorted(subnets, key=lambda subnet: int(subnet["ip_version"])))
        text = "Supplied network does not contain a subnet."
    found = next(near, None)
    if found is None:
        raise errors.invalid(text)
    body["vip_subnet_id"] = found["id"]


def _find(resources: dict[str, Json], kind: str, resource_id: str) -> Json:
    if resource_id not in resources:
        raise Answer(400, message=f"{kind} {resource_id} not found.")
    return resources[resource_id]
