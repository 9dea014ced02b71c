"""The annotation ``k8s.v1.cni.cncf.io/networks``: which networks a Pod selects. Pure.

Kubernetes Network Custom Resource Definition De-facto Standard, version 1.3, section 4.1; the name
of an interface in the short form is Multus' own.
"""

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kuryr_k8s.model.annotation_values import json_list, mac_address

NETWORKS = "k8s.v1.cni.cncf.io/networks"
MOST_INTERFACES = 32
SHOWN = 60  # characters of a key that means nothing
CLAIM = "ipam-claim-reference"
SUPPORTED = ("name", "namespace", "interface", "ips", "mac", "default-route", CLAIM)
# keys of the standard that a Neutron port has nothing for
UNSUPPORTED = (
    "infiniband-guid",
    "portMappings",
    "bandwidth",
    "cni-args",
)
_NAME = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_LONG = r"[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?"  # Kubernetes' own; the short form takes no dots
_SHORT = re.compile(rf"(?:({_NAME})/)?({_NAME})(?:@(\S+))?")
# the kernel takes more, but for "%", "/", ":" and blanks; names come into tags of ports, too
_IFNAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.]{0,14}")
_RESERVED = ("lo", "all", "default")  # there already, or the kernel's for all interfaces


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSelection:
    """One element of the annotation.

    :param interface: the name of the interface; None: any.
    :param ips: the addresses that the interface is to have; empty: any.
    :param claim: the name of an IPAMClaim of the Pod's namespace, which has the addresses.
    :param refused: what it asks for that ports of Neutron do not have; empty: nothing.
    :param gateways: of the Pod's default routes, which then lead through this interface; empty:
        the network's own; None: the default routes are not this interface's.
    """

    namespace: str
    name: str
    interface: str | None = None
    ips: tuple[str, ...] = ()
    mac: str | None = None
    gateways: tuple[str, ...] | None = None
    claim: str | None = None
    refused: str = ""


def read_selections(
    text: str, namespace: str, *, of_others: bool = False
) -> list[NetworkSelection]:
    """Read the annotation, in its short form or as JSON.

    :param namespace: of the Pod; that of a network whose element names none.
    :param of_others: whether other plugins may have what ports of Neutron do not.
    :raises ValueError: anything in it is wrong; its words follow the annotation's name. Then no
        element counts (section 4.1.2).
    """
    if not text.strip():
        return []  # as Multus reads it
    elements = json_list(text) if set('[{"') & set(text) else _read_short(text)
    if len(elements) > MOST_INTERFACES:
        raise ValueError(f"has {len(elements)} elements, and a Pod may have {MOST_INTERFACES}")
    selections = [_read(element, namespace) for element in elements]
    refused = [each.refused for each in selections if each.refused]
    if refused and not of_others:
        raise ValueError(refused[0])
    interfaces = [each.interface for each in selections if each.interface is not None]
    if len(set(interfaces)) < len(interfaces):
        raise ValueError("names an interface twice")
    if sum(each.gateways is not None for each in selections) > 1:
        raise ValueError("has more than one default-route")
    return selections


def _read_short(text: str) -> list[dict[str, Any]]:
    elements = []
    for part in text.split(","):
        found = _SHORT.fullmatch(part.strip())
        if found is None:
            raise ValueError("has an element that is not [namespace/]name[@interface]")
        keys = ("namespace", "name", "interface")
        elements.append(
            {key: each for key, each in zip(keys, found.groups(), strict=True) if each}
        )
    return elements


def _read(element: Any, namespace: str) -> NetworkSelection:
    if not isinstance(element, dict):
        raise ValueError("has an element that is no object")  # noqa: TRY004
    name = _text(element, "name")
    if name is None:
        raise ValueError("has an element without a name")
    stated = _text(element, "namespace")
    for value in (name, stated):
        if value and not re.fullmatch(_LONG, value):
            raise ValueError("names what cannot be a network or a namespace")
    claim = _text(element, CLAIM)
    if claim is not None and not re.fullmatch(_LONG, claim):
        raise ValueError(f"has an {CLAIM} that cannot be the name of a claim")
    mac = _text(element, "mac")
    if mac is not None:
        try:
            mac = mac_address(mac)
        except ValueError as error:
            raise ValueError(f"has a mac that {error}") from None
    gateways = element.get("default-route")
    interface = _interface(element)
    ips, routers = _addresses(element, "ips"), _addresses(element, "default-route")
    return NetworkSelection(
        namespace=stated or namespace,
        name=name,
        interface=interface,
        ips=ips,
        mac=mac,
        gateways=None if gateways is None else routers,
        claim=claim,
        refused=next(_refused(element, {"ips": ips, "default-route": routers}), ""),
    )


def _refused(element: dict[str, Any], addresses: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Find what ports of Neutron do not have; each is words that follow the annotation's name.

    :param addresses: the lists of addresses in the element, by their keys.
    """
    for key, value in element.items():
        if key in UNSUPPORTED and value:
            yield f"asks for {key}, which ports of Neutron do not have"
        # those of others have a dot in their names (section 4.1.2)
        if key not in (*SUPPORTED, *UNSUPPORTED) and "." not in key:
            yield f"has the key {key[:SHOWN]}, which means nothing"
    if element.get(CLAIM) and addresses["ips"]:
        yield f"has ips beside an {CLAIM}"  # section 4.1.2.1.10 takes it for an error
    for key, listed in addresses.items():
        versions = [ipaddress.ip_address(each).version for each in listed]
        if len(set(versions)) < len(versions):
            yield f"has {key} with more than one address of a family"


def _text(element: dict[str, Any], key: str) -> str | None:
    value = element.get(key)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"has a {key} that is no string")
    return value or None


def _interface(element: dict[str, Any]) -> str | None:
    """Return the name of the interface, as the kernel takes it."""
    name = _text(element, "interface")
    if name is not None and (not _IFNAME.fullmatch(name) or name in _RESERVED):
        raise ValueError("has an interface that cannot be the name of one")
    return name


def _addresses(element: dict[str, Any], key: str) -> tuple[str, ...]:
    """Return the addresses of a list, without the lengths of prefixes."""
    values = element.get(key)
    if values is None:
        return ()
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        raise ValueError(f"has {key} that are no list of addresses")
    try:
        found = [ipaddress.ip_interface(each).ip for each in values]
    except ValueError:
        raise ValueError(f"has {key} that are no list of addresses") from None
    return tuple(map(str, found))
