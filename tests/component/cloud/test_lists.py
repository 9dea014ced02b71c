"""Lists of Neutron and Octavia are read to their end, whatever page size the server imposes."""

import pytest
from aiohttp import web

from kuryr_k8s import errors
from kuryr_k8s.cloud.connect import ServiceAdapter, connect
from kuryr_k8s.cloud.octavia.api import Octavia
from kuryr_k8s.cloud.transport import Transport
from tests.kit.confs import TAG

MOST = 3  # objects in a page
COUNTS = [MOST - 1, MOST, 2 * MOST, 2 * MOST + 1]


@pytest.fixture(autouse=True)
def short_pages(cloud):
    cloud.limit_pages(MOST)


@pytest.fixture
def octavia(load_conf):
    adapter = ServiceAdapter(connect(load_conf(), connections=1), "load_balancer")
    transport = Transport(adapter, limit=1)
    yield Octavia(transport)
    transport.close()


def add_ports(cloud, count, **attributes):
    return {cloud.add_port(cloud.pods["id"], **attributes)["id"] for _ in range(count)}


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("fields", [(), ("id", "name")])
async def test_ports_are_listed_to_the_last(neutron, cloud, count, fields):
    made = add_ports(cloud, count, name="wanted")
    add_ports(cloud, count, name="other")
    found = await neutron.list_ports({"name": "wanted", "fields": fields})
    assert sorted(port["id"] for port in found) == sorted(made)
    assert all(not fields or port.keys() == set(fields) for port in found)


@pytest.mark.parametrize("count", COUNTS)
async def test_ports_are_found_by_their_ids_to_the_last(neutron, cloud, count):
    made = add_ports(cloud, count)
    assert {port["id"] for port in await neutron.list_ports_by_id(made, ("id",))} == made


@pytest.mark.parametrize("count", COUNTS)
async def test_trunks_are_listed_to_the_last(neutron, cloud, count):
    made = {cloud.add_trunk(cloud.pods["id"])["id"]: None for _ in range(count)}
    assert {trunk.id for trunk in await neutron.trunks.list_trunks({})} == made.keys()
    parents = [cloud.trunks[trunk_id]["port_id"] for trunk_id in made]
    found = await neutron.trunks.list_trunks_on(parents)
    assert sorted(trunk.id for trunk in found) == sorted(made)


@pytest.mark.parametrize("count", COUNTS)
async def test_subnets_are_listed_to_the_last(neutron, cloud, count):
    network = cloud.add_external_network("public", *(f"10.9.{n}.0/24" for n in range(count)))
    found = await neutron.list_subnets(network["id"])
    assert {subnet.id for subnet in found} == set(network["subnets"])
    external = await neutron.floating_ips.subnets_of(network["id"])
    assert {subnet.id for subnet in external} == set(network["subnets"])


@pytest.mark.parametrize("count", COUNTS)
async def test_floating_ips_are_listed_to_the_last(neutron, cloud, count):
    public = cloud.add_external_network("public", "172.24.4.0/24")
    made = {cloud.add_floating_ip(public["id"])["id"] for _ in range(count)}
    assert {each.id for each in await neutron.floating_ips.list_all({})} == made


@pytest.mark.parametrize("count", COUNTS)
async def test_security_groups_are_listed_to_the_last(neutron, cloud, count):
    made = {cloud.add_security_group("from load balancers")["id"] for _ in range(count)}
    found = await neutron.security_groups.list_groups({"name": "from load balancers"})
    assert {group["id"] for group in found} == made


@pytest.mark.parametrize("count", COUNTS)
async def test_shares_are_listed_to_the_last(neutron, cloud, count):
    projects = {cloud.add_project(f"tenant-{number}") for number in range(count)}
    for project in projects:
        cloud.share(cloud.pods["id"], project)
    assert await neutron.shares("network", cloud.pods["id"]) == projects


@pytest.mark.parametrize("count", COUNTS)
async def test_load_balancers_and_members_are_listed_to_the_last(octavia, cloud, count):
    subnet = cloud.add_network("services", "10.8.0.0/24")["subnets"][0]
    made = set()
    for number in range(count):
        members = [{"address": f"10.1.0.{n + 1}", "protocol_port": 80} for n in range(count)]
        pool = {"name": "one", "protocol": "TCP", "lb_algorithm": "SOURCE_IP_PORT"}
        body = {
            "name": f"lb-{number}",
            "project_id": cloud.project_id,
            "vip_subnet_id": subnet,
            "provider": "ovn",
            "tags": [TAG],
            "pools": [pool | {"members": members}],
        }
        made.add((await octavia.create_load_balancer(body)).id)
    assert (await octavia.statuses({"tags": TAG})).keys() == made
    assert len(await octavia.list_pools({"project_id": cloud.project_id})) == count
    for load_balancer_id in made:
        [pool] = (await octavia.read(load_balancer_id)).pools
        assert len(pool.pool.members) == count


def lose_the_marker(cloud, remove):
    """Have the object deleted after which the second page is to begin."""

    async def act(request, proceed):
        remove(request.query["marker"])
        return await proceed()

    return cloud.faults.add(when=lambda request: "marker" in request.query, action=act)


async def test_list_of_ports_whose_marker_was_deleted_is_an_error_but_no_absence(neutron, cloud):
    add_ports(cloud, 2 * MOST)
    lose_the_marker(cloud, cloud.remove_port)
    with pytest.raises(errors.CloudError, match="has changed") as told:
        await neutron.list_ports({})
    assert not isinstance(told.value, errors.NotFound)


async def test_list_of_floating_ips_whose_marker_was_deleted_does_not_end_there(neutron, cloud):
    public = cloud.add_external_network("public", "172.24.4.0/24")
    for _ in range(2 * MOST):
        cloud.add_floating_ip(public["id"])
    lose_the_marker(cloud, cloud.remove_floating_ip)
    with pytest.raises(errors.CloudError, match="has changed"):
        await neutron.floating_ips.list_all({})


async def test_trunks_that_are_listed_from_the_beginning_again_are_listed_once(neutron, cloud):
    trunks = {cloud.add_trunk(cloud.pods["id"])["id"] for _ in range(2 * MOST)}
    lose_the_marker(cloud, cloud.trunks.pop)
    found = [trunk.id for trunk in await neutron.trunks.list_trunks({})]
    assert len(found) == len(set(found))
    assert cloud.trunks.keys() <= set(found) <= trunks


async def test_list_that_comes_again_and_again_ends_with_an_error(neutron, cloud):
    page = {"ports": [{"id": "one"}], "ports_links": [{"rel": "next", "href": "http://x/"}]}

    async def again(_request, _proceed):
        return web.json_response(page)

    cloud.faults.add(path="/ports$", times=None, action=again)
    with pytest.raises(errors.CloudError, match="has changed"):
        await neutron.list_ports({"fields": ("id",)})
