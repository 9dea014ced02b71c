"""Interfaces of the node and of its Pods. Only this package speaks netlink and enters them."""

from kuryr_k8s.cni.netlink.flows import Flows, Network, UdpTarget, is_within
from kuryr_k8s.cni.netlink.links import Links
from kuryr_k8s.cni.netlink.nested_links import Macvlan, Nested, NestedLinks, Taken, Vlan
from kuryr_k8s.cni.netlink.node_link import (
    PASSING_MARK,
    NodeLink,
    NodeLinks,
    NodeRoute,
    NoLink,
)
from kuryr_k8s.cni.netlink.parked_pairs import ParkedPair
from kuryr_k8s.cni.netlink.threads import finish
from kuryr_k8s.cni.netlink.virtual_functions import Home, Settings, VirtualFunctions
from kuryr_k8s.cni.netlink.wiring import LinkError, NamespaceError, Observed, Route, Wiring

__all__ = [
    "PASSING_MARK",
    "Flows",
    "Home",
    "LinkError",
    "Links",
    "Macvlan",
    "NamespaceError",
    "Nested",
    "NestedLinks",
    "Network",
    "NoLink",
    "NodeLink",
    "NodeLinks",
    "NodeRoute",
    "Observed",
    "ParkedPair",
    "Route",
    "Settings",
    "Taken",
    "UdpTarget",
    "VirtualFunctions",
    "Vlan",
    "Wiring",
    "finish",
    "is_within",
]
