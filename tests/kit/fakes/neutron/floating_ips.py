"""Floating IPs: an address of an external network that leads to a port."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

from tests.kit.fakes.faults import Answer

from . import errors
from .kinds import FLOATING_IP
from .policy import Context, Policy
from .ports import Ports
from .routers import NETWORK, Routers
from .store import Store

Json = dict[str, Any]


class FloatingIPs:
    """What the plugin does with floating IPs; each method is complete before anybody else runs."""

    def __init__(self, store: Store, policy: Policy, ports: Ports, routers: Routers) -> None:
        self._store = store
        self._policy = policy
        self._ports = ports
        self._routers = routers

    def create(self, context: Context, body: Json) -> Json:
        """One with an address of the network, leading to the port if it names one."""
        body = FLOATING_IP.check_create(body)
        self._policy.check_create(context, "floatingip", body)
        self._check_quota(body["project_id"])
        network = self._network(context, body["floating_network_id"])
        port = self._add_port(network, body.pop("subnet_id", None), body["floating_ip_address"])
        body |= {
            "floating_ip_address": port["fixed_ips"][0]["ip_address"],
            "status": "DOWN",
            "router_id": None,
            "port_forwardings": [],
        }
        association = {name: body.pop(name) for name in ("port_id", "fixed_ip_address")}
        made = self._store.add("floatingip", body | {"port_id": None, "fixed_ip_address": None})
        self._store.change("port", port, {"device_id": made["id"]})
        try:
            made.update(self._associated(context, made, association))
        except Answer:
            self.delete(made)
            raise
        return made

    def update(self, context: Context, floating_ip: Json, changes: Json) -> None:
        """Change what was given. An association that is not mentioned stays."""
        FLOATING_IP.check_update(changes)
        self._policy.check_change(context, "floatingip", floating_ip, "update")
        if "port_id" in changes or "fixed_ip_address" in changes:
            changes |= self._associated(context, floating_ip, changes)
        self._store.change("floatingip", floating_ip, changes)

    def delete(self, floating_ip: Json) -> None:
        """Remove it; its address is free at once."""
        for port_id in tuple(self._store.ports_by_device.get(floating_ip["id"], ())):
            self._ports.delete(self._store.ports[port_id])
        self._store.remove("floatingip", floating_ip)

    def _check_quota(self, project_id: str) -> None:
        limit = self._store.quotas.get(project_id, {}).get("floatingip", -1)
        if 0 <= limit <= self._store.count("floatingip", project_id):
            raise errors.over_quota("floatingip")

    def _network(self, context: Context, network_id: str) -> Json:
        network = self._store.get("network", network_id)
        if not self._policy.sees(context, "network", network):
            raise errors.missing("network", network_id)
        if not network["router:external"]:
            raise _bad(f"Network {network_id} is not a valid external network")
        return network

    def _add_port(self, network: Json, subnet_id: str | None, address: str | None) -> Json:
        """The port on the external network, which holds the address."""
        wanted = {"subnet_id": subnet_id, "ip_address": address}
        wanted = {name: value for name, value in wanted.items() if value is not None}
        body = {
            "network_id": network["id"],
            "device_owner": "network:floatingip",
            "device_id": "PENDING",
            "project_id": "",
            "tenant_id": "",
        }
        if wanted:
            body["fixed_ips"] = [wanted]
        return self._ports.create(NETWORK, body)

    def _associated(self, context: Context, floating_ip: Json, wanted: Json) -> Json:
        """The fields of an association."""
        port_id, fixed = wanted.get("port_id"), wanted.get("fixed_ip_address")
        if port_id is None:
            if fixed is not None:
                raise _bad("fixed_ip_address cannot be specified without a port_id")
            return {"port_id": None, "fixed_ip_address": None, "router_id": None}
        port = self._store.get("port", port_id)
        if port["project_id"] != floating_ip["project_id"] and not context.is_admin:
            raise _bad(
                f"Cannot process floating IP association with Port {port_id}, since that port is"
                " owned by a different project"
            )
        address = _fixed_address(port, fixed)
        router = self._routers.leading(address["subnet_id"], floating_ip["floating_network_id"])
        if router is None:
            message = (
                f"External network {floating_ip['floating_network_id']} is not reachable from"
                f" subnet {address['subnet_id']}.  Therefore, cannot associate Port {port_id} with"
                " a Floating IP."
            )
            raise Answer(404, "ExternalGatewayForFloatingIPNotFound", message)
        self._check_single(floating_ip, port_id, address["ip_address"])
        return {
            "port_id": port_id,
            "fixed_ip_address": address["ip_address"],
            "router_id": router["id"],
        }

    def _check_single(self, floating_ip: Json, port_id: str, fixed: str) -> None:
        """A fixed address has one floating IP of a network."""
        if floating_ip["port_id"] == port_id:
            return
        network_id = floating_ip["floating_network_id"]
        for other in self._store.floatingips.values():
            where = (other["port_id"], other["fixed_ip_address"], other["floating_network_id"])
            if other is not floating_ip and where == (port_id, fixed, network_id):
                message = (
                    f"Cannot associate floating IP {floating_ip['floating_ip_address']}"
                    f" ({floating_ip['id']}) with port {port_id} using fixed IP {fixed}, as that"
                    f" fixed IP already has a floating IP on external network {network_id}."
                )
                raise Answer(409, "FloatingIPPortAlreadyAssociated", message)


def _fixed_address(port: Json, fixed: str | None) -> Json:
    addresses = [
        address for address in port["fixed_ips"] if ip_address(address["ip_address"]).version == 4
    ]
    if fixed is None:
        if len(addresses) == 1:
            return addresses[0]
        some = "multiple fixed IPv4 addresses" if addresses else "no fixed IPv4 addresses"
        raise _bad(f"Cannot add floating IP to port {port['id']} that has {some}")
    for address in addresses:
        if address["ip_address"] == fixed:
            return address
    raise _bad(f"Port {port['id']} does not have fixed ip {fixed}")


def _bad(message: str) -> Answer:
    return Answer(400, "BadRequest", f"Bad floatingip request: {message}.")
