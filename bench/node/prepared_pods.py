"""Pods for a node's plugin, without the Pods: real ports bound to a chassis, and KuryrPorts."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from kuryr_k8s.k8s.resources import KURYRPORTPOOLS
from kuryr_k8s.model import vif
from kuryr_k8s.model.annotations import NODE_FINALIZER
from kuryr_k8s.model.kuryrport import write_vifs
from kuryr_k8s.model.kuryrportpool import park_entry
from lab import facts
from lab.kuryr.installation import kubectl
from lab.openstack import cloud
from lab.openstack.config import NEUTRON_PORT
from lab.openstack.rest import Api
from lab.process import wait_until

NAMESPACE = "kuryr-bench"
TAG = "kuryr-bench"  # not the cluster's: only the benchmark lists these ports
BATCH = 50  # ports in a request
Json = dict[str, Any]


@dataclass(frozen=True)
class Pod:
    """A Pod to plug, and its interface."""

    name: str
    uid: str
    vif: vif.VIFOpenVSwitch

    @property
    def cni_args(self) -> str:
        """The value of CNI_ARGS that a container runtime passes for the Pod."""
        arguments = {
            "IgnoreUnknown": "1",
            "K8S_POD_NAMESPACE": NAMESPACE,
            "K8S_POD_NAME": self.name,
            "K8S_POD_UID": self.uid,
        }
        return ";".join(f"{name}={value}" for name, value in arguments.items())


@contextmanager
def pods(lab: facts.Lab, node: facts.Node, count: int, parked: int = 0) -> Iterator[list[Pod]]:
    """Prepare Pods on a node, and remove their ports and KuryrPorts at the end.

    The controller must be stopped: it would release KuryrPorts without Pods.

    :param count: the number of Pods whose ports are not parked; they come first in the list.
    :param parked: the number of further Pods whose ports are parked.
    """
    neutron = Api(f"http://127.0.0.1:{NEUTRON_PORT}/v2.0", cloud.admin_token())
    _remove_ports(neutron)
    kubectl(lab, "delete", "namespace", NAMESPACE, "--ignore-not-found")
    kubectl(lab, "create", "namespace", NAMESPACE)
    kubectl(lab, "delete", "kuryrportpool", node.name, "--ignore-not-found")
    try:
        with _proxy(lab) as kubernetes:
            prepared = _make_ports(lab, neutron, node, count + parked)
            waiting = prepared[count:]
            for pod in prepared[:count]:
                _make_kuryrport(kubernetes, node, pod)
            if waiting:
                _park(kubernetes, node, [pod.vif for pod in waiting])
            for pod in waiting:
                active = replace(pod, vif=replace(pod.vif, active=True))
                _make_kuryrport(kubernetes, node, active)
        yield prepared
    finally:
        kubectl(lab, "delete", "kuryrportpool", node.name, "--ignore-not-found")
        kubectl(lab, "delete", "namespace", NAMESPACE)
        _remove_ports(neutron)


def _park(kubernetes: Api, node: facts.Node, vifs: list[vif.VIFOpenVSwitch]) -> None:
    """Have the node's daemon park these ports; return once it reports them as parked."""
    path = KURYRPORTPOOLS.path()
    entries = {port.id: _entry(port) for port in vifs}
    body = {
        "apiVersion": KURYRPORTPOOLS.api_version,
        "kind": KURYRPORTPOOLS.kind,
        "metadata": {"name": node.name},
        "spec": {"ports": entries},
    }
    kubernetes.post(path, body)

    def all_parked() -> bool:
        status = kubernetes.get(f"{path}/{node.name}").get("status", {})
        return bool(status.get("parked", {}).keys() == entries.keys())

    assert wait_until(all_parked, 60), "the daemon does not park the ports"


def _entry(port: vif.VIFOpenVSwitch) -> Json:
    assert port.network is not None
    addresses = [ip.address for subnet in port.network.subnets for ip in subnet.ips]
    return park_entry(port.address or "", addresses, port.network.mtu, port.bridge_name or "")


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
        "fixed_ips": [
            {"subnet_id": subnet.id} for subnet in (network.v4, network.v6) if subnet is not None
        ],
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
            ips = [
                fixed_ip["ip_address"]
                for fixed_ip in port["fixed_ips"]
                if fixed_ip["subnet_id"] == subnet.id
            ]
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
    """Run a proxy to the API server that authenticates as the administrator."""
    command = [f"{lab.bin}/kubectl", f"--kubeconfig={lab.kubernetes.admin_kubeconfig}"]
    with subprocess.Popen([*command, "proxy", "--port=0"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().decode().rpartition(" ")[2].strip()
            yield Api(f"http://{address}")
        finally:
            process.terminate()
