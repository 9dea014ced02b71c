"""The virtual interfaces that the controller makes and the node plugs.

Names, fields and versions are those of os-vif, so that objects written by
kuryr-kubernetes can be read, and ours by whatever reads those.
"""

from dataclasses import field
from typing import ClassVar

from kuryr_k8s.model.codec import Versioned, model


@model
class Route(Versioned):
    """A host route of a subnet: ``cidr`` via ``gateway``."""

    LIST_VERSION: ClassVar[str | None] = "1.0"
    cidr: str
    gateway: str | None = None


@model
class FixedIP(Versioned):
    LIST_VERSION: ClassVar[str | None] = "1.0"
    address: str


@model
class Subnet(Versioned):
    """A Neutron subnet, and the addresses in it that the interface has."""

    LIST_VERSION: ClassVar[str | None] = "1.0"
    cidr: str
    gateway: str | None = None
    dns: tuple[str, ...] = ()
    ips: tuple[FixedIP, ...] = ()
    routes: tuple[Route, ...] = ()


@model
class Network(Versioned):
    VERSION: ClassVar[str] = "1.1"
    id: str
    label: str | None = None
    bridge: str | None = None
    mtu: int | None = None
    multi_host: bool = False
    should_provide_bridge: bool = False
    should_provide_vlan: bool = False
    subnets: tuple[Subnet, ...] = ()


@model
class VIFPortProfile(Versioned):
    """Base of the port profiles, one class for each way of plugging."""


@model
class VIFPortProfileOpenVSwitch(VIFPortProfile):
    VERSION: ClassVar[str] = "1.4"
    interface_id: str


@model
class VIFPortProfileK8sDPDK(VIFPortProfile):
    VERSION: ClassVar[str] = "1.1"
    l3_setup: bool = False
    selflink: str | None = None


@model
class VIFBase(Versioned):
    """What every interface has: ``id`` is the Neutron port's, ``address`` its MAC."""

    id: str
    address: str | None = None
    network: Network | None = None
    plugin: str | None = None
    active: bool = False
    has_traffic_filtering: bool = False
    preserve_on_delete: bool = False
    port_profile: VIFPortProfile | None = None


@model
class VIFOpenVSwitch(VIFBase):
    """A veth whose host end is a port of an Open vSwitch bridge."""

    vif_name: str
    bridge_name: str


@model
class VIFBridge(VIFBase):
    vif_name: str
    bridge_name: str


@model
class VIFVHostUser(VIFBase):
    VERSION: ClassVar[str] = "1.1"
    vif_name: str
    path: str
    mode: str


@model
class VIFVlanNested(VIFBase):
    """A VLAN interface of the node's own trunk port."""

    vif_name: str
    vlan_id: int


@model
class VIFMacvlanNested(VIFBase):
    vif_name: str


@model
class VIFDPDKNested(VIFBase):
    vif_name: str
    pci_address: str = ""
    dev_driver: str = ""


@model
class PodState(Versioned):
    """All interfaces of a Pod, as the annotation of older releases held them."""

    default_vif: VIFBase
    additional_vifs: dict[str, VIFBase] = field(default_factory=dict)
