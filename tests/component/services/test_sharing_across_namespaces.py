"""Whose load balancers a Service may have ports on, beside those of its own namespace."""

import pytest

from tests.kit.confs import NODE
from tests.kit.fakes.faults import cut, lose_reply
from tests.kit.kube.cluster import Cluster
from tests.kit.kube.proxy import KubeProxy
from tests.kit.load_balancer_services import (
    DNS,
    HTTP,
    ID,
    INTERNAL,
    PREFIX,
    READY,
    expose,
    ingress_of,
    marks,
    open_up,
    until_condition,
    until_ingress,
    until_reached,
)
from tests.kit.service_stage import ServiceStage

SHARED_WITH = "openstack.org/kuryr-load-balancer-shared-with"
PORTS = [("dns", 5353, "UDP")]
MINE, GUESTS = ("TCP", 80), ("UDP", 53)
QUICK = {"neutron_defaults": {"sweep_interval": "1"}}


@pytest.fixture
async def guests(services, kube_server, kube, load_conf):
    """The stage of another namespace. The controllers of ``services`` serve both."""
    open_up(services)
    cluster = Cluster(kube)
    await cluster.add_namespace()
    async with KubeProxy(kube_server, node=NODE) as proxy:
        services.proxy = proxy
        try:
            yield ServiceStage(cluster, services.cloud, proxy, load_conf, options=services.options)
        finally:
            await cluster.clean()


async def own(services, guests, *, shares=True):
    """The Service «web» of the first namespace; its load balancer's id, and its address."""
    names = f"elsewhere,{guests.cluster.namespace}"
    await expose(services, annotations={SHARED_WITH: names} if shares else None)
    (ingress,) = await until_reached(services)
    return (await services.service())["metadata"]["annotations"][ID], ingress["ip"]


async def share(guests, load_balancer_id):
    await guests.set_slice("a", "10.62.0.9", ports=PORTS, service="web")
    await guests.add_service(
        "web", DNS, type="LoadBalancer", annotations=marks(load_balancer_id=load_balancer_id)
    )


async def say(services, names):
    await services.patch_service(metadata={"annotations": {SHARED_WITH: names}})


def on(services, load_balancer_id):
    """{(protocol, port)} of the listeners of the load balancer."""
    tree = services.cloud.octavia.tree(load_balancer_id)
    return {(each["protocol"], each["protocol_port"]) for each in tree["listeners"]}


def until_on(services, load_balancer_id, expected):
    return services.cloud.wait_for(lambda: on(services, load_balancer_id) == expected)


async def test_service_of_another_namespace_is_on_it_only_with_its_owners_consent(
    services, guests
):
    async with services.controller():
        shared, address = await own(services, guests, shares=False)
        await share(guests, shared)
        note = await guests.until_event("KuryrLoadBalancerNotShared")
        assert SHARED_WITH in note
        reason, _ = await until_condition(guests, READY, "False")
        assert reason == "KuryrLoadBalancerNotShared"
        assert on(services, shared) == {MINE}
        await say(services, guests.cluster.namespace)
        await until_ingress(guests, [address])
        await until_condition(guests, READY, "True")
    assert on(services, shared) == {MINE, GUESTS}


async def test_guest_that_waits_for_consent_is_led_to_the_load_balancer_made_anew(
    services, guests
):
    async with services.controller(**QUICK):
        gone, address = await own(services, guests, shares=False)
        await share(guests, gone)
        await until_condition(guests, READY, "False")
        services.cloud.octavia.remove(gone)

        def renewed():
            others = services.cloud.load_balancers.keys() - {gone}
            return [each for each in others if on(services, each) == {MINE}]

        await services.cloud.wait_for(renewed)
        [new] = renewed()
        await until_condition(services, READY, "True")
    async with services.controller():
        await say(services, guests.cluster.namespace)
        await until_on(services, new, {MINE, GUESTS})
        await until_ingress(guests, [address])


async def test_consent_to_all_namespaces(services, guests):
    async with services.controller():
        shared, address = await own(services, guests, shares=False)
        await say(services, "*")
        await share(guests, shared)
        await until_ingress(guests, [address])


async def test_withdrawn_consent_removes_what_is_there(services, guests):
    async with services.controller():
        shared, address = await own(services, guests)
        await share(guests, shared)
        await until_ingress(guests, [address])
        await say(services, "elsewhere")
        await until_on(services, shared, {MINE})
        await until_condition(guests, READY, "False")
        assert not await ingress_of(guests)
        await until_condition(services, READY, "True")


@pytest.mark.parametrize("fault", [cut, lose_reply])
async def test_fault_at_any_write_of_a_withdrawal_leaves_nothing(services, guests, fault):
    async with services.controller():
        shared, address = await own(services, guests)
        await share(guests, shared)
        for strike in (1, 2):  # the listener, the pool
            await until_ingress(guests, [address])
            services.cloud.faults.at_write(strike, fault())
            await say(services, None)
            await services.cloud.wait_for(
                lambda: (
                    on(services, shared) == {MINE}
                    and not services.cloud.octavia.tree(shared)["loose_pools"]
                )
            )
            await until_ingress(guests, [])
            await say(services, "*")


async def test_withdrawal_costs_one_read_of_the_owner_however_long_the_parts_take(
    services, guests
):
    async with services.controller():
        shared, address = await own(services, guests)
        await share(guests, shared)
        await until_ingress(guests, [address])
        services.cloud.octavia.progress.pending = 0.3
        calls, owner = services.proxy.calls, services.service_path()
        lists, reads = calls.count("list", "services"), reads_of(calls, owner)
        await say(services, None)
        await until_on(services, shared, {MINE})
        await until_ingress(guests, [])
        assert (calls.count("list", "services"), reads_of(calls, owner)) == (lists, reads + 1)


def reads_of(calls, path):
    return sum((each.method, each.path) == ("get", path) for each in calls)


async def test_consent_withdrawn_while_no_controller_runs(services, guests):
    async with services.controller():
        shared, address = await own(services, guests)
        await share(guests, shared)
        await until_ingress(guests, [address])
    await say(services, None)
    async with services.controller():
        await until_on(services, shared, {MINE})


async def test_guest_that_names_one_without_consent_leaves_the_other_one(services, guests):
    async with services.controller():
        shared, address = await own(services, guests)
        await services.set_slice("second", "10.62.0.6", ports=[("http", 8080)], service="second")
        await services.add_service("second", HTTP, type="LoadBalancer")
        await until_reached(services, "second")
        second = (await services.service("second"))["metadata"]["annotations"][ID]
        await share(guests, shared)
        await until_ingress(guests, [address])
        await guests.patch_service(metadata={"annotations": marks(load_balancer_id=second)})
        await until_on(services, shared, {MINE})
        reason, message = await until_condition(guests, READY, "False")
        assert (reason, second in message) == ("KuryrLoadBalancerNotShared", True)
        await until_ingress(guests, [])
        assert on(services, second) == {MINE}


WRONG = {
    "unreadable": marks(connection_limit="many"),
    "groups": marks(vip_sg_ids="6f1c9a52-1111-4222-8333-444455556666"),
    "id": marks(load_balancer_id="none"),
}


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
async def test_withdrawn_consent_takes_the_address_whatever_else_is_refused(
    services, guests, wrong, restarted
):
    async with services.controller():
        shared, address = await own(services, guests)
        await share(guests, shared)
        await until_ingress(guests, [address])
        await guests.patch_service(metadata={"annotations": wrong})
        reason, _message = await until_condition(guests, READY, "False")
        assert [each["ip"] for each in await ingress_of(guests)] == [address]
        assert on(services, shared) == {MINE, GUESTS}
        if not restarted:
            await say(services, None)
            await until_ingress(guests, [])
    if restarted:
        await say(services, None)
        async with services.controller():
            await until_ingress(guests, [])
    assert on(services, shared) == {MINE}
    assert (await until_condition(guests, READY, "False"))[0] == reason
    annotations = (await guests.service())["metadata"]["annotations"]
    assert f"{PREFIX}load-balancer-address" not in annotations


@pytest.mark.parametrize("own_part", ["external", "shared"])
async def test_members_follow_the_pods_of_a_guest_while_something_is_refused(
    services, guests, own_part
):
    """In the load balancer outside that the guest has, or in its parts in the owner's."""
    async with services.controller():
        shared, address = await own(services, guests, shares=own_part == "shared")
        await guests.set_slice("a", "10.62.0.9", ports=PORTS, service="web")
        named = marks(load_balancer_id=shared)
        if own_part == "shared":
            await guests.add_service("web", DNS, type="LoadBalancer", annotations=named)
            await until_ingress(guests, [address])
            await guests.patch_service(metadata={"annotations": marks(vip_sg_ids=shared)})
        else:
            ranges = ["198.51.100.0/24"]
            await guests.add_service(
                "web", DNS, type="LoadBalancer", loadBalancerSourceRanges=ranges
            )
            await until_reached(guests)
            await guests.patch_service(metadata={"annotations": named})
        await until_condition(guests, READY, "False")
        await guests.set_slice("a", "10.62.0.10", ports=PORTS, service="web")
        await services.cloud.wait_for(lambda: guests_members(services) == {"10.62.0.10"})


def guests_members(services):
    """The addresses of the members of all listeners of the guest's port."""
    return {
        member["address"]
        for tree in services.trees()
        for listener in tree["listeners"]
        if (listener["protocol"], listener["protocol_port"]) == GUESTS
        for member in listener["pool"]["members"]
    }


async def test_guest_whose_annotations_cannot_be_read_holds_up_no_deletion(services, guests):
    async with services.controller():
        shared, address = await own(services, guests)
        await share(guests, shared)
        await until_ingress(guests, [address])
        wrong = marks(connection_limit="many")
        await guests.patch_service(metadata={"annotations": wrong})
        await until_condition(guests, READY, "False")
        await services.delete_service()
        await services.until_event("KuryrLoadBalancerShared")
        assert GUESTS in on(services, shared)
        await say(services, None)
        await services.until_service_gone()
    assert shared not in services.cloud.load_balancers


async def test_guest_leaves_an_owner_that_is_lost_without_its_finalizer(services, guests):
    async with services.controller(**QUICK):
        shared, address = await own(services, guests)
        await share(guests, shared)
        await until_ingress(guests, [address])
    await services.patch_service(metadata={"finalizers": None})
    await services.delete_service()
    await services.until_service_gone()
    async with services.controller(**QUICK):
        await services.cloud.wait_for(lambda: shared not in services.cloud.load_balancers)


async def test_name_of_no_namespace_is_told_and_holds_up_nothing(services, guests):
    async with services.controller():
        shared, address = await own(services, guests)
        await share(guests, shared)
        await until_ingress(guests, [address])
        await say(services, f"{guests.cluster.namespace},Team B")
        assert "'Team B'" in await services.until_event("KuryrAnnotationIgnored")
        assert on(services, shared) == {MINE, GUESTS}
        await say(services, "")
        await until_on(services, shared, {MINE})
        await services.patch_service(metadata={"annotations": {INTERNAL: "true"}})
        await until_ingress(services, [(await services.service())["spec"]["clusterIP"]])
