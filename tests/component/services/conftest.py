"""A stage with Services, in a part of the API server that has no others."""

import pytest

from kuryr_k8s.model.annotations import HOST_ID
from tests.component.conftest import HOST, LEASE, NODE
from tests.component.lanes import Lanes, permit
from tests.component.services.outside import furnish_outside
from tests.component.services.stage import ServiceStage, furnish
from tests.kube.proxy import KubeProxy


@pytest.fixture
async def services(shipped_permissions, kube_server, cloud, load_conf):
    options = furnish(cloud)
    await shipped_permissions.add_node(NODE, annotations={HOST_ID: HOST})
    async with KubeProxy(kube_server, namespace=shipped_permissions.namespace, node=NODE) as proxy:
        stage = ServiceStage(shipped_permissions, cloud, proxy, load_conf, options=options)
        yield stage
        proxy.faults.clear()
        cloud.faults.clear()
        if await stage.client.find(LEASE):  # of a controller that could not give it back
            await stage.client.delete(LEASE)


class ServiceLanes(Lanes):
    """With subnets for Services, and the handlers."""

    kind = ServiceStage

    def conf(self, cloud):
        return furnish(cloud)


class OutsideLanes(ServiceLanes):
    """With an external network, and the provider that does everything."""

    def conf(self, cloud):
        return furnish_outside(cloud, super().conf(cloud))


@pytest.fixture
async def outside_lanes(shipped_permissions, kube_server, tmp_path):
    await permit(shipped_permissions.client, kube_server)
    return OutsideLanes(kube_server, shipped_permissions.client, tmp_path)


@pytest.fixture
async def service_lanes(shipped_permissions, kube_server, tmp_path):
    await permit(shipped_permissions.client, kube_server)
    return ServiceLanes(kube_server, shipped_permissions.client, tmp_path)
