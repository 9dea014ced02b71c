"""The networks of Pods on the machine."""

import random

import pytest

from kuryr_k8s.model.annotations import HOST_ID
from lab.suite.cloud_remains import mark
from tests.lab.cluster import machine


@pytest.fixture
def worker(cluster):
    return machine(cluster.lab)


@pytest.fixture
def subnet(cluster, worker):
    """A subnet of a VLAN on the physical network; Neutron can bind VFs of the machine to it."""
    cluster.kubectl(
        *("annotate", "--overwrite", "node", worker.name),
        f"{HOST_ID}={cluster.lab.nodes['node1'].chassis}",
    )
    network = cluster.neutron.post(
        "/networks",
        {
            "network": {
                "name": mark(),
                "project_id": cluster.lab.cloud.project_id,
                "provider:network_type": "vlan",
                "provider:physical_network": "physnet1",
                "provider:segmentation_id": random.randrange(2000, 4000),
            }
        },
    )["network"]
    made = cluster.neutron.post(
        "/subnets",
        {"subnet": {"network_id": network["id"], "ip_version": 4, "cidr": "10.90.0.0/24"}},
    )["subnet"]
    yield made | {"vlan": network["provider:segmentation_id"]}
    cluster.kubectl("annotate", "node", worker.name, f"{HOST_ID}-")
    cluster.delete("pods", "--all")
    cluster.wait_for("no Pod is left", lambda: not cluster.get("kuryrports"))
    for port in cluster.neutron.get("/ports", network_id=network["id"])["ports"]:
        cluster.neutron.delete(f"/ports/{port['id']}")  # a pool's
    cluster.neutron.delete(f"/networks/{network['id']}")


@pytest.fixture
def theirs(cluster, subnet):
    """A port that a user made for a VF."""
    body = {
        "name": "theirs",
        "network_id": subnet["network_id"],
        "project_id": cluster.lab.cloud.project_id,
        "binding:vnic_type": "direct",
    }
    port = cluster.neutron.post("/ports", {"port": body})["port"]
    yield port
    cluster.delete("pods", "--all")
    cluster.wait_for(
        "it is given back",
        lambda: not cluster.neutron.get(f"/ports/{port['id']}")["port"]["device_id"],
    )
    cluster.neutron.delete(f"/ports/{port['id']}")


@pytest.fixture
def unfiltered(cluster):
    """The port of the machine has no port security meanwhile."""
    path = f"/ports/{machine(cluster.lab).port_id}"
    groups = cluster.neutron.get(path)["port"]["security_groups"]
    off = {"port_security_enabled": False, "security_groups": []}
    cluster.neutron.put(path, {"port": off})
    yield
    on = {"port_security_enabled": True, "security_groups": groups}
    cluster.neutron.put(path, {"port": on})
