"""The ways between nodes and Pods: by the nodes' own ports, and to the nodes' own addresses.

The nodes reach Pods through ``kuryr0``, which the product makes; nothing of the lab leads there.
Pods reach the nodes' InternalIPs through their router, as they reach whatever else is outside.
"""

import json

import pytest

from kuryr_k8s.cni.node.plan import NAME
from kuryr_k8s.model.annotations import NODE_INTERFACE
from kuryr_k8s.model.node_interface import NodeInterface
from lab.process import CommandError, run, succeeds
from tests.lab.cluster import addresses, pod

pytestmark = pytest.mark.lab_only


def interface(cluster, node):
    """Return what the controller has written for the node's own interface."""
    return NodeInterface.parse(
        cluster.get("node", node)["metadata"]["annotations"][NODE_INTERFACE]
    )


def test_node_has_its_own_port_and_takes_it_to_every_pod(cluster):
    cluster.apply(pod("a", node="node1"), pod("b", node="node2"))
    cluster.wait_ready("a", "b")
    targets = [address for name in ("a", "b") for address in addresses(cluster.get("pod", name))]
    for node in cluster.lab.nodes.values():
        wanted = interface(cluster, node.name)
        port = cluster.neutron.get(f"/ports/{wanted.port_id}")["port"]
        assert (port["status"], port["binding:host_id"]) == ("ACTIVE", node.chassis)
        own = {str(address.ip) for address in wanted.addresses}
        assert own == {fixed["ip_address"] for fixed in port["fixed_ips"]}
        for target in targets:
            [route] = json.loads(run(["ip", "-j", "route", "get", target], netns=node.netns))
            assert (route["dev"], route["prefsrc"] in own) == (NAME, True)
            ping = ["ping", "-c", "1", "-W", "5", target]
            cluster.wait_for(
                f"{node.name} reaches {target}",
                lambda ping=ping, netns=node.netns: succeeds(ping, netns=netns),
            )


def test_pod_on_each_node_reaches_every_node_at_its_internal_ips(cluster):
    names = {f"on-{node}": node for node in cluster.lab.nodes}
    cluster.apply(*(pod(name, node=node) for name, node in names.items()))
    cluster.wait_ready(*names)
    for name in names:
        for node in cluster.lab.nodes.values():
            cluster.until_pings(name, node.underlay_v4, node.underlay_v6)


def test_api_server_reaches_a_pod_as_it_reaches_webhooks(cluster):
    cluster.apply(pod("web", node="node2"))
    cluster.wait_ready("web")
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/web:8080/proxy/"

    def answer():
        try:
            return cluster.kubectl("get", "--raw", path).strip()
        except CommandError:
            return None

    cluster.wait_for("the API server has an answer of the Pod", lambda: answer() == "web")
