"""Options of the daemon: the groups ``[cni_daemon]`` and ``[binding]``."""

from oslo_config import cfg

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
        help="Forward connections to Services' node ports, at any address of the node, to their "
        "ClusterIPs, and answer at healthCheckNodePort. This is for clusters without kube-proxy "
        "in which the handlers lbaas_spec and loadbalancer are enabled. It needs the program nft.",
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
