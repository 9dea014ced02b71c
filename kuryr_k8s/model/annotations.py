"""The names of annotations, labels, finalizers and conditions, spelled nowhere else."""

from typing import Any

# Finalizers of a KuryrPort. The controller removes its own after the Neutron port is gone, the
# daemon after the interface has left the node.
KURYRPORT_FINALIZER = "kuryr.openstack.org/kuryrport-finalizer"
NODE_FINALIZER = "kuryr.openstack.org/node-finalizer"

NODE_NAME_LABEL = "kuryr.openstack.org/nodeName"
# Set on a KuryrPort: which run of the controller's process created it.
CREATOR = "openstack.org/kuryr-creator"
# Set on a KuryrPort at its creation, and again if it had no interfaces when a controller took the
# Lease: the run of the process that leads. It also gives the KuryrPort a new resourceVersion.
LEADER = "openstack.org/kuryr-leader"
# Set by the daemon on its Node: the chassis' hostname, Neutron's binding:host_id.
HOST_ID = "openstack.org/kuryr-host-id"
# Set by the controller on a Node: the interface by which the node reaches its Pods.
NODE_INTERFACE = "openstack.org/kuryr-node-interface"
# Set by the controller on every Node: the L7 router (L7RouterState).
L7_ROUTER_STATE = "openstack.org/kuryr-l7-router-state"
# A label of Nodes: the pod_vif driver for its Pods ([kubernetes] vif_pool_driver = multi_pool).
POD_VIF_LABEL = "pod_vif"
# Marks of Nodes whose Pods get their network from somebody else: a value of that label, and what
# Virtual Kubelet gives its Nodes.
POD_VIF_NONE = "none"
VIRTUAL_KUBELET_LABEL = ("type", "virtual-kubelet")
VIRTUAL_KUBELET_TAINT = "virtual-kubelet.io/provider"
# The beginning of the names of resources that are VFs of network cards: a physical network ends it
OPAQUE_VFS = "pod.alpha.kubernetes.io/opaque-int-resource-sriov-vf-"
# Set on a Namespace: the project of its Pods' ports and of its Services' load balancers.
PROJECT = "openstack.org/kuryr-project"

# The finalizer of a Service that we expose, removed after the load balancers are gone.
SERVICE_FINALIZER = "kuryr.openstack.org/service-finalizer"
# Set on a Service and on its Endpoints: the specification of the load balancer (LBaaSServiceSpec),
# and the resourceVersion of the Service from which it was computed.
LBAAS_SPEC = "openstack.org/kuryr-lbaas-spec"
LBAAS_SPEC_VERSION = "openstack.org/kuryr-lbaas-spec-version"
# Set on the Endpoints of a Service, or on the Service if it has none: the state of the load
# balancer (LBaaSState), and how many members it lists if not all: «430 of 1000».
LBAAS_STATE = "openstack.org/kuryr-lbaas-state"
LBAAS_STATE_CUT = "openstack.org/kuryr-lbaas-state-members"
# The annotations by which users configure a Service are in service_annotations.py.
# Labels that Kubernetes defines: the proxy that serves a Service or a slice, if not kube-proxy;
# nobody is to serve it; the Service's name on a slice.
PROXY_NAME_LABEL = "service.kubernetes.io/service-proxy-name"
HEADLESS_LABEL = "service.kubernetes.io/headless"
SERVICE_NAME_LABEL = "kubernetes.io/service-name"

# The kubelet's, on mirror Pods of static Pods.
CONFIG_HASH = "kubernetes.io/config.hash"
CONFIG_MIRROR = "kubernetes.io/config.mirror"

# Listed in spec.readinessGates of a Pod, and a condition of its status: the load balancers of all
# Services that select it have it as a member.
READINESS_GATE = "kuryr.openstack.org/load-balancer-ready"

OUT_OF_SERVICE_TAINT = "node.kubernetes.io/out-of-service"


def annotation(item: dict[str, Any], name: str) -> str | None:
    """Return the value of an annotation, None without it."""
    value = (item["metadata"].get("annotations") or {}).get(name)
    return None if value is None else str(value)
