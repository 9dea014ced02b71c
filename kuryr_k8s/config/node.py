"""Options of the daemon: the groups ``[cni_daemon]`` and ``[binding]``."""

import ipaddress

from oslo_config import cfg, types


class Network(types.ConfigType):
    """The type of an option: a network, or an address, which is a network of its own."""

    def __init__(self) -> None:
        super().__init__(type_name="network value")

    def __call__(self, value: str) -> str:
        """Return the network as it is usually written.

        :raises ValueError: It is neither.
        """
        return str(ipaddress.ip_network(value, strict=False))

    def _formatter(self, value: str) -> str:
        return value


cni_daemon = [
    cfg.StrOpt(
        "socket",
        default="/run/kuryr/cni.sock",
        help="Path of the socket that kuryr-cni connects to.",
    ),
    cfg.StrOpt(
        "spool_dir",
        default="/var/lib/kuryr/spool",
        help="Directory in which kuryr-cni leaves DEL requests while the daemon is down.",
    ),
    cfg.StrOpt(
        "ovsdb_connection",
        default="unix:/run/openvswitch/db.sock",
        help="Address of the node's Open vSwitch database. Empty: the node has none, because it "
        "is a virtual machine.",
    ),
    cfg.StrOpt(
        "cni_bin_dir",
        help="Directory in which the daemon installs kuryr-cni at its start, for example "
        "/opt/cni/bin. Empty: it does not install it.",
    ),
    cfg.StrOpt(
        "cni_conf_dir",
        help="Directory in which the daemon installs the CNI configuration when it is ready, for "
        "example /etc/cni/net.d. Empty: it does not install it.",
    ),
    cfg.StrOpt(
        "cni_conf_template",
        help="Path of a conflist to install instead of the built-in one, which calls kuryr-cni "
        "and then portmap.",
    ),
    cfg.FloatOpt(
        "add_timeout",
        default=180.0,
        help="Number of seconds that an ADD may wait before the answer is «try again later». The "
        "kubelet gives up after 240 seconds. If the Pod has no KuryrPort at all, the ADD waits "
        "for 30 seconds.",
    ),
    cfg.BoolOpt(
        "node_ports",
        default=False,
        help="Forward connections to Services' node ports to their ClusterIPs, and answer at "
        "healthCheckNodePort. This is for clusters without kube-proxy in which the handlers "
        "lbaas_spec and loadbalancer are enabled. It needs the program nft.",
    ),
    cfg.ListOpt(
        "node_port_addresses",
        default=[],
        item_type=Network(),
        help="Networks, for example 192.0.2.0/24,2001:db8::/64: the node ports are at those "
        "addresses of the node that are in one of them. If no network is of an address family, "
        "there are none at the addresses of that family. Empty: they are at all addresses of the "
        "node except its loopback addresses.",
    ),
]

binding = [
    cfg.StrOpt(
        "link_iface",
        help="On a node that is a virtual machine: the link of its trunk's parent port, for "
        "example eth0. Empty: the link of the default route.",
    ),
    cfg.StrOpt(
        "state_dir",
        default="/run/kuryr/vlan",
        help="Directory that records which VLANs of that link Pods have. It must outlive the "
        "daemon, but not a reboot of the node.",
    ),
]
