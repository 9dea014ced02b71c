"""A VM that is a node, and the driver for its Pods."""

import pytest

from kuryr_k8s.drivers.base import PoolKey
from kuryr_k8s.drivers.vif.nested_vlan import NestedVLAN
from tests.kit import confs
from tests.kit import port_requests as requests
from tests.kit.contexts import driver_context
from tests.kit.vms import UID, VM


@pytest.fixture
def options(cloud):
    """Those that Pods on the VM need."""
    return confs.add_vm(cloud)


@pytest.fixture
def context(load_conf, neutron, options):
    return driver_context(load_conf(**options), neutron)


@pytest.fixture
def driver(context):
    return NestedVLAN(context)


@pytest.fixture
def request_port(context, cloud):
    return requests.for_pod(context, cloud, pod_uid=UID, node=VM)


@pytest.fixture
def key(cloud):
    return PoolKey(
        project_id=cloud.project_id,
        place=cloud.trunk["id"],
        network_id=cloud.pods["id"],
        subnet_ids=tuple(sorted(cloud.pods["subnets"])),
        security_groups=(cloud.group["id"],),
    )
