"""Several calls of Octavia at once, of which one fails."""

import openstack
import pytest

from kuryr_k8s import errors
from kuryr_k8s.cloud.connect import ServiceAdapter
from kuryr_k8s.cloud.octavia.api import Octavia
from kuryr_k8s.cloud.octavia.found import Parts
from kuryr_k8s.cloud.paging import Reading
from kuryr_k8s.cloud.transport import Transport
from tests.kit.fakes import FakeCloud, answer

SLOTS = 2

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")


@pytest.fixture
async def cloud():
    async with FakeCloud() as cloud:
        yield cloud


@pytest.fixture
async def octavia(cloud):
    connection = openstack.connect(**cloud.connect_options())
    transport = Transport(ServiceAdapter(connection, "load_balancer"), limit=SLOTS)
    yield Octavia(transport)
    transport.close()
    connection.close()


async def test_calls_that_wait_for_a_slot_are_not_made_after_one_has_failed(cloud, octavia):
    cloud.faults.add(method="GET", path="/members$", times=None, action=answer(503))
    pools = [{"id": f"pool{number}", "members": [{"id": "m"}]} for number in range(20)]
    with pytest.raises(errors.CloudError):
        await octavia.complete(Parts({}, [], pools, {}))
    asked = [each for each in cloud.calls if each.path.endswith("/members")]
    assert len(asked) <= SLOTS


async def test_list_that_fails_stops_none_that_a_survey_reads_beside_it(cloud, octavia):
    network = cloud.add_network("services", "10.2.0.0/24")
    for number in range(5):
        pool = {"name": "p", "protocol": "TCP", "lb_algorithm": "SOURCE_IP_PORT"}
        body = {
            "name": f"web{number}",
            "project_id": cloud.project_id,
            "vip_subnet_id": network["subnets"][0],
            "pools": [pool],
        }
        await octavia.create_load_balancer(body)
    cloud.limit_pages(1)
    cloud.faults.add(method="GET", path="/lbaas/listeners$", action=answer(503))
    reading = Reading()
    with pytest.raises(errors.CloudError):
        await octavia.survey({}, lambda _row: True, reading)
    assert reading.rows == 10, "load balancers and pools"
