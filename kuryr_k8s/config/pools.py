"""Options of the groups ``[vif_pool]`` and ``[pod_vif_nested]``."""

from oslo_config import cfg

vif_pool = [
    cfg.IntOpt(
        "ports_pool_min",
        default=5,
        min=0,
        help="Minimum number of available ports in a pool. There is a pool for each project, node "
        "(or trunk), network and set of security groups that Pods have asked for.",
    ),
    cfg.IntOpt(
        "ports_pool_batch",
        default=10,
        min=1,
        help="Minimum number of ports that are created at once when a pool has fewer than "
        "ports_pool_min.",
    ),
    cfg.IntOpt(
        "ports_pool_max",
        default=0,
        min=0,
        help="Maximum number of available ports in a pool. Ports that return beyond it are "
        "deleted. 0: no limit.",
    ),
    cfg.FloatOpt(
        "ports_pool_ttl",
        default=0.0,
        min=0.0,
        help="Number of seconds after which a port that nobody used is deleted, if the pool has "
        "more than ports_pool_min. 0: never.",
    ),
    cfg.FloatOpt(
        "ports_pool_idle",
        default=3600.0,
        min=0.0,
        help="Number of seconds after which a pool that nobody used is emptied. 0: never.",
    ),
    cfg.FloatOpt(
        "ports_pool_cooldown",
        default=10.0,
        min=0.0,
        help="Number of seconds before another Pod gets a port that returned, unless there is no "
        "other port. Neighbours and load balancers may still remember its addresses.",
    ),
    cfg.FloatOpt(
        "ports_pool_update_frequency",
        default=20.0,
        min=1.0,
        help="Number of seconds between two inspections of a pool, which look for ports that "
        "returned and for surplus ports.",
    ),
    cfg.FloatOpt(
        "ports_pool_fill_rate",
        default=10.0,
        min=0.1,
        help="Maximum number of ports per second that all pools together create in advance. Ports "
        "that a Pod waits for do not count.",
    ),
    cfg.FloatOpt(
        "ports_pool_cleanup_rate",
        default=5.0,
        min=0.1,
        help="Maximum number of ports per second that all pools together rename or delete.",
    ),
    cfg.IntOpt(
        "ports_quota_reserve",
        default=0,
        min=0,
        help="Number of ports of a project's quota that pools leave to others. Pods may use them. "
        "The reserve is kept if Neutron shows us the quota: it shows that of our own project, and "
        "that of every project to an administrator.",
    ),
    cfg.BoolOpt(
        "port_names",
        default=True,
        help="Give a pool's port the name and the uid of its Pod, some seconds after the Pod got "
        "it. By the uid, a controller that restarts knows whose the port is, whatever nodes have "
        "written into KuryrPorts.",
    ),
    cfg.BoolOpt(
        "park_ports",
        default=True,
        help="Let nodes keep the ports of their pools plugged, hence ACTIVE (KuryrPortPool).",
    ),
    cfg.DictOpt(
        "vif_pool_mapping",
        default={},
        help="For vif_pool_driver = multi_pool: the pool driver of each pod_vif driver that a "
        "Node's label pod_vif may name. Example: nested-vlan:nested,neutron-vif:neutron.",
    ),
    cfg.DictOpt(
        "pools_vif_drivers",
        default={},
        deprecated_for_removal=True,
        deprecated_reason="vif_pool_mapping contains the same pairs in the other direction.",
        help="The pod_vif driver of each pool driver. Example: nested:nested-vlan.",
    ),
]

pod_vif_nested = [
    cfg.ListOpt(
        "worker_nodes_subnets",
        default=[],
        help="For the pod_vif drivers nested-vlan and nested-macvlan: ids of the subnets in which "
        "the virtual machines that are nodes have their InternalIPs. For nested-vlan, the port of "
        "such a machine must be the parent port of a trunk in our own project.",
    ),
    cfg.StrOpt(
        "trunk_tag",
        help="Find the trunk of a node by this tag instead. {node} stands for the name of the "
        "Node. Example: k8s-node={node}.",
    ),
    cfg.IntOpt(
        "rev_update_attempts",
        default=3,
        min=1,
        help="Number of times that VLAN ids are chosen again if others take them first on the "
        "same trunk, and that address pairs are written again if others change the same port.",
    ),
]
