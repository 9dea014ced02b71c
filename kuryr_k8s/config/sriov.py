"""Options of the group ``[sriov]``."""

from oslo_config import cfg

sriov = [
    cfg.DictOpt(
        "resource_physnets",
        default={},
        help="For the Multi-VIF driver sriov, on masters and nodes: the physical network of each "
        "resource that a device plugin gives virtual functions for, and of each DeviceClass of "
        "dynamic resource allocation. Example: intel.com/sriov_net1:physnet2.",
    ),
    cfg.DictOpt(
        "physnet_subnet_mappings",
        default={},
        help="For the Multi-VIF driver sriov: the subnet in which interfaces on each physical "
        "network are, unless the Pod's annotation says otherwise; or two with a plus sign between "
        "them, one for IPv4 and one for IPv6. Example: physnet2:<id of a subnet>.",
    ),
    cfg.StrOpt(
        "pod_resources_socket",
        default="/var/lib/kubelet/pod-resources/kubelet.sock",
        help="For the daemon: the socket at which the kubelet tells which devices a Pod has.",
    ),
    cfg.DictOpt(
        "advertise",
        default={},
        help="For the daemon: the card whose virtual functions it offers itself for each physical "
        "network, in the capacity of its Node, under the resource's name "
        "pod.alpha.kubernetes.io/opaque-int-resource-sriov-vf-<physical network>. No device "
        "plugin may give out the same functions. Example: physnet2:ens785f0.",
    ),
]
