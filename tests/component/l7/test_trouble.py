"""Trouble with the L7 router: what one user, one Node or one cache does harms no other route."""

from kuryr_k8s.handlers.l7.ingress import IngressHandler
from kuryr_k8s.handlers.l7.router import L7RouterHandler
from tests.component.l7.test_ingress import ONE, TWO, two_backends, until_led
from tests.kit.confs import NODE
from tests.kit.fakes.faults import answer
from tests.kit.l7 import STATE

OFTEN = {"neutron_defaults": {"sweep_interval": "1"}}
SOON = {"refused": 1.0}  # seconds until what Barbican did not store is stored again


async def test_pool_in_error_is_replaced_before_it_goes(routers):
    await two_backends(routers)
    async with routers.controller(**OFTEN):
        await routers.add_ingress("shop", ("a", ("Prefix", "/", "one")))
        await routers.until_address("shop")
        octavia = routers.cloud.octavia
        [pool] = list(octavia.store._by_kind["pool"])
        octavia.set_error(pool)
        await routers.add_ingress("other", ("b", ("Prefix", "/", "two")))
        await routers.until_answered({("a", "/"): ONE, ("b", "/"): TWO})

        async def replaced():
            return pool not in octavia.store._by_kind["pool"]

        await routers.until(replaced)
        assert routers.answer("a", "/") == ONE


async def test_route_that_octavia_answers_with_an_error_holds_up_no_other(routers):
    await two_backends(routers)

    async with routers.controller():
        await routers.add_ingress("first", ("a", ("Prefix", "/", "one")))
        await routers.until_answered({("a", "/"): ONE})
        faults = routers.cloud.faults
        fault = faults.add(action=answer(500), method="POST", path="/rules$", times=None)
        await routers.add_ingress("bad", ("b", ("Prefix", "/", "one")))

        async def struck():
            return fault.hits

        await routers.until(struck)
        fault.remove()
        policies = routers.cloud.octavia.store._by_kind["l7policy"].values()
        [bad] = [each["id"] for each in policies if "bad" in each["name"]]
        faults.add(action=answer(500), method="POST", path=f"/{bad}/rules$", times=None)
        await routers.add_ingress("good", ("c", ("Prefix", "/", "two")))
        await routers.until_answered({("a", "/"): ONE, ("b", "/"): 503, ("c", "/"): TWO})


async def test_policy_stays_while_that_which_is_to_take_its_requests_is_over_quota(routers):
    await two_backends(routers)
    async with routers.controller(patience=SOON):
        await routers.add_ingress("shop", ("", ("Prefix", "/", "one")))
        await routers.until_answered({("a", "/x"): ONE})
        cloud = routers.cloud
        cloud.octavia.set_quota(cloud.project_id, l7policy=1)
        await routers.change_ingress("shop", ("", ("Exact", "/x", "two"), ("Prefix", "/x", "one")))
        await routers.until(lambda: is_told(routers, "Quota has been met"))
        assert routers.answer("a", "/x/y") == ONE
        cloud.octavia.set_quota(cloud.project_id, l7policy=-1)
        await routers.until_answered({("a", "/x"): TWO, ("a", "/x/y"): ONE, ("a", "/"): 503})


async def test_pool_that_octavia_cannot_change_holds_up_no_other(routers):
    await two_backends(routers)
    async with routers.controller(patience=SOON):
        await routers.add_ingress("shop", ("a", ("Prefix", "/", "one")))
        await routers.add_ingress("other", ("b", ("Prefix", "/", "two")))
        await routers.until_answered({("a", "/"): ONE, ("b", "/"): TWO})
        pools = routers.cloud.octavia.store._by_kind["pool"].items()
        [bad] = [key for key, each in pools if each["name"] == f"{routers.namespace}/one:80"]
        routers.cloud.faults.add(
            action=answer(500), method="PUT", path=f"/{bad}/members", times=None
        )
        for name in ("one", "two"):
            await routers.set_slice(name, "10.62.0.9", ports=[("http", 8080)], service=name)
        await routers.until_answered({("a", "/"): ONE, ("b", "/"): {"10.62.0.9"}})
        await routers.add_ingress("third", ("c", ("Prefix", "/", "two")))
        await routers.until_answered({("c", "/"): {"10.62.0.9"}})


async def test_pool_that_requests_still_reach_follows_its_pods_and_is_emptied_if_nobody_knows_them(
    routers,
):
    await two_backends(routers)
    cloud = routers.cloud
    async with routers.controller(patience=SOON):
        await routers.add_ingress("shop", ("a", ("Prefix", "/", "one")))
        await routers.until_address("shop")
        cloud.octavia.set_quota(cloud.project_id, pool=1)
        await routers.change_ingress("shop", ("a", ("Prefix", "/", "two")))
        await routers.until(lambda: is_told(routers, "Quota has been met"))
        assert routers.answer("a", "/") == ONE
        await routers.set_slice("one", "10.62.0.9", ports=[("http", 8080)], service="one")
        await routers.until_answered({("a", "/"): {"10.62.0.9"}})
    async with routers.controller(patience=SOON):
        await routers.until_answered({("a", "/"): 503})
        cloud.octavia.set_quota(cloud.project_id, pool=-1)
        await routers.until_answered({("a", "/"): TWO})


async def is_told(routers, text):
    """Is it in an Event on the cluster?"""
    found = await routers.client.list("/apis/events.k8s.io/v1/namespaces/default/events")
    # the API server tells of addresses of Services, by Events that name nothing
    return any(
        text in event["note"] for event in found if event["regarding"].get("name") == "kube-system"
    )


async def test_annotation_of_a_node_that_makes_no_sense_is_replaced(routers):
    for text in ('{"versioned_object.data": {"router_lb": null}}', "[[[", "7", '{"x": []}'):
        mark = {"metadata": {"annotations": {STATE: text}}}
        await routers.client.patch(f"/api/v1/nodes/{NODE}", mark)
        async with routers.controller():
            await routers.until(routers.is_published)


async def test_class_that_a_cache_lacks_takes_no_routes_away(routers):
    await two_backends(routers)
    async with routers.controller() as app:
        await routers.add_ingress("shop", ("a", ("Prefix", "/", "one")))
        await routers.until_address("shop")
        [cache] = [each._classes for each in app.handlers if isinstance(each, IngressHandler)]
        path = f"/apis/networking.k8s.io/v1/ingressclasses/{routers.class_name}"
        await routers.lose(cache, path, until="list")
        assert routers.answer("a", "/") == ONE


async def test_service_that_a_cache_lacks_keeps_its_members(routers):
    await two_backends(routers)
    async with routers.controller() as app:
        await routers.add_ingress("shop", ("a", ("Prefix", "/", "one")))
        await routers.until_address("shop")
        [handler] = [each for each in app.handlers if isinstance(each, L7RouterHandler)]
        cache = handler._services._services
        await routers.lose(cache, routers.service_path("one"), until="get")
        assert routers.answer("a", "/") == ONE


async def test_service_of_the_default_backend_that_a_cache_lacks_keeps_its_members(routers):
    await two_backends(routers)
    backend = f"{routers.namespace}/two:http"
    async with routers.controller(l7_router={"default_backend": backend}) as app:
        await routers.until_answered({("a", "/"): TWO})
        [handler] = [each for each in app.handlers if isinstance(each, L7RouterHandler)]
        cache = handler._services._services
        await routers.lose(cache, routers.service_path("two"), until="get")
        assert routers.answer("a", "/") == TWO


async def test_first_list_that_lacks_a_service_leaves_its_members(routers):
    await two_backends(routers)
    async with routers.controller():
        await routers.add_ingress("shop", ("a", ("Prefix", "/", "one")))
        await routers.until_address("shop")
    before = len(routers.octavia_calls())
    routers.proxy.events.drop(2, "services")
    asked = routers.proxy.calls.count("get", "services")
    async with routers.controller():

        async def asks_again():
            return routers.proxy.calls.count("get", "services") > asked + 1

        await routers.until(asks_again)
        assert len(routers.octavia_calls()) == before
        routers.proxy.expire_watches("services")
        await routers.change_ingress("shop", ("a", ("Prefix", "/", "two")))
        await routers.until_answered({("a", "/"): TWO})


def among_services(cloud, address):
    """The fixed IPs of a port that has this address in the first subnet of Services."""
    return [{"subnet_id": cloud.services["subnets"][0], "ip_address": address}]


async def test_port_that_octavia_has_left_does_not_cost_the_router_its_address(routers):
    async with routers.controller(l7_router={"vip_address": "10.97.0.77"}):
        await routers.until(routers.is_published)
    cloud = routers.cloud
    [old] = cloud.load_balancers
    [address] = [each["floating_ip_address"] for each in cloud.floating_ips.values()]
    cloud.octavia.remove(old)
    fixed_ips = among_services(cloud, "10.97.0.77")
    gone = "00000000-0000-4000-8000-000000000000"
    port = cloud.add_port(cloud.services["id"], fixed_ips=fixed_ips)
    port |= {"device_owner": "Octavia", "device_id": f"lb-{gone}", "name": f"octavia-lb-{gone}"}
    async with routers.controller():
        await until_led(routers, address, "10.97.0.77")


async def test_router_stays_while_others_have_the_address_that_it_is_to_get(routers):
    await two_backends(routers)
    async with routers.controller():
        await routers.add_ingress("shop", ("a", ("Prefix", "/", "one")))
        await routers.until_address("shop")
    cloud = routers.cloud
    before = dict(cloud.load_balancers)
    fixed_ips = among_services(cloud, "10.97.0.77")
    port = cloud.add_port(cloud.services["id"], fixed_ips=fixed_ips)
    soon = SOON | {"first_refused": 0.5}
    async with routers.controller(patience=soon, l7_router={"vip_address": "10.97.0.77"}):
        await routers.until(lambda: is_told(routers, "another port has 10.97.0.77"))
        await routers.change_ingress("shop", ("a", ("Prefix", "/", "two")))
        await routers.until_answered({("a", "/"): TWO})
        assert cloud.load_balancers.keys() == before.keys()
        cloud.remove_port(port["id"])

        async def moved():
            found = [each["vip_address"] for each in cloud.load_balancers.values()]
            return found == ["10.97.0.77"]

        await routers.until(moved)
        await routers.until_answered({("a", "/"): TWO})


async def test_router_gets_its_former_address_if_the_new_one_is_taken_while_it_moves(routers):
    await two_backends(routers)
    async with routers.controller():
        await routers.add_ingress("shop", ("a", ("Prefix", "/", "one")))
        await routers.until_address("shop")
    cloud = routers.cloud
    [former] = [each["vip_address"] for each in cloud.load_balancers.values()]
    fixed_ips = among_services(cloud, "10.97.0.78")

    async def take(_request, proceed):
        response = await proceed()
        cloud.add_port(cloud.services["id"], fixed_ips=fixed_ips)
        return response

    fault = cloud.faults.add(action=take, method="DELETE", path="/loadbalancers/")
    soon = SOON | {"first_refused": 0.5}
    async with routers.controller(patience=soon, l7_router={"vip_address": "10.97.0.78"}):
        await routers.until(lambda: is_told(routers, "another port has 10.97.0.78"))
        await routers.until_answered({("a", "/"): ONE})
        assert fault.hits == 1
        [again] = [each["vip_address"] for each in cloud.load_balancers.values()]
        assert again == former


async def test_ingress_that_left_our_class_while_nobody_led_loses_our_address(routers):
    await two_backends(routers)
    other = f"other-{routers.namespace}"
    await routers.add_class(other, "example.com/other")
    async with routers.controller():
        await routers.add_ingress("shop", ("a", ("Prefix", "/", "one")))
        await routers.until_address("shop")
    await routers.client.patch(routers.ingress_path("shop"), {"spec": {"ingressClassName": other}})
    async with routers.controller():
        await routers.until_no_address("shop")
    await routers.delete_class(other)


async def test_address_of_another_controller_stays_until_the_routes_are_there(routers):
    await two_backends(routers)
    cloud = routers.cloud
    async with routers.controller():
        await routers.until(routers.is_published)
        cloud.octavia.set_quota(cloud.project_id, pool=0)
        await routers.add_ingress("shop", ("a", ("Prefix", "/", "one")))
        shown = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}}
        await routers.client.patch(f"{routers.ingress_path('shop')}/status", shown)
        await routers.until(lambda: is_told(routers, "Quota has been met"))
        assert await routers.address("shop") == "192.0.2.9"
        cloud.octavia.set_quota(cloud.project_id, pool=-1)

        async def told():
            return await routers.address("shop") != "192.0.2.9"

        await routers.until(told)
        assert routers.answer("a", "/") == ONE


async def test_missing_default_backend_is_reported_on_the_cluster(routers):
    backend = f"{routers.namespace}/none:80"
    async with routers.controller(l7_router={"default_backend": backend}):
        await routers.until(lambda: is_told(routers, f"Service {backend.partition(':')[0]}"))


async def test_path_with_a_nul_character_is_refused(routers):
    await two_backends(routers)
    async with routers.controller():
        await routers.add_ingress(
            "shop", ("a", ("Prefix", "/a\u0000b", "one"), ("Prefix", "/ok", "two"))
        )
        note = await routers.until_event("KuryrIngressUnserved")
        assert "percent-encoded" in note
        await routers.until_answered({("a", "/ok"): TWO})


async def test_rule_deleted_by_hand_during_a_change_is_made_again(routers):
    await two_backends(routers)
    octavia = routers.cloud.octavia
    async with routers.controller(**OFTEN):
        await routers.add_ingress("shop", ("a", ("Prefix", "/", "one")))
        await routers.until_address("shop")
        [rule] = list(octavia.store._by_kind["rule"])
        octavia.progress.pending = float("inf")
        before = len(routers.octavia_calls())
        await routers.add_ingress("other", ("b", ("Prefix", "/", "two")))

        async def begun():
            return len(routers.octavia_calls()) > before

        await routers.until(begun)
        octavia.remove(rule)
        asked = len(routers.octavia_calls({"GET"}))

        async def listed():
            calls = routers.octavia_calls({"GET"})[asked:]
            return calls.count(("GET", "/l7policies")) > 1

        await routers.until(listed)
        octavia.progress.pending = 0
        octavia.progress.finish(*routers.cloud.load_balancers)
        await routers.until_answered({("a", "/"): ONE, ("b", "/"): TWO})
