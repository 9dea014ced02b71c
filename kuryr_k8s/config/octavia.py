"""Options of ``[octavia_defaults]``, ``[l7_router]`` and ``[load_balancer_class:NAME]``."""

from oslo_config import cfg

octavia_defaults = [
    cfg.IntOpt(
        "max_calls",
        default=16,
        min=1,
        help="Maximum number of calls to Octavia that are in flight at the same time.",
    ),
    cfg.StrOpt(
        "member_mode",
        choices=[
            ("L3", "members are reached through the router, from the subnet of the Services"),
            ("L2", "members are reached in the Pods' own subnet; the ovn provider needs it"),
        ],
        help="How a load balancer reaches its members. By default L2 if the option "
        "endpoints_driver_octavia_provider is ovn, and otherwise L3.",
    ),
    cfg.StrOpt(
        "l7_provider",
        default="amphora",
        help="Octavia provider of L7 routers: one that looks into requests, as ovn does not.",
    ),
    cfg.StrOpt(
        "lb_algorithm",
        choices=["ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP", "SOURCE_IP_PORT"],
        help="How connections are distributed to members. By default SOURCE_IP_PORT if the option "
        "endpoints_driver_octavia_provider is ovn, and otherwise ROUND_ROBIN. The ovn provider "
        "supports only SOURCE_IP_PORT and SOURCE_IP.",
    ),
    cfg.IntOpt(
        "timeout_client_data",
        default=0,
        min=0,
        help="Number of milliseconds that a client may be silent. 0: Octavia's default.",
    ),
    cfg.IntOpt(
        "timeout_member_data",
        default=0,
        min=0,
        help="Number of milliseconds that a member may be silent. 0: Octavia's default.",
    ),
    cfg.BoolOpt(
        "enable_health_monitor",
        default=False,
        help="Let Octavia monitor the health of the members of Services of type LoadBalancer, "
        "unless an annotation of the Service says otherwise.",
    ),
    cfg.BoolOpt(
        "enforce_sg_rules",
        default=True,
        help="Make a load balancer reachable only as the network policies of the Pods behind it "
        "allow. Network policies are not implemented yet; until then this option changes nothing. "
        "As in kuryr-kubernetes, pod_security_groups are not policies: what they forbid is "
        "forbidden to clients with the ovn provider, which keeps the clients' addresses, and "
        "allowed with amphora.",
    ),
    cfg.BoolOpt(
        "member_security_group",
        default=True,
        help="Give Pods one more security group (pod_security_groups_driver = default). The "
        "controller creates it, and it allows what comes from service_subnet and node_subnet: "
        "amphora connects from service_subnet (with member_mode = L3), and so does a Pod that "
        "reaches itself through a Service with ovn; kubelets probe Pods from node_subnet. Set "
        "this to false if other groups of the Pods allow that traffic.",
    ),
    cfg.IntOpt(
        "rebuild_limit",
        default=3,
        min=0,
        help="Number of times in a row that a load balancer in ERROR is recreated, each time "
        "after a longer delay. After that, a person has to repair it.",
    ),
]

l7_router = [
    cfg.StrOpt(
        "vip_address",
        help="Address of the L7 router's VIP: one of service_subnet that no Service can get. "
        "Empty: any; the router keeps the one that it has got.",
    ),
    cfg.StrOpt(
        "floating_ip",
        help="Floating IP of the L7 router, to which names in DNS can point before it exists. One "
        "that exists in the project, and that nobody uses, is taken. Empty: any; the router keeps "
        "the one that it has got.",
    ),
    cfg.StrOpt(
        "default_backend",
        regex=r"^([a-z0-9.-]+/[a-z0-9-]+:[a-z0-9-]+)?$",
        help="Service for requests for which there is no route, as NAMESPACE/NAME:PORT, with the "
        "name or the number of the port: for example one that answers 404. Empty: Octavia answers "
        "503.",
    ),
    cfg.BoolOpt(
        "tls",
        default=False,
        help="Serve Ingresses and OpenShift Routes over TLS where they ask for it. Certificates "
        "are read from Secrets of type kubernetes.io/tls, which "
        "etc/rbac/optional/tls-secrets.yaml allows, and stored in Barbican for Octavia, in the "
        "project of the account of [neutron].",
    ),
    cfg.StrOpt(
        "default_certificate",
        regex=r"^([a-z0-9-]+/[a-z0-9.-]+)?$",
        help="Secret of type kubernetes.io/tls, as NAMESPACE/NAME, with the certificate for "
        "Ingresses and Routes that ask for TLS without naming one. Clients that ask for a host "
        "for which there is no certificate are shown it as well.",
    ),
    cfg.StrOpt(
        "route_labels",
        default="",
        regex=r"^([^=,\s]+=[^=,\s]*(,[^=,\s]+=[^=,\s]*)*)?$",
        help="Labels of the OpenShift Routes to serve, as KEY=VALUE,KEY2=VALUE2: those that have "
        "all of them. Empty: all Routes.",
    ),
    cfg.StrOpt(
        "route_domain",
        default="",
        regex=r"^([a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*)?$",
        help="Domain of OpenShift Routes without a host: a Route gets the host "
        "NAME-NAMESPACE.DOMAIN, or SUBDOMAIN.DOMAIN if it has a subdomain. Empty: they are "
        "refused. The names in DNS must lead to the L7 router.",
    ),
    cfg.BoolOpt(
        "route_wildcards",
        default=False,
        help="Serve OpenShift Routes with wildcardPolicy: Subdomain, which then have all hosts of "
        "a domain in which no other namespace has one. Like OpenShift's router with "
        "ROUTER_ALLOW_WILDCARD_ROUTES.",
    ),
    cfg.StrOpt(
        "route_canonical_hostname",
        default="",
        help="Name in DNS of the L7 router, which the status of OpenShift Routes then tells "
        "(routerCanonicalHostname): the target of CNAMEs.",
    ),
]

# The groups [load_balancer_class:NAME], which a Service names by the annotation
# loadbalancer.openstack.org/class. They take precedence over the Service's other annotations.
CLASS_PREFIX = "load_balancer_class:"
load_balancer_class = [
    cfg.StrOpt("floating_network_id", help="Id of the external network of the floating IP."),
    cfg.StrOpt("floating_subnet_id", help="Id of the subnet of the floating IP."),
    cfg.StrOpt(
        "floating_subnet",
        help="Pattern of names of subnets, as in the annotation. A pattern that begins with ~ is "
        "a regular expression, which is searched for in the names.",
    ),
    cfg.StrOpt("floating_subnet_tags", help="Tags of subnets, as in the annotation."),
    cfg.StrOpt("network_id", help="Id of the network of the VIP."),
    cfg.StrOpt("subnet_id", help="Id of the subnet of the VIP."),
]
