"""Ingresses become routes of the L7 router, and learn its address."""

import asyncio
import json
import sys

import pytest

from kuryr_k8s.errors import ConfigError
from kuryr_k8s.handlers.l7.ingress import IngressHandler
from tests.kit.confs import CLUSTER, MARK, NODE, TAG
from tests.kit.kube.objects import ingress_backend
from tests.kit.paths import GOLDEN

ONE, TWO = {"10.62.0.5"}, {"10.62.0.6"}


async def two_backends(routers):
    await routers.add_backend("one", *ONE)
    await routers.add_backend("two", *TWO)


async def test_router_exists_without_any_ingress_and_answers_503(routers):
    async with routers.controller():
        await routers.until_answered({("a.com", "/"): 503})
    [tree] = routers.routers()
    assert tree["provider"] == "amphora"
    assert tree["tags"] == sorted([TAG, MARK, f"kuryr-l7-router:{CLUSTER}", "kuryr-namespace:"])


async def test_requests_reach_the_pods_of_an_ingress_and_its_status_names_the_floating_ip(routers):
    await two_backends(routers)
    async with routers.controller():
        rule = ("shop.demo", ("Prefix", "/", "one"), ("Prefix", "/cart", "two"))
        await routers.add_ingress("shop", rule)
        await routers.until_answered(
            {
                ("shop.demo", "/"): ONE,
                ("shop.demo:8080", "/x"): ONE,
                ("SHOP.demo", "/cart"): TWO,
                ("shop.demo", "/cart/1"): TWO,
                ("shop.demo", "/cartoon"): ONE,
                ("other.demo", "/"): 503,
            }
        )
        address = await routers.until_address("shop")
    [floating_ip] = routers.cloud.floating_ips.values()
    assert address == floating_ip["floating_ip_address"]
    assert not await routers.events()


async def test_members_follow_the_pods(routers):
    await two_backends(routers)
    async with routers.controller():
        await routers.add_ingress("shop", ("", ("Prefix", "/", "one")))
        await routers.until_answered({("a", "/"): ONE})
        more = ["10.62.0.5", "10.62.0.7"]
        await routers.set_slice("one", *more, ports=[("http", 8080)], service="one")
        await routers.until_answered({("a", "/"): set(more)})


async def test_ingress_that_goes_takes_its_routes_along_and_leaves_the_router(routers):
    await two_backends(routers)
    async with routers.controller():
        await routers.add_ingress("one", ("a", ("Prefix", "/", "one")))
        await routers.add_ingress("two", ("b", ("Prefix", "/", "two")))
        await routers.until_answered({("a", "/"): ONE, ("b", "/"): TWO})
        await routers.delete_ingress("one")
        await routers.until_answered({("a", "/"): 503, ("b", "/"): TWO})
        await routers.delete_ingress("two")

        async def empty():
            [tree] = routers.routers()
            return not tree["loose_pools"] and not tree["listeners"][0]["policies"]

        await routers.until(empty)
    assert len(routers.cloud.floating_ips) == 1


async def test_one_more_host_costs_its_own_calls_and_a_restart_none(routers):
    await two_backends(routers)
    async with routers.controller():
        await routers.add_ingress("one", ("a", ("Prefix", "/", "one")))
        await routers.until_address("one")
        before = len(routers.octavia_calls())
        await routers.add_ingress("two", ("b", ("Prefix", "/x", "two")))
        await routers.until_address("two")
        calls = [path for _, path in routers.octavia_calls()][before:]
    kinds = [path.rpartition("/")[2] for path in calls]
    assert kinds[:3] == ["pools", "members", "l7policies"]
    assert kinds[3:5] == ["rules", "rules"]
    assert len(calls) == 6  # and one that enables the policy
    before = len(routers.octavia_calls())
    async with routers.controller():
        await routers.add_ingress("three", ("c", ("Prefix", "/", "two")))
        await routers.until_address("three")
        kinds = [path.rpartition("/")[2] for _, path in routers.octavia_calls()]
    assert kinds[before:] == ["l7policies", "rules"]


async def test_state_stands_on_every_node_as_in_the_design_and_in_a_config_map(routers):
    golden = json.loads((GOLDEN / "l7_router_state.json").read_text())
    async with routers.controller():
        state = await routers.until(lambda: routers.node_state(NODE))
        shown = await routers.until(routers.config_map)
    [floating_ip] = routers.cloud.floating_ips.values()
    [(balancer_id, balancer)] = routers.cloud.load_balancers.items()
    data = golden["versioned_object.data"]
    data["fip"] = floating_ip["floating_ip_address"]
    data["router_lb"]["versioned_object.data"] = {
        "id": balancer_id,
        "ip": balancer["vip_address"],
        "name": "kuryr-l7-router",
        "port_id": balancer["vip_port_id"],
        "project_id": balancer["project_id"],
        "subnet_id": balancer["vip_subnet_id"],
    }
    assert state == golden
    assert shown["address"] == data["fip"]


async def test_ingress_of_another_class_is_not_touched_and_one_that_changes_class_is_let_go(
    routers,
):
    await two_backends(routers)
    other = f"other-{routers.namespace}"
    await routers.add_class(other, "example.com/other")
    async with routers.controller():
        await routers.add_ingress("other", ("b", ("Prefix", "/", "two")), class_name=other)
        await routers.add_ingress("shop", ("a", ("Prefix", "/", "one")))
        await routers.until_address("shop")
        assert routers.answer("b", "/") == 503
        assert await routers.address("other") is None
        patch = {"spec": {"ingressClassName": other}}
        await routers.client.patch(routers.ingress_path("shop"), patch)
        await routers.until_answered({("a", "/"): 503})
        await routers.until_no_address("shop")
    await routers.delete_class(other)


async def test_default_backend_takes_what_the_rules_leave(routers):
    await two_backends(routers)
    async with routers.controller():
        await routers.add_ingress(
            "shop", ("a", ("Exact", "/x", "one")), defaultBackend=ingress_backend("two", "http")
        )
        await routers.until_answered({("a", "/x"): ONE, ("a", "/y"): TWO, ("b", "/"): 503})
        await routers.add_ingress("rest", defaultBackend=ingress_backend("one", 80))
        await routers.until_answered({("a", "/y"): TWO, ("b", "/"): ONE})


async def test_of_two_ingresses_with_one_host_and_path_the_older_one_is_served(routers):
    await two_backends(routers)
    async with routers.controller():
        await routers.add_ingress("older", ("a", ("Prefix", "/", "one")))
        await routers.until_address("older")
        await routers.add_ingress("younger", ("a", ("Prefix", "/", "two")))
        note = await routers.until_event("KuryrIngressUnserved")
        assert routers.answer("a", "/") == ONE
        assert await routers.address("younger") is None
    assert "older a Prefix / has the same host and path, and comes first" in note


async def test_missing_service_is_reported_and_served_when_it_comes(routers):
    async with routers.controller():
        await routers.add_ingress("shop", ("a", ("Prefix", "/", "one")))
        note = await routers.until_event("KuryrIngressUnserved")
        assert f"there is no Service {routers.namespace}/one" in note
        await routers.add_backend("one", *ONE)
        await routers.until_answered({("a", "/"): ONE})


async def until_led(routers, address, vip):
    """Wait until the floating IP with this address leads to a router with this VIP."""

    async def led():
        [floating_ip] = routers.cloud.floating_ips.values()
        found = list(routers.cloud.load_balancers.values())
        return [(each["vip_port_id"], each["vip_address"]) for each in found] == [
            (floating_ip["port_id"], vip)
        ] and floating_ip["floating_ip_address"] == address

    await routers.until(led)


@pytest.mark.parametrize(
    "address",
    [
        *("10.98.0.7", "10.97.0.999", "fd97::7"),
        pytest.param("10.96.0.0", id="the network"),
        pytest.param("10.97.255.255", id="broadcast"),
    ],
)
async def test_address_that_no_port_of_services_can_have_is_an_error_of_the_configuration(
    routers, address
):
    with pytest.raises(ExceptionGroup) as failed:
        async with routers.controller(l7_router={"vip_address": address}):
            pass
    assert failed.group_contains(ConfigError, match="vip_address")


async def test_router_made_anew_keeps_its_addresses(routers):
    """Also where it went while no controller was there, by what Nodes tell."""
    await two_backends(routers)
    vip = "10.97.0.77"
    async with routers.controller(l7_router={"vip_address": vip}):
        await routers.add_ingress("shop", ("a", ("Prefix", "/", "one")))
        address = await routers.until_address("shop")
    [old] = routers.cloud.load_balancers
    routers.cloud.octavia.remove(old)
    async with routers.controller(neutron_defaults={"sweep_interval": "1"}):
        await until_led(routers, address, vip)
        [old] = routers.cloud.load_balancers
        routers.cloud.octavia.remove(old)
        await routers.until_answered({("a", "/"): ONE})
        await until_led(routers, address, vip)


async def test_address_that_others_have_by_then_is_given_up(routers):
    async with routers.controller(l7_router={"vip_address": "10.97.0.77"}):
        await routers.until_answered({("a", "/"): 503})
        await routers.until(lambda: routers.node_state(NODE))
    cloud = routers.cloud
    [old] = cloud.load_balancers
    cloud.octavia.remove(old)
    fixed_ips = [{"subnet_id": cloud.services["subnets"][0], "ip_address": "10.97.0.77"}]
    cloud.add_port(cloud.services["id"], fixed_ips=fixed_ips)
    async with routers.controller():
        await routers.until_answered({("a", "/"): 503})


async def test_ingress_that_a_cache_lacks_keeps_its_routes(routers):
    """The watch says that it is gone; the API server itself does not."""
    await two_backends(routers)
    async with routers.controller() as app:
        await routers.add_ingress("shop", ("a", ("Prefix", "/", "one")))
        await routers.until_address("shop")
        [cache] = [each._ingresses for each in app.handlers if isinstance(each, IngressHandler)]
        await routers.lose(cache, routers.ingress_path("shop"), until="list")
        assert routers.answer("a", "/") == ONE


async def test_default_backend_of_the_operator_takes_what_no_ingress_asks_for(routers):
    await two_backends(routers)
    backend = f"{routers.namespace}/two:http"
    async with routers.controller(l7_router={"default_backend": backend}):
        await routers.add_ingress("shop", ("a", ("Prefix", "/x", "one")))
        await routers.until_answered({("a", "/x"): ONE, ("a", "/"): TWO, ("b", "/"): TWO})


async def test_router_goes_by_command_only(routers):
    await two_backends(routers)
    async with routers.controller() as app:
        await routers.add_ingress("shop", ("a", ("Prefix", "/", "one")))
        await routers.until_address("shop")
    assert routers.routers()  # the end of the controller is none of the router
    async with routers.controller() as app:
        await routers.until_address("shop")
        arguments = ("l7-router", "delete", f"--socket={app.conf.health_server.admin_socket}")
        code = "from kuryr_k8s.cli.main import main; main()"
        program = (sys.executable, "-c", code, *arguments)
        process = await asyncio.create_subprocess_exec(*program, stdout=asyncio.subprocess.PIPE)
        printed, _ = await process.communicate()
        assert process.returncode == 0
        assert b"the L7 router is being deleted" in printed

        async def gone():
            return (
                not routers.routers()
                and not routers.cloud.floating_ips
                and await routers.node_state(NODE) is None
                and await routers.address("shop") is None
            )

        await routers.until(gone)


async def test_subnet_of_floating_ips_suffices_without_its_network(routers):
    subnet = routers.cloud.public["subnets"][1]
    options = {"external_svc_net": "", "external_svc_subnet": subnet}
    async with routers.controller(neutron_defaults=options):
        await routers.until(routers.is_published)
    [floating_ip] = routers.cloud.floating_ips.values()
    assert floating_ip["floating_ip_address"].startswith("172.24.5.")


async def test_router_has_the_floating_ip_that_the_operator_names(routers):
    """An administrator has made it, as Neutron lets nobody else choose."""
    cloud = routers.cloud
    cloud.add_floating_ip(cloud.public["id"], floating_ip_address="172.24.4.77")
    async with routers.controller(l7_router={"floating_ip": "172.24.4.77"}):
        await routers.until(routers.is_published)
    [floating_ip] = routers.cloud.floating_ips.values()
    assert floating_ip["floating_ip_address"] == "172.24.4.77"


async def test_clients_stay_with_a_pod_by_a_cookie_where_an_annotation_says_so(routers):
    await two_backends(routers)
    mark = {"nginx.ingress.kubernetes.io/affinity": "cookie"}
    async with routers.controller():
        await routers.add_ingress("shop", ("a", ("Prefix", "/", "one")), annotations=mark)
        await routers.until_answered({("a", "/"): ONE})
        [tree] = routers.routers()
        [policy] = tree["listeners"][0]["policies"]
        assert policy["pool"]["session_persistence"]["type"] == "HTTP_COOKIE"


async def test_provider_that_cannot_look_into_requests_ends_the_start(routers):
    with pytest.raises(ExceptionGroup) as failed:
        async with routers.controller(octavia_defaults={"l7_provider": "ovn"}):
            pass
    assert failed.group_contains(ConfigError, match="l7_provider: ovn cannot look into requests")
