"""Our client of Neutron: preconditions, many ids, quotas, priorities, an overloaded Neutron."""

import asyncio
import uuid

import pytest
from prometheus_client import CollectorRegistry

from kuryr_k8s import errors
from kuryr_k8s.cloud import connect
from kuryr_k8s.cloud.mark import ClusterMark
from kuryr_k8s.cloud.metrics import LimitMetrics
from kuryr_k8s.cloud.neutron.api import Neutron, PortQuota
from kuryr_k8s.cloud.paging import IDS
from kuryr_k8s.cloud.transport import Transport
from kuryr_k8s.engine.limit import Priority, prioritized
from tests.kit.confs import MARK
from tests.kit.fakes import Hang, answer, from_proxy

ALWAYS = None


@pytest.fixture
def make_transport(load_conf):
    made = []

    def make(limit, **options):
        adapter = connect.ServiceAdapter(
            connect.connect(load_conf(), connections=limit), "network"
        )
        made.append(Transport(adapter, limit=limit, **options))
        return made[-1]

    yield make
    for transport in made:
        transport.close()


@pytest.fixture
async def port(neutron, cloud):
    return await neutron.create_port({"network_id": cloud.pods["id"], "device_id": "pod"})


async def test_a_port_is_updated_only_in_the_revision_that_is_named(neutron, cloud, port):
    revision = port["revision_number"]
    changed = await neutron.update_port(port["id"], {"name": "one"}, revision_number=revision)
    assert changed["revision_number"] > revision
    with pytest.raises(errors.Conflict) as caught:
        await neutron.update_port(port["id"], {"name": "two"}, revision_number=revision)
    assert caught.value.status == 412
    assert cloud.ports[port["id"]]["name"] == "one"
    await neutron.update_port(port["id"], {"name": "three"})
    assert cloud.ports[port["id"]]["name"] == "three"


async def test_port_without_the_mark_is_neither_changed_nor_deleted(neutron, cloud):
    body = {"network_id": cloud.pods["id"], "device_id": "pod", "tags": ["test-cluster"]}
    theirs = cloud.add_port(cloud.pods["id"], device_id="pod", tags=["kuryr-cluster:another"])
    before = dict(theirs)
    for write in (
        lambda: neutron.update_port(theirs["id"], {"name": "ours"}),
        lambda: neutron.set_port_tags(theirs["id"], ["ours"]),
        lambda: neutron.delete_port(theirs["id"]),
    ):
        with pytest.raises(errors.NotOurs):
            await write()
    assert cloud.ports[theirs["id"]] == before
    made = await neutron.create_port(body)
    assert set(cloud.ports[made["id"]]["tags"]) == {"test-cluster", MARK}


async def test_tags_are_asked_for_once_where_neutron_shows_none(neutron, cloud, transport):
    """Of another project's ports, a user with the role service sees no tags, but finds by them."""
    tenant = cloud.add_project("tenant")
    network = cloud.add_network("theirs", "10.77.0.0/24", project_id=tenant)
    body = {"network_id": network["id"], "project_id": tenant, "device_id": "pod"}
    neutron.keeps_tags = True
    made = await neutron.create_port(body)
    assert "tags" not in made
    again = Neutron(transport, neutron.mark)
    cloud.calls.clear()
    await again.update_port(made["id"], {"name": "ours"})
    await again.delete_port(made["id"])
    # by the mark, and by the tag of pools
    assert [call.method for call in cloud.calls] == ["GET", "GET", "PUT", "DELETE"]
    assert made["id"] not in cloud.ports


async def test_a_port_is_deleted_only_in_the_revision_that_is_named(neutron, cloud, port):
    changed = await neutron.update_port(port["id"], {"name": "taken"})
    with pytest.raises(errors.Conflict) as caught:
        await neutron.delete_port(port["id"], revision_number=port["revision_number"])
    assert caught.value.status == 412
    assert port["id"] in cloud.ports
    await neutron.delete_port(port["id"], revision_number=changed["revision_number"])
    assert port["id"] not in cloud.ports
    await neutron.delete_port(port["id"], revision_number=changed["revision_number"])


async def test_a_precondition_survives_a_token_that_is_not_taken_any_more(neutron, cloud, port):
    await neutron.update_port(port["id"], {"name": "taken"})
    cloud.expire_tokens()
    with pytest.raises(errors.Conflict):
        await neutron.delete_port(port["id"], revision_number=port["revision_number"])


@pytest.mark.parametrize(
    ("text", "content_type"),
    [
        ("<html>404 Not Found</html>", "text/html"),
        ("", "text/plain"),
        ('{"message": "no Route matched with those values"}', "application/json"),
        ('{"code": 404, "title": "Not Found", "description": "x"}', "application/json"),
        ('{"NeutronError": "no such thing"}', "application/json"),
        ('["not found"]', "application/json"),
    ],
)
async def test_404_that_is_not_neutrons_own_does_not_make_a_port_gone(
    neutron, cloud, port, text, content_type
):
    cloud.faults.add(path="/ports/", times=ALWAYS, action=from_proxy(404, text, content_type))
    for call in (neutron.get_port, neutron.delete_port):
        with pytest.raises(errors.CloudError) as caught:
            await call(port["id"])
        assert not isinstance(caught.value, errors.NotFound)
        assert (caught.value.status, caught.value.is_refusal) == (404, False)


async def test_404_of_neutron_makes_a_port_gone(neutron, cloud, port):
    cloud.remove_port(port["id"])
    with pytest.raises(errors.NotFound) as caught:
        await neutron.get_port(port["id"])
    assert caught.value.is_refusal
    await neutron.delete_port(port["id"])


@pytest.mark.parametrize("others", [0, IDS - 2, IDS - 1, 3 * IDS])
async def test_ports_are_found_by_any_number_of_ids_in_short_requests(
    neutron, cloud, port, others
):
    another = await neutron.create_port({"network_id": cloud.pods["id"], "device_id": "other"})
    unknown = [str(uuid.uuid4()) for _ in range(others)]
    cloud.calls.clear()
    found = await neutron.list_ports_by_id([port["id"], *unknown, another["id"]], ["id", "status"])
    expected = [{"id": made["id"], "status": "DOWN"} for made in (port, another)]
    assert sorted(found, key=lambda entry: entry["id"]) == sorted(
        expected, key=lambda entry: entry["id"]
    )
    assert cloud.calls.count("GET", "/v2.0/ports") == -(-(others + 2) // IDS)
    assert all(len(call.path) + len(call.query) < 8000 for call in cloud.calls)


async def test_asking_for_no_ids_finds_no_ports(neutron, port):
    assert await neutron.list_ports_by_id([]) == []


async def test_quota_of_our_own_project_is_known(neutron, cloud, port):
    quota = await neutron.port_quota(cloud.project_id)
    assert (quota.limit, quota.used, quota.left) == (-1, 1, float("inf"))
    cloud.set_quota(cloud.project_id, port=5)
    assert await neutron.port_quota(cloud.project_id) == PortQuota(limit=5, used=1)
    assert PortQuota(limit=5, used=1).left == 4
    assert PortQuota(limit=1, used=3).left == 0


async def test_quota_of_another_project_is_not_told(neutron, cloud):
    assert await neutron.port_quota(cloud.add_project("tenant")) is None


async def test_quota_that_cannot_be_asked_for_is_an_error(neutron, cloud):
    cloud.faults.add(method="GET", path="/quotas/", action=answer(503))
    with pytest.raises(errors.CloudError):
        await neutron.port_quota(cloud.project_id)


async def test_pod_is_served_before_those_who_waited_longer(make_transport, cloud):
    transport = make_transport(1)
    neutron = Neutron(transport, ClusterMark("a-cluster"))
    network_id = cloud.pods["id"]
    port = await neutron.create_port({"network_id": network_id})
    hang = Hang()
    cloud.faults.add(method="GET", path="/networks/", action=hang)
    async with asyncio.TaskGroup() as group:
        group.create_task(neutron.get_network(network_id))
        await hang.reached.wait()
        cloud.calls.clear()
        with prioritized(Priority.CLEANUP):
            group.create_task(neutron.delete_port(port["id"]))
        with prioritized(Priority.REFILL):
            group.create_task(neutron.list_ports({}))
        await asyncio.sleep(0)  # they wait
        group.create_task(neutron.get_subnet(cloud.pods["subnets"][0]))
        await asyncio.sleep(0)
        hang.release()
    kinds = [(call.method, call.what) for call in cloud.calls]
    assert kinds == [
        ("GET", "/v2.0/subnets/{id}"),
        ("GET", "/v2.0/ports"),
        ("DELETE", "/v2.0/ports/{id}"),
    ]


async def test_slow_refill_leaves_a_slot_for_a_pod(make_transport, cloud):
    transport = make_transport(4)
    neutron = Neutron(transport)
    hang = Hang()
    cloud.faults.add(method="GET", path="/ports$", action=hang, times=ALWAYS)
    async with asyncio.TaskGroup() as group:
        with prioritized(Priority.REFILL):
            for _ in range(8):
                group.create_task(neutron.list_ports({}))
        await hang.reached.wait()
        async with asyncio.timeout(60):
            assert await neutron.get_network(cloud.pods["id"])
        assert transport.limit.in_flight(Priority.REFILL) == 3
        hang.release()


@pytest.mark.parametrize("status", [429, 503, 504])
async def test_overloaded_neutron_gets_half_as_many_calls_and_later_all_again(
    make_transport, cloud, status
):
    transport = make_transport(4)
    neutron = Neutron(transport)
    rule = cloud.faults.add(method="GET", path="/ports$", action=answer(status, retry_after=7))
    with pytest.raises(errors.CloudError) as caught:
        await neutron.list_ports({})
    assert (caught.value.status, caught.value.retry_after) == (status, 7.0)
    assert rule.hits == 1
    assert transport.limit.value == 2
    for _ in range(2 + 3):
        await neutron.list_ports({})
    assert transport.limit.value == 4


async def test_neutron_that_is_silent_gets_fewer_calls(make_transport, cloud):
    transport = make_transport(4, deadline=lambda: 0.5)
    neutron = Neutron(transport)
    hang = Hang()
    cloud.faults.add(method="GET", path="/ports$", action=hang)
    with pytest.raises(errors.CloudError) as caught:
        await neutron.list_ports({})
    hang.release()
    assert caught.value.status == 0
    assert transport.limit.value == 2


async def test_call_that_was_not_sent_says_nothing_about_neutron(make_transport, cloud):
    transport = make_transport(4, deadline=lambda: 0.0)
    with pytest.raises(errors.CloudError, match="not sent"):
        await Neutron(transport).list_ports({})
    assert transport.limit.value == 4


async def test_metrics_tell_the_limit_and_who_waits(make_transport, cloud):
    transport = make_transport(1)
    registry = CollectorRegistry()
    registry.register(LimitMetrics("neutron", transport.limit))
    hang = Hang()
    cloud.faults.add(method="GET", path="/ports$", action=hang)
    async with asyncio.TaskGroup() as group:
        group.create_task(Neutron(transport).list_ports({}))
        await hang.reached.wait()
        with prioritized(Priority.CLEANUP):
            group.create_task(Neutron(transport).list_ports({}))
        await asyncio.sleep(0)
        assert registry.get_sample_value("kuryr_neutron_calls_limit") == 1
        pod, cleanup = {"priority": "pod"}, {"priority": "cleanup"}
        assert registry.get_sample_value("kuryr_neutron_calls_in_flight", pod) == 1
        assert registry.get_sample_value("kuryr_neutron_calls_waiting", pod) == 0
        assert registry.get_sample_value("kuryr_neutron_calls_waiting", cleanup) == 1
        hang.release()
