"""The options of load balancers; see :mod:`kuryr_k8s.config`, which registers them."""

from oslo_config import cfg

# in the groups where the ancestor has them
kubernetes = [
    cfg.StrOpt("service_project_driver", default="default", help="default or annotation."),
    cfg.StrOpt("service_subnets_driver", default="default", help="Decides a Service's subnets."),
    cfg.StrOpt(
        "service_security_groups_driver",
        default="default",
        help="Decides the security groups of a Service's addresses.",
    ),
    cfg.StrOpt(
        "endpoints_lbaas_driver", default="lbaasv2", help="Makes Services' load balancers."
    ),
    cfg.StrOpt(
        "service_public_ip_driver",
        default="neutron_floating_ip",
        help="Makes Services of type LoadBalancer reachable from outside.",
    ),
    cfg.StrOpt(
        "endpoints_driver_octavia_provider",
        default="default",
        help="Octavia's provider of load balancers: amphora, ovn, ...; default: Octavia's own "
        "default. Existing load balancers of another provider are made anew.",
    ),
    cfg.StrOpt(
        "load_balancer_class",
        default="kuryr.openstack.org/octavia",
        help="The loadBalancerClass of Services that are ours; those of any other class are left "
        "alone.",
    ),
    cfg.BoolOpt(
        "load_balancer_default",
        default=True,
        help="Whether Services of type LoadBalancer without a class are ours as well. To be false "
        "beside a cloud controller manager with a service controller: then we serve their "
        "ClusterIPs alone.",
    ),
]

neutron_defaults = [
    cfg.ListOpt(
        "service_subnet",
        default=[],
        help="Subnet id for Services; two of one network (IPv4 and IPv6) where Services are "
        "dual-stack. The API server's --service-cluster-ip-range is part of it, outside of its "
        "allocation pools and gateway.",
    ),
    cfg.StrOpt(
        "external_svc_net",
        help="Id of the external network that Services of type LoadBalancer have their floating "
        "IPs of. Empty: they have none, unless they name a network themselves.",
    ),
    cfg.ListOpt(
        "external_svc_subnet",
        default=[],
        help="Subnet ids of that network: floating IPs are taken from them, and from a later one "
        "when those before it have no address left. Empty: from any.",
    ),
    cfg.FloatOpt(
        "lbaas_activation_timeout",
        default=300.0,
        min=1.0,
        help="Seconds for which a load balancer may be PENDING; then an Event tells of it.",
    ),
]

octavia_defaults = [
    cfg.IntOpt("max_calls", default=16, min=1, help="Octavia calls in flight at the most."),
    cfg.StrOpt(
        "member_mode",
        default="L3",
        choices=[
            ("L3", "members are reached through the router, from the subnet of the Services"),
            ("L2", "members are reached in the Pods' own subnet; the ovn provider needs it"),
        ],
        help="How a load balancer reaches its members.",
    ),
    cfg.StrOpt(
        "lb_algorithm",
        default="ROUND_ROBIN",
        choices=["ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP", "SOURCE_IP_PORT"],
        help="How connections are divided among members. The ovn provider knows SOURCE_IP_PORT "
        "alone.",
    ),
    cfg.IntOpt(
        "timeout_client_data",
        default=0,
        min=0,
        help="Milliseconds that a client may be silent. 0: as Octavia has it.",
    ),
    cfg.IntOpt(
        "timeout_member_data",
        default=0,
        min=0,
        help="Milliseconds that a member may be silent. 0: as Octavia has it.",
    ),
    cfg.BoolOpt(
        "enable_health_monitor",
        default=False,
        help="Let Octavia ask the members of Services of type LoadBalancer whether they are well, "
        "where the Service does not say otherwise by annotation.",
    ),
    cfg.BoolOpt(
        "enforce_sg_rules",
        default=True,
        help="Let a load balancer be reached only as network policies for the Pods behind it "
        "allow: those are to come, and until then this changes nothing. As in kuryr-kubernetes, "
        "pod_security_groups are no policies: what they forbid, clients are forbidden with the "
        "ovn provider, which keeps their addresses, and allowed with amphora.",
    ),
    cfg.BoolOpt(
        "member_security_group",
        default=True,
        help="Give Pods one more security group (pod_security_groups_driver = default), which we "
        "make and which lets in what comes from service_subnet: amphora connects from there "
        "(with member_mode = L3), and with ovn a Pod that reaches itself through a Service. "
        "False: other groups of the Pods do.",
    ),
    cfg.IntOpt(
        "rebuild_limit",
        default=3,
        min=0,
        help="How often in a row a load balancer that Octavia put in ERROR is made anew, each "
        "time after a longer while; then it is left to people.",
    ),
]

# of each group [load_balancer_class:NAME], which a Service names by the annotation
# loadbalancer.openstack.org/class; they go before its other annotations
CLASS_PREFIX = "load_balancer_class:"
load_balancer_class = [
    cfg.StrOpt("floating_network_id", help="External network of the floating IP."),
    cfg.StrOpt("floating_subnet_id", help="Subnet of the floating IP."),
    cfg.StrOpt(
        "floating_subnet",
        help="Pattern of names of subnets, as in the annotation; or with ~ in front a regular "
        "expression, which is searched for in the names.",
    ),
    cfg.StrOpt("floating_subnet_tags", help="Tags of subnets, as in the annotation."),
    cfg.StrOpt("network_id", help="Network of the VIP."),
    cfg.StrOpt("subnet_id", help="Subnet of the VIP."),
]
