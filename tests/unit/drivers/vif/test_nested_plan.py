"""Ports and VIFs of Pods on VMs, translated."""

import json

from kuryr_k8s.cloud.neutron.api import Network, Subnet
from kuryr_k8s.drivers.base import PodNetwork, PortRequest
from kuryr_k8s.drivers.vif import nested_plan
from kuryr_k8s.model.pod import Node
from tests.kit.paths import GOLDEN

VLAN = GOLDEN / "vlan.json"
NETWORK = Network(
    id="ec3f1f7d-0000-4000-8000-000000000000", name="pods", mtu=1450, project_id="p", shared=False
)
SUBNET = Subnet(
    id="s1",
    network_id=NETWORK.id,
    cidr="10.0.0.0/24",
    ip_version=4,
    gateway_ip="10.0.0.1",
    dns_nameservers=("8.8.8.8",),
    host_routes=(("10.96.0.0/12", "10.0.0.2"),),
)
PODS = PodNetwork(network=NETWORK, subnets=(SUBNET,))
PORT = {
    "id": "0fa0e837-d34e-4580-a6c4-04f5f607d93e",
    "project_id": "p",
    "network_id": NETWORK.id,
    "mac_address": "fa:16:3e:aa:bb:cc",
    "fixed_ips": [{"subnet_id": "s1", "ip_address": "10.0.0.5"}],
    "security_groups": ["g"],
    "name": "default/web",
    "device_id": "",
    "admin_state_up": True,
    "description": "",
    "tags": [],
}


def request(**changes):
    node = Node(name="vm", uid="n", resource_version="1", host_id=None, out_of_service=False)
    values = {
        "pod_uid": "u1",
        "pod_name": "default/web",
        "node": node,
        "ifname": "eth0",
        "project_id": "p",
        "pod_network": PODS,
        "security_groups": ("g",),
        "may_exist": False,
    }
    return PortRequest(**(values | changes))


def test_vif_is_what_the_ancestor_wrote_but_for_a_bridge_that_there_is_not():
    golden = json.loads(VLAN.read_text())
    del golden["versioned_object.data"]["network"]["versioned_object.data"]["bridge"]
    pooled = nested_plan.pooled_port_of(PORT, "t1", 101)
    assert nested_plan.vif_of(pooled, PODS, 0).to_json() == golden


def test_mtu_is_the_lesser_one_of_the_networks_and_the_options():
    pooled = nested_plan.pooled_port_of(PORT, "t1", 101)
    mtus = [nested_plan.vif_of(pooled, PODS, limit).network.mtu for limit in (0, 1400, 9000)]
    assert mtus == [1450, 1400, 1450]


def test_port_names_its_pod_by_tag_and_description_and_has_neither_device_nor_host():
    body = nested_plan.port_body(request(), ("cluster",))
    assert body["tags"] == ["cluster", "kuryr-ifname:eth0", "kuryr-pod:u1"]
    assert body["device_id"] == ""
    assert "binding:host_id" not in body
    assert nested_plan.pod_uid_of(body) == "u1"


def test_port_of_a_pool_is_told_from_those_of_others():
    pooled = nested_plan.pooled_port_of(PORT, "t1", 101)
    body = nested_plan.pooled_body(pooled.key, ("cluster",), "kuryr-pool:cluster")
    assert nested_plan.is_made_here(body)
    assert nested_plan.is_made_here(nested_plan.port_body(request(), ("cluster",)))
    assert not nested_plan.is_made_here(PORT)
    assert not nested_plan.is_made_here(body | {"binding:host_id": "chassis1"})
    assert nested_plan.pod_uid_of(body) == ""
    assert body["device_id"] == ""
    assert "binding:host_id" not in body
