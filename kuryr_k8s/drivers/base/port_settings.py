"""Settings of ports in Neutron; pure."""

import ipaddress
from dataclasses import dataclass
from typing import Any

from kuryr_k8s.cloud.neutron.address_pairs import PAIRS, AddressPair, pairs_field
from kuryr_k8s.drivers.base.pod_network import PodNetwork

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PortSettings:
    """Hold the properties of a port that its users choose.

    :param addresses: fixed addresses, at most one for each subnet; empty: any.
    :param mac: its MAC address; None: any.
    :param port_security: None: as the network has it.
    :param address_pairs: from which it may send besides its own; an empty MAC is its own.
    :param qos_policy_id: of its QoS policy; None: that of the network, if it has one.
    """

    pod_network: PodNetwork
    security_groups: tuple[str, ...]
    addresses: tuple[str, ...] = ()
    mac: str | None = None
    port_security: bool | None = None
    address_pairs: tuple[AddressPair, ...] = ()
    qos_policy_id: str | None = None


def fields_of(settings: PortSettings) -> Json:
    """Return the fields of a new port with these settings."""
    return {
        "network_id": settings.pod_network.network.id,
        "fixed_ips": _fixed_ips_of(settings),
        **_mac_of(settings),
        **_pairs_of(settings),
        **_qos_of(settings),
        **security_of(settings),
    }


def _fixed_ips_of(settings: PortSettings) -> list[Json]:
    """Return the subnets of a port, each with the address in it that is asked for."""
    fixed_ips = []
    for subnet in settings.pod_network.subnets:
        network = ipaddress.ip_network(subnet.cidr)
        inside = (each for each in settings.addresses if ipaddress.ip_address(each) in network)
        address = next(inside, None)
        asked = {} if address is None else {"ip_address": address}
        fixed_ips.append({"subnet_id": subnet.id, **asked})
    return fixed_ips


def _mac_of(settings: PortSettings) -> Json:
    """Return the field of a port's MAC if one is asked for; it does not change any more."""
    return {} if settings.mac is None else {"mac_address": settings.mac}


def _pairs_of(settings: PortSettings) -> Json:
    """Return the field of a port's allowed address pairs if some are asked for."""
    pairs = settings.address_pairs
    return {PAIRS: pairs_field(pairs)} if pairs else {}


def _qos_of(settings: PortSettings) -> Json:
    """Return the field of a port's QoS policy if one is asked for."""
    return {} if settings.qos_policy_id is None else {"qos_policy_id": settings.qos_policy_id}


def security_of(settings: PortSettings) -> Json:
    """Return the fields of a port's security: its groups, and port security if it is asked for."""
    if settings.port_security is None:
        return {"security_groups": sorted(settings.security_groups)}
    groups = sorted(settings.security_groups) if settings.port_security else []
    return {"port_security_enabled": settings.port_security, "security_groups": groups}
