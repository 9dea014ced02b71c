"""Objects of a cluster at work: Pods with kubelets' status, KuryrPorts with VIFs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kuryr_k8s.cloud.neutron.api import Network, Subnet
from kuryr_k8s.drivers.base import PodNetwork
from kuryr_k8s.drivers.vif import neutron_plan as vif_plan
from kuryr_k8s.model.kuryrport import DEFAULT_IFNAME, write_vifs

Json = dict[str, Any]
UUID = "{:08x}-0000-4000-8000-000000000000".format
CIDRS = {4: "10.64.0.0/14", 6: "fd64::/64"}
_IMAGE = "registry.example.invalid/shop/{}:2026.1"
_TIME = "2026-01-01T00:00:00Z"
_CONTAINERS = ("frontend", "log-shipper")


def kubelet_pod(name: str, namespace: str, node: str) -> Json:
    """Return a Pod of a Deployment with two containers, volumes and probes."""
    labels = {"app": "shop", "pod-template-hash": "5d4f8c7b9"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels,
            "annotations": {"prometheus.io/scrape": "true", "checksum/config": 64 * "d"},
        },
        "spec": {
            "nodeName": node,
            "containers": [_container(container) for container in _CONTAINERS],
            "volumes": [
                {"name": "config", "configMap": {"name": "shop-config"}},
                {"name": "scratch", "emptyDir": {}},
            ],
        },
    }


def kubelet_status(addresses: Sequence[str]) -> Json:
    """Return the status of a running Pod."""
    kinds = (
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    )
    return {
        "phase": "Running",
        "hostIP": "192.0.2.10",
        "podIP": addresses[0],
        "podIPs": [{"ip": address} for address in addresses],
        "qosClass": "Burstable",
        "startTime": _TIME,
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": _TIME} for kind in kinds
        ],
        "containerStatuses": [
            {
                "name": name,
                "image": _IMAGE.format(name),
                "imageID": _IMAGE.format(name),
                "containerID": "containerd://" + 64 * "e",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": _TIME}},
                "lastState": {},
            }
            for name in _CONTAINERS
        ],
    }


def pod_network(network_id: str = UUID(1), subnet_ids: Sequence[str] = ()) -> PodNetwork:
    """Return the network of the Pods, with a subnet of each address family."""
    ids = dict(zip(CIDRS, subnet_ids or (UUID(4), UUID(6)), strict=True))
    subnets = tuple(
        Subnet(
            id=ids[version],
            network_id=network_id,
            cidr=cidr,
            ip_version=version,
            gateway_ip=cidr.partition("/")[0],
            dns_nameservers=(),
            host_routes=(),
        )
        for version, cidr in CIDRS.items()
    )
    network = Network(id=network_id, name="pods", mtu=1442, project_id=UUID(2), shared=False)
    return PodNetwork(network=network, subnets=subnets)


def kuryrport_status(port: Json, network: PodNetwork, *, active: bool = False) -> Json:
    """Return the status of a KuryrPort with this port.

    :param active: with the mark of the node's daemon.
    """
    vif = vif_plan.vif_of(port, network, None, 0)
    vifs = write_vifs({DEFAULT_IFNAME: vif})
    if active:
        vifs[DEFAULT_IFNAME]["vif"]["versioned_object.data"]["active"] = True
    groups = list(port["security_groups"])
    return {"projectId": port["project_id"], "securityGroupIds": groups, "vifs": vifs}


def sample_port(number: int) -> Json:
    """Return a port as Neutron shows it, with the attributes that a VIF needs."""
    return {
        "id": UUID(number),
        "project_id": UUID(2),
        "network_id": UUID(1),
        "name": "",
        "device_id": "",
        "admin_state_up": True,
        "mac_address": "fa:16:3e:00:00:01",
        "binding:vif_type": "ovs",
        "binding:vif_details": {"bridge_name": "br-int"},
        "security_groups": [UUID(3)],
        "fixed_ips": [
            {"subnet_id": UUID(4), "ip_address": "10.64.10.10"},
            {"subnet_id": UUID(6), "ip_address": "fd64::10:10"},
        ],
    }


def _container(name: str) -> Json:
    variables = {
        "LOG_LEVEL": "info",
        "DATABASE_URL": "postgresql://shop@database.storefront.svc.cluster.local:5432/shop",
    }
    return {
        "name": name,
        "image": _IMAGE.format(name),
        "imagePullPolicy": "IfNotPresent",
        "args": ["--listen=:8080", "--config=/etc/shop/config.yaml"],
        "env": [{"name": key, "value": value} for key, value in variables.items()],
        "ports": [{"name": "http", "containerPort": 8080}],
        "resources": {
            "requests": {"cpu": "100m", "memory": "128Mi"},
            "limits": {"memory": "256Mi"},
        },
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}},
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/shop", "readOnly": True},
            {"name": "scratch", "mountPath": "/tmp"},
        ],
    }
