"""As test_crash_at_every_write_of_a_service, for a Service on an operator's load balancer."""

from tests.kit.load_balancer_services import ID, INTERNAL, marks, operators, until_ingress
from tests.tables.report import judge
from tests.tables.runs import CRASHES, strike_all, undisturbed

PORTS = [("dns", 5353, "UDP")]


async def attached(stage, _keeper, at):
    """It is attached to a load balancer, gets its own instead, and is deleted."""
    shared = operators(stage, provider="ovn")
    address = stage.cloud.load_balancers[shared]["vip_address"]
    await stage.set_slice("a", "10.62.0.5", ports=PORTS)
    wishes = {**marks(load_balancer_id=shared), INTERNAL: "true"}
    await stage.add_service("web", ("dns", 53, "UDP"), type="LoadBalancer", annotations=wishes)
    await until_ingress(stage, [address])
    await stage.until_shown({("10.62.0.5", 5353)})
    await at("attached")
    await stage.patch_service(metadata={"annotations": {ID: None}})
    await stage.until_no_parts(shared)
    await until_own(stage)
    await until_ingress(stage, [(await stage.service())["spec"]["clusterIP"]])
    await at("apart")
    await stage.delete_service()
    await stage.until_service_gone()
    await at("end")


async def until_own(stage):
    """Wait until it is told that it has a load balancer of its own."""
    (own,) = [one["id"] for one in stage.cloud.load_balancers.values() if one["tags"]]

    async def told():
        return (await stage.service())["metadata"]["annotations"].get(ID) == own

    await stage.until(told)


EXPECTED = [
    "POST /load-balancer/v2.0/lbaas/loadbalancers",
    "POST /load-balancer/v2.0/lbaas/pools",
    "PUT /load-balancer/v2.0/lbaas/pools/{pool_id}/members",
    "POST /load-balancer/v2.0/lbaas/listeners",
    "DELETE /load-balancer/v2.0/lbaas/listeners/{id}",
    "DELETE /load-balancer/v2.0/lbaas/pools/{id}",
    "DELETE /load-balancer/v2.0/lbaas/loadbalancers/{id}",
]


async def test_every_crash_at_every_write_ends_as_an_undisturbed_life(service_lanes, request):
    record = await undisturbed(service_lanes, attached)
    neutron = [f"{one.verb} {one.what}" for one in record.writes if one.side == "neutron"]
    assert neutron == EXPECTED
    cells = await strike_all(service_lanes, attached, record, record.writes, CRASHES)
    judge(request.config, cells)
