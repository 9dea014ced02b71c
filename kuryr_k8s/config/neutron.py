"""Options of the groups ``[neutron]``, ``[neutron_defaults]`` and ``[policy]``."""

from typing import Any

from oslo_config import cfg, types

neutron = [
    cfg.StrOpt(
        "cloud",
        help="Name of a cloud in clouds.yaml. Empty: the authentication options of this group "
        "apply.",
    ),
    cfg.IntOpt(
        "max_calls",
        default=16,
        min=1,
        help="Maximum number of calls to Neutron that are in flight at the same time.",
    ),
    cfg.FloatOpt(
        "calls_per_second",
        default=0.0,
        min=0.0,
        help="Number of calls to Neutron that may begin in a second. Those that Pods wait for go "
        "first, and projects take turns. 0: as many as max_calls and Neutron itself allow.",
    ),
    cfg.FloatOpt(
        "call_timeout", default=60.0, min=1.0, help="Number of seconds that one call may take."
    ),
]

_pods = [
    cfg.StrOpt("project", help="Id of the project that Pods' ports belong to."),
    cfg.ListOpt(
        "pod_subnet",
        default=[],
        help="Ids of the subnets for Pods, all of one network. IPv4 and IPv6 subnets together "
        "make Pods dual-stack. Of several subnets of one address family, a Pod gets an address of "
        "the first that has one left.",
    ),
    cfg.ListOpt(
        "pod_security_groups", default=[], help="Ids of the security groups of Pods' ports."
    ),
]

_nodes = [
    cfg.ListOpt(
        "node_subnet",
        default=[],
        help="Ids of subnets of one network, one of each address family at most. Each node gets a "
        "port there, which its daemon plugs as kuryr0, and by which it reaches the subnets for "
        "Pods and for Services through the subnets' gateways. Empty: nodes get no ports; the "
        "operator routes from nodes to Pods.",
    ),
    cfg.ListOpt(
        "node_security_groups",
        default=[],
        help="Ids of the security groups of nodes' ports. Empty: the project's default group.",
    ),
    cfg.ListOpt(
        "node_routes",
        default=[],
        help="Further destinations, in CIDR notation, that nodes reach through the gateways of "
        "node_subnet: for example a subnet with DNS servers.",
    ),
]

_services = [
    cfg.ListOpt(
        "service_subnet",
        default=[],
        help="Id of the subnet for Services. List two subnets of one network (IPv4 and IPv6) if "
        "Services are dual-stack. The API server's --service-cluster-ip-range must be part of "
        "the subnet; the subnet's allocation pools and gateway must be outside that range.",
    ),
    cfg.StrOpt(
        "external_svc_net",
        help="Id of the external network from which Services of type LoadBalancer, L7 routers, "
        "Pods and NeutronPorts get floating IPs. They keep the addresses that they have when it "
        "changes. Empty: that of external_svc_subnet; if that is empty as well, only Services "
        "that name a network themselves get one.",
    ),
    cfg.ListOpt(
        "external_svc_subnet",
        default=[],
        help="Ids of subnets of that network, which need not be named then. Floating IPs are "
        "taken from the first subnet, and from a later one when those before it have no address "
        "left. Empty: from any subnet.",
    ),
    cfg.FloatOpt(
        "lbaas_activation_timeout",
        default=300.0,
        min=1.0,
        help="Number of seconds that a load balancer may be PENDING before an Event reports it.",
    ),
]

_all = [
    cfg.StrOpt(
        "ovs_bridge", help="Name of the integration bridge. Empty: the one that Neutron names."
    ),
    cfg.IntOpt(
        "network_device_mtu",
        default=0,
        help="Upper limit of the MTU of Pods' interfaces. 0: no limit.",
    ),
    cfg.ListOpt(
        "resource_tags",
        default=[],
        help="Tags on every object that is created in Neutron and Octavia, besides the tag "
        "kuryr-cluster:<uid of the namespace kube-system>. This option must be set. The first tag "
        "names the cluster, and no other cluster should use it: objects of another cluster with "
        "these tags are never touched, but as long as there are any, nothing is swept.",
    ),
    cfg.FloatOpt(
        "sweep_interval",
        default=600.0,
        min=1.0,
        help="Number of seconds between two sweeps, which search for ports and load balancers of "
        "this cluster that nothing names. What two sweeps in a row have found is deleted.",
    ),
]

neutron_defaults = [*_pods, *_nodes, *_services, *_all]

_GRANT = types.String(regex=r"^(\*|[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?):\S+$")


def _grants(name: str, pairs: str) -> Any:
    return cfg.ListOpt(
        name,
        item_type=_GRANT,
        default=["*:*"],
        help=f"Pairs {pairs}. * before the colon stands for every Namespace; * after it, for "
        "everything that the Namespace's own project has, or that is shared with it. What no pair "
        "allows is refused.",
    )


policy = [
    cfg.ListOpt(
        "projects",
        default=[],
        help="Pairs namespace:project. Each grants a Namespace a project, besides "
        "[neutron_defaults] project, that it may ask for by its annotation "
        "openstack.org/kuryr-project (pod_project_driver = annotation). *:project grants the "
        "project to every Namespace.",
    ),
    _grants(
        "ports",
        "namespace:id, of Neutron ports that Services may name by the annotation "
        "loadbalancer.openstack.org/port-id, and Pods by openstack.org/spec-ports "
        "and spec-default-port",
    ),
    _grants(
        "networks",
        "namespace:id, of networks that Services may name, or name a subnet of, by the "
        "annotations network-id, subnet-id, additional-vip-subnet-ids and floating-network-id; or "
        "that Pods and Namespaces may name, or name subnets of. Networks of node_subnet and "
        "service_subnet have to be granted by their ids",
    ),
    _grants(
        "security_groups",
        "namespace:id, of security groups that Services may name by the annotation vip-sg-ids, "
        "NetworkAttachmentDefinitions by securityGroupIds, and Pods and Namespaces by "
        "openstack.org/security_group_ids",
    ),
    _grants(
        "qos_policies",
        "namespace:id, of QoS policies that Pods and Namespaces may name by "
        "openstack.org/qos_policy_id",
    ),
    cfg.ListOpt(
        "port_security",
        item_type=_GRANT,
        default=[],
        help="Pairs namespace:id, of networks in which a Namespace's Pods may have ports without "
        "port security, or with allowed address pairs: such a Pod may send with anybody's "
        "address; or macvlans by the driverType nested-macvlan, without security groups of their "
        "own. * before the colon stands for every Namespace; * after it, for every network of the "
        "Namespace's project.",
    ),
    _grants(
        "floating_ips",
        "namespace:address, of floating IPs of their project that Services may name by "
        "loadBalancerIP, and Pods by openstack.org/floating_ip (an address that the Service or "
        "Pod has already needs no grant). * after the colon lets Pods have new ones, too",
    ),
    _grants(
        "tls_containers",
        "namespace:reference, of TLS containers that Services may name by the annotations "
        "default-tls-container-ref, sni-container-refs, client-ca-tls-container-ref and "
        "client-crl-container-ref",
    ),
    _grants(
        "load_balancers",
        "namespace:id, of operators' load balancers of their project on which Services may have "
        "ports, by the annotation load-balancer-id",
    ),
]


def authentication() -> list[Any]:
    """Return keystoneauth's options of ``[neutron]``, those of its password plugin included.

    ``cloud/connect.py`` registers them. For the sample alone they are imported here: the daemon
    reads the same files, and has no use for 5 MiB of keystoneauth.
    """
    from keystoneauth1 import loading

    options = [
        *loading.get_session_conf_options(),
        *loading.get_auth_common_conf_options(),
        *loading.get_auth_plugin_conf_options("password"),
        *loading.get_adapter_conf_options(include_deprecated=False),
    ]
    return list({option.name: option for option in reversed(options)}.values())[::-1]
