"""Options of the group ``[kubernetes]``."""

from oslo_config import cfg

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"

_api = [
    cfg.StrOpt(
        "api_root",
        help="URL of the Kubernetes API. Empty: the URL in the kubeconfig, or the one that "
        "Kubernetes tells every Pod.",
    ),
    cfg.StrOpt(
        "kubeconfig", help="Path of a kubeconfig file that contains the URL and the credentials."
    ),
    cfg.StrOpt(
        "ssl_ca_crt_file", help="Path of the CA certificate that signed the API's certificate."
    ),
    cfg.StrOpt("ssl_client_crt_file", help="Path of the client certificate, if there is one."),
    cfg.StrOpt("ssl_client_key_file", help="Path of the key of the client certificate."),
    cfg.BoolOpt("ssl_verify_server_crt", default=True, help="Verify the API's certificate."),
    cfg.StrOpt(
        "token_file",
        default=f"{SERVICE_ACCOUNT}/token",
        help="Path of the bearer token of the ServiceAccount. The file is read again when the "
        "token is rotated.",
    ),
    cfg.StrOpt(
        "node_name",
        help="Name of the Node that the daemon serves. Empty: the environment variable "
        "KUBERNETES_NODE_NAME, or the name of the host.",
    ),
]

_parts = [
    cfg.ListOpt(
        "enabled_handlers",
        default=["vif", "kuryrport", "kuryrportpool", "node"],
        help="Handlers that the controller runs, by the names of their entry points in "
        "kuryr_k8s.controller.handlers. Services also need lbaas_spec and loadbalancer, and "
        "Ingresses, besides these, l7_router and ingress; OpenShift Routes need ocp_route "
        "instead of ingress, or beside it. NeutronPorts need neutron_port, and NeutronPortPools, "
        "besides that, neutron_port_pool.",
    ),
    cfg.StrOpt(
        "pod_project_driver",
        default="default",
        help="Driver that decides which project a Pod's ports belong to: default or annotation.",
    ),
    cfg.StrOpt(
        "pod_subnets_driver", default="default", help="Driver that decides a Pod's subnets."
    ),
    cfg.StrOpt(
        "pod_security_groups_driver",
        default="default",
        help="Driver that decides the security groups of a Pod's ports.",
    ),
    cfg.StrOpt(
        "pod_vif_driver",
        default="neutron-vif",
        help="Driver that creates a Pod's interface in Neutron: neutron-vif, nested-vlan or "
        "nested-macvlan.",
    ),
    cfg.StrOpt(
        "vif_pool_driver",
        default="noop",
        help="Driver that creates ports before their Pods: noop (it creates none), neutron, "
        "nested, or multi_pool, which chooses by the Node's label pod_vif.",
    ),
    cfg.StrOpt(
        "pod_selection",
        default="all",
        choices=[
            ("all", "every Pod gets its interfaces from kuryr"),
            (
                "annotated",
                "only Pods that name a network of Neutron, or whose Namespace does; the others, "
                "and the nodes' CNI configuration, are left to another network plugin. This needs "
                "named_network in multi_vif_drivers",
            ),
        ],
        help="Which Pods get their interfaces from kuryr. With multus = delegate, Multus decides: "
        "see docs/interfaces.md. Set it on the nodes as well.",
    ),
    cfg.ListOpt(
        "vm_runtime_classes",
        default=[],
        help="RuntimeClasses whose Pods run in virtual machines of their own. On nodes that are "
        "virtual machines themselves, their interfaces are macvlans on top of VLANs: the runtime "
        "of Kata Containers in Go takes no VLANs.",
    ),
    cfg.ListOpt(
        "multi_vif_drivers",
        default=["noop"],
        deprecated_name="enabled_vif_drivers",
        help="Drivers that decide which further interfaces a Pod gets, in the order of their "
        "interfaces: noop (none), additional_subnets, specific_ports, npwg_multiple_interfaces, "
        "sriov. With named_network, Pods choose the network of their default interface.",
    ),
    cfg.BoolOpt(
        "specific_ports",
        default=True,
        help="Whether Pods may name Neutron ports that their users made, also if "
        "multi_vif_drivers does not list specific_ports.",
    ),
    cfg.StrOpt(
        "neutron_ports",
        default="off",
        choices=[
            ("off", "each Pod has ports of its own, which live as long as it does"),
            (
                "bind",
                "Pods that name a NeutronPort, or a network of Neutron, get a NeutronPort that is "
                "free, and wait while there is none",
            ),
            ("create", "where there is none, one is made for the Pod, and goes with it"),
        ],
        help="Whether NeutronPorts serve Pods: see docs/neutron-ports.md. This needs "
        "named_network in multi_vif_drivers, and neutron_port in enabled_handlers.",
    ),
    cfg.StrOpt(
        "multus",
        default="none",
        choices=[
            (
                "none",
                "kuryr-cni adds all interfaces of a Pod, and the driver "
                "npwg_multiple_interfaces writes the annotation network-status",
            ),
            ("default", "Multus does both; kuryr-cni is the plugin of its default network, too"),
            (
                "delegate",
                "Multus does both; another plugin is that of the default network: Pods get "
                "the interfaces that NetworkAttachmentDefinitions delegate to kuryr-cni, and no "
                "others. With named_network, that may be the default one",
            ),
        ],
        help="Whether Multus calls kuryr-cni.",
    ),
    cfg.StrOpt(
        "additional_ifname_prefix",
        default="eth",
        regex=r"^[A-Za-z][-A-Za-z0-9_.]{0,11}$",
        help="Prefix of the names of further interfaces to which the Pod gives no name; a number, "
        "from 1 on, follows.",
    ),
    cfg.StrOpt(
        "service_project_driver",
        default="default",
        help="Driver that decides which project a Service's load balancer belongs to: default or "
        "annotation.",
    ),
    cfg.StrOpt(
        "service_subnets_driver",
        default="default",
        help="Driver that decides the subnets of a Service's ClusterIPs.",
    ),
    cfg.StrOpt(
        "service_security_groups_driver",
        default="default",
        help="Driver that decides the security groups of a Service's ClusterIPs.",
    ),
    cfg.StrOpt(
        "endpoints_lbaas_driver",
        default="lbaasv2",
        help="Driver that creates the load balancers of Services.",
    ),
    cfg.StrOpt(
        "service_public_ip_driver",
        default="neutron_floating_ip",
        help="Driver that makes Services of type LoadBalancer reachable from outside.",
    ),
    cfg.StrOpt(
        "l7_router_driver",
        default="neutron_l7_policy",
        help="Driver that makes L7 routers of Ingresses and OpenShift Routes.",
    ),
]

_services = [
    cfg.StrOpt(
        "endpoints_driver_octavia_provider",
        default="default",
        help="Octavia provider of the load balancers: amphora, ovn, ... The value default stands "
        "for Octavia's own default. Load balancers of another provider are recreated.",
    ),
    cfg.StrOpt(
        "load_balancer_class",
        default="kuryr.openstack.org/octavia",
        help="The loadBalancerClass of the Services that kuryr exposes. Of Services of any other "
        "class, kuryr serves only the ClusterIPs and node ports.",
    ),
    cfg.BoolOpt(
        "annotate_endpoints",
        default=True,
        help="Write the annotations kuryr-lbaas-spec and kuryr-lbaas-state on the Endpoints of a "
        "Service, as kuryr-kubernetes does. Kubernetes has deprecated Endpoints: false leaves "
        "them alone, and writes both annotations on the Service. Load balancers never wait for "
        "annotations.",
    ),
    cfg.BoolOpt(
        "load_balancer_default",
        default=True,
        help="Serve Services of type LoadBalancer without a class, too. Set this to false beside "
        "a cloud controller manager with a service controller: kuryr then serves only the "
        "ClusterIPs of these Services.",
    ),
]

_controller = [
    cfg.BoolOpt("use_events", default=True, help="Report to users by Events what goes wrong."),
    cfg.StrOpt("lease_namespace", default="kube-system", help="Namespace of the Lease."),
    cfg.StrOpt(
        "lease_name",
        default="kuryr-k8s-controller",
        help="Name of the Lease. The controller that holds it works; the others stand by.",
    ),
    cfg.FloatOpt(
        "lease_duration", default=45.0, min=3.0, help="Number of seconds that the Lease lasts."
    ),
    cfg.StrOpt(
        "lock_file",
        default="/run/kuryr-controller/controller.lock",
        help="Path of a file that the controller of this host keeps locked. The lock proves that "
        "an earlier controller of the host is dead, so that a restarted one need not wait until "
        "its own Lease has run out.",
    ),
    cfg.IntOpt(
        "pod_workers", default=128, min=1, help="Number of Pods that are handled at the same time."
    ),
]

kubernetes = [*_api, *_parts, *_services, *_controller]
