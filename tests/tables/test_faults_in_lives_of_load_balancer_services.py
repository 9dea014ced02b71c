"""As test_crash_at_every_write_of_a_service, for what type LoadBalancer adds: an address, a load
balancer of its own, a status."""

from tests.kit.load_balancer_services import HTTP, READY, ingress_of, until_condition
from tests.tables.report import judge
from tests.tables.runs import CRASHES, WRITE_FAULTS, strike_all, undisturbed

RANGES = {"loadBalancerSourceRanges": ["192.0.2.0/24"]}
EXPECTED = [
    "kube patch services",
    "kube patch endpoints",
    "kube patch endpoints #2",
    "kube patch services #2",
    "kube patch services/status",
    "kube patch services #3",
    "kube patch endpoints #3",
    "kube patch services/status #2",
    "kube patch services #4",
    "kube patch services #5",
    "neutron POST /load-balancer/v2.0/lbaas/loadbalancers",
    "neutron POST /load-balancer/v2.0/lbaas/loadbalancers #2",
    "neutron POST /floatingips",
    "neutron PUT /floatingips/{id}/tags",
    "neutron DELETE /floatingips/{id}",
    "neutron DELETE /load-balancer/v2.0/lbaas/loadbalancers/{id}",
    "neutron DELETE /load-balancer/v2.0/lbaas/loadbalancers/{id} #2",
]


async def exposed(stage, _keeper, at):
    """It is reached by a load balancer of its own; turned into a ClusterIP; deleted."""
    await stage.set_slice("a", "10.62.0.5", ports=[("http", 8080)])
    await stage.add_endpoints("web")  # late ones would have their state after the status
    await stage.add_service("web", HTTP, endpoints=False, type="LoadBalancer", **RANGES)
    await until_condition(stage, READY, "True")
    await stage.until_published()
    await at("reached")
    none = dict.fromkeys(RANGES)
    await stage.patch_service(spec={"type": "ClusterIP"} | none)

    async def alone():
        service = await stage.service()
        marks = service["metadata"].get("annotations") or {}
        told = await ingress_of(stage) or service["status"].get("conditions")
        written = any("load-balancer" in name for name in marks)
        return not told and not written and len(stage.trees()) == 1

    await stage.until(alone)
    await at("alone")
    await stage.delete_service()
    await stage.until_service_gone()
    await at("end")


async def test_every_fault_at_every_write_ends_as_an_undisturbed_life(outside_lanes, request):
    record = await undisturbed(outside_lanes, exposed)
    assert list(map(str, record.writes)) == EXPECTED
    faults = WRITE_FAULTS if request.config.getoption("--all-faults") else CRASHES
    cells = await strike_all(outside_lanes, exposed, record, record.writes, faults)
    judge(request.config, cells)
