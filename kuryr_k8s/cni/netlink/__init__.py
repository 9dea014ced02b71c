"""Interfaces of the node and of its Pods. Nothing else speaks netlink or enters a namespace."""

from kuryr_k8s.cni.netlink.flows import Flows, Led
from kuryr_k8s.cni.netlink.links import Links
from kuryr_k8s.cni.netlink.parked_pairs import Pair
from kuryr_k8s.cni.netlink.threads import finish
from kuryr_k8s.cni.netlink.vlans import Taken, Vlan, Vlans
from kuryr_k8s.cni.netlink.wiring import LinkError, NamespaceError, Observed, Route, Wiring

__all__ = [
    "Flows",
    "Led",
    "LinkError",
    "Links",
    "NamespaceError",
    "Observed",
    "Pair",
    "Route",
    "Taken",
    "Vlan",
    "Vlans",
    "Wiring",
    "finish",
]
