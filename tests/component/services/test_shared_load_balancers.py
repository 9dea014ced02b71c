"""Services on the load balancer of another Service, or of the operator."""

import pytest

from tests.kit.fakes.octavia.kinds import POOL
from tests.kit.load_balancer_services import (
    DNS,
    HTTP,
    ID,
    INTERNAL,
    READY,
    UNSUPPORTED,
    balancer,
    expose,
    floating,
    ingress_of,
    marks,
    open_up,
    operators,
    until_condition,
    until_ingress,
    until_reached,
)
from tests.kit.service_stage import FINALIZER


@pytest.fixture(autouse=True)
def scene(services):
    open_up(services)


async def own(services, *ports):
    """The Service «web» with a load balancer of its own; its id, and its address."""
    await expose(services, *(ports or (HTTP,)))
    (ingress,) = await until_reached(services)
    await services.until_published()
    (load_balancer_id,) = services.cloud.load_balancers
    return load_balancer_id, ingress["ip"]


async def share(services, load_balancer_id, *ports, name="other"):
    """Another Service that is to be on this load balancer."""
    await services.set_slice(
        name, "10.62.0.9", ports=[("dns", 5353, "UDP"), ("http", 8080)], service=name
    )
    await services.add_service(
        name,
        *(ports or (DNS,)),
        type="LoadBalancer",
        annotations=marks(load_balancer_id=load_balancer_id),
    )


def on(services, load_balancer_id):
    """{(protocol, port): addresses of the members} of the load balancer."""
    tree = services.cloud.octavia.tree(load_balancer_id)
    return {
        (listener["protocol"], listener["protocol_port"]): [
            member["address"] for member in listener["pool"]["members"]
        ]
        for listener in tree["listeners"]
        if listener["pool"] is not None
    }


MINE, OTHERS = {("TCP", 80): ["10.62.0.5"]}, {("UDP", 53): ["10.62.0.9"]}


async def test_two_services_are_reached_at_one_address_and_each_at_its_cluster_ip(services):
    async with services.controller():
        shared, address = await own(services)
        await share(services, shared)
        await until_ingress(services, [address], "other")
        await until_condition(services, READY, "True", "other")
        service = await services.service("other")
        assert not await services.events()
    assert on(services, shared) == MINE | OTHERS
    assert len(floating(services)) == 1
    trees = {tree["vip_address"] for tree in services.trees()}
    assert service["spec"]["clusterIP"] in trees
    assert len(trees) == 2
    assert service["metadata"]["annotations"][ID] == shared


async def test_work_on_it_for_another_service_is_no_change_by_hand(services):
    async with services.controller():
        shared, address = await own(services)
        await share(services, shared)
        await until_ingress(services, [address], "other")
        services.cloud.octavia_pending = 0.5
        ports = [("dns", 5353, "UDP"), ("http", 8080)]
        await services.set_slice("other", "10.62.0.10", ports=ports, service="other")
        balancer = services.cloud.load_balancers[shared]
        await services.cloud.wait_for(lambda: balancer["provisioning_status"] == "PENDING_UPDATE")
        await services.patch_service(metadata={"labels": {"looked": "again"}})

        async def followed():
            return on(services, shared) == MINE | {("UDP", 53): ["10.62.0.10"]}

        await services.until(followed)
        await services.set_slice("a", "10.62.0.6", ports=[("http", 8080)])

        async def both():
            return on(services, shared)["TCP", 80] == ["10.62.0.6"]

        await services.until(both)
        assert not await services.events()


async def test_unchanged_a_restarted_controller_writes_nothing(services):
    async with services.controller():
        shared, address = await own(services)
        await share(services, shared)
        await until_ingress(services, [address], "other")
        await services.until_published("other")
    before = len(services.octavia_calls()), len(services.kube_writes())
    async with services.controller():
        await services.add_service("third", HTTP)
        await services.until_published("third")
    assert len(services.octavia_calls()) == before[0] + 1
    assert len(services.kube_writes()) == before[1] + 3
    assert on(services, shared) == MINE | OTHERS


async def test_port_of_another_is_refused_to_the_later_one_and_the_earlier_is_as_it_was(services):
    async with services.controller():
        shared, address = await own(services)
        await share(services, shared, HTTP)
        note = await services.until_event("KuryrPortTaken")
        assert "TCP 80" in note
        assert f"{services.cluster.namespace}/web:TCP:80" in note
        reason, _ = await until_condition(services, READY, "False", "other")
        assert reason == "KuryrPortTaken"
        assert on(services, shared) == MINE
        assert [entry["ip"] for entry in await ingress_of(services)] == [address]
        # what is free is had, and the status tells what is not
        ports = [{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}]
        await services.patch_service("other", spec={"ports": ports})
        await until_ingress(services, [address], "other")
        await until_condition(services, UNSUPPORTED, "True", "other")
        (ingress,) = await ingress_of(services, "other")
    errors = {port["port"]: port.get("error") for port in ingress["ports"]}
    assert errors == {80: "kuryr.openstack.org/ListenerRefused", 53: None}
    assert on(services, shared) == MINE | OTHERS


async def test_owner_that_wants_a_port_of_another_later_keeps_all_else(services):
    async with services.controller():
        shared, address = await own(services)
        await share(services, shared)
        await until_ingress(services, [address], "other")
        ports = [{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}]
        await services.patch_service(spec={"ports": ports})
        _, message = await until_condition(services, UNSUPPORTED, "True")
        assert "other/shared:UDP:53" in message
        await until_ingress(services, [address])
    assert on(services, shared) == MINE | OTHERS


async def test_deletion_of_one_leaves_the_other(services):
    async with services.controller():
        shared, address = await own(services)
        await share(services, shared)
        await until_ingress(services, [address], "other")
        await services.delete_service("other")
        await services.until_service_gone("other")
        assert on(services, shared) == MINE
        assert [entry["ip"] for entry in await ingress_of(services)] == [address]
    assert len(services.trees()) == 1


async def test_deleted_owner_is_held_with_address_and_load_balancer_until_the_others_have_left(
    services,
):
    async with services.controller():
        shared, address = await own(services)
        await share(services, shared)
        await until_ingress(services, [address], "other")
        await services.delete_service()
        note = await services.until_event("KuryrLoadBalancerShared")
        assert f"{services.cluster.namespace}/other/shared:UDP:53" in note
        assert (await services.service())["metadata"]["finalizers"] == [FINALIZER]
        assert on(services, shared) == OTHERS
        assert list(floating(services)) == [address]
        await services.delete_service("other")
        await services.until_service_gone("other")
        await services.until_service_gone()
    assert not services.cloud.load_balancers
    assert not floating(services)


async def test_service_that_names_it_no_more_has_its_own_again(services):
    async with services.controller():
        shared, address = await own(services)
        await share(services, shared)
        await until_ingress(services, [address], "other")
        await services.patch_service("other", metadata={"annotations": {ID: None}})

        async def apart():
            found = [entry.get("ip") for entry in await ingress_of(services, "other")]
            return len(found) == 1 and found != [address] and on(services, shared) == MINE

        await services.until(apart)
        assert len(floating(services)) == 2
        # and back
        await services.patch_service("other", metadata={"annotations": {ID: shared}})
        await until_ingress(services, [address], "other")
        assert on(services, shared) == MINE | OTHERS
        assert len(floating(services)) == 1


async def test_operators_load_balancer_is_used_and_nothing_of_it_touched(services):
    shared = operators(services)
    before = services.cloud.octavia.tree(shared)
    async with services.controller():
        await share(services, shared)
        await until_ingress(services, [before["vip_address"]], "other")
        assert on(services, shared) == OTHERS
        await services.delete_service("other")
        await services.until_service_gone("other")
    assert services.trees() == [before]


@pytest.mark.parametrize("change", ["none", "error", "project"])
async def test_load_balancer_that_cannot_be_used_is_told_and_takes_nobodys_cluster_ip(
    services, change
):
    shared = operators(services)
    if change == "none":
        services.cloud.octavia.remove(shared)
    elif change == "error":
        services.cloud.octavia.set_error(shared)
    else:
        services.cloud.load_balancers[shared]["project_id"] = "f" * 32
    async with services.controller():
        await share(services, shared)
        assert shared in await services.until_event("KuryrLoadBalancerUnusable")
        await until_condition(services, READY, "False", "other")
        await services.until_published("other")
    assert balancer(services) is not None


async def test_what_a_lost_service_left_on_it_is_swept(services):
    shared = operators(services)
    quick = {"neutron_defaults": {"sweep_interval": "1"}}
    async with services.controller(**quick):
        await share(services, shared)
        await until_reached(services, "other")
    await services.patch_service("other", metadata={"finalizers": None})
    await services.delete_service("other")
    async with services.controller(**quick):
        await services.until_no_parts(shared)


async def test_load_balancer_deleted_by_hand_comes_back_with_what_others_have_on_it(services):
    async with services.controller(neutron_defaults={"sweep_interval": "1"}):
        shared, address = await own(services)
        await share(services, shared)
        await until_ingress(services, [address], "other")
        services.cloud.octavia.remove(shared)

        async def back():
            return any(
                on(services, balancer_id) == MINE | OTHERS
                for balancer_id in services.cloud.load_balancers
            )

        await services.until(back)
        await until_condition(services, READY, "True", "other")
    assert (await services.service("other"))["metadata"]["annotations"][ID] == shared


async def test_second_family_that_others_still_use_holds_up_nothing_else(services):
    cloud = services.cloud
    async with services.controller():
        cloud.add_floating_ip(cloud.public["id"], floating_ip_address="172.24.4.88")
        await expose(services, ipFamilyPolicy="RequireDualStack", ipFamilies=["IPv4", "IPv6"])
        await until_reached(services)
        balancers = cloud.load_balancers.values()
        second = next(
            load_balancer["id"]
            for load_balancer in balancers
            if ":" in load_balancer["vip_address"]
        )
        await share(services, second)
        await until_reached(services, "other")
        address = (await services.service())["spec"]["clusterIP"]
        single = {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]}
        await services.patch_service(
            spec={**single, "clusterIPs": [address], "loadBalancerIP": "172.24.4.88"}
        )
        await until_ingress(services, ["172.24.4.88"])
        assert second in await services.until_event("KuryrLoadBalancerShared")
        assert OTHERS.items() <= on(services, second).items()
        await services.delete_service("other")
        await cloud.wait_for(lambda: second not in cloud.load_balancers)


async def test_what_others_use_of_a_lost_service_does_not_hold_up_the_next_of_its_name(services):
    async with services.controller():
        shared, address = await own(services)
        await share(services, shared)
        await until_ingress(services, [address], "other")
        await services.delete_service()
        await services.until_event("KuryrLoadBalancerShared")
        await services.patch_service(metadata={"finalizers": []})
        await services.until_service_gone()
        service = await services.add_service("web", HTTP)
        await services.until_published()
        trees = {tree["vip_address"] for tree in services.trees()}
        assert service["spec"]["clusterIP"] in trees
    assert OTHERS.items() <= on(services, shared).items()
    assert list(floating(services)) == [address]


async def test_source_ranges_of_the_other_family_open_nothing_on_it(services):
    shared = operators(services)
    async with services.controller():
        marked = marks(load_balancer_id=shared)
        cidrs = ["2001:db8::/32"]
        await expose(services, annotations=marked, loadBalancerSourceRanges=cidrs)
        _reason, message = await until_condition(services, READY, "False")
        assert "nobody could connect" in message
        assert not await ingress_of(services)
        assert on(services, shared) == {}
        # nor do they leave open what was
        await services.patch_service(spec={"loadBalancerSourceRanges": None})
        await until_reached(services)
        await services.patch_service(spec={"loadBalancerSourceRanges": cidrs})
        await until_ingress(services, [])
        assert on(services, shared) == {}
        # what there is of its family counts
        cidrs = [*cidrs, "192.0.2.0/24"]
        await services.patch_service(spec={"loadBalancerSourceRanges": cidrs})
        await until_reached(services)
    (mine,) = [
        listener
        for listener in services.cloud.octavia.tree(shared)["listeners"]
        if listener["tags"]
    ]
    assert mine["allowed_cidrs"] == cidrs[1:]


async def test_external_load_balancer_and_its_address_stay_while_others_are_on_it(services):
    async with services.controller():
        await expose(services, loadBalancerSourceRanges=["192.0.2.0/24"])
        (ingress,) = await until_reached(services)
        address = ingress["ip"]
        vip = balancer(services, "external")["vip_address"]
        (shared,) = (
            load_balancer["id"]
            for load_balancer in services.cloud.load_balancers.values()
            if load_balancer["vip_address"] == vip
        )
        await share(services, shared)
        await until_ingress(services, [address], "other")
        await services.patch_service(spec={"loadBalancerSourceRanges": None})
        reason, _message = await until_condition(services, UNSUPPORTED, "True")
        assert reason == "KuryrLoadBalancerShared"
        await until_condition(services, READY, "True")
        assert floating(services) == {address: vip}
        assert on(services, shared) == MINE | OTHERS
        assert [entry["ip"] for entry in await ingress_of(services, "other")] == [address]
        # it goes with the last of them, and the address leads to the ClusterIP
        await services.delete_service("other")
        await until_condition(services, UNSUPPORTED, None)
        assert floating(services) == {address: (await services.service())["spec"]["clusterIP"]}
        assert [entry["ip"] for entry in await ingress_of(services)] == [address]
        await services.until_service_gone("other")
    assert len(services.trees()) == 1


async def test_address_of_an_owner_that_becomes_internal_stays_while_others_are_reached_there(
    services,
):
    async with services.controller():
        shared, address = await own(services)
        await share(services, shared)
        await until_ingress(services, [address], "other")
        await services.patch_service(metadata={"annotations": {INTERNAL: "true"}})
        reason, _message = await until_condition(services, UNSUPPORTED, "True")
        assert reason == "KuryrLoadBalancerShared"
        assert list(floating(services)) == [address]
        await services.delete_service("other")
        await until_condition(services, UNSUPPORTED, None)
        assert not floating(services)


async def test_address_that_is_replaced_is_told_to_all_who_are_reached_there(services):
    cloud = services.cloud
    cloud.add_floating_ip(cloud.public["id"], floating_ip_address="172.24.4.88")
    async with services.controller():
        shared, address = await own(services)
        await share(services, shared)
        await until_ingress(services, [address], "other")
        await services.patch_service(spec={"loadBalancerIP": "172.24.4.88"})
        await until_ingress(services, ["172.24.4.88"])
        await until_ingress(services, ["172.24.4.88"], "other")


async def test_service_that_names_its_own_external_load_balancer_shares_nothing(services):
    """As where the annotation that tells of our writing is lost."""
    async with services.controller():
        await expose(services, loadBalancerSourceRanges=["192.0.2.0/24"])
        ingress = await until_reached(services)
        written = {"openstack.org/kuryr-load-balancer-id": None}
        ports = [{"name": "http", "port": 81}]
        await services.patch_service(metadata={"annotations": written}, spec={"ports": ports})

        async def followed():
            found = balancer(services, "external")["listeners"]
            return [listener["name"].rpartition("/")[2] for listener in found] == [
                "external:TCP:81"
            ]

        await services.until(followed)
        await until_reached(services, but=ingress)
        await until_condition(services, READY, "True")
    assert len(services.trees()) == 2


async def test_deleted_service_on_one_in_error_keeps_nothing_of_its_own(services):
    shared = operators(services)
    async with services.controller():
        await share(services, shared)
        await until_reached(services, "other")
        services.cloud.octavia.set_error(shared)
        await services.delete_service("other")
        assert shared in await services.until_event("KuryrLoadBalancerUnusable")

        async def alone():
            return list(services.cloud.load_balancers) == [shared]

        await services.until(alone)
        assert (await services.service("other"))["metadata"]["finalizers"] == [FINALIZER]
        services.cloud.octavia.remove(shared)
        await services.until_service_gone("other")


ENDING = {"ready": False, "serving": True, "terminating": True}


async def test_members_that_wait_for_nothing_are_removed_after_what_others_wait_for(services):
    services.options["kubernetes"]["endpoints_driver_octavia_provider"] = "amphora"
    del services.options["octavia_defaults"]["lb_algorithm"]
    octavia = services.cloud.octavia
    web, dns = [("http", 8080)], [("dns", 5353, "UDP")]

    def changed():
        """The pools whose members were changed, in this order."""
        return [
            call.path.split("/")[-2]
            for call in services.cloud.calls
            if call.method == "PUT" and call.path.endswith("/members")
            if call.path.split("/")[-2] in pools.values()
        ]

    async with services.controller():
        shared, _address = await own(services)
        await share(services, shared)
        await until_condition(services, READY, "True", "other")
        pools = {pool["protocol"]: pool["id"] for pool in octavia.store.parts(POOL, shared)}
        await services.set_slice("a", "10.62.0.6", ("10.62.0.5", ENDING), ports=web)
        drained = {("TCP", 80): ["10.62.0.5", "10.62.0.6"]} | OTHERS
        await services.until(lambda: is_so(on(services, shared) == drained))
        found = services.cloud.load_balancers[shared]
        await services.until(lambda: is_so(found["provisioning_status"] == "ACTIVE"))
        before = len(changed())
        octavia.progress.stalled = lambda found: found["id"] == shared
        await services.set_slice("other", "10.62.0.8", ports=dns, service="other")
        await services.until(lambda: is_so(changed()[before:] == [pools["UDP"]]))
        await services.set_slice("a", "10.62.0.6", ports=web)  # the Pod has ended
        await services.set_slice("other", "10.62.0.7", ports=dns, service="other")
        (elsewhere,) = services.cloud.load_balancers.keys() - {shared}
        served = {("UDP", 53): ["10.62.0.7"]}
        await services.until(lambda: is_so(on(services, elsewhere) == served))
        octavia.progress.stalled = lambda _found: False
        octavia.progress.finish(shared)
        both = {("TCP", 80): ["10.62.0.6"]} | served
        await services.until(lambda: is_so(on(services, shared) == both))
    assert changed()[before:] == [pools["UDP"], pools["UDP"], pools["TCP"]]


async def is_so(condition):
    return condition
