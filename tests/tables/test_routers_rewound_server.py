"""The API server comes back with an older state of etcd, while the router went on.

What was asked for since the copy has never been, and what was deleted since is there again. The
router itself is not made twice, and keeps its addresses, whatever Nodes tell of it.
"""

import pytest

from kuryr_k8s.handlers.l7.router import L7RouterHandler
from tests.kit.fakes.faults import Hang
from tests.kit.fixtures import RouterLanes
from tests.kit.l7 import NAME, WITH_ROUTES
from tests.kit.service_stage import HANDLERS as WITHOUT_ROUTER
from tests.tables.answers import until_answered, watched
from tests.tables.past import lived_again

ONE = {"10.62.0.5"}
SHOP = ("a", ("Prefix", "/", "one"))
SERVED, UNSERVED = {("a", "/", 80): ONE}, {("a", "/", 80): 503}
OPTIONS = WITH_ROUTES | {
    "l7_router": {"tls": "true", "route_domain": "apps"},
    "neutron_defaults": {"sweep_interval": "3"},
}


async def furnish(stage):
    """A class and a Service; the router is there."""
    await stage.add_class()
    await stage.add_backend("one", *ONE)
    await stage.until(stage.is_published)


def router_of(stage):
    """The id of the one router, its VIP and the floating IP that leads there."""
    [(router_id, router)] = stage.cloud.load_balancers.items()
    [floating_ip] = stage.cloud.floating_ips.values()
    assert floating_ip["port_id"] == router["vip_port_id"]
    return router_id, router["vip_address"], floating_ip["floating_ip_address"]


async def until_told(stage, router):
    """Wait until Node and ConfigMap tell of this router; it is the only one."""
    router_id, vip, address = router
    path = f"/api/v1/namespaces/{stage.namespace}/configmaps/{NAME}"

    async def told():
        state = await stage.node_state(stage.node)
        shown = ((await stage.client.find(path)) or {}).get("data", {})
        if state is None or shown.get("load-balancer-id") != router_id:
            return False
        data = state["versioned_object.data"]
        balancer = data["router_lb"]["versioned_object.data"]
        return (balancer["id"], balancer["ip"], data["fip"], shown["floating-ip"]) == (
            router_id,
            vip,
            address,
            address,
        )

    await stage.until(told)
    assert router_of(stage) == router


async def before_an_ingress(stage, past, keeper):
    """It never was: its policies and pools go."""
    await furnish(stage)
    await past.copy()
    await stage.add_ingress("shop", SHOP)
    await stage.until_address("shop")
    router = router_of(stage)
    await past.come_back(keeper)
    await stage.until_settled_router(policies=0, pools=0)
    await until_told(stage, router)


async def while_an_ingress_is_served(stage, past, keeper):
    """It is deleted afterwards, and there again."""
    await furnish(stage)
    await stage.add_ingress("shop", SHOP)
    address = await stage.until_address("shop")
    await past.copy()
    await stage.delete_ingress("shop")
    await stage.until_settled_router(policies=0, pools=0)
    router = router_of(stage)
    await past.come_back(keeper)
    await until_answered(stage, SERVED)
    assert await stage.until_address("shop") == address
    await until_told(stage, router)


async def before_a_certificate_is_renewed(stage, past, keeper):
    """The older one is shown again, and at no moment none."""
    await furnish(stage)
    certificate = await stage.add_secret("cert", "a")
    tls = [{"hosts": ["a"], "secretName": "cert"}]
    await stage.add_ingress("shop", SHOP, tls=tls)
    await stage.until_address("shop")
    await stage.until_shown(certificate)
    await past.copy()
    await stage.until_shown(await stage.renew("cert", "a"))
    with watched(stage, {("a", "/", 443): (ONE,)}) as wrong:
        await past.come_back(keeper)
        await stage.until_shown(certificate)
        await until_answered(stage, {("a", "/", 443): ONE, ("a", "/", 80): (308, "https://a")})
    assert not wrong


async def before_a_route_has_its_host(stage, past, keeper):
    """It gets the same one again, and is served all the time."""
    await furnish(stage)
    held = Hang()
    stage.proxy.faults.add(method="PATCH", path="/routes/shop$", action=held)
    await stage.routes.add("shop")
    await held.reached.wait()
    await past.copy()
    held.release()
    await stage.routes.until_admitted("shop")
    host = f"shop-{stage.namespace}.apps"
    with watched(stage, {(host, "/", 80): (ONE,)}) as wrong:
        await past.come_back(keeper)

        async def named():
            return (await stage.routes.find("shop"))["spec"].get("host") == host

        await stage.until(named)
        await stage.routes.until_admitted("shop")
        await until_answered(stage, {(host, "/", 80): ONE})
    assert not wrong


async def before_a_route_without_a_host(stage, past, keeper):
    """It never was."""
    await furnish(stage)
    await past.copy()
    await stage.routes.add("shop")
    await stage.routes.until_admitted("shop")
    await past.come_back(keeper)
    await stage.until_settled_router(policies=0, pools=0)


async def before_the_router(stage, past, keeper):
    """It is adopted by its tags."""
    await past.copy()
    await keeper.restart(kubernetes=WITH_ROUTES["kubernetes"])
    await stage.until(stage.is_published)
    router = router_of(stage)
    await past.come_back(keeper)
    await until_told(stage, router)


async def before_the_node_is_told(stage, past, keeper):
    """The router is there, and no Node nor ConfigMap has heard of it."""
    held = Hang()
    stage.proxy.faults.add(method="PATCH", path="/nodes/", action=held)
    await keeper.restart(kubernetes=WITH_ROUTES["kubernetes"])
    await held.reached.wait()
    await past.copy()
    held.release()
    await stage.until(stage.is_published)
    router = router_of(stage)
    await past.come_back(keeper)
    await until_told(stage, router)


async def before_another_router(stage, past, keeper):
    """The Node tells of one that people have deleted, and whose VIP is others' by now."""
    await furnish(stage)
    former = router_of(stage)
    await past.copy()
    [handler] = [each for each in keeper.app.handlers if isinstance(each, L7RouterHandler)]
    handler._routing.release()

    async def gone():
        return not stage.cloud.load_balancers and not stage.cloud.floating_ips

    await stage.until(gone)
    subnet = stage.cloud.services["subnets"][0]
    fixed_ips = [{"subnet_id": subnet, "ip_address": former[1]}]
    stage.cloud.add_port(stage.cloud.services["id"], fixed_ips=fixed_ips)
    await keeper.restart()
    await stage.until(stage.is_published)
    router = router_of(stage)
    assert router[1] != former[1]
    await past.come_back(keeper)
    await until_told(stage, router)


async def before_an_l7_router(stage, past, keeper):
    """It never was: its load balancer and its address go, and the cluster's own stay."""
    await furnish(stage)
    router = router_of(stage)
    await past.copy()
    await stage.add_router()
    await stage.until_router()
    await past.come_back(keeper)

    async def gone():
        return not stage.routers(stage.other) and len(stage.cloud.floating_ips) == 1

    await stage.until(gone)
    await until_told(stage, router)


async def while_an_l7_router_serves(stage, past, keeper):
    """It is deleted afterwards, and there again: another load balancer serves its Ingress."""
    await furnish(stage)
    name = await stage.add_router()
    await stage.add_ingress("shop", SHOP, class_name=name)
    served = {("a", "/"): ONE}
    await stage.until_answered(served, router=stage.other)
    await stage.until_address("shop")
    await past.copy()
    await stage.delete_router()
    await past.come_back(keeper)

    async def told():
        status = await stage.router_status()
        return (
            status.get("loadBalancerID") in stage.cloud.load_balancers
            and await stage.address("shop") == status["address"]
        )

    await stage.until(told)
    await stage.until_answered(served, router=stage.other)


POINTS = (
    before_an_ingress,
    while_an_ingress_is_served,
    before_a_certificate_is_renewed,
    before_a_route_has_its_host,
    before_a_route_without_a_host,
    before_the_router,
    before_the_node_is_told,
    before_another_router,
    before_an_l7_router,
    while_an_l7_router_serves,
)
FIRST_WITHOUT = (before_the_router, before_the_node_is_told)


def groups_of(point):
    handlers = {"enabled_handlers": WITHOUT_ROUTER} if point in FIRST_WITHOUT else {}
    return OPTIONS | {"kubernetes": OPTIONS["kubernetes"] | handlers}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("restarted", [False, True], ids=["it lives on", "it is restarted"])
async def test_router_over_a_rewound_api_server_is_the_same_one(lanes_of, restarted):
    lanes = lanes_of(RouterLanes)
    assert not await lived_again(lanes, POINTS, groups_of, restarted=restarted)
