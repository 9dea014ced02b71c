"""Pods as a node sees them, without Pods: real ports, bound to a chassis, and their KuryrPorts."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kuryr_k8s.model import vif
from kuryr_k8s.model.annotations import NODE_FINALIZER
from kuryr_k8s.model.kuryrport import write_vifs
from lab import cloud, facts
from lab.kuryr import kubectl
from lab.openstack_config import NEUTRON_PORT
from lab.process import wait_until
from lab.rest import Api

NAMESPACE = "kuryr-bench"
TAG = "kuryr-bench"  # not the cluster's: nobody else asks for these ports
BATCH = 50  # ports in a request
Json = dict[str, Any]


@dataclass(frozen=True)
class Pod:
    """One that is to be plugged, and the interface that it gets."""

    name: str
    uid: str
    vif: vif.VIFOpenVSwitch


@contextmanager
def pods(lab: facts.Lab, node: facts.Node, count: int) -> Iterator[list[Pod]]:
    """So many of them on the node, for a while. The controller must be stopped: it would take
    KuryrPorts without Pods away.
    """
    neutron = Api(f"http://127.0.0.1:{NEUTRON_PORT}/v2.0", cloud.admin_token())
    _remove_ports(neutron)
    kubectl(lab, "delete", "namespace", NAMESPACE, "--ignore-not-found")
    kubectl(lab, "create", "namespace", NAMESPACE)
    try:
        with _proxy(lab) as kubernetes:
            prepared = _make_ports(lab, neutron, node, count)
            for pod in prepared:
                _make_kuryrport(kubernetes, node, pod)
        yield prepared
    finally:
        kubectl(lab, "delete", "namespace", NAMESPACE)
        _remove_ports(neutron)


def _make_ports(lab: facts.Lab, neutron: Api, node: facts.Node, count: int) -> list[Pod]:
    network = lab.cloud.networks["pods"]
    mtu = neutron.get(f"/networks/{network.id}")["network"]["mtu"]
    uids = [str(uuid.uuid4()) for _ in range(count)]
    made: list[Pod] = []
    while len(made) < count:
        bodies = [_port(lab, node, uid) for uid in uids[len(made) : len(made) + BATCH]]
        for port in neutron.post("/ports", {"ports": bodies})["ports"]:
            name = f"pod-{len(made)}"
            made.append(Pod(name, port["device_id"], _vif(network, mtu, port)))
    return made


def _port(lab: facts.Lab, node: facts.Node, uid: str) -> Json:
    network = lab.cloud.networks["pods"]
    return {
        "network_id": network.id,
        "project_id": network.project_id,
        "fixed_ips": [{"subnet_id": s.id} for s in (network.v4, network.v6) if s is not None],
        "device_id": uid,
        "device_owner": "compute:kuryr",
        "binding:host_id": node.chassis,
        "security_groups": [lab.cloud.security_groups["pods"]],
        "tags": [TAG],
    }


def _vif(network: facts.Network, mtu: int, port: Json) -> vif.VIFOpenVSwitch:
    assert port["binding:vif_type"] == "ovs", f"the port is not bound: {port}"
    subnets = []
    for subnet in (network.v4, network.v6):
        if subnet is not None:
            ips = [i["ip_address"] for i in port["fixed_ips"] if i["subnet_id"] == subnet.id]
            subnets.append(
                vif.Subnet(
                    cidr=subnet.cidr,
                    gateway=subnet.gateway,
                    ips=tuple(vif.FixedIP(address=ip) for ip in ips),
                )
            )
    return vif.VIFOpenVSwitch(
        id=port["id"],
        address=port["mac_address"],
        plugin="ovs",
        vif_name=f"tap{port['id']}"[:14],
        bridge_name="br-int",
        port_profile=vif.VIFPortProfileOpenVSwitch(interface_id=port["id"]),
        network=vif.Network(id=network.id, bridge="br-int", mtu=mtu, subnets=tuple(subnets)),
    )


def _make_kuryrport(kubernetes: Api, node: facts.Node, pod: Pod) -> None:
    path = f"/apis/openstack.org/v1/namespaces/{NAMESPACE}/kuryrports"
    body = {
        "apiVersion": "openstack.org/v1",
        "kind": "KuryrPort",
        "metadata": {"name": pod.name, "finalizers": [NODE_FINALIZER]},
        "spec": {"podUid": pod.uid, "podNodeName": node.name},
    }
    created = kubernetes.post(path, body)
    created["status"] = {"vifs": write_vifs({"eth0": pod.vif})}
    kubernetes.put(f"{path}/{pod.name}/status", created)


def _remove_ports(neutron: Api) -> None:
    for port in neutron.get("/ports", tags=TAG, fields="id")["ports"]:
        neutron.delete(f"/ports/{port['id']}")
    assert wait_until(lambda: not neutron.get("/ports", tags=TAG)["ports"], 60)


@contextmanager
def _proxy(lab: facts.Lab) -> Iterator[Api]:
    """The API server as its administrator, without a certificate in every request."""
    command = [f"{lab.bin}/kubectl", f"--kubeconfig={lab.kubernetes.admin_kubeconfig}"]
    with subprocess.Popen([*command, "proxy", "--port=0"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().decode().rpartition(" ")[2].strip()
            yield Api(f"http://{address}")
        finally:
            process.terminate()
