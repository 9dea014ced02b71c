"""The groups of options, and the input of ``oslo-config-generator``."""

from collections.abc import Sequence

from oslo_config import cfg

from kuryr_k8s.config import health, kubernetes, neutron, node, octavia, pools, sriov

GROUPS: dict[str, Sequence[cfg.Opt]] = {
    "kubernetes": kubernetes.kubernetes,
    "neutron": neutron.neutron,
    "neutron_defaults": neutron.neutron_defaults,
    "octavia_defaults": octavia.octavia_defaults,
    "l7_router": octavia.l7_router,
    "pod_vif_nested": pools.pod_vif_nested,
    "vif_pool": pools.vif_pool,
    "policy": neutron.policy,
    "sriov": sriov.sriov,
    "cni_daemon": node.cni_daemon,
    "binding": node.binding,
    "health_server": health.health_server,
    "cni_health_server": health.cni_health_server,
}


def list_opts() -> list[tuple[str, Sequence[cfg.Opt]]]:
    """Return all options for the sample file, keystoneauth's included."""
    own = {option.name for option in neutron.neutron}
    foreign = [option for option in neutron.authentication() if option.name not in own]
    others = [(group, options) for group, options in GROUPS.items() if group != "neutron"]
    classes = (f"{octavia.CLASS_PREFIX}name", octavia.load_balancer_class)
    return [("neutron", [*neutron.neutron, *foreign]), *others, classes]
