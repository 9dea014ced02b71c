"""Every option of the program, by group. Nothing else registers options.

Groups and names are those of kuryr-kubernetes where it had them, so that a
``kuryr.conf`` carries over. ``list_opts`` feeds ``oslo-config-generator``.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keystoneauth1 import loading
from oslo_config import cfg
from oslo_log import log

from kuryr_k8s import errors
from kuryr_k8s.config import octavia as config_octavia
from kuryr_k8s.config import pools as config_pools

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"

kubernetes = [
    cfg.StrOpt(
        "api_root",
        help="URL of the Kubernetes API. Empty: the kubeconfig's, or the one that a Pod is told.",
    ),
    cfg.StrOpt("kubeconfig", help="A kubeconfig file with the URL and the credentials."),
    cfg.StrOpt("ssl_ca_crt_file", help="CA that signed the API's certificate."),
    cfg.StrOpt("ssl_client_crt_file", help="Client certificate, if one is used."),
    cfg.StrOpt("ssl_client_key_file", help="Key of the client certificate."),
    cfg.BoolOpt("ssl_verify_server_crt", default=True, help="Verify the API's certificate."),
    cfg.StrOpt(
        "token_file",
        default=f"{SERVICE_ACCOUNT}/token",
        help="Bearer token of the ServiceAccount; read again as it is rotated.",
    ),
    cfg.StrOpt(
        "node_name",
        help="Name of the Node that the daemon serves. Empty: $KUBERNETES_NODE_NAME, or the "
        "host's name.",
    ),
    cfg.ListOpt(
        "enabled_handlers",
        default=["vif", "kuryrport", "kuryrportpool"],
        help="Handlers to run, by entry point name in kuryr_k8s.controller.handlers.",
    ),
    cfg.StrOpt("pod_project_driver", default="default", help="default or annotation."),
    cfg.StrOpt("pod_subnets_driver", default="default", help="Decides a Pod's subnets."),
    cfg.StrOpt(
        "pod_security_groups_driver", default="default", help="Decides a Pod's security groups."
    ),
    cfg.StrOpt("pod_vif_driver", default="neutron-vif", help="Makes a Pod's interface."),
    cfg.StrOpt(
        "vif_pool_driver",
        default="noop",
        help="Keeps ports ready for Pods to come: noop (none), neutron, nested, or multi_pool, "
        "which chooses by the Node's label pod_vif.",
    ),
    cfg.ListOpt(
        "multi_vif_drivers",
        default=["noop"],
        help="Decide about a Pod's further interfaces.",
    ),
    *config_octavia.kubernetes,
    cfg.BoolOpt("use_events", default=True, help="Tell users by Events what went wrong."),
    cfg.StrOpt("lease_namespace", default="kube-system", help="Namespace of the Lease."),
    cfg.StrOpt(
        "lease_name",
        default="kuryr-k8s-controller",
        help="The Lease that one controller holds; the others stand by.",
    ),
    cfg.FloatOpt("lease_duration", default=45.0, min=3.0, help="Seconds that the Lease lasts."),
    cfg.StrOpt(
        "lock_file",
        default="/run/kuryr-controller/controller.lock",
        help="Held by the controller of this host: proof that an earlier one is dead, so that a "
        "restarted controller need not wait for its own Lease to run out.",
    ),
    cfg.IntOpt("pod_workers", default=128, min=1, help="Pods worked on at the same time."),
]

neutron = [
    cfg.StrOpt(
        "cloud",
        help="Name of a cloud in clouds.yaml; empty: the auth options of this group.",
    ),
    cfg.IntOpt("max_calls", default=16, min=1, help="Neutron calls in flight at the most."),
    cfg.FloatOpt("call_timeout", default=60.0, min=1.0, help="Seconds that one call may take."),
]

neutron_defaults = [
    cfg.StrOpt("project", help="Project id that Pods' ports belong to."),
    cfg.ListOpt(
        "pod_subnet",
        default=[],
        help="Subnet id for Pods; two of one network (IPv4 and IPv6) make Pods dual-stack.",
    ),
    cfg.ListOpt("pod_security_groups", default=[], help="Security group ids of Pods' ports."),
    *config_octavia.neutron_defaults,
    cfg.StrOpt("ovs_bridge", help="Integration bridge; empty: the one that Neutron names."),
    cfg.IntOpt("network_device_mtu", default=0, help="Upper limit of the MTU; 0: none."),
    cfg.ListOpt(
        "resource_tags",
        default=[],
        help="Tags on every object made in Neutron; must be set. The first one names the cluster "
        "and must be its own: ports that carry it and that no KuryrPort of this cluster names "
        "are deleted, and load balancers that no Service has.",
    ),
    cfg.FloatOpt(
        "sweep_interval",
        default=600.0,
        min=1.0,
        help="Seconds between two searches for ports and load balancers of this cluster that "
        "nothing names; such a one goes when two searches in a row have found it.",
    ),
]

pod_vif_nested = [
    cfg.ListOpt(
        "worker_nodes_subnets",
        default=[],
        help="pod_vif_driver = nested-vlan: subnet ids in which the VMs that are nodes have their "
        "InternalIPs. The VM's port is the parent of a trunk, of a project of ours.",
    ),
    cfg.StrOpt(
        "trunk_tag",
        help="Find a node's trunk by this tag instead, {node} being the Node's name: "
        "k8s-node={node}.",
    ),
    cfg.IntOpt(
        "rev_update_attempts",
        default=3,
        min=1,
        help="How often VLAN ids are chosen anew, if others who use the trunk are faster.",
    ),
]

policy = [
    cfg.ListOpt(
        "projects",
        default=[],
        help="Pairs namespace:project: which project, besides [neutron_defaults] project, a "
        "Namespace may ask for by its annotation openstack.org/kuryr-project "
        "(pod_project_driver = annotation). *:project grants it to all.",
    ),
]

cni_daemon = [
    cfg.StrOpt("socket", default="/run/kuryr/cni.sock", help="Socket that kuryr-cni speaks to."),
    cfg.StrOpt(
        "spool_dir",
        default="/var/lib/kuryr/spool",
        help="Where kuryr-cni leaves DEL requests while the daemon is down.",
    ),
    cfg.StrOpt(
        "ovsdb_connection",
        default="unix:/run/openvswitch/db.sock",
        help="The node's Open vSwitch database. Empty: it has none, as it is a VM.",
    ),
    cfg.StrOpt(
        "cni_bin_dir",
        help="Where to install kuryr-cni at start, for example /opt/cni/bin. Empty: not at all.",
    ),
    cfg.StrOpt(
        "cni_conf_dir",
        help="Where to install the CNI configuration once the daemon is ready, for example "
        "/etc/cni/net.d. Empty: not at all.",
    ),
    cfg.StrOpt(
        "cni_conf_template",
        help="A conflist to install instead of the built-in one (kuryr-cni, then portmap).",
    ),
    cfg.FloatOpt(
        "add_timeout",
        default=180.0,
        help="Seconds that an ADD may wait before it is answered with «try again later»; the "
        "kubelet gives up at 240. Where the Pod has no KuryrPort at all, 30 s are enough.",
    ),
    cfg.BoolOpt(
        "node_ports",
        default=False,
        help="Lead connections to Services' node ports, at any address of the node, to their "
        "ClusterIPs, and answer at healthCheckNodePort. For clusters without kube-proxy, with "
        "the handlers lbaas_spec and loadbalancer; it needs the program nft.",
    ),
]

binding = [
    cfg.StrOpt(
        "link_iface",
        help="On a node that is a VM: the link of its trunk port, for example eth0. Empty: that "
        "of the default route.",
    ),
    cfg.StrOpt(
        "state_dir",
        default="/run/kuryr/vlan",
        help="Which VLANs of that link Pods have. It must outlive the daemon, and not the node's "
        "boot.",
    ),
]


def _health(port: int) -> list[cfg.Opt]:
    return [
        cfg.StrOpt("address", default="127.0.0.1", help="Address of /livez, /readyz, /metrics."),
        cfg.PortOpt("port", default=port, help="Their port."),
    ]


GROUPS: dict[str, Sequence[cfg.Opt]] = {
    "kubernetes": kubernetes,
    "neutron": neutron,
    "neutron_defaults": neutron_defaults,
    "octavia_defaults": config_octavia.octavia_defaults,
    "pod_vif_nested": pod_vif_nested,
    "vif_pool": config_pools.vif_pool,
    "policy": policy,
    "cni_daemon": cni_daemon,
    "binding": binding,
    "health_server": _health(8082),
    "cni_health_server": _health(8090),
}


def list_opts() -> list[tuple[str, Sequence[cfg.Opt]]]:
    """All options for the sample file, those of keystoneauth's password plugin included."""
    auth = [
        *loading.get_session_conf_options(),
        *loading.get_auth_common_conf_options(),
        *loading.get_auth_plugin_conf_options("password"),
        *loading.get_adapter_conf_options(include_deprecated=False),
    ]
    own = [(group, options) for group, options in GROUPS.items() if group != "neutron"]
    named = [(f"{config_octavia.CLASS_PREFIX}name", config_octavia.load_balancer_class)]
    return [("neutron", [*neutron, *_without_duplicates(auth)]), *own, *named]


def _without_duplicates(options: list[Any]) -> list[cfg.Opt]:
    seen = {option.name for option in neutron}
    return [o for o in options if not (o.name in seen or seen.add(o.name))]  # type: ignore[func-returns-value]


def read(arguments: Sequence[str], prog: str) -> cfg.ConfigOpts:
    """Read ``--config-file`` (default /etc/kuryr/kuryr.conf).

    :raises errors.ConfigError: the file is missing or unreadable, or an option is wrong.
    """
    conf = cfg.ConfigOpts()
    log.register_options(conf)
    for group, options in GROUPS.items():
        conf.register_opts(options, group=group)
    loading.register_session_conf_options(conf, "neutron")
    loading.register_auth_conf_options(conf, "neutron")
    loading.register_adapter_conf_options(conf, "neutron", include_deprecated=False)
    default = Path("/etc/kuryr/kuryr.conf")
    try:
        conf(
            list(arguments),
            project="kuryr",
            prog=prog,
            default_config_files=[str(default)] if default.exists() else [],
        )
        for group in (*GROUPS, *_register_classes(conf)):
            dict(conf[group])  # reads, and so checks, every value
    except cfg.Error as error:
        raise errors.ConfigError(str(error)) from error
    return conf


def _register_classes(conf: cfg.ConfigOpts) -> list[str]:
    """The groups whose names the operator has chosen; case is nothing to oslo.config."""
    prefix = config_octavia.CLASS_PREFIX
    sections = [name.lower() for name in conf.list_all_sections()]
    groups = [name for name in sections if name.startswith(prefix)]
    for group in groups:
        conf.register_opts(config_octavia.load_balancer_class, group=group)
    return groups


def load(arguments: Sequence[str], prog: str) -> cfg.ConfigOpts:
    """Read the options as :func:`read` does, and set up logging.

    :raises errors.ConfigError: the file is missing or unreadable, or an option is wrong.
    """
    conf = read(arguments, prog)
    log.set_defaults(default_log_levels=[*log.get_default_log_levels(), "aiohttp.access=WARN"])
    log.setup(conf, prog)
    return conf
