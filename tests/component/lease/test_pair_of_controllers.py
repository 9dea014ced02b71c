"""Two controllers: which one leads, and what a new leader does first."""

import pytest

from kuryr_k8s.model.annotations import HOST_ID, LEADER
from tests.kit.confs import HOST, NODE
from tests.kit.fakes.faults import answer


async def test_metrics_say_who_leads(stage, tmp_path):
    def told(app):
        names = ("kuryr_leader", "kuryr_lease_transitions")
        return [app.registry.get_sample_value(name) for name in names]

    lock = {"lock_file": str(tmp_path / "other.lock")}
    async with stage.controller() as first:
        transitions = told(first)[1]
        assert told(first) == [1, transitions]
        async with stage.controller(leading=False, kubernetes=lock) as second:
            await stage.proxy.wait_for(lambda: stage.proxy.watching("leases"))
            assert told(second) == [0, transitions]
    # as from another host: so it counts, whether or not the first one could give the Lease back
    async with stage.controller(kubernetes=lock) as third:
        assert told(third)[1] > transitions


@pytest.mark.parametrize(("status", "moved"), [(503, True), (422, False)])
async def test_kuryrport_without_interfaces_is_moved_before_its_new_leader_works(
    stage, status, moved
):
    """Where that fails for a while, it is done later; where it never will, without."""
    node = f"/api/v1/nodes/{NODE}"
    await stage.client.patch(node, {"metadata": {"annotations": {HOST_ID: None}}})
    async with stage.controller():
        await stage.cluster.add_pod("web", node=NODE)
        await stage.until(lambda: stage.kuryrport("web"))
    before = await stage.kuryrport("web")
    assert LEADER not in before["metadata"]["annotations"]
    stage.proxy.faults.add(method="PATCH", path="/kuryrports/web$", action=answer(status))
    async with stage.controller():
        after = await stage.kuryrport("web")
        assert (LEADER in after["metadata"]["annotations"]) is moved
        await stage.client.patch(node, {"metadata": {"annotations": {HOST_ID: HOST}}})
        await stage.until_plugged_in("web")


async def test_kuryrport_that_a_webhook_keeps_from_the_new_leader_holds_up_no_other(stage):
    node = f"/api/v1/nodes/{NODE}"
    await stage.client.patch(node, {"metadata": {"annotations": {HOST_ID: None}}})
    async with stage.controller():
        await stage.cluster.add_pod("refused", node=NODE)
        await stage.until(lambda: stage.kuryrport("refused"))
    stage.proxy.faults.add(
        method="PATCH", path="/kuryrports/refused", times=None, action=answer(403)
    )
    await stage.client.patch(node, {"metadata": {"annotations": {HOST_ID: HOST}}})
    async with stage.controller(patience={"start_retry": 0.1, "takeover_refused": 0.5}):
        await stage.cluster.add_pod("web", node=NODE)
        await stage.until_plugged_in("web")
        stage.proxy.faults.clear()
        await stage.until_plugged_in("refused")
