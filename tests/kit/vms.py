"""What tests of VMs look at."""

import asyncio

from kuryr_k8s.model.pod import Node
from tests.kit import confs
from tests.kit.confs import TAG

UID = "0b0d9c4e-27a5-4d6b-8e7e-6d1f3a5b7c9d"
ADD, REMOVE = r"/add_subports$", r"/remove_subports$"


def node_at(*addresses, name="vm"):
    return Node(
        name=name,
        uid=f"uid-of-{name}",
        resource_version="1",
        host_id=None,
        out_of_service=False,
        addresses=addresses,
    )


VM = node_at(confs.VM)


def subports(cloud):
    """VLAN ids by ports, as the trunk has them."""
    return {subport["port_id"]: subport["segmentation_id"] for subport in cloud.trunk["sub_ports"]}


def pod_ports(cloud):
    return {port["id"] for port in cloud.ports_tagged(TAG)}


def requests_for(cloud, path):
    return sum(write.path.endswith(path) for write in cloud.faults.writes)


async def together(*coroutines):
    """All at the same time; their results."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(coroutine) for coroutine in coroutines]
    return [task.result() for task in tasks]


async def foreign_subport(neutron, cloud, vlan_id):
    """Another user of the trunk takes the VLAN id."""
    port = await neutron.create_port({"network_id": cloud.pods["id"], "device_id": ""})
    await neutron.trunks.add_subports(cloud.trunk["id"], {port["id"]: vlan_id})
    return port["id"]
