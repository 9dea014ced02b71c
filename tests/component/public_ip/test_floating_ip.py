"""The driver neutron_floating_ip against the fake Neutron: what stands there afterwards, and for
how many calls."""

import asyncio
import contextlib

import pytest

from kuryr_k8s import errors
from kuryr_k8s.cloud.mark import ClusterMark
from kuryr_k8s.cloud.neutron.api import Neutron
from kuryr_k8s.drivers.base import PublicIPInUse, PublicIPRequest
from kuryr_k8s.drivers.public_ip.neutron_floating_ip import NeutronFloatingIP, NotPermitted
from kuryr_k8s.drivers.public_ip.requirements import NoNetwork
from kuryr_k8s.model.owner import Owner
from tests.kit import confs
from tests.kit.confs import TAG
from tests.kit.contexts import driver_context
from tests.kit.fakes.faults import (
    WRITES,
    Answer,
    Hang,
    answer,
    cut,
    delay,
    garble,
    hide,
    lose_reply,
)

OWNER = Owner("6f1c9a52-1111-4222-8333-444455556666")
OTHER = Owner("0e3b7d10-1111-4222-8333-444455556666")
MARK = f"kuryr-service:{OWNER.uid} {confs.MARK}"
TAGS = {TAG, confs.MARK, "kuryr-namespace:default", f"kuryr-service:{OWNER.uid}"}


@pytest.fixture(autouse=True)
def scene(cloud):
    """An external network with two subnets of which the first one is small, and two VIPs."""
    cloud.services = cloud.add_network("services", "10.3.0.0/24")
    cloud.public = cloud.add_external_network("public", "172.24.4.0/24", "172.24.5.0/24")
    cloud.router = cloud.add_router(cloud.public["id"], *cloud.services["subnets"])
    cloud.vips = [add_vip(cloud) for _ in range(2)]


def add_vip(cloud):
    return cloud.add_port(cloud.services["id"], name="vip")


@pytest.fixture
def start(load_conf, neutron, transport, cloud):
    """A new life of the driver; keyword arguments are of [neutron_defaults]."""

    def make(cluster=None, **options):
        options = {"external_svc_net": cloud.public["id"], **options}
        conf = load_conf(
            neutron_defaults={name: value for name, value in options.items() if value}
        )
        client = neutron if cluster is None else Neutron(transport, ClusterMark(cluster))
        return NeutronFloatingIP(driver_context(conf, client))

    return make


@pytest.fixture
def driver(start):
    return start()


def request(cloud, vip=0, **changes):
    port = cloud.vips[vip]
    values = {
        "owner": OWNER,
        "namespace": "default",
        "name": "web",
        "project_id": cloud.project_id,
        "port_id": port["id"],
        "vip_address": port["fixed_ips"][0]["ip_address"],
    }
    return PublicIPRequest(**(values | changes))


async def have(driver, wanted):
    """As a handler does: again and again, until it is so."""
    for _ in range(6):
        try:
            return await driver.ensure(wanted)
        except (errors.CloudError, errors.Wait):
            continue
    return await driver.ensure(wanted)


async def lose(driver, *, keep=False):
    for _ in range(6):
        try:
            return await driver.release(OWNER, keep=keep)
        except errors.CloudError:
            continue
    return await driver.release(OWNER, keep=keep)


def calls(cloud, *, writes):
    """Those of Neutron since the last clear."""
    return [
        f"{call.method} {call.what.removeprefix('/v2.0/')}"
        for call in cloud.calls
        if call.path.startswith("/v2.0/") and (call.method in WRITES) == writes
    ]


def shown(cloud):
    """What there is, but for what is anybody's choice."""
    left_out = ("id", "created_at", "updated_at", "revision_number", "router_id")
    found = [
        {name: value for name, value in floating_ip.items() if name not in left_out}
        | {"tags": sorted(floating_ip["tags"])}
        for floating_ip in cloud.floating_ips.values()
    ]
    return sorted(found, key=lambda floating_ip: floating_ip["floating_ip_address"])


def add_far(cloud):
    """Another external network that a router of the project leads to."""
    far = cloud.add_external_network("far", "198.51.100.0/24")
    cloud.add_router(far["id"], *cloud.services["subnets"])
    return far


def only(cloud):
    [floating_ip] = cloud.floating_ips.values()
    return floating_ip


async def test_vip_gets_one_that_leads_to_it_and_bears_its_owner(driver, cloud):
    address = await driver.ensure(request(cloud))
    made = only(cloud)
    assert made["floating_ip_address"] == address
    assert (made["port_id"], made["project_id"]) == (cloud.vips[0]["id"], cloud.project_id)
    assert set(made["tags"]) == TAGS
    assert calls(cloud, writes=True) == ["POST floatingips", "PUT floatingips/{id}/tags"]


async def test_unchanged_one_asks_neutron_nothing(driver, cloud):
    await driver.ensure(request(cloud))
    cloud.calls.clear()
    await driver.ensure(request(cloud))
    assert not cloud.calls


async def test_restart_reads_one_list_for_all(start, cloud):
    first = start()
    for vip, owner in enumerate((OWNER, OTHER)):
        await first.ensure(request(cloud, vip, owner=owner))
    before = shown(cloud)
    again = start()
    cloud.calls.clear()
    for vip, owner in enumerate((OWNER, OTHER)):
        await again.ensure(request(cloud, vip, owner=owner))
    await again.release("somebody who has none", keep=False)
    assert (calls(cloud, writes=False), calls(cloud, writes=True)) == (["GET floatingips"], [])
    assert shown(cloud) == before
    owned = {
        (floating_ip.owner, floating_ip.namespace) for floating_ip in await again.list_owned()
    }
    assert owned == {(OWNER, "default"), (OTHER, "default")}


async def test_first_list_goes_on_where_its_reader_was_broken_off(driver, cloud):
    """A reconcile has a deadline, here one of two pages."""
    for _ in range(6):
        cloud.add_floating_ip(cloud.public["id"])
    cloud.limit_pages(1)
    cloud.faults.add(method="GET", path="/floatingips$", times=None, action=delay(0.1))
    for _ in range(20):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.25):
                assert not await driver.has(OWNER)
                break
    else:
        pytest.fail("the list begins again and again")


async def test_without_an_external_network_there_is_none(start, cloud):
    driver = start(external_svc_net=None)
    await driver.start()
    assert await driver.ensure(request(cloud)) is None
    assert not cloud.floating_ips
    named = request(cloud, network_id=cloud.public["id"])
    assert await driver.ensure(named) == only(cloud)["floating_ip_address"]
    assert await driver.ensure(request(cloud)) is None
    assert not cloud.floating_ips


async def test_neutron_without_routers_has_none_and_that_is_no_error(start, cloud):
    cloud.faults.add(path="/floatingips$", times=None, action=answer(404))
    driver = start(external_svc_net=None)
    await driver.start()
    assert await driver.list_owned() == []
    assert await driver.ensure(request(cloud)) is None
    await driver.release(OWNER, keep=False)


async def test_new_vip_gets_the_address_of_the_old_one(driver, cloud):
    before = await driver.ensure(request(cloud))
    cloud.remove_port(cloud.vips[0]["id"])
    assert await driver.ensure(request(cloud, vip=1)) == before
    assert only(cloud)["port_id"] == cloud.vips[1]["id"]


@pytest.mark.parametrize("keep", [False, True])
async def test_one_that_we_made_goes_unless_it_is_to_be_kept(driver, cloud, keep):
    address = await driver.ensure(request(cloud))
    await driver.release(OWNER, keep=keep)
    if not keep:
        assert not cloud.floating_ips
        return
    kept = only(cloud)
    assert kept["floating_ip_address"] == address
    assert (kept["port_id"], kept["tags"], kept["description"]) == (None, [], "")
    assert await driver.list_owned() == []


async def test_one_that_people_made_is_taken_by_its_address_and_left_to_them(start, cloud):
    made = cloud.add_floating_ip(cloud.public["id"], description="ask Joe")
    cloud.store.change("floatingip", made, {"tags": ["joes"]})
    cloud.add_floating_ip(cloud.public["id"])
    before = shown(cloud)
    wanted = request(cloud, address=made["floating_ip_address"])
    assert await start().ensure(wanted) == made["floating_ip_address"]
    assert made["port_id"] == cloud.vips[0]["id"]
    assert set(made["tags"]) == TAGS | {"joes", "kuryr-found"}
    assert made["description"] == "ask Joe"
    await start().release(OWNER, keep=False)
    assert shown(cloud) == before


async def test_address_kept_by_one_service_is_taken_by_the_next(driver, cloud):
    address = await driver.ensure(request(cloud))
    await driver.release(OWNER, keep=True)
    wanted = request(cloud, vip=1, owner=OTHER, address=address)
    assert await driver.ensure(wanted) == address
    assert only(cloud)["port_id"] == cloud.vips[1]["id"]
    await driver.release(OTHER, keep=False)
    assert only(cloud)["tags"] == []


async def test_address_in_use_by_another_port_is_refused_and_left_alone(driver, cloud):
    made = cloud.add_floating_ip(cloud.public["id"], port_id=cloud.vips[1]["id"])
    before = shown(cloud)
    with pytest.raises(PublicIPInUse, match=cloud.vips[1]["id"]):
        await driver.ensure(request(cloud, address=made["floating_ip_address"]))
    assert shown(cloud) == before


async def test_address_of_another_service_is_refused_even_before_it_leads_anywhere(driver, cloud):
    address = await driver.ensure(request(cloud, owner=OTHER))
    cloud.store.change("floatingip", only(cloud), {"port_id": None, "fixed_ip_address": None})
    before = shown(cloud)
    with pytest.raises(PublicIPInUse, match="another Service"):
        await driver.ensure(request(cloud, address=address))
    assert shown(cloud) == before


async def test_of_two_services_that_ask_for_one_address_at_once_one_gets_it(driver, cloud):
    cloud.latency["PUT"] = 0.1  # so that the other one looks before it is marked
    made = cloud.add_floating_ip(cloud.public["id"])
    wanted = [
        request(cloud, vip, owner=owner, address=made["floating_ip_address"])
        for vip, owner in enumerate((OWNER, OTHER))
    ]

    async def outcome(asked):
        try:
            return await driver.ensure(asked)
        except PublicIPInUse as refusal:
            return refusal.reason

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(outcome(asked)) for asked in wanted]
    outcomes = [task.result() for task in tasks]
    assert sorted(outcomes) == [made["floating_ip_address"], PublicIPInUse.reason]
    winner = outcomes.index(made["floating_ip_address"])
    assert made["port_id"] == cloud.vips[winner]["id"]


async def test_address_of_another_project_is_refused(driver, cloud):
    stranger = cloud.add_project("stranger")
    made = cloud.add_floating_ip(cloud.public["id"], project_id=stranger)
    with pytest.raises((PublicIPInUse, NotPermitted)):
        await driver.ensure(request(cloud, address=made["floating_ip_address"]))
    assert (made["port_id"], made["tags"]) == (None, [])


async def test_address_that_is_not_there_is_made_where_the_policy_lets_us(start, cloud):
    wanted = request(cloud, address="172.24.4.200")
    with pytest.raises(NotPermitted, match="administrator"):
        await start().ensure(wanted)
    cloud.promote("manager")
    assert await start().ensure(wanted) == "172.24.4.200"
    await start().release(OWNER, keep=False)
    assert not cloud.floating_ips


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"network_id": "services"}, NoNetwork),
        ({"network_id": "00000000-0000-4000-8000-000000000000"}, NoNetwork),
        ({"subnet_ids": ("services",)}, NoNetwork),
        ({"address": "fd00::1"}, errors.Refused),
        ({"address": "172.24.5.9", "subnet_ids": ("public",)}, errors.Refused),
        ({"address": "192.0.2.1"}, errors.Refused),
    ],
)
async def test_what_cannot_be_is_refused_and_nothing_is_left(driver, cloud, options, problem):
    def resolve(name, value):
        if name == "network_id":
            return getattr(cloud, value, {"id": value})["id"]
        if name == "subnet_ids":
            return tuple(getattr(cloud, network)["subnets"][0] for network in value)
        return value

    options = {name: resolve(name, value) for name, value in options.items()}
    with pytest.raises(problem):
        await driver.ensure(request(cloud, **options))
    assert not cloud.floating_ips


async def test_network_that_no_router_leads_to_is_refused(driver, cloud):
    other = cloud.add_external_network("far", "198.51.100.0/24")
    with pytest.raises(NoNetwork, match="not reachable"):
        await driver.ensure(request(cloud, network_id=other["id"]))
    assert not cloud.floating_ips


async def test_next_subnet_is_tried_where_one_is_exhausted(driver, cloud):
    small = cloud.add_subnet(cloud.public["id"], "192.0.2.0/30", allocation_pools=[])
    wanted = request(cloud, subnet_ids=(small["id"], cloud.public["subnets"][1]))
    assert (await driver.ensure(wanted)).startswith("172.24.5.")
    with pytest.raises(errors.OverQuota, match="No more IP addresses"):
        await driver.ensure(request(cloud, vip=1, owner=OTHER, subnet_ids=(small["id"],)))
    assert len(cloud.floating_ips) == 1


async def test_operators_subnets_are_used_where_the_service_names_none(start, cloud):
    driver = start(external_svc_subnet=cloud.public["subnets"][1])
    await driver.start()
    assert (await driver.ensure(request(cloud))).startswith("172.24.5.")


async def test_quota_is_told_and_no_further_subnet_is_tried(driver, cloud):
    cloud.set_quota(cloud.project_id, floatingip=0)
    with pytest.raises(errors.OverQuota):
        await driver.ensure(request(cloud, subnet_ids=tuple(cloud.public["subnets"])))
    assert calls(cloud, writes=True) == ["POST floatingips"]
    cloud.set_quota(cloud.project_id, floatingip=-1)
    await driver.ensure(request(cloud))
    assert len(cloud.floating_ips) == 1


async def test_what_is_asked_for_otherwise_is_another_one_and_the_old_one_goes(driver, cloud):
    first = await driver.ensure(request(cloud, subnet_ids=(cloud.public["subnets"][0],)))
    second = await driver.ensure(request(cloud, subnet_ids=(cloud.public["subnets"][1],)))
    assert (first[:9], second[:9]) == ("172.24.4.", "172.24.5.")
    assert only(cloud)["port_id"] == cloud.vips[0]["id"]
    made = cloud.add_floating_ip(cloud.public["id"])
    assert await driver.ensure(request(cloud, address=made["floating_ip_address"])) != second
    assert only(cloud) is made


async def test_address_that_is_to_be_kept_outlives_its_replacement(driver, cloud):
    before = await driver.ensure(request(cloud, keep=True))
    made = cloud.add_floating_ip(cloud.public["id"])
    await driver.ensure(request(cloud, address=made["floating_ip_address"], keep=True))
    kept = next(
        floating_ip for floating_ip in cloud.floating_ips.values() if floating_ip is not made
    )
    assert kept["floating_ip_address"] == before
    assert (kept["port_id"], kept["description"], kept["tags"]) == (None, "", [])


async def test_address_that_is_to_be_kept_outlives_the_external_network(start, cloud):
    before = await start().ensure(request(cloud, keep=True))
    assert await start(external_svc_net=None).ensure(request(cloud, keep=True)) is None
    assert (only(cloud)["floating_ip_address"], only(cloud)["tags"]) == (before, [])


@pytest.mark.parametrize("changed", ["external_svc_net", "external_svc_subnet"])
async def test_address_outlives_the_operators_choice_that_it_was_made_by(start, cloud, changed):
    before = await start(external_svc_subnet=cloud.public["subnets"][0]).ensure(request(cloud))
    far = add_far(cloud)
    choice = {"external_svc_net": far["id"], "external_svc_subnet": cloud.public["subnets"][1]}
    driver, there = start(**{changed: choice[changed]}), shown(cloud)
    assert await driver.ensure(request(cloud)) == before
    assert shown(cloud) == there
    assert await driver.ensure(request(cloud, vip=1)) == before
    assert await driver.ensure(request(cloud, vip=1, address=before)) == before
    # what the Service asks for itself counts
    named = request(cloud, vip=1, network_id=far["id"])
    assert (await driver.ensure(named)).startswith("198.51.100.")
    assert len(cloud.floating_ips) == 1


async def test_subnet_that_the_service_names_counts_though_the_default_network_was_another(
    start, cloud
):
    await start().ensure(request(cloud))
    far = add_far(cloud)
    named = request(cloud, subnet_ids=tuple(far["subnets"]))
    assert (await start(external_svc_net=far["id"]).ensure(named)).startswith("198.51.100.")
    assert len(cloud.floating_ips) == 1


@pytest.mark.parametrize("too", [False, True])
async def test_subnet_of_the_network_that_was_the_default_keeps_the_address_and_lets_it_follow(
    start, cloud, too
):
    """As an id, or as one of the subnets that match a pattern in both networks."""
    subnet = cloud.public["subnets"][1]
    before = await start().ensure(request(cloud, subnet_ids=(subnet,)))
    far = add_far(cloud)
    named = (subnet, *far["subnets"]) if too else (subnet,)
    driver = start(external_svc_net=far["id"])
    assert await driver.networks_by_default(OWNER) == {cloud.public["id"]}
    assert await driver.ensure(request(cloud, vip=1, subnet_ids=named)) == before
    assert only(cloud)["port_id"] == cloud.vips[1]["id"]
    # a new address is made in the network that is the default now
    await driver.release(OWNER, keep=False)
    if too:
        assert (await driver.ensure(request(cloud, subnet_ids=named))).startswith("198.51.100.")
    else:
        with pytest.raises(NoNetwork, match=f"subnet {subnet} is not of network"):
            await driver.ensure(request(cloud, subnet_ids=named))


@pytest.mark.parametrize("restarted", [False, True])
async def test_address_leaves_a_network_that_the_service_names_no_more(start, cloud, restarted):
    driver, far = start(), add_far(cloud)
    await driver.ensure(request(cloud, network_id=far["id"]))
    assert set(only(cloud)["tags"]) == TAGS | {"kuryr-named-network"}
    driver = start() if restarted else driver
    assert (await driver.ensure(request(cloud))).startswith("172.24.")
    assert set(only(cloud)["tags"]) == TAGS


async def test_network_that_is_the_default_too_is_kept_when_the_service_names_it_no_more(
    start, cloud
):
    driver, far = start(), add_far(cloud)
    before = await driver.ensure(request(cloud, network_id=cloud.public["id"]))
    assert await driver.ensure(request(cloud)) == before
    assert set(only(cloud)["tags"]) == TAGS
    assert await start(external_svc_net=far["id"]).ensure(request(cloud)) == before


async def test_address_whose_making_nobody_was_told_of_meets_what_is_asked_for_now(start, cloud):
    """Its creator died before it could say whether the Service had named the network."""
    far = add_far(cloud)
    cloud.add_floating_ip(far["id"], description=MARK)
    assert (await start().ensure(request(cloud))).startswith("172.24.")
    assert len(cloud.floating_ips) == 1


async def test_marks_of_what_the_service_asked_for_go_with_the_service(start, cloud):
    driver = start()
    await driver.ensure(request(cloud, network_id=cloud.public["id"], keep=True))
    await driver.release(OWNER, keep=True)
    assert only(cloud)["tags"] == []


async def test_whether_it_is_to_be_kept_stands_on_the_address_itself(start, cloud):
    driver = start()
    address = await driver.ensure(request(cloud))
    await driver.ensure(request(cloud, keep=True))
    assert set(only(cloud)["tags"]) == TAGS | {"kuryr-keep"}
    cloud.calls.clear()
    await start().ensure(request(cloud, keep=True))
    assert not calls(cloud, writes=True)
    await driver.ensure(request(cloud))
    assert set(only(cloud)["tags"]) == TAGS
    await driver.ensure(request(cloud, keep=True))
    await start().release(OWNER, keep=None)  # as who cannot ask the Service
    kept = only(cloud)
    assert kept["floating_ip_address"] == address
    assert (kept["port_id"], kept["tags"], kept["description"]) == (None, [], "")
    await driver.release(OTHER, keep=None)


async def test_address_that_nobody_asks_to_keep_goes_with_its_owner(driver, cloud):
    await driver.ensure(request(cloud, keep=True))
    await driver.ensure(request(cloud))
    await driver.release(OWNER, keep=None)
    assert not cloud.floating_ips


async def test_refused_change_leaves_what_was_there(driver, cloud):
    before = await driver.ensure(request(cloud))
    taken = cloud.add_floating_ip(cloud.public["id"], port_id=cloud.vips[1]["id"])
    with pytest.raises(PublicIPInUse):
        await driver.ensure(request(cloud, address=taken["floating_ip_address"]))
    assert await driver.ensure(request(cloud)) == before


@pytest.mark.parametrize("found", [False, True])
async def test_network_that_no_router_leads_to_does_not_cost_what_was_there(driver, cloud, found):
    before = await driver.ensure(request(cloud))
    far = cloud.add_external_network("far", "198.51.100.0/24")
    made = cloud.add_floating_ip(far["id"])
    address = made["floating_ip_address"] if found else None
    for _ in range(2):
        with pytest.raises(NoNetwork):
            await driver.ensure(request(cloud, network_id=far["id"], address=address))
    leading = [
        floating_ip for floating_ip in cloud.floating_ips.values() if floating_ip["port_id"]
    ]
    assert [floating_ip["floating_ip_address"] for floating_ip in leading] == [before]
    assert await driver.ensure(request(cloud)) == before
    assert (made["port_id"], made["tags"], len(cloud.floating_ips)) == (None, [], 2)


async def test_other_network_takes_over_without_a_gap(driver, cloud):
    await driver.ensure(request(cloud))
    far = add_far(cloud)
    cloud.calls.clear()
    wanted = request(cloud, network_id=far["id"])
    address = await driver.ensure(wanted)
    assert calls(cloud, writes=True) == [
        "POST floatingips",
        "PUT floatingips/{id}/tags",
        "DELETE floatingips/{id}",
    ]
    assert (only(cloud)["floating_ip_address"], only(cloud)["port_id"]) == (
        address,
        wanted.port_id,
    )


async def test_floating_ip_that_people_put_on_the_vip_is_refused_and_left(driver, cloud):
    made = cloud.add_floating_ip(cloud.public["id"], port_id=cloud.vips[0]["id"])
    before = shown(cloud)
    with pytest.raises(PublicIPInUse, match="we did not create"):
        await driver.ensure(request(cloud))
    assert shown(cloud) == before
    wanted = request(cloud, address=made["floating_ip_address"])
    assert await driver.ensure(wanted) == made["floating_ip_address"]


async def test_of_several_of_an_owner_the_oldest_stays(start, cloud):
    await start().ensure(request(cloud))
    first = only(cloud)
    cloud.store.change("floatingip", first, {"created_at": "2020-01-01T00:00:00Z"})
    twin = cloud.add_floating_ip(cloud.public["id"], description=MARK)
    assert twin["id"] in cloud.floating_ips
    await start().ensure(request(cloud, keep=True))
    assert only(cloud) is first


@pytest.mark.parametrize(
    "mark",
    [{"description": f"kuryr-service:{OWNER.uid} {TAG}"}, {"tags": sorted(TAGS - {confs.MARK})}],
    ids=["description", "tags"],
)
async def test_one_of_an_earlier_version_stays_its_services_and_gets_the_mark(start, cloud, mark):
    made = cloud.add_floating_ip(cloud.public["id"])
    cloud.store.change("floatingip", made, mark)
    driver = start()
    assert [owned.clusters for owned in await driver.list_owned()] == [frozenset()]
    assert await driver.ensure(request(cloud)) == made["floating_ip_address"]
    assert only(cloud) is made
    assert set(made["tags"]) == TAGS


@pytest.mark.parametrize(
    "by_hand",
    [
        lambda cloud: cloud.remove_floating_ip(only(cloud)["id"]),
        lambda cloud: cloud.store.change("floatingip", only(cloud), {"port_id": None}),
        lambda cloud: cloud.store.change(
            "floatingip", only(cloud), {"port_id": cloud.vips[1]["id"]}
        ),
        lambda cloud: cloud.store.change("floatingip", only(cloud), {"tags": []}),
    ],
    ids=["deleted", "disassociated", "moved", "tags gone"],
)
async def test_what_was_changed_by_hand_is_put_right_after_a_resync(driver, cloud, by_hand):
    await driver.ensure(request(cloud))
    before = shown(cloud)
    by_hand(cloud)
    await driver.list_owned()
    await driver.ensure(request(cloud))
    assert shown(cloud) == before


async def test_one_that_a_list_does_not_show_is_asked_for_before_another_is_made(driver, cloud):
    address = await driver.ensure(request(cloud))
    cloud.faults.add(
        method="GET",
        path="/floatingips$",
        times=None,
        when=lambda seen: "id" not in seen.query,
        action=hide(),
    )
    await driver.list_owned()
    assert await driver.ensure(request(cloud)) == address
    assert only(cloud)["floating_ip_address"] == address


async def test_change_of_one_that_is_gone_makes_another(driver, cloud):
    await driver.ensure(request(cloud))
    cloud.remove_floating_ip(only(cloud)["id"])
    with pytest.raises(errors.Wait):
        await driver.ensure(request(cloud, vip=1))
    await driver.ensure(request(cloud, vip=1))
    assert only(cloud)["port_id"] == cloud.vips[1]["id"]


@pytest.mark.parametrize("mark", [{"tags": sorted(TAGS)}, {"description": MARK}], ids=str)
async def test_mark_of_ours_in_a_project_of_no_service_is_nobodys(start, cloud, mark):
    stranger = cloud.add_project("stranger")
    made = cloud.add_floating_ip(cloud.public["id"], project_id=stranger)
    cloud.store.change("floatingip", made, mark)
    cloud.promote("admin")
    driver = start()
    assert await driver.list_owned() == []
    address = await driver.ensure(request(cloud))
    assert address != made["floating_ip_address"]
    await driver.release(OWNER, keep=False)
    assert only(cloud) is made


async def test_service_of_another_project_has_a_floating_ip_of_that(load_conf, neutron, cloud):
    other = cloud.add_project("other")
    cloud.promote("admin")
    groups = {
        "neutron_defaults": {"external_svc_net": cloud.public["id"]},
        "policy": {"projects": f"default:{other}"},
    }
    conf = load_conf(**groups)
    driver = NeutronFloatingIP(driver_context(conf, neutron))
    before = await driver.ensure(request(cloud))
    assert await driver.ensure(request(cloud, project_id=other)) != before
    assert only(cloud)["project_id"] == other


async def test_one_of_an_earlier_version_that_shares_our_first_tag_alone_is_not_ours(start, cloud):
    made = cloud.add_floating_ip(cloud.public["id"])
    theirs = {"tags": sorted({TAG, "b", "kuryr-namespace:default", f"kuryr-service:{OWNER.uid}"})}
    theirs["description"] = f"kuryr-service:{OWNER.uid} {TAG}"
    cloud.store.change("floatingip", made, theirs)
    before = shown(cloud)
    driver = start(resource_tags=f"{TAG},a")
    assert await driver.list_owned() == []
    await driver.release(OWNER, keep=False)
    assert shown(cloud) == before


@pytest.mark.parametrize("tag", ["other-cluster", TAG])
async def test_other_clusters_are_none_of_ours(start, cloud, tag):
    other = start("another", resource_tags=tag)
    address = await other.ensure(request(cloud))
    before = shown(cloud)
    driver = start()
    assert not any(confs.CLUSTER in owned.clusters for owned in await driver.list_owned())
    await driver.release(OWNER, keep=False)
    with pytest.raises(PublicIPInUse):
        await driver.ensure(request(cloud, vip=1, address=address))
    assert shown(cloud) == before


@pytest.mark.parametrize(
    "options",
    [
        {"external_svc_net": "00000000-0000-4000-8000-000000000000"},
        {"external_svc_net": "services"},
        {"external_svc_subnet": "services"},
    ],
    ids=str,
)
async def test_wrong_options_are_told_at_the_start(start, cloud, options):
    options = dict(options)
    if options.get("external_svc_net") == "services":
        options["external_svc_net"] = cloud.services["id"]
    if "external_svc_subnet" in options:
        network = getattr(cloud, options["external_svc_subnet"])
        options["external_svc_subnet"] = network["subnets"][0]
    with pytest.raises(errors.Refused):
        await start(**options).start()


# -- faults


async def live(start, cloud, *, adopt):
    """A life with all kinds of writes but those at its end; each step by a new controller."""
    await have(start(), request(cloud, subnet_ids=(cloud.public["subnets"][0],)))
    await have(start(), request(cloud, vip=1))
    elsewhere = {"vip": 1, "subnet_ids": (cloud.public["subnets"][1],)}
    await have(start(), request(cloud, **elsewhere))
    await have(start(), request(cloud, **elsewhere, network_id=cloud.public["id"]))
    await have(start(), request(cloud, vip=1, address=adopt))
    return shown(cloud)


FAULTS = {
    "reply lost": lambda: lose_reply(),
    "not sent": lambda: cut(),
    "half a reply": lambda: garble(),
    "500 applied": lambda: answer(500, applied=True),
    "500": lambda: answer(500),
    "503": lambda: answer(503),
    "409": lambda: answer(409),
    "quota": lambda: answer(409, "OverQuota", "Quota exceeded for resources: ['floatingip']."),
}
WRITES_OF_A_LIFE = 11
WRITES_AT_ITS_END = 2


async def test_creation_that_comes_late_is_waited_for_and_is_the_one_that_stays(driver, cloud):
    """Neutron carries out what nobody waits for any more, after we have looked in vain."""
    late = {}

    async def carry_out_later(request, proceed):
        await request.read()
        late["proceed"] = proceed
        raise Answer(504)

    async def come_first(_request, proceed):
        await late["proceed"]()
        return await proceed()

    cloud.faults.at_write(1, carry_out_later)
    cloud.faults.at_write(2, come_first)
    with pytest.raises(errors.CloudError):
        await driver.ensure(request(cloud))
    with pytest.raises(errors.Wait):
        await driver.ensure(request(cloud))
    assert await driver.ensure(request(cloud)) == only(cloud)["floating_ip_address"]
    assert set(only(cloud)["tags"]) == TAGS


@pytest.mark.parametrize("fault", FAULTS)
async def test_fault_at_any_write_leaves_what_an_undisturbed_life_leaves(start, cloud, fault):
    made = cloud.add_floating_ip(cloud.public["id"], description="ask Joe")
    adopt, untouched = made["floating_ip_address"], shown(cloud)
    undisturbed = await live(start, cloud, adopt=adopt)
    assert len(calls(cloud, writes=True)) == WRITES_OF_A_LIFE
    await lose(start())
    assert len(calls(cloud, writes=True)) == WRITES_OF_A_LIFE + WRITES_AT_ITS_END
    assert shown(cloud) == untouched
    for number in range(1, WRITES_OF_A_LIFE + WRITES_AT_ITS_END + 1):
        cloud.calls.clear()
        cloud.faults.at_write(number, FAULTS[fault]())
        assert await live(start, cloud, adopt=adopt) == undisturbed, number
        await lose(start())
        assert shown(cloud) == untouched, number
        assert await start().list_owned() == []


@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("keep", [False, True])
async def test_controller_that_dies_at_any_write_leaves_its_heir_to_finish(
    start, cloud, applied, keep
):
    """Broken off while the call is under way, before or after Neutron did it."""
    await have(start(), request(cloud))
    undisturbed = shown(cloud)
    await lose(start(), keep=keep)
    released = shown(cloud)
    for floating_ip_id in list(cloud.floating_ips):
        cloud.remove_floating_ip(floating_ip_id)
    for number in range(1, 3 + (2 if keep else 1)):
        hang = Hang(applied=applied)
        cloud.faults.at_write(number, hang)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(_whole_life(start(), cloud, keep))
            await hang.reached.wait()
            task.cancel()
            hang.release()
        assert task.cancelled()
        heir = start()
        if number <= 2:
            await have(heir, request(cloud))
            assert shown(cloud) == undisturbed
        await lose(heir, keep=keep)
        assert shown(cloud) == released, number
        for floating_ip_id in list(cloud.floating_ips):
            cloud.remove_floating_ip(floating_ip_id)


async def _whole_life(driver, cloud, keep):
    await driver.ensure(request(cloud))
    await driver.release(OWNER, keep=keep)


async def test_answer_that_comes_after_a_list_was_begun_is_not_undone_by_it(driver, cloud):
    """The list shows what was before."""
    await driver.list_owned()
    hang = Hang(applied=True)
    cloud.faults.add(method="GET", path="/floatingips$", action=hang)
    async with asyncio.TaskGroup() as group:
        listing = group.create_task(driver.list_owned())
        await hang.reached.wait()
        await driver.ensure(request(cloud))
        hang.release()
    assert listing.result() == []
    cloud.calls.clear()
    await driver.ensure(request(cloud))
    assert not cloud.calls
