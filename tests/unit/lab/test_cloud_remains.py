"""What interrupted contract tests have left in the cloud goes, and nothing else does."""

import asyncio
import os

import pytest

from lab.openstack.rest import Api
from lab.suite import cloud_remains
from lab.suite.interrupted import this_run
from tests.contract.balancers import Octavia
from tests.contract.sides import fake_side
from tests.kit.fakes.faults import answer

OVER = "contract-1-1-0123456789ab"  # the process 1 began at another time
OTHERS = ("contract-of-mine", "contract-1-1", "pods", "")


# openstacksdk warns, in its own code, of arguments that it gives itself.
pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")


@pytest.fixture
async def side():
    async with fake_side() as side:
        yield side


@pytest.fixture
async def remains(side):
    """Removes remains as the administrator."""
    endpoints = side.fake.keystone.endpoints
    token = await asyncio.to_thread(side.admin.connection.session.get_token)
    neutron = Api(f"{endpoints['network']}/v2.0", token)
    octavia = Api(f"{endpoints['load-balancer']}/v2.0", token)
    return cloud_remains.Remains(neutron, octavia, side.stranger.project_id)


def test_only_names_that_a_run_which_is_over_has_given_are_remains():
    assert cloud_remains.is_remains(OVER)
    assert cloud_remains.is_remains(f"{OVER}/pod")
    assert not cloud_remains.is_remains(cloud_remains.mark())
    assert not any(map(cloud_remains.is_remains, OTHERS))


def test_mark_names_the_run():
    assert this_run().startswith(f"{os.getpid()}-") or "KURYR_TESTS_RUN" in os.environ
    assert cloud_remains.mark().startswith(f"contract-{this_run()}-")


async def furnish(side, name):
    """Make one of everything that contract tests make, in networks of this name."""
    side.mark = name
    outside = await side.network("203.0.113.0/29", owner=side.admin, **{"router:external": True})
    inside = await side.network("10.215.0.0/24", owner=side.stranger)
    gateway = {"network_id": outside["id"]}
    router = await side.stranger.create("router", name=name, external_gateway_info=gateway)
    path = f"/routers/{router['id']}/add_router_interface"
    assert (await side.stranger.put(path, {"subnet_id": inside["subnets"][0]})).status == 200
    port = await side.stranger.create("port", network_id=inside["id"])
    await side.stranger.create("trunk", port_id=port["id"])
    await side.stranger.create("security_group", name=name)
    await side.stranger.post(
        "/floatingips", {"floatingip": {"floating_network_id": outside["id"]}}
    )
    balancer = {"vip_subnet_id": inside["subnets"][0], "provider": "ovn"}
    user = Octavia(side.stranger.connection, side.stranger.project_id, [])
    await user.make(balancer)


async def left(side):
    """The names, or else the ids, of all that there is, by kind."""
    found = {}
    for kind in ("networks", "routers", "security_groups", "ports", "floatingips", "trunks"):
        items = (await side.admin.get(f"/{kind.replace('_', '-')}")).body[kind]
        found[kind] = sorted(item.get("name") or item["id"] for item in items)
    found["load_balancers"] = sorted(side.fake.load_balancers)
    return found


async def test_what_an_interrupted_run_made_goes_and_nothing_else(side, remains):
    await furnish(side, cloud_remains.mark())
    before = await left(side)
    await furnish(side, OVER)
    assert await asyncio.to_thread(remains.clear) == []
    assert await left(side) == before


async def test_quotas_of_the_tests_project_are_as_before_if_a_run_was_interrupted(side, remains):
    user = Octavia(side.stranger.connection, side.stranger.project_id, [])
    admin = Octavia(side.admin.connection, side.admin.project_id, [])
    network = await side.network("10.215.0.0/24", owner=side.stranger)
    body = {"loadbalancer": {"vip_subnet_id": network["subnets"][0], "provider": "ovn"}}
    limit = {"quota": {"loadbalancer": 0}}
    assert (await admin.put(f"/lbaas/quotas/{user.project_id}", limit)).status == 202
    assert await asyncio.to_thread(remains.clear) == []
    assert (await user.post("/lbaas/loadbalancers", body)).status == 403  # nobody was interrupted
    side.mark = OVER
    await side.network("10.216.0.0/24", owner=side.stranger)
    assert await asyncio.to_thread(remains.clear) == []
    assert (await user.post("/lbaas/loadbalancers", body)).status == 201


async def test_what_cannot_be_removed_is_told(side, remains):
    side.mark = OVER
    network = await side.network("10.215.0.0/24")
    await side.kuryr.create("port", network_id=network["id"])
    side.fake.faults.add(method="DELETE", path="/ports/", times=None, action=answer(409))
    assert await asyncio.to_thread(remains.clear, 0.0) == [f"networks/{network['id']}"]


async def test_subports_of_machines_that_are_gone_go_and_others_stay(side, remains):
    network = await side.network("10.216.0.0/24")

    async def subport_of(name):
        parent = await side.kuryr.create("port", network_id=network["id"])
        port = await side.kuryr.create("port", network_id=network["id"])
        vlan = {"port_id": port["id"], "segmentation_type": "vlan", "segmentation_id": 7}
        await side.kuryr.create("trunk", port_id=parent["id"], name=name, sub_ports=[vlan])
        return port["id"]

    gone, runs = await subport_of("vmnode1"), await subport_of("vmnode2")
    await asyncio.to_thread(cloud_remains.clear_trunks, remains.neutron, {"vmnode1"})
    assert gone not in side.fake.ports
    assert runs in side.fake.ports
    assert [trunk["name"] for trunk in side.fake.store.trunks.values()] == ["vmnode1", "vmnode2"]
