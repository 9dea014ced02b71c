"""Names of annotations, labels and finalizers: spelled here and nowhere else."""

from typing import Any

# Finalizers of a KuryrPort: the controller's goes after the Neutron port, the daemon's
# after the interface has left the node.
KURYRPORT_FINALIZER = "kuryr.openstack.org/kuryrport-finalizer"
NODE_FINALIZER = "kuryr.openstack.org/node-finalizer"

NODE_NAME_LABEL = "kuryr.openstack.org/nodeName"
# Set on a KuryrPort: which life of the controller's process created it.
CREATOR = "openstack.org/kuryr-creator"
# Set on a KuryrPort that had no interfaces when a controller took the Lease: which life of its
# process did. Its purpose is the new resourceVersion.
LEADER = "openstack.org/kuryr-leader"
# Set by the daemon on its Node: the chassis' hostname, Neutron's binding:host_id.
HOST_ID = "openstack.org/kuryr-host-id"
# A label of Nodes: the pod_vif driver for its Pods ([kubernetes] vif_pool_driver = multi_pool).
POD_VIF_LABEL = "pod_vif"
# Set on a Namespace: the project its Pods' ports, and its Services' load balancers, belong to.
PROJECT = "openstack.org/kuryr-project"

# A Service's: it goes after the load balancer.
SERVICE_FINALIZER = "kuryr.openstack.org/service-finalizer"
# Set on a Service and on its Endpoints: what the load balancer is made from (LBaaSServiceSpec),
# and the resourceVersion of the Service from which that was computed.
LBAAS_SPEC = "openstack.org/kuryr-lbaas-spec"
LBAAS_SPEC_VERSION = "openstack.org/kuryr-lbaas-spec-version"
# Set on the Endpoints of a Service, or where there are none on the Service: what was made
# (LBaaSState), and where members were left out of it, how many of them are in: «430 of 1000».
LBAAS_STATE = "openstack.org/kuryr-lbaas-state"
LBAAS_STATE_CUT = "openstack.org/kuryr-lbaas-state-members"
# What users ask by annotations of a Service: see service_annotations.py.
# Labels that Kubernetes defines: another one than kube-proxy serves the Service; its name on a
# slice.
PROXY_NAME_LABEL = "service.kubernetes.io/service-proxy-name"
SERVICE_NAME_LABEL = "kubernetes.io/service-name"

# The kubelet's, on mirror Pods of static Pods.
CONFIG_HASH = "kubernetes.io/config.hash"
CONFIG_MIRROR = "kubernetes.io/config.mirror"

OUT_OF_SERVICE_TAINT = "node.kubernetes.io/out-of-service"


def annotation(item: dict[str, Any], name: str) -> str | None:
    """The annotation's value, or None."""
    value = (item["metadata"].get("annotations") or {}).get(name)
    return None if value is None else str(value)
