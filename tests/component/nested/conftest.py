"""A VM that is a node, and the driver for its Pods."""

import pytest

from kuryr_k8s.drivers.base import DriverContext, PoolKey, PortRequest
from kuryr_k8s.drivers.nested_vlan import NestedVLAN
from kuryr_k8s.drivers.subnets import DefaultSubnets
from tests.component import confs
from tests.component.nested.vms import UID, VM


@pytest.fixture
def options(cloud):
    """Those that Pods on the VM need."""
    return confs.add_vm(cloud)


@pytest.fixture
def context(load_conf, neutron, options):
    return DriverContext(conf=load_conf(**options), neutron=neutron, namespaces=None)


@pytest.fixture
def driver(context):
    return NestedVLAN(context)


@pytest.fixture
def request_port(context, cloud):
    async def make(**changes):
        pod_network = await DefaultSubnets(context).pod_network(None, cloud.project_id)
        values = {
            "pod_uid": UID,
            "pod_name": "default/web-0",
            "node": VM,
            "ifname": "eth0",
            "project_id": cloud.project_id,
            "pod_network": pod_network,
            "security_groups": (cloud.group["id"],),
            "may_exist": False,
        }
        return PortRequest(**(values | changes))

    return make


@pytest.fixture
def key(cloud):
    return PoolKey(
        project_id=cloud.project_id,
        place=cloud.trunk["id"],
        network_id=cloud.pods["id"],
        subnet_ids=tuple(sorted(cloud.pods["subnets"])),
        security_groups=(cloud.group["id"],),
    )
