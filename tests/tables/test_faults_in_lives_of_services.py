"""As tests.tables.test_faults_in_lives_of_pods, for Services: each write of their lives is struck
by each fault, and what stands in cluster and cloud must be as in an undisturbed life."""

import pytest

from tests.tables.report import judge
from tests.tables.runs import CRASHES, HANGS, WRITE_FAULTS, strike_all, undisturbed

HTTP = ("http", 80)
PORTS = [("http", 8080), ("admin", 9001)]
TWO = {("10.62.0.5", 8080), ("10.62.0.6", 8080)}


async def served(stage, _keeper, at):
    """It is served, its endpoints change, and it is deleted."""
    await _run(stage)
    await at("served")
    await stage.set_slice("a", "10.62.0.5", "10.62.0.7", ports=PORTS)
    await stage.until_shown({("10.62.0.5", 8080), ("10.62.0.7", 8080)})
    await at("changed")
    await stage.delete_service()
    await stage.until_service_gone()
    await at("end")


async def given_another_port(stage, _keeper, at):
    """Another port is added to it, and the first one is removed."""
    await _run(stage)
    ports = [{"name": "http", "port": 80}, {"name": "admin", "port": 9000}]
    await stage.patch_service(spec={"ports": ports})
    await stage.until_shown(TWO | {("10.62.0.5", 9001), ("10.62.0.6", 9001)})
    await at("two ports")
    await stage.patch_service(spec={"ports": ports[1:]})
    await stage.until_shown({("10.62.0.5", 9001), ("10.62.0.6", 9001)})
    await stage.until_settled(listeners=1)
    await at("the other port")


async def turned_away(stage, _keeper, at):
    """It turns into an ExternalName, and back."""
    await _run(stage)
    none = {"clusterIP": None, "clusterIPs": None, "ipFamilies": None, "ipFamilyPolicy": None}
    outside = {"type": "ExternalName", "externalName": "example.org"}
    await stage.patch_service(spec=outside | none)

    async def clean():
        meta = (await stage.service())["metadata"]
        marks = (await stage.endpoints())["metadata"].get("annotations")
        return not (meta.get("finalizers") or meta.get("annotations") or marks)

    await stage.until(clean)
    await at("turned away")
    await stage.patch_service(spec={"type": "ClusterIP", "externalName": None})
    await stage.until_shown(TWO)
    await at("turned back")


LIVES = [served, given_another_port, turned_away]
EXPECTED = {
    served: [
        "kube patch services",
        "kube patch endpoints",
        "kube patch endpoints #2",
        "kube patch endpoints #3",
        "kube patch services #2",
        "neutron POST /load-balancer/v2.0/lbaas/loadbalancers",
        "neutron PUT /load-balancer/v2.0/lbaas/pools/{pool_id}/members",
        "neutron DELETE /load-balancer/v2.0/lbaas/loadbalancers/{id}",
    ]
}


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.__name__)
async def test_every_fault_at_every_write_ends_as_an_undisturbed_life(
    service_lanes, life, request
):
    record = await undisturbed(service_lanes, life)
    if life in EXPECTED:
        assert list(map(str, record.writes)) == EXPECTED[life]
    faults = (
        WRITE_FAULTS if life is served or request.config.getoption("--all-faults") else CRASHES
    )
    cells = await strike_all(service_lanes, life, record, record.writes, faults)
    judge(request.config, cells)


async def test_write_that_is_never_answered_ends_as_an_undisturbed_life(
    service_lanes, request, short_calls
):
    record = await undisturbed(service_lanes, served)
    cells = await strike_all(service_lanes, served, record, record.writes, HANGS, **short_calls)
    judge(request.config, cells)


async def _run(stage):
    await stage.set_slice("a", "10.62.0.5", "10.62.0.6", ports=PORTS)
    await stage.add_service("web", HTTP)
    await stage.until_shown(TWO)
