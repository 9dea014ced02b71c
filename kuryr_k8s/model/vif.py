"""The virtual interfaces (VIFs) that the controller makes and the node plugs.

Names, fields and versions are those of os-vif: we can read what kuryr-kubernetes has written, and
whatever reads that can read our objects.
"""

from dataclasses import field
from typing import ClassVar

from kuryr_k8s.model.codec import Versioned, model

EVERYWHERE = {4: "0.0.0.0/0", 6: "::/0"}  # by IP version


@model
class Route(Versioned):
    """A host route of a subnet: ``cidr`` via ``gateway``."""

    LIST_VERSION: ClassVar[str | None] = "1.0"
    cidr: str
    gateway: str | None = None


@model
class FixedIP(Versioned):
    """An address of an interface."""

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
    """A Neutron network, with the subnets that an interface has addresses in."""

    VERSION: ClassVar[str] = "1.1"
    id: str
    label: str | None = None
    bridge: str | None = None
    mtu: int | None = None
    vlan: int | None = None
    multi_host: bool = False
    should_provide_bridge: bool = False
    should_provide_vlan: bool = False
    subnets: tuple[Subnet, ...] = ()


@model
class VIFPortProfile(Versioned):
    """Base class of the port profiles, which tell how a port is plugged."""


@model
class VIFPortProfileOpenVSwitch(VIFPortProfile):
    """The profile of a port of Open vSwitch."""

    VERSION: ClassVar[str] = "1.4"
    interface_id: str


@model
class VIFPortProfileK8sDPDK(VIFPortProfile):
    """The profile of a DPDK device in a VM."""

    VERSION: ClassVar[str] = "1.1"
    l3_setup: bool = False
    selflink: str | None = None


@model
class VIFBase(Versioned):
    """Base class of all interfaces.

    :param id: the id of the Neutron port.
    :param address: the MAC.
    """

    id: str
    address: str | None = None
    network: Network | None = None
    plugin: str | None = None
    active: bool = False
    has_traffic_filtering: bool = False
    preserve_on_delete: bool = False
    port_profile: VIFPortProfile | None = None

    @property
    def ips(self) -> tuple[str, ...]:
        """The addresses, in the order of the subnets."""
        subnets = self.network.subnets if self.network is not None else ()
        return tuple(ip.address for subnet in subnets for ip in subnet.ips)


@model
class VIFOpenVSwitch(VIFBase):
    """A veth whose host end is a port of an Open vSwitch bridge."""

    vif_name: str
    bridge_name: str


@model
class VIFBridge(VIFBase):
    """A veth whose host end is a port of a Linux bridge."""

    vif_name: str
    bridge_name: str


@model
class VIFVHostUser(VIFBase):
    """A socket that shares memory with a switch in user space."""

    VERSION: ClassVar[str] = "1.1"
    vif_name: str
    path: str
    mode: str


COVERED = "kuryr-covered"


@model
class VIFVlanNested(VIFBase):
    """A VLAN interface of the node's own trunk port.

    With COVERED for its plugin, the Pod's interface is a macvlan on top of it: some runtimes of
    virtual machines take no VLANs.
    """

    vif_name: str
    vlan_id: int


@model
class VIFMacvlanNested(VIFBase):
    """A macvlan of the node's own interface."""

    vif_name: str


@model
class VIFSriov(VIFBase):
    """A virtual function (VF) of a network card.

    :param dev_address: the PCI address of the VF.
    :param mode: how os-vif would plug it: the Pod has the VF for itself.
    :param physnet: Neutron's name of the physical network behind the card.
    """

    VERSION: ClassVar[str] = "1.1"
    vif_name: str
    dev_address: str = ""
    mode: str = "passthrough"
    vlan_name: str = ""
    physnet: str = ""
    pod_name: str = ""
    pod_link: str = ""


@model
class VIFDPDKNested(VIFBase):
    """A PCI device of a node that is a VM, for DPDK."""

    vif_name: str
    pci_address: str = ""
    dev_driver: str = ""


@model
class PodState(Versioned):
    """The interfaces of a Pod, in the form of the annotation that older releases used."""

    default_vif: VIFBase
    additional_vifs: dict[str, VIFBase] = field(default_factory=dict)
