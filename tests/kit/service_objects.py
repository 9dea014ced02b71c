"""Services and EndpointSlices as the API server shows them, for tests; and as we read them."""

from kuryr_k8s.cloud.neutron.api import Subnet
from kuryr_k8s.model.service import EndpointSlice, Service

UID = "5e000000-0000-4000-8000-000000000001"


def service(*ports, addresses=("10.96.0.10",), annotations=None, labels=None, **spec):
    """Ports are pairs (name, number), or triples with a protocol."""
    return Service.read(service_item(ports, addresses, annotations, labels, **spec))


def service_item(ports, addresses=("10.96.0.10",), annotations=None, labels=None, **spec):
    meta = {
        "namespace": "default",
        "name": "web",
        "uid": UID,
        "resourceVersion": "7",
        "annotations": annotations,
        "labels": labels,
    }
    body = {
        "type": "ClusterIP",
        "clusterIP": addresses[0] if addresses else None,
        "clusterIPs": list(addresses),
        "ports": [port_item(*port) for port in ports],
        "selector": {"app": "web"},
    }
    return {"metadata": meta, "spec": body | spec}


def port_item(name, number, protocol="TCP"):
    return {"name": name, "port": number, "protocol": protocol}


def endpoint(address, *, pod=None, **conditions):
    """As in a slice."""
    target = {"kind": "Pod", "namespace": "default", "name": pod} if pod else None
    found = {"addresses": [address], "conditions": conditions, "targetRef": target}
    return {key: value for key, value in found.items() if value is not None}


def slice_of(endpoints, *ports, family="IPv4", name="web-1"):
    """Ports as of a Service."""
    return EndpointSlice.read(
        {
            "metadata": {
                "namespace": "default",
                "name": name,
                "uid": f"uid of {name}",
                "resourceVersion": "8",
                "labels": {"kubernetes.io/service-name": "web"},
            },
            "addressType": family,
            "ports": [port_item(*port) for port in ports],
            "endpoints": endpoints,
        }
    )


def subnet(cidr, subnet_id="pods-4", gateway_ip=None, allocation_pools=()):
    return Subnet(
        id=subnet_id,
        network_id="n",
        cidr=cidr,
        ip_version=6 if ":" in cidr else 4,
        gateway_ip=gateway_ip,
        dns_nameservers=(),
        host_routes=(),
        allocation_pools=allocation_pools,
    )
