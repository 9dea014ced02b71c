"""The annotations by which a Pod says what its default interface is to be; pure.

A Namespace's annotations of the kinds that several Pods can share are defaults for its Pods.
"""

import ipaddress
from collections.abc import Callable, Mapping
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.address_pairs import AddressPair
from kuryr_k8s.drivers.multi_vif.annotations import shown
from kuryr_k8s.drivers.named.asked import Asked, Words
from kuryr_k8s.model.annotation_values import (
    address,
    flag,
    identifier,
    json_of,
    mac_address,
    text,
)

_OURS, _KUBE_OVN = "openstack.org/", "ovn.kubernetes.io/"
NETWORK, SUBNET = f"{_OURS}network_id", f"{_OURS}subnet_id"
GROUPS = f"{_OURS}security_group_ids"
PORT_SECURITY = f"{_OURS}port_security"
ADDRESS, MAC = f"{_OURS}ip_address", f"{_OURS}mac_address"
POOL = f"{_OURS}ip_pool"
PAIRS = f"{_OURS}allowed_address_pairs"
QOS = f"{_OURS}qos_policy_id"
FLOATING_IP = f"{_OURS}floating_ip"
ALIASES = {
    f"{_OURS}security_group_id": GROUPS,
    f"{_KUBE_OVN}ip_address": ADDRESS,
    f"{_KUBE_OVN}ip_pool": POOL,
    f"{_KUBE_OVN}mac_address": MAC,
}
NETWORKS = (NETWORK, SUBNET)
OF_NAMESPACES = (*NETWORKS, GROUPS, PORT_SECURITY, QOS)
OF_PODS = (*OF_NAMESPACES, ADDRESS, POOL, MAC, PAIRS, *ALIASES)
OURS = tuple(name for name in OF_PODS if name.startswith(_OURS))
MOST_GROUPS = 20
MOST_PAIRS = 10  # Neutron's default, max_allowed_address_pair
MOST_POOLED = 256  # addresses, or pairs of addresses: each one that is in use costs a call

WORDS = Words(
    network=f"annotation {NETWORK}",
    subnets=f"annotation {SUBNET}",
    groups=f"annotation {GROUPS}",
    addresses=f"annotation {ADDRESS}",
    pool=f"annotation {POOL}",
    mac=f"annotation {MAC}",
    pairs=f"annotation {PAIRS}",
    port_security=f"annotation {PORT_SECURITY}",
    qos=f"annotation {QOS}",
)


def read(
    of_pod: Callable[[str], str | None],
    of_namespace: Callable[[str], str | None],
    selected: Mapping[str, str] | None = None,
) -> Asked | None:
    """Read the annotations.

    :param of_pod: returns the Pod's annotation of a name, ``of_namespace`` its Namespace's.
    :param selected: values by which the network that the Pod selects for its default interface
        stands for annotations: addresses and a MAC for the Pod's, others between those of the Pod
        and of the Namespace.
    :returns: None if there are none.
    :raises errors.Refused: one cannot be read, or one is there twice.
    """
    values: dict[str, str] = {}
    for name in OF_PODS:
        value, meant = of_pod(name), ALIASES.get(name, name)
        if value is None:
            continue
        if meant in values:
            raise errors.Refused(f"annotation {name}: {meant} is there, too")
        values[meant] = value
    for name, value in (selected or {}).items():
        if name not in OF_NAMESPACES and name in values:
            raise errors.Refused(f"annotation {name}: the Pod's default-network says it, too")
        if name not in NETWORKS or not values.keys() & set(NETWORKS):
            values.setdefault(name, value)
    has_own_groups = GROUPS in values
    inherited = set(OF_NAMESPACES) - (set(NETWORKS) if values.keys() & set(NETWORKS) else set())
    for name in sorted(inherited):
        inherited_value = of_namespace(name)
        if inherited_value is not None:
            values.setdefault(name, inherited_value)
    if not values:
        return None
    fields: dict[str, Any] = {}
    for name, value in values.items():
        field, parse = _READERS[name]
        try:
            fields[field] = parse(value.strip())
        except ValueError as error:
            raise errors.Refused(f"annotation {name} {error}: {shown(value)}") from error
    asked = Asked(**fields)
    if asked.port_security is False and has_own_groups:
        raise errors.Refused(f"annotation {GROUPS}: a port without port security has no groups")
    if asked.port_security is False and asked.pairs:
        raise errors.Refused(f"annotation {PAIRS}: a port without port security needs none")
    if asked.addresses and asked.pool:
        raise errors.Refused(f"annotation {POOL}: {ADDRESS} is there, too")
    if asked.mac and asked.pool:
        raise errors.Refused(f"annotation {MAC}: only one of the Pods with {POOL} could have it")
    return asked


def read_floating_ip(value: str) -> str | None:
    """Read the annotation that asks for a floating IP.

    :returns: the address or the id of one that exists; empty: any; None: none is asked for.
    :raises errors.Refused: it cannot be read.
    """
    stripped = value.strip()
    for read in (_flag_of_floating_ip, _ipv4, identifier):
        try:
            return read(stripped)
        except ValueError:
            continue
    raise errors.Refused(
        f"annotation {FLOATING_IP} is neither true nor false, nor an IPv4 address or an id: "
        f"{shown(value)}"
    )


def _flag_of_floating_ip(value: str) -> str | None:
    return "" if flag(value) else None


def _ipv4(value: str) -> str:
    return str(ipaddress.IPv4Address(value))


def _names(most: int) -> Callable[[str], tuple[str, ...]]:
    def parse(value: str) -> tuple[str, ...]:
        found = tuple(each.strip() for each in value.split(","))
        if len(found) > most:
            raise ValueError(f"has more than {most} entries")
        if not all(found) or len(set(found)) < len(found):
            raise ValueError("has an entry that is empty, or is there twice")
        return found

    return parse


def _addresses(value: str) -> tuple[str, ...]:
    found = tuple(address(each.strip()) for each in value.split(","))
    if len({ipaddress.ip_address(each).version for each in found}) < len(found):
        raise ValueError("has more than one address of a family")
    return found


def _pool(value: str) -> tuple[tuple[str, ...], ...]:
    """Read kube-ovn's form: a comma between addresses, a semicolon between pairs of them."""
    if ";" in value:
        found = [_addresses(each) for each in value.split(";")]
    else:
        found = [(address(each.strip()),) for each in value.split(",")]
        versions = [ipaddress.ip_address(each).version for (each,) in found]
        if sorted(versions) == [4, 6]:
            found = [tuple(each for (each,) in found)]
        elif len(set(versions)) > 1:
            raise ValueError("has both address families, and no semicolon between the Pods")
    if len(found) > MOST_POOLED:
        raise ValueError(f"has more than {MOST_POOLED} entries")
    every = [each for entry in found for each in entry]
    if len(set(every)) < len(every):
        raise ValueError("has an address that is there twice")
    return tuple(found)


def _pairs(value: str) -> tuple[AddressPair, ...]:
    """Read Neutron's form: a JSON list of objects with ip_address, and perhaps mac_address."""
    found = json_of(value)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise ValueError("is no list of objects")
    if len(found) > MOST_PAIRS:
        raise ValueError(f"has more than {MOST_PAIRS} entries")
    if any(each.keys() - {"ip_address", "mac_address"} for each in found):
        raise ValueError("has keys other than ip_address and mac_address")
    pairs = tuple(
        AddressPair(_range(each.get("ip_address")), _own_or(each.get("mac_address")))
        for each in found
    )
    if len(set(pairs)) < len(pairs):
        raise ValueError("has an entry that is there twice")
    return pairs


def _range(value: Any) -> str:
    """Read an address or a network, in Neutron's spelling."""
    if not isinstance(value, str):
        raise ValueError("has an entry without ip_address")  # noqa: TRY004
    try:
        return str(ipaddress.ip_network(value) if "/" in value else ipaddress.ip_address(value))
    except ValueError:
        raise ValueError("has an ip_address that is neither an address nor a network") from None


def _own_or(value: Any) -> str:
    """Read a MAC; empty: that of the port."""
    return "" if value is None else mac_address(str(value))


_READERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    NETWORK: ("network", text),
    SUBNET: ("subnets", _names(2)),
    GROUPS: ("groups", _names(MOST_GROUPS)),
    ADDRESS: ("addresses", _addresses),
    POOL: ("pool", _pool),
    MAC: ("mac", mac_address),
    PAIRS: ("pairs", _pairs),
    PORT_SECURITY: ("port_security", flag),
    QOS: ("qos", text),
}
