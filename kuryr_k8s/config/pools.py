"""The options of pools of ports; see :mod:`kuryr_k8s.config`, which registers them."""

from oslo_config import cfg

vif_pool = [
    cfg.IntOpt(
        "ports_pool_min",
        default=5,
        min=0,
        help="Ports that a pool has available at least. There is a pool for each project, node "
        "(or trunk), network and set of security groups that Pods have asked for.",
    ),
    cfg.IntOpt(
        "ports_pool_batch",
        default=10,
        min=1,
        help="Ports that are made at once, at least, when a pool has fewer than ports_pool_min.",
    ),
    cfg.IntOpt(
        "ports_pool_max",
        default=0,
        min=0,
        help="Ports that a pool has available at most: one that comes back beyond is deleted. "
        "0: no limit.",
    ),
    cfg.FloatOpt(
        "ports_pool_ttl",
        default=0.0,
        min=0.0,
        help="Seconds after which a port that nobody used is deleted, where the pool has more "
        "than ports_pool_min. 0: never.",
    ),
    cfg.FloatOpt(
        "ports_pool_idle",
        default=3600.0,
        min=0.0,
        help="Seconds after which a pool that nobody uses is emptied. 0: never.",
    ),
    cfg.FloatOpt(
        "ports_pool_cooldown",
        default=10.0,
        min=0.0,
        help="Seconds before a port that came back is given to another Pod, unless there is no "
        "other: neighbours and load balancers may still remember its addresses.",
    ),
    cfg.FloatOpt(
        "ports_pool_update_frequency",
        default=20.0,
        min=1.0,
        help="Seconds between two looks at a pool: ports that came back, or are too many.",
    ),
    cfg.FloatOpt(
        "ports_pool_fill_rate",
        default=10.0,
        min=0.1,
        help="Ports in a second that are made for Pods to come, by all pools together. Those "
        "that a Pod waits for are not counted.",
    ),
    cfg.FloatOpt(
        "ports_pool_cleanup_rate",
        default=5.0,
        min=0.1,
        help="Ports in a second that are renamed or deleted, by all pools together.",
    ),
    cfg.IntOpt(
        "ports_quota_reserve",
        default=0,
        min=0,
        help="Ports of a project's quota that pools leave to others; Pods may use them. Heeded "
        "where Neutron tells us the quota: of our own project, or of all to an administrator.",
    ),
    cfg.BoolOpt(
        "port_names",
        default=True,
        help="Let a pool's port bear the name and the uid of the Pod that has it, some seconds "
        "after it got it.",
    ),
    cfg.BoolOpt(
        "park_ports",
        default=True,
        help="Let nodes keep the ports of their pools plugged, hence ACTIVE (KuryrPortPool).",
    ),
    cfg.DictOpt(
        "vif_pool_mapping",
        default={},
        help="vif_pool_driver = multi_pool: the pool driver for each pod_vif driver that a Node's "
        "label pod_vif may name, as nested-vlan:nested,neutron-vif:neutron.",
    ),
    cfg.DictOpt(
        "pools_vif_drivers",
        default={},
        deprecated_for_removal=True,
        deprecated_reason="vif_pool_mapping says the same the other way round.",
        help="The pod_vif driver of each pool driver, as nested:nested-vlan.",
    ),
]
