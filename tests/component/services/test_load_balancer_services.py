"""Services of type LoadBalancer: the way from Octavia to the address to the status, and back."""

import pytest

from tests.kit.fakes.faults import answer
from tests.kit.load_balancer_services import (
    DNS,
    HTTP,
    ID,
    INTERNAL,
    PORTS,
    PREFIX,
    READY,
    UNSUPPORTED,
    balancer,
    expose,
    floating,
    ingress_of,
    listener,
    marks,
    open_up,
    until_condition,
    until_ingress,
    until_reached,
)
from tests.kit.service_stage import FINALIZER

ADDRESS = f"{PREFIX}load-balancer-address"
USED = "172.24.4.99"
CIDRS = ["192.0.2.0/24", "198.51.100.7/32"]


@pytest.fixture(autouse=True)
def scene(services):
    open_up(services)


async def test_service_is_reached_by_a_floating_ip_on_its_cluster_ip(services):
    async with services.controller():
        service = await expose(services)
        (ingress,) = await until_reached(services)
        await until_condition(services, READY, "True")
    assert floating(services) == {ingress["ip"]: service["spec"]["clusterIP"]}
    assert ingress == {"ip": ingress["ip"], "ipMode": "VIP", "ports": PORTS}
    assert len(services.trees()) == 1
    assert not await services.events()


async def test_it_costs_one_write_to_octavia_and_two_more_to_kubernetes_than_a_cluster_ip(
    services,
):
    async with services.controller():
        await expose(services)
        await until_condition(services, READY, "True")
        await services.until_published()
    assert services.octavia_calls() == [("POST", "/loadbalancers")]
    assert len(services.kube_writes()) == 4  # the fourth tells the load balancer's id
    statuses = [call for call in services.proxy.calls if call.what == "services/status"]
    assert len(statuses) == 1


async def test_unchanged_it_costs_a_restarted_controller_no_write(services):
    async with services.controller():
        await expose(services, annotations=marks(x_forwarded_for="true"))
        await until_condition(services, READY, "True")
        await services.until_published()
    before = len(services.octavia_calls()), len(services.kube_writes())
    addresses = floating(services)
    async with services.controller():
        await services.add_service("other", HTTP)
        await services.until_published("other")
    assert len(services.octavia_calls()) == before[0] + 1
    assert len(services.kube_writes()) == before[1] + 3
    assert floating(services) == addresses


async def test_deleted_service_leaves_no_address_and_no_load_balancer(services):
    async with services.controller():
        await expose(services, loadBalancerSourceRanges=CIDRS)
        await until_reached(services)
        assert len(services.trees()) == 2
        await services.delete_service()
        await services.until_service_gone()
    assert not floating(services)
    assert not services.cloud.load_balancers
    assert not vip_ports(services)


async def test_address_goes_before_the_load_balancer_and_the_finalizer_last(services):
    async with services.controller():
        await expose(services)
        await until_reached(services)
        services.cloud.octavia_pending = float("inf")
        await services.delete_service()
        (balancer_id,) = services.cloud.load_balancers

        async def going():
            load_balancer = services.cloud.load_balancers[balancer_id]
            return load_balancer["provisioning_status"] == "PENDING_DELETE"

        await services.until(going)
        assert not floating(services)
        assert (await services.service())["metadata"]["finalizers"] == [FINALIZER]
        services.cloud.octavia.progress.finish(balancer_id)
        await services.until_service_gone()


async def test_turned_into_a_cluster_ip_it_loses_address_status_and_marks_and_gets_them_back(
    services,
):
    async with services.controller():
        await expose(services, loadBalancerSourceRanges=CIDRS)
        await until_reached(services)
        await services.patch_service(spec={"type": "ClusterIP", "loadBalancerSourceRanges": None})

        async def clean():
            service = await services.service()
            told = service["status"].get("conditions"), await ingress_of(services)
            written = set(service["metadata"]["annotations"]) & {
                *marks(load_balancer_id="", load_balancer_address=""),
                "openstack.org/kuryr-load-balancer-id",
            }
            return not (any(told) or written or floating(services)) and len(services.trees()) == 1

        await services.until(clean)
        await services.patch_service(spec={"type": "LoadBalancer"})
        (ingress,) = await until_reached(services)
        assert floating(services) == {ingress["ip"]: balancer(services)["vip_address"]}
    assert not await services.events()


async def test_type_changed_while_the_controller_was_down_is_made_up_for(services):
    async with services.controller():
        await expose(services, loadBalancerSourceRanges=CIDRS)
        await until_reached(services)
    await services.patch_service(spec={"type": "ClusterIP", "loadBalancerSourceRanges": None})
    async with services.controller():

        async def clean():
            return len(services.trees()) == 1 and not floating(services)

        await services.until(clean)


async def test_node_ports_are_not_needed(services):
    async with services.controller():
        service = await expose(services, allocateLoadBalancerNodePorts=False)
        await until_reached(services)
    assert "nodePort" not in service["spec"]["ports"][0]
    assert services.members() == {("TCP", 80): {("10.62.0.5", 8080): 1}}


async def test_external_traffic_policy_local_is_served_as_ever_by_the_pods_themselves(services):
    async with services.controller():
        service = await expose(services, externalTrafficPolicy="Local")
        await until_reached(services)
    assert service["spec"]["healthCheckNodePort"]
    assert services.members() == {("TCP", 80): {("10.62.0.5", 8080): 1}}
    assert not await services.events()


async def test_address_that_is_asked_for_is_taken_if_it_is_there_and_followed(services):
    cloud = services.cloud
    addresses = ("172.24.4.99", "172.24.5.77")
    kept = [
        cloud.add_floating_ip(cloud.public["id"], floating_ip_address=address)["id"]
        for address in addresses
    ]
    async with services.controller():
        await expose(services, loadBalancerIP="172.24.4.99")
        await until_ingress(services, ["172.24.4.99"])
        await services.patch_service(spec={"loadBalancerIP": None})
        await services.patch_service(
            metadata={"annotations": {"openstack.org/kuryr-load-balancer-ip": "172.24.5.77"}}
        )
        await until_ingress(services, ["172.24.5.77"])
        await services.delete_service()
        await services.until_service_gone()
    assert list(cloud.floating_ips) == kept  # they were there before the Service
    assert set(floating(services).values()) == {None}


async def test_source_ranges_are_kept_and_the_cluster_ip_stays_open(services):
    async with services.controller():
        service = await expose(services, HTTP, DNS, loadBalancerSourceRanges=CIDRS)
        (ingress,) = await until_reached(services)
        outer = balancer(services, "external")
        assert [listener["allowed_cidrs"] for listener in outer["listeners"]] == [CIDRS, CIDRS]
        assert floating(services) == {ingress["ip"]: outer["vip_address"]}
        inner = balancer(services)
        assert inner["vip_address"] == service["spec"]["clusterIP"]
        assert not any(listener["allowed_cidrs"] for listener in inner["listeners"])
        await services.patch_service(spec={"loadBalancerSourceRanges": CIDRS[:1]})

        async def followed():
            found = balancer(services, "external")["listeners"]
            return [listener["allowed_cidrs"] for listener in found] == [CIDRS[:1]] * 2

        await services.until(followed)
        assert await ingress_of(services) == [ingress]


async def test_address_stays_the_same_when_source_ranges_come_and_go(services):
    async with services.controller():
        await expose(services)
        (ingress,) = await until_reached(services)
        for ranges, vip in ((CIDRS, "external"), (None, "")):
            await services.patch_service(spec={"loadBalancerSourceRanges": ranges})

            async def led(vip=vip):
                found = balancer(services, vip)
                there = bool(balancer(services, "external")) == bool(vip)
                return there and floating(services) == {ingress["ip"]: found["vip_address"]}

            await services.until(led)
    assert await ingress_of(services) == [ingress]


async def test_load_balancer_deleted_by_hand_is_made_again_and_the_address_leads_to_it(services):
    async with services.controller(neutron_defaults={"sweep_interval": "1"}):
        await expose(services, loadBalancerSourceRanges=CIDRS)
        (ingress,) = await until_reached(services)
        (old,) = (
            load_balancer["id"]
            for load_balancer in services.cloud.load_balancers.values()
            if load_balancer["name"].endswith("/external")
        )
        services.cloud.octavia.remove(old)

        async def mended():
            outer = balancer(services, "external")
            marks = (await services.service())["metadata"]["annotations"]
            told = marks["loadbalancer.openstack.org/load-balancer-id"]
            led = outer and floating(services) == {ingress["ip"]: outer["vip_address"]}
            return led and told != old and told in services.cloud.load_balancers

        await services.until(mended)
        assert await ingress_of(services) == [ingress]
        await services.until_event("KuryrLoadBalancerChanged")


async def test_source_ranges_that_the_provider_cannot_keep_open_nothing(services):
    services.options["kubernetes"]["endpoints_driver_octavia_provider"] = "ovn"
    services.options["octavia_defaults"] |= {
        "member_mode": "L2",
        "lb_algorithm": "SOURCE_IP_PORT",
    }
    async with services.controller():
        await expose(services, loadBalancerSourceRanges=CIDRS)
        reason, message = await until_condition(services, READY, "False")
        await services.set_slice("a", "10.62.0.6", ports=[("http", 8080)])
        await services.until_members({("TCP", 80): {("10.62.0.6", 8080): 1}})
        told = [found for found, _note in await services.events()]
    assert message.startswith("loadBalancerSourceRanges: ")
    assert told == [reason]
    assert not floating(services)
    assert not await ingress_of(services)


@pytest.mark.parametrize("before", ["a floating IP", "a VIP elsewhere"])
async def test_source_ranges_that_come_later_and_cannot_be_kept_close_what_is_open(
    services, before
):
    services.options["kubernetes"]["endpoints_driver_octavia_provider"] = "ovn"
    services.options["octavia_defaults"] |= {
        "member_mode": "L2",
        "lb_algorithm": "SOURCE_IP_PORT",
    }
    elsewhere = marks(network_id=services.cloud.services["id"]) | {INTERNAL: "true"}
    async with services.controller():
        await expose(services, annotations=elsewhere if before == "a VIP elsewhere" else {})
        ingress = await until_reached(services)
        addresses = list(floating(services))
        await services.patch_service(spec={"loadBalancerSourceRanges": CIDRS})
        await until_condition(services, READY, "False")
        assert not await ingress_of(services)
        assert floating(services) == dict.fromkeys(addresses)
        assert len(services.trees()) == 1
        await services.patch_service(spec={"loadBalancerSourceRanges": None})
        again = await until_reached(services)
    if addresses:
        assert again == ingress
        assert None not in floating(services).values()


async def test_port_that_the_provider_cannot_serve_is_an_error_of_that_port_alone(services):
    services.options["kubernetes"]["endpoints_driver_octavia_provider"] = "ovn"
    services.options["octavia_defaults"] |= {
        "member_mode": "L2",
        "lb_algorithm": "SOURCE_IP_PORT",
    }
    async with services.controller():
        await expose(services, HTTP, DNS, annotations=marks(x_forwarded_for="true"))
        (ingress,) = await until_reached(services)
        _reason, message = await until_condition(services, UNSUPPORTED, "True")
        assert ingress["ports"] == [
            {"port": 80, "protocol": "TCP", "error": "kuryr.openstack.org/ListenerRefused"},
            {"port": 53, "protocol": "UDP"},
        ]
        assert "TCP 80" in message
        assert "KuryrPortRefused" in dict(await services.events())
        outer = balancer(services, "external")
        assert [listener["protocol"] for listener in outer["listeners"]] == ["UDP"]
        assert services.members()["TCP", 80] == {("10.62.0.5", 8080): 1}  # at the ClusterIP


async def test_annotation_that_cannot_be_read_tears_nothing_down(services):
    async with services.controller():
        await expose(services)
        ingress = await until_reached(services)
        await services.patch_service(metadata={"annotations": marks(proxy_protocol="v3")})
        _reason, message = await until_condition(services, READY, "False")
        assert "loadbalancer.openstack.org/proxy-protocol: 'v3'" in message
        await services.set_slice("a", "10.62.0.6", ports=[("http", 8080)])
        await services.until_members({("TCP", 80): {("10.62.0.6", 8080): 1}})
        assert await ingress_of(services) == ingress
        await services.patch_service(
            metadata={"annotations": {"loadbalancer.openstack.org/proxy-protocol": None}}
        )
        await until_condition(services, READY, "True")
    assert [reason for reason, _note in await services.events()] == ["KuryrRefused"]


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ("in use", "KuryrFloatingIPInUse"),
        ("not there", "KuryrFloatingIPNotPermitted"),
        ("in no external network", "KuryrFloatingNetworkUnfit"),
    ],
)
async def test_address_that_cannot_be_had_is_told_once_and_another_one_taken_when_asked_for(
    services, wanted, reason
):
    cloud = services.cloud
    name, value = {
        "in use": ("openstack.org/kuryr-load-balancer-ip", USED),
        "not there": ("openstack.org/kuryr-load-balancer-ip", "172.24.4.200"),
        "in no external network": (f"{PREFIX}floating-network-id", cloud.pods["id"]),
    }[wanted]
    others = cloud.add_port(cloud.services["id"])
    cloud.add_floating_ip(cloud.public["id"], floating_ip_address=USED, port_id=others["id"])
    async with services.controller():
        await expose(services, annotations={name: value})
        assert (await until_condition(services, READY, "False"))[0] == reason
        await services.until_event(reason)
        await services.set_slice("a", "10.62.0.6", ports=[("http", 8080)])
        await services.until_members({("TCP", 80): {("10.62.0.6", 8080): 1}})
        await services.set_slice("a", "10.62.0.7", ports=[("http", 8080)])
        await services.until_members({("TCP", 80): {("10.62.0.7", 8080): 1}})
        await services.patch_service(metadata={"annotations": {name: None}})
        await until_reached(services)
        await until_condition(services, READY, "True")
        assert [found for found, _note in await services.events()] == [reason]


async def test_quota_of_addresses_that_is_used_up_is_told_and_waited_for(services):
    services.cloud.set_quota(services.cloud.project_id, floatingip=0)
    async with services.controller():
        await expose(services)
        reason, _message = await until_condition(services, READY, "False")
        assert reason == "OpenStackQuotaExceeded"
        await services.until_published()
        services.cloud.set_quota(services.cloud.project_id, floatingip=-1)
        await until_reached(services)
        await until_condition(services, READY, "True")


async def test_without_an_external_network_the_cluster_ip_is_the_address_and_that_is_told(
    services,
):
    del services.options["neutron_defaults"]["external_svc_net"]
    async with services.controller():
        service = await expose(services)
        await until_ingress(services, [service["spec"]["clusterIP"]])
        await services.until_event("KuryrLoadBalancerForcedInternal")
    assert not floating(services)


async def test_dual_stack_service_is_reached_by_its_public_ipv4_and_inside_by_both(services):
    async with services.controller():
        service = await expose(services, ipFamilyPolicy="RequireDualStack")
        (ingress,) = await until_reached(services)
        assert ingress["ip"] in floating(services)
        await services.patch_service(metadata={"annotations": {INTERNAL: "true"}})
        await until_ingress(services, service["spec"]["clusterIPs"])
    assert not floating(services)


async def test_service_of_ipv6_alone_is_reached_at_its_cluster_ip_and_that_is_told(services):
    async with services.controller():
        service = await expose(services, ipFamilies=["IPv6"])
        await until_ingress(services, [service["spec"]["clusterIP"]])
        note = await services.until_event("KuryrLoadBalancerForcedInternal")
    assert "IPv4" in note


async def test_class_of_ours_is_served_and_those_without_one_only_if_the_operator_says_so(
    services,
):
    async with services.controller(kubernetes={"load_balancer_default": "false"}):
        await services.add_service(
            "ours", HTTP, type="LoadBalancer", loadBalancerClass="kuryr.openstack.org/octavia"
        )
        await until_reached(services, "ours")
        await expose(services)
        await services.until_published()
        assert len(services.trees()) == 2
        assert not await ingress_of(services)
        assert "conditions" not in (await services.service())["status"]
    assert len(floating(services)) == 1


async def test_conditions_of_others_stay(services):
    other = {
        "type": "example.org/Other",
        "status": "True",
        "reason": "Fine",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    async with services.controller():
        await expose(services)
        await until_condition(services, READY, "True")
        path = f"{services.service_path()}/status"
        found = (await services.service())["status"]["conditions"]
        await services.client.patch(path, {"status": {"conditions": [*found, other]}})
        await services.patch_service(metadata={"annotations": marks(connection_limit="x")})
        await until_condition(services, READY, "False")
        kinds = [
            condition["type"] for condition in (await services.service())["status"]["conditions"]
        ]
    assert sorted(kinds) == ["example.org/Other", READY]


async def test_status_that_cannot_be_written_holds_up_nothing(services):
    services.proxy.faults.add(method="PATCH", path="/status", times=3, action=answer(500))
    async with services.controller():
        await expose(services)
        await services.set_slice("a", "10.62.0.6", ports=[("http", 8080)])
        await services.until_members({("TCP", 80): {("10.62.0.6", 8080): 1}})
        await until_reached(services)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"internalTrafficPolicy": "Local"}, "KuryrInternalTrafficPolicyIgnored"),
        ({"trafficDistribution": "PreferClose"}, "KuryrTrafficDistributionIgnored"),
        ({"externalIPs": ["192.0.2.9", "192.0.2.10"]}, "KuryrExternalIPsIgnored"),
    ],
    ids=["internalTrafficPolicy", "trafficDistribution", "externalIPs"],
)
async def test_what_a_load_balancer_cannot_do_is_an_event_and_a_condition(services, spec, reason):
    async with services.controller():
        await services.add_service("web", HTTP, **spec)
        assert (await until_condition(services, UNSUPPORTED, "True"))[0] == reason
        assert [found for found, _note in await services.events()] == [reason]
        name = next(iter(spec))
        await services.patch_service(spec={name: None})
        await until_condition(services, UNSUPPORTED, None)


async def test_ranges_that_are_added_close_the_address_before_octavia_has_them(services):
    """The VIP of a ClusterIP is open to all."""
    async with services.controller():
        await expose(services)
        (ingress,) = await until_reached(services)
        services.cloud.octavia_pending = float("inf")
        await services.patch_service(spec={"loadBalancerSourceRanges": CIDRS})
        await services.cloud.wait_for(lambda: floating(services) == {ingress["ip"]: None})
        await services.cloud.wait_for(lambda: len(services.cloud.load_balancers) == 2)
        for balancer_id in list(services.cloud.load_balancers):
            services.cloud.octavia.progress.finish(balancer_id)
        services.cloud.octavia_pending = 0
        outside = balancer(services, "external")["vip_address"]
        await services.cloud.wait_for(lambda: floating(services) == {ingress["ip"]: outside})
    assert listener(services, "external")["allowed_cidrs"] == CIDRS


@pytest.mark.parametrize("trouble", [answer(500), answer(409)], ids=["500", "409"])
async def test_ranges_added_to_a_load_balancer_of_its_own_close_its_address_until_it_has_them(
    services, trouble
):
    async with services.controller():
        await expose(services, annotations=marks(x_forwarded_for="true"))
        (ingress,) = await until_reached(services)
        outside = balancer(services, "external")["vip_address"]
        assert floating(services) == {ingress["ip"]: outside}
        fault = services.cloud.faults.add(
            method="PUT", path="/listeners/", times=None, action=trouble
        )
        await services.patch_service(spec={"loadBalancerSourceRanges": CIDRS})
        await services.cloud.wait_for(lambda: floating(services) == {ingress["ip"]: None})
        fault.remove()
        await services.cloud.wait_for(lambda: floating(services) == {ingress["ip"]: outside})
    assert listener(services, "external")["allowed_cidrs"] == CIDRS


async def test_ranges_that_are_there_keep_the_address_through_a_restart_and_a_rollout(services):
    async with services.controller():
        await expose(services, loadBalancerSourceRanges=CIDRS)
        (ingress,) = await until_reached(services)
    before = floating(services)
    async with services.controller():
        await services.set_slice("a", "10.62.0.6", ports=[("http", 8080), ("dns", 5353, "UDP")])
        await services.until_members({("TCP", 80): {("10.62.0.6", 8080): 1}})
    updates = [
        call
        for call in services.cloud.calls
        if (call.method, call.what) == ("PUT", "/v2.0/floatingips/{id}")
    ]
    assert not updates
    assert floating(services) == before
    assert list(before) == [ingress["ip"]]


async def test_member_that_octavia_never_finishes_inside_holds_up_nothing_outside(services):
    """Each load balancer of the Service is followed by itself."""
    async with services.controller():
        await expose(services, annotations=marks(x_forwarded_for="true"))
        await until_reached(services)
        (inner,) = (
            each["id"]
            for each in services.cloud.load_balancers.values()
            if not each["name"].endswith("external")
        )
        services.cloud.octavia.progress.stalled = lambda found: found["id"] == inner
        for number in range(6, 9):
            await services.set_slice("a", f"10.62.0.{number}", ports=[("http", 8080)])

            async def followed(number=number):
                pool = listener(services, "external")["pool"]
                return [member["address"] for member in pool["members"]] == [f"10.62.0.{number}"]

            await services.until(followed)


async def test_address_does_not_wait_for_the_second_family(services):
    async with services.controller():
        services.cloud.octavia.progress.stalled = lambda found: ":" in found["vip_address"]
        await expose(services, ipFamilyPolicy="RequireDualStack", ipFamilies=["IPv4", "IPv6"])
        (ingress,) = await until_reached(services)
        assert floating(services) == {ingress["ip"]: balancer(services)["vip_address"]}


def vip_ports(services):
    return [port for port in services.cloud.ports.values() if port["device_id"].startswith("lb-")]


@pytest.mark.parametrize("keep", [True, False])
async def test_floating_ip_of_a_service_whose_finalizer_was_taken_off_goes_or_is_kept(
    services, keep
):
    cloud = services.cloud
    async with services.controller():
        await expose(services, annotations=marks(keep_floatingip=keep))
        (ingress,) = await until_reached(services)
        services.proxy.events.hold("services")  # else it would be put on again
        await services.patch_service(metadata={"finalizers": []})
        await services.delete_service()
        services.proxy.events.release()
        await services.until_no_balancers()

        async def let_go():
            return [floating_ip["tags"] for floating_ip in cloud.floating_ips.values()] == (
                [[]] if keep else []
            )

        await services.until(let_go)
    assert list(floating(services)) == ([ingress["ip"]] if keep else [])


@pytest.mark.parametrize("annotations", [{}, marks(hostname="web.example.com")])
async def test_ingress_goes_when_services_without_a_class_are_no_more_ours(services, annotations):
    async with services.controller():
        await expose(services, annotations=annotations)
        await until_reached(services)
        await until_condition(services, READY, "True")
    async with services.controller(kubernetes={"load_balancer_default": "false"}):
        await until_ingress(services, [])

        async def unmarked():
            annotations = (await services.service())["metadata"]["annotations"]
            return not {ID, ADDRESS} & annotations.keys()

        await services.until(unmarked)
    assert not floating(services)


async def test_ingress_of_another_stays_when_services_without_a_class_are_no_more_ours(services):
    async with services.controller():
        await expose(services)
        await until_reached(services)
        await until_condition(services, READY, "True")
    others = {"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}}}
    await services.client.patch(f"{services.service_path()}/status", others)
    async with services.controller(kubernetes={"load_balancer_default": "false"}):
        await until_condition(services, READY, None)
        await services.until_published()
        await services.cloud.wait_for(lambda: not services.cloud.floating_ips)
    assert [entry["ip"] for entry in await ingress_of(services)] == ["203.0.113.9"]
