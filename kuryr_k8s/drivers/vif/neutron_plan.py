"""Pure translation between requests, Neutron ports and VIFs."""

import ipaddress
from typing import Any

from kuryr_k8s.cloud.neutron import api as neutron
from kuryr_k8s.cloud.neutron.address_pairs import pairs_meant, pairs_shown
from kuryr_k8s.cloud.neutron.automatic_addresses import asked_subnet_ids_of
from kuryr_k8s.drivers.base import (
    AVAILABLE,
    DEVICE_OWNER,
    LEAVING,
    NAME_LIMIT,
    POOL_TAG,
    BindingFailed,
    NodeNotReady,
    PodNetwork,
    PooledPort,
    PoolKey,
    PortRequest,
)
from kuryr_k8s.drivers.base.port_settings import fields_of
from kuryr_k8s.model import vif as model
from kuryr_k8s.model.pod import Node

Json = dict[str, Any]
# what a new port can have of its own
CHOSEN = ("addresses", "mac", "port_security", "address_pairs", "qos_policy_id")
IFNAME_LIMIT = 14  # the ancestor's, and one less than the kernel's


def interface_tag(ifname: str) -> str:
    """Return the tag that tells apart the ports of one Pod."""
    return f"kuryr-ifname:{ifname}"


def host_id_of(node: Node) -> str:
    """Return Neutron's name for the host of a node.

    :raises NodeNotReady: the node's daemon has not published it yet.
    """
    if not node.host_id:
        raise NodeNotReady(f"node {node.name} has no kuryr-k8s-daemon that has started yet")
    return node.host_id


def is_made_here(port: Json) -> bool:
    """Return whether the driver of bound ports made the port.

    A port that is not bound (any more) counts, too, unless it is marked as a subport.
    """
    is_subport = POOL_TAG in port["tags"] or bool(port.get("description"))
    return port["device_owner"] == DEVICE_OWNER and bool(
        port.get("binding:host_id") or not is_subport
    )


def pod_uid_of(port: Json) -> str | None:
    """Return the uid of the Pod for which a bound port was made; None for a pool's port."""
    return None if POOL_TAG in port["tags"] else str(port["device_id"])


def port_body(request: PortRequest, host_id: str, tags: tuple[str, ...]) -> Json:
    """Make the body of a port that is bound, tagged and named from its creation."""
    return {
        "project_id": request.project_id,
        "device_id": request.pod_uid,
        "device_owner": DEVICE_OWNER,
        "binding:host_id": host_id,
        "name": request.pod_name[:NAME_LIMIT],
        "admin_state_up": True,
        "tags": [*tags, interface_tag(request.ifname)],
        **fields_of(request),
    }


def has_what_is_asked(port: Json, request: PortRequest) -> bool:
    """Return whether a port of an earlier attempt can become what is asked for.

    That is: it has the addresses, the MAC, the address pairs and the QoS policy that somebody asks
    for, and no lack of port security that nobody asks for.
    """
    has, asked = pairs_shown(port), pairs_meant(port, request.address_pairs)
    if has != asked or request.qos_policy_id not in (None, port.get("qos_policy_id")):
        return False
    if request.port_security is None and port.get("port_security_enabled") is False:
        return False
    return has_addresses(port, request)


def has_addresses(port: Json, request: PortRequest) -> bool:
    """Return whether a port has addresses that a request asks for, and its MAC."""
    has = {ip["ip_address"] for ip in port["fixed_ips"]}
    fits = any(set(choice) <= has for choice in request.choices_of_addresses)
    return fits and request.mac in (None, port["mac_address"])


def pool_device(cluster_uid: str) -> str:
    """Return the ``device_id`` by which available ports are found before they have tags."""
    return f"{POOL_TAG}:{cluster_uid}"


def pooled_body(key: PoolKey, tags: tuple[str, ...], device: str) -> Json:
    """Make the body of a pool's port that is bound and tagged from its creation.

    :param device: see :func:`pool_device`.
    """
    return {
        "network_id": key.network_id,
        "project_id": key.project_id,
        "fixed_ips": [{"subnet_id": subnet_id} for subnet_id in key.subnet_ids],
        "device_id": device,
        "device_owner": DEVICE_OWNER,
        "binding:host_id": key.place,
        "security_groups": list(key.security_groups),
        "name": AVAILABLE,
        "admin_state_up": True,
        "tags": [*tags, POOL_TAG],
    }


def pooled_port_of(port: Json, conf_bridge: str | None) -> PooledPort:
    """Describe a pool's port for its pool, bound or not."""
    fixed_ips = tuple(sorted((ip["subnet_id"], ip["ip_address"]) for ip in port["fixed_ips"]))
    return PooledPort(
        id=port["id"],
        key=PoolKey(
            project_id=port["project_id"],
            place=port.get("binding:host_id") or "",
            network_id=port["network_id"],
            subnet_ids=asked_subnet_ids_of(port),
            security_groups=tuple(sorted(port["security_groups"])),
        ),
        mac=port["mac_address"],
        fixed_ips=fixed_ips,
        bridge=_bridge_of(port, conf_bridge),
        name=port["name"],
        device_id=port["device_id"],
        fit=port.get("binding:vif_type") == "ovs" and is_untouched(port),
    )


def is_untouched(port: Json) -> bool:
    """Return whether a pool's port has only the properties that pools give to their ports."""
    return (
        port["name"] != LEAVING
        and port["admin_state_up"]
        and port.get("port_security_enabled", True)
        and not port.get("allowed_address_pairs")
        and not port.get("qos_policy_id")
    )


def vif_of(
    port: Json, pod_network: PodNetwork, conf_bridge: str | None, mtu: int
) -> model.VIFBase:
    """Describe the VIF that the node plugs for a port.

    :param mtu: an upper limit; 0 for none.
    :raises BindingFailed: the port is not bound.
    """
    kind = port.get("binding:vif_type")
    if kind != "ovs":
        host = port.get("binding:host_id")
        raise BindingFailed(
            f"Neutron could not bind a port on host {host!r} (vif_type {kind}): is an agent of "
            "that host name alive (openstack network agent list)?"
        )
    return vif_of_pooled(pooled_port_of(port, conf_bridge), pod_network, mtu)


def vif_of_pooled(pooled: PooledPort, pod_network: PodNetwork, mtu: int) -> model.VIFBase:
    """Describe the VIF that the node plugs for a bound port of a pool."""
    return model.VIFOpenVSwitch(
        id=pooled.id,
        address=pooled.mac,
        plugin="ovs",
        has_traffic_filtering=True,
        vif_name=f"tap{pooled.id}"[:IFNAME_LIMIT],
        bridge_name=pooled.bridge,
        port_profile=model.VIFPortProfileOpenVSwitch(interface_id=pooled.id),
        network=network_of(pooled, pod_network, mtu),
    )


def network_of(pooled: PooledPort, pod_network: PodNetwork, mtu: int) -> model.Network:
    """Describe the network of a VIF, with the port's addresses.

    :param mtu: an upper limit; 0 for none.
    """
    network = pod_network.network
    present = {subnet_id for subnet_id, _ in pooled.fixed_ips}
    return model.Network(
        id=network.id,
        label=network.name,
        bridge=pooled.bridge or None,
        mtu=min(network.mtu, mtu) if mtu else network.mtu,
        subnets=tuple(
            _subnet(subnet, pooled) for subnet in pod_network.all_subnets if subnet.id in present
        ),
    )


def _bridge_of(port: Json, conf_bridge: str | None) -> str:
    return conf_bridge or port.get("binding:vif_details", {}).get("bridge_name") or "br-int"


def _subnet(subnet: neutron.Subnet, pooled: PooledPort) -> model.Subnet:
    addresses = [address for subnet_id, address in pooled.fixed_ips if subnet_id == subnet.id]
    return model.Subnet(
        cidr=str(ipaddress.ip_network(subnet.cidr)),
        gateway=subnet.gateway_ip,
        dns=subnet.dns_nameservers,
        ips=tuple(model.FixedIP(address=address) for address in addresses),
        routes=tuple(model.Route(cidr=to, gateway=via) for to, via in subnet.host_routes),
    )
