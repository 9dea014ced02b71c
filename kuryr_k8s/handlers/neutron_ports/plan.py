"""Plan the port of a NeutronPort, and describe the port in the status; pure."""

import ipaddress
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.address_pairs import (
    PAIRS,
    AddressPair,
    pairs_field,
    pairs_meant,
    pairs_shown,
)
from kuryr_k8s.cloud.neutron.specific_ports import HOST
from kuryr_k8s.drivers.base import NAME_LIMIT, PodNetwork
from kuryr_k8s.drivers.base.port_settings import PortSettings, fields_of
from kuryr_k8s.drivers.named.asked import Asked, Words
from kuryr_k8s.drivers.named.ports import VNIC_TYPE
from kuryr_k8s.model.neutronport import NeutronPort

Json = dict[str, Any]
WORDS = Words(
    network="spec.network",
    subnets="spec.subnets",
    groups="spec.securityGroups",
    addresses="spec.fixedIPs",
    mac="spec.macAddress",
    pairs="spec.allowedAddressPairs",
    port_security="spec.portSecurity",
    qos="spec.qosPolicy",
)


def asked_by(port: NeutronPort) -> Asked:
    """Return what a NeutronPort asks for."""
    spec = port.spec
    return Asked(
        network=spec.network,
        subnets=spec.subnets,
        groups=spec.security_groups,
        addresses=spec.fixed_ips,
        mac=spec.mac,
        pairs=tuple(AddressPair(*pair) for pair in spec.pairs),
        port_security=spec.port_security,
        qos=spec.qos_policy,
    )


def as_before(settings: PortSettings, port: NeutronPort) -> PortSettings:
    """Return the settings of a port with the addresses and the MAC that a lost one had."""
    automatic = {subnet.id for subnet in settings.pod_network.all_subnets if subnet.is_automatic}
    had = tuple(address for subnet_id, address in port.addresses if subnet_id not in automatic)
    addresses = settings.addresses or had
    return replace(
        settings,
        pod_network=settings.pod_network.holding(addresses),
        addresses=addresses,
        mac=settings.mac or port.mac or None,
    )


def check_addresses(network: PodNetwork, addresses: tuple[str, ...]) -> None:
    """Check that addresses are in the subnets of a network.

    :raises errors.Refused: one is in none, or is a gateway.
    """
    cidrs = [subnet.cidr for subnet in network.subnets]
    for address in map(ipaddress.ip_address, addresses):
        if not any(address in ipaddress.ip_network(cidr) for cidr in cidrs):
            raise errors.Refused(
                f"{WORDS.addresses}: {address} is in none of the subnets ({', '.join(cidrs)})"
            )
        if str(address) in {subnet.gateway_ip for subnet in network.subnets}:
            raise errors.Refused(f"{WORDS.addresses}: {address} is the gateway of its subnet")


def body(
    port: NeutronPort,
    settings: PortSettings,
    *,
    project_id: str,
    marks: dict[str, str],
    description: str,
    tags: tuple[str, ...],
    host_id: str | None,
) -> Json:
    """Return the body of a new port.

    :param marks: the fields that name the NeutronPort.
    :param description: by which a port that was made is told from one that was claimed.
    :param host_id: of the node that it is to be bound to; None: to none yet.
    """
    return {
        **fields_of(settings),
        **marks,
        **({HOST: host_id} if host_id else {}),
        **({VNIC_TYPE: port.spec.vnic_type} if port.is_on_device else {}),
        "project_id": project_id,
        "name": f"{port.namespace}/{port.name}"[:NAME_LIMIT],
        "description": description,
        "admin_state_up": True,
        "tags": list(tags),
    }


def changes(live: Json, settings: PortSettings) -> Json:
    """Return the fields of a port that differ from the settings, as they should be."""
    wanted: Json = {"admin_state_up": True}
    has_security = settings.port_security
    if has_security is None:
        has_security = live.get("port_security_enabled", True)
    else:
        wanted["port_security_enabled"] = has_security
    wanted["security_groups"] = sorted(settings.security_groups) if has_security else []
    wanted["qos_policy_id"] = settings.qos_policy_id
    differing = {name: value for name, value in wanted.items() if _of(live, name) != value}
    if pairs_shown(live) != pairs_meant(live, settings.address_pairs):
        differing[PAIRS] = pairs_field(settings.address_pairs)
    return differing


def addresses_to_keep(settings: PortSettings, used: Collection[str]) -> tuple[str, ...]:
    """Return the addresses that a port is not to lose: those of a Pod, or those asked for.

    A Pod would have no network with others than its node has configured. Automatic ones follow
    from the MAC, and Neutron refuses to be asked for them.

    :param used: addresses that the Pod has which has the port.
    """
    cidrs = [
        ipaddress.ip_network(subnet.cidr)
        for subnet in settings.pod_network.all_subnets
        if not subnet.is_automatic
    ]
    kept = [each for each in used if any(ipaddress.ip_address(each) in it for it in cidrs)]
    versions = set(map(_version, kept))
    return (*kept, *(each for each in settings.addresses if _version(each) not in versions))


def fixed_ips(live: Json, addresses: Collection[str]) -> list[Json]:
    """Return the addresses of a port with those that it lacks, in place of others of their family.

    :returns: empty if it lacks none.
    """
    missing = set(addresses).difference(ip["ip_address"] for ip in live["fixed_ips"])
    if not missing:
        return []
    versions = set(map(_version, missing))
    kept = [
        ip
        for ip in live["fixed_ips"]
        if ip["ip_address"] in addresses or _version(ip["ip_address"]) not in versions
    ]
    return [*kept, *({"ip_address": each} for each in sorted(missing))]


def check_has_addresses(live: Json, addresses: Collection[str]) -> None:
    """Check that a port has the addresses that are asked for.

    :raises errors.Refused: it lacks some, since a Pod runs with others.
    """
    missing = set(addresses).difference(ip["ip_address"] for ip in live["fixed_ips"])
    if missing:
        raise errors.Refused(
            f"{WORDS.addresses}: a Pod runs with others than {', '.join(sorted(missing))}: delete "
            "the Pod, and the port gets these again"
        )


def has_changed(live: Json, port: NeutronPort) -> bool:
    """Return whether a port is not as the status says, or lacks what its specification says."""
    shown = (
        live["id"],
        tuple(sorted(live["security_groups"])),
        live.get("qos_policy_id") or "",
        live.get("port_security_enabled", True),
        live["mac_address"],
        frozenset(ip["ip_address"] for ip in live["fixed_ips"]),
    )
    known = (
        port.port_id,
        port.groups,
        port.qos_policy_id,
        port.port_security,
        port.mac,
        port.ips,
    )
    if shown != known:
        return True
    if port.spec.port_id is not None:
        return False
    asked = asked_by(port)
    if asked.port_security not in (None, live.get("port_security_enabled", True)):
        return True
    if not port.ips.issuperset(asked.addresses):
        return True
    return pairs_shown(live) != pairs_meant(live, asked.pairs) or not live["admin_state_up"]


def status_of(live: Json, network: PodNetwork) -> Json:
    """Return what the status says of a port."""
    subnets = {subnet.id: subnet for subnet in network.all_subnets}
    addresses = []
    for ip in sorted(live["fixed_ips"], key=lambda ip: (":" in ip["ip_address"], ip["subnet_id"])):
        subnet = subnets.get(ip["subnet_id"])
        addresses.append(
            {
                "ipAddress": ip["ip_address"],
                "subnetId": ip["subnet_id"],
                **({"cidr": subnet.cidr} if subnet else {}),
                **({"gateway": subnet.gateway_ip} if subnet and subnet.gateway_ip else {}),
            }
        )
    return {
        "portId": live["id"],
        "projectId": live["project_id"],
        "networkId": live["network_id"],
        "macAddress": live["mac_address"],
        "addresses": addresses,
        "securityGroupIds": sorted(live["security_groups"]),
        "qosPolicyId": live.get("qos_policy_id"),
        "portSecurityEnabled": live.get("port_security_enabled", True),
    }


def _version(address: str) -> int:
    return ipaddress.ip_address(address).version


def _of(live: Json, name: str) -> Any:
    if name == "security_groups":
        return sorted(live[name])
    return live.get(name, True if name == "port_security_enabled" else None)
