"""The annotation that says what a Pod's interfaces are, in the form that all readers know."""

import json

from kuryr_k8s.model.network_status import network_status
from tests.kit.node.fakes import ovs_vif


def test_default_interface_comes_first_and_others_by_the_names_of_their_networks():
    vifs = {"net1": ovs_vif(2), "eth0": ovs_vif(1), "eth1": ovs_vif(3)}
    assert json.loads(network_status(vifs, {"net1": "ns/storage"})) == [
        {
            "name": "kuryr",
            "interface": "eth0",
            "ips": ["10.77.0.11", "fd77::10"],
            "mac": vifs["eth0"].address,
            "mtu": vifs["eth0"].network.mtu,
            "default": True,
            "dns": {"nameservers": ["10.77.0.2"]},
            "gateway": ["10.77.0.1", "fd77::1"],
        },
        {
            "name": "ns/storage",
            "interface": "net1",
            "ips": [ip.address for subnet in vifs["net1"].network.subnets for ip in subnet.ips],
            "mac": vifs["net1"].address,
            "mtu": vifs["net1"].network.mtu,
            "dns": {},
        },
    ]
