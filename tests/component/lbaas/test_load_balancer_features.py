"""What a load balancer may have beside listeners, pools and members, through the driver lbaasv2:
what stands in the fake Octavia afterwards, for how many writes, and what is refused."""

import dataclasses

import pytest

from kuryr_k8s import errors
from kuryr_k8s.model.load_balancer import TIMEOUTS, HealthMonitor
from kuryr_k8s.model.owner import Owner
from tests.kit.confs import MARK, TAG
from tests.kit.fakes.faults import WRITES, answer, lose_reply
from tests.kit.fakes.octavia.kinds import LISTENER, MEMBER, POOL
from tests.kit.load_balancer_worker import wanted

OWNER = Owner("6f1c9a52-1111-4222-8333-444455556666")
MONITOR = HealthMonitor(type="TCP", delay=5, timeout=3, max_retries=1, max_retries_down=3)
HTTP = dataclasses.replace(
    MONITOR, type="HTTP", http_method="GET", url_path="/", expected_codes="200"
)
TAGS = (TAG, MARK, "kuryr-namespace:default", f"kuryr-service:{OWNER.uid}")


def writes(cloud):
    """Those of Octavia since the last clear."""
    return [
        f"{call.method} {call.what.rpartition('/lbaas/')[2]}"
        for call in cloud.calls
        if "/lbaas/" in call.path and call.method in WRITES
    ]


def with_parts(desired, *, listener=None, pool=None):
    """The same with changes of every listener and every pool."""
    return dataclasses.replace(
        desired,
        listeners=tuple(
            dataclasses.replace(part, **(listener or {})) for part in desired.listeners
        ),
        pools=tuple(dataclasses.replace(part, **(pool or {})) for part in desired.pools),
    )


def rich(cloud, **changes):
    """With everything that a listener and a pool of TCP can have."""
    return with_parts(
        wanted(cloud, OWNER, ports=["http"], **changes),
        listener={
            "timeout_client_data": 1000,
            "timeout_member_data": 2000,
            "timeout_member_connect": 3000,
            "timeout_tcp_inspect": 4000,
            "allowed_cidrs": ("192.0.2.0/24",),
            "connection_limit": 7,
        },
        pool={"health_monitor": MONITOR},
    )


def tree(cloud):
    [load_balancer] = cloud.load_balancers
    return cloud.octavia.tree(load_balancer)


async def test_all_of_it_is_made_by_one_write_and_a_restart_writes_nothing(make_worker, cloud):
    desired = rich(cloud, address="10.3.0.5")
    async with make_worker() as worker:
        found = await worker.have(OWNER, desired)
        assert writes(cloud) == ["POST loadbalancers"]
        assert found.pools[0].health_monitor_status == "ACTIVE"
    [listener] = tree(cloud)["listeners"]
    assert (listener["connection_limit"], listener["timeout_tcp_inspect"]) == (7, 4000)
    assert listener["pool"]["tags"] == sorted(TAGS)
    assert listener["tags"] == sorted((*TAGS, *(f"kuryr-set:{name}" for name in TIMEOUTS)))
    assert listener["pool"]["health_monitor"] == dataclasses.asdict(MONITOR)
    cloud.calls.clear()
    async with make_worker() as worker:
        await worker.have(OWNER, desired)
    assert writes(cloud) == []


async def test_tags_that_a_former_version_did_not_give_are_put_on_once(make_worker, cloud):
    old = wanted(cloud, OWNER, ports=["http"])
    async with make_worker() as worker:
        await worker.have(OWNER, old)
    for part in (
        *cloud.octavia.store.of(LISTENER).values(),
        *cloud.octavia.store.of(POOL).values(),
    ):
        part["tags"] = ["an-operator's"]
    cloud.calls.clear()
    async with make_worker() as worker:
        await worker.have(OWNER, old)
    assert sorted(writes(cloud)) == ["PUT listeners/{id}", "PUT pools/{id}"]
    [listener] = tree(cloud)["listeners"]
    assert listener["tags"] == listener["pool"]["tags"] == sorted((*TAGS, "an-operator's"))
    cloud.calls.clear()
    async with make_worker() as worker:
        await worker.have(OWNER, old)
    assert writes(cloud) == []


async def test_members_that_get_no_connections_yet_are_told_by_one_read(make_worker, cloud):
    """A member is healthy if the monitors of all pools that have it have found it so."""
    octavia = cloud.octavia
    octavia.progress.unhealthy.add("10.62.1.2")
    bare = wanted(cloud, OWNER, ports=["http", "dns-tcp"])
    async with make_worker() as worker:
        found = await worker.have(OWNER, with_parts(bare, pool={"health_monitor": MONITOR}))
        cloud.calls.clear()
        assert await worker.driver.not_online(found) == {"10.62.1.2"}
        assert [call.method for call in cloud.calls] == ["GET"]
        first, second = (
            member
            for member in octavia.store.of(MEMBER).values()
            if member["address"] == "10.62.1.2"
        )
        first["operating_status"] = "ONLINE"
        assert await worker.driver.not_online(found) == {"10.62.1.2"}
        second["operating_status"] = "NO_MONITOR"
        assert await worker.driver.not_online(found) == set()
        octavia.remove(found.id)
        assert await worker.driver.not_online(found) == {"10.62.1.1", "10.62.1.2"}


async def test_members_without_a_monitor_get_connections_at_once(make_worker, cloud):
    async with make_worker() as worker:
        found = await worker.have(OWNER, wanted(cloud, OWNER))
        cloud.calls.clear()
        assert await worker.driver.not_online(found) == set()
        assert not cloud.calls


async def _life_of_a_monitor(worker, cloud):
    """All writes that there are for monitors; the trees on the way."""
    bare = wanted(cloud, OWNER, ports=["http"])
    slower, other = dataclasses.replace(MONITOR, delay=9), dataclasses.replace(HTTP, url_path="/x")
    seen = []
    for monitor in (None, MONITOR, slower, HTTP, other, None):
        await worker.have(OWNER, with_parts(bare, pool={"health_monitor": monitor}))
        seen.append(tree(cloud)["listeners"][0]["pool"]["health_monitor"])
    assert seen == [
        monitor and dataclasses.asdict(monitor)
        for monitor in (None, MONITOR, slower, HTTP, other, None)
    ]


async def test_monitor_comes_changes_and_goes_by_a_write_each(worker, cloud):
    await _life_of_a_monitor(worker, cloud)
    assert writes(cloud) == [
        "POST loadbalancers",
        "POST healthmonitors",
        "PUT healthmonitors/{id}",
        "DELETE healthmonitors/{id}",
        "POST healthmonitors",
        "PUT healthmonitors/{id}",
        "DELETE healthmonitors/{id}",
    ]


@pytest.mark.parametrize(
    "fault",
    [lose_reply(), answer(503), answer(404)],
    ids=["reply lost", "503", "404"],
)
async def test_fault_at_any_write_of_a_monitor_is_made_good(make_worker, cloud, fault):
    for number in (2, 3, 4):  # the first that makes one, changes one, deletes one
        async with make_worker() as worker:
            cloud.faults.at_write(number, fault)
            await _life_of_a_monitor(worker, cloud)
            await worker.have(OWNER, None)
            assert not cloud.load_balancers


@pytest.mark.parametrize("trouble", ["set_error", "remove"])
async def test_monitor_in_error_or_deleted_by_hand_is_made_again(worker, cloud, trouble):
    first = await worker.have(OWNER, rich(cloud))
    before = tree(cloud)
    getattr(cloud.octavia, trouble)(first.pools[0].health_monitor_id)
    cloud.load_balancers[first.id]["updated_at"] = "2031-01-01T00:00:00"
    await worker.driver.list_owned()
    again = await worker.have(OWNER, rich(cloud))
    assert (again.id, again.statuses()) == (first.id, {"ACTIVE"})
    assert tree(cloud) == before


async def test_monitor_that_is_pending_is_waited_for(worker, cloud):
    found = await worker.have(OWNER, rich(cloud))
    cloud.octavia.store.part(found.pools[0].health_monitor_id)["provisioning_status"] = (
        "PENDING_UPDATE"
    )
    cloud.load_balancers[found.id]["updated_at"] = "2031-01-01T00:00:00"
    await worker.driver.list_owned()
    cloud.calls.clear()
    worker.want(OWNER, rich(cloud, pods=3))
    await cloud.wait_for(lambda: any("/status" in call.path for call in cloud.calls))
    assert writes(cloud) == []
    cloud.octavia.progress.finish(found.id)
    assert len((await worker.done(OWNER)).pools[0].pool.members) == 3


@pytest.mark.parametrize(
    ("provider", "listener", "pool", "feature"),
    [
        ("ovn", {"allowed_cidrs": ("10.0.0.0/8",)}, {}, "allowed_cidrs"),
        ("ovn", {}, {"lb_algorithm": "ROUND_ROBIN"}, "lb_algorithm"),
        ("ovn", {}, {"health_monitor": HTTP}, "health_monitor"),
        ("amphora", {"insert_headers": ("X-Forwarded-For",)}, {}, "insert_headers"),
        ("amphora", {"default_tls_container_ref": "x"}, {}, "default_tls_container_ref"),
    ],
    ids=["cidrs", "algorithm", "monitor", "headers", "certificate"],
)
async def test_what_the_provider_cannot_do_is_told_by_its_name_and_served_without_it(
    worker, cloud, provider, listener, pool, feature
):
    able = {"ovn": "SOURCE_IP_PORT", "amphora": "ROUND_ROBIN"}[provider]
    can = with_parts(
        wanted(cloud, OWNER, ports=["http"], provider=provider), pool={"lb_algorithm": able}
    )
    first = await worker.have(OWNER, can)
    worker.want(OWNER, with_parts(can, listener=listener, pool=pool))
    problem = await worker.trouble(OWNER)
    assert isinstance(problem, errors.Unsupported)
    assert (problem.feature, problem.reason) == (feature, "KuryrLoadBalancerUnsupported")
    again = await worker.have(OWNER, can)
    assert (again.id, again.statuses()) == (first.id, {"ACTIVE"})


async def test_octavia_that_is_too_old_is_not_asked_to_write_and_serves_once_it_has_grown(
    worker, cloud
):
    cloud.octavia.newest = 11
    desired = with_parts(
        wanted(cloud, OWNER, ports=["http"]), listener={"allowed_cidrs": ("10.0.0.0/8",)}
    )
    worker.want(OWNER, desired)
    problem = await worker.trouble(OWNER)
    assert (problem.feature, writes(cloud)) == ("allowed_cidrs", [])
    assert "needs version 2.12" in str(problem)
    assert "has 2.11" in str(problem)
    cloud.octavia.newest = 12
    await worker.done(OWNER)


async def test_provider_that_octavia_has_not_is_told_with_those_that_it_has(worker, cloud):
    worker.want(OWNER, wanted(cloud, OWNER, ports=["http"], provider="nobody"))
    problem = await worker.trouble(OWNER)
    assert (problem.feature, writes(cloud)) == ("provider", [])
    assert "amphora, ovn" in str(problem)


async def test_refused_creation_leaves_the_address_to_the_next_one(worker, cloud):
    can = with_parts(
        wanted(cloud, OWNER, ports=["http"], provider="ovn", address="10.3.0.5"),
        pool={"lb_algorithm": "SOURCE_IP_PORT"},
    )
    worker.want(OWNER, with_parts(can, pool={"lb_algorithm": "ROUND_ROBIN"}))
    for _ in range(3):
        assert isinstance(await worker.trouble(OWNER), errors.Unsupported)
    assert [port["device_owner"] for port in cloud.ports.values()] == []
    found = await worker.have(OWNER, can)
    assert found.vip_address == "10.3.0.5"
    assert [port["id"] for port in cloud.ports.values()] == [found.vip_port_id]


async def test_address_that_somebody_elses_load_balancer_has_stays_its_own(worker, cloud):
    taken = wanted(cloud, Owner("other"), ports=["http"], address="10.3.0.5")
    first = await worker.have(Owner("other"), taken)
    cloud.octavia.set_quota(cloud.project_id, loadbalancer=1)
    worker.want(OWNER, wanted(cloud, OWNER, ports=["http"], address="10.3.0.5"))
    assert isinstance(await worker.trouble(OWNER), errors.OverQuota)
    assert first.vip_port_id in cloud.ports


@pytest.mark.parametrize(
    "choice", [{"flavor_id": "large"}, {"availability_zone": "east"}], ids=["flavor", "zone"]
)
async def test_flavor_and_zone_are_chosen_at_the_making(worker, cloud, choice):
    cloud.octavia.store.flavors["large"] = "amphora"
    cloud.octavia.store.zones.add("east")
    plain = wanted(cloud, OWNER, ports=["http"])
    first = await worker.have(OWNER, plain)
    second = await worker.have(OWNER, dataclasses.replace(plain, **choice))
    assert list(cloud.load_balancers) == [second.id] != [first.id]
    third = await worker.have(OWNER, plain)
    assert third.id == second.id


async def test_a_vip_may_be_an_existing_port_which_stays(worker, cloud, neutron):
    network = cloud.services["id"]
    subnet = cloud.services["subnets"][0]
    port = await neutron.create_port(
        {
            "network_id": network,
            "project_id": cloud.project_id,
            "fixed_ips": [{"subnet_id": subnet}],
        }
    )
    nowhere = {"vip_subnet_id": None, "address": None}
    desired = wanted(cloud, OWNER, ports=["http"], vip_port_id=port["id"], **nowhere)
    found = await worker.have(OWNER, desired)
    assert (found.vip_port_id, found.vip_address) == (
        port["id"],
        port["fixed_ips"][0]["ip_address"],
    )
    assert (await worker.have(OWNER, desired)).id == found.id
    await worker.have(OWNER, None)
    assert port["id"] in cloud.ports


async def test_a_vip_may_be_anywhere_in_a_network(worker, cloud):
    desired = wanted(
        cloud, OWNER, ports=["http"], vip_subnet_id=None, vip_network_id=cloud.services["id"]
    )
    found = await worker.have(OWNER, desired)
    assert found.vip_subnet_id in cloud.services["subnets"]
    assert (await worker.have(OWNER, desired)).id == found.id
