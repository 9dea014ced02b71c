"""A new leader that the API server does not let sign a KuryrPort: an admission webhook, perhaps.

A late write of the old leader may still land there, and name a port. Until it cannot any more, the
KuryrPort gets no port from the new leader, and no other Pod gets a port that it may come to name.
"""

import pytest

from kuryr_k8s.model.annotations import HOST_ID, LEADER
from tests.kit.confs import HOST, NODE
from tests.kit.fakes.faults import Hang, answer, drop
from tests.kit.ledger import named, settle
from tests.lives.pools import options

PATH = f"/api/v1/nodes/{NODE}"
POOLED = options(ports_pool_min="2", ports_pool_batch="2")


def unsigned(app):
    return app.registry.get_sample_value("kuryr_unsigned_kuryrports")


@pytest.mark.parametrize(
    "status", [403, 422, 500], ids=["webhook", "admission policy", "webhook that is down"]
)
async def test_kuryrport_that_is_not_signed_gets_no_port_and_holds_up_no_other(stage, status):
    await stage.client.patch(PATH, {"metadata": {"annotations": {HOST_ID: None}}})
    async with stage.controller():
        await stage.cluster.add_pod("refused", node=NODE)
        before = await stage.until(lambda: stage.kuryrport("refused"))
    refusal = answer(status, message="not by this webhook")
    stage.proxy.faults.add(method="PATCH", path="/kuryrports/refused$", times=None, action=refusal)
    await stage.client.patch(PATH, {"metadata": {"annotations": {HOST_ID: HOST}}})
    async with stage.controller() as app:
        await stage.cluster.add_pod("web", node=NODE)
        await stage.until_plugged_in("web")
        told = await stage.until_event("KubernetesFailed")
        assert "refuses the signature of this leader" in told
        assert "not by this webhook" in told
        assert unsigned(app) == 1
        assert "status" not in await stage.kuryrport("refused")
        assert len(stage.cloud.ports) == 1
        stage.proxy.faults.clear()
        await stage.until_plugged_in("refused")
        after = await stage.kuryrport("refused")
        signatures = [found["metadata"]["annotations"][LEADER] for found in (before, after)]
        assert signatures[0] != signatures[1]
        assert unsigned(app) == 0
    assert len(stage.cloud.ports) == 2


async def test_kuryrport_whose_signature_is_never_answered_holds_up_no_other(stage):
    """A webhook may take longer than a write of a leader may."""
    await stage.client.patch(PATH, {"metadata": {"annotations": {HOST_ID: None}}})
    async with stage.controller():
        await stage.cluster.add_pod("held", node=NODE)
        await stage.until(lambda: stage.kuryrport("held"))
    hang = Hang()
    stage.proxy.faults.add(method="PATCH", path="/kuryrports/held$", times=None, action=hang)
    await stage.client.patch(PATH, {"metadata": {"annotations": {HOST_ID: HOST}}})
    async with stage.controller(patience={"kube_call": 1.0, "start_retry": 0.1}) as app:
        await stage.cluster.add_pod("web", node=NODE)
        await stage.until_plugged_in("web")
        assert unsigned(app) == 1
        assert len(stage.cloud.ports) == 1
        hang.release()
        await stage.until_plugged_in("held")
        assert unsigned(app) == 0


async def test_refused_kuryrport_whose_pod_goes_is_released(stage):
    """Its deletion makes a late write void as the signature would."""
    await stage.client.patch(PATH, {"metadata": {"annotations": {HOST_ID: None}}})
    async with stage.controller():
        pod = await stage.cluster.add_pod("refused", node=NODE)
        await stage.until(lambda: stage.kuryrport("refused"))

    async def is_signature(request):
        return LEADER in await request.text()

    async def refuse_signatures(request, proceed):
        return await (answer(403)(request, proceed) if await is_signature(request) else proceed())

    stage.proxy.faults.add(
        method="PATCH", path="/kuryrports/refused$", times=None, action=refuse_signatures
    )
    async with stage.controller() as app:
        assert unsigned(app) == 1
        await stage.cluster.delete_pod(pod)
        await stage.until_gone("refused")
        assert unsigned(app) == 0


@pytest.mark.parametrize("lands", [True, False], ids=["it lands", "it never comes"])
async def test_port_that_a_late_write_may_name_is_no_other_pods(stage, lands):
    late = []

    async def hold_back(request, _proceed):
        late.append(await request.json())
        return drop(request)

    held = stage.proxy.faults.add(
        method="PATCH", path="/kuryrports/late/status$", times=None, action=hold_back
    )
    async with stage.controller(**POOLED):
        await stage.cluster.add_pod("late", node=NODE)
        await stage.proxy.wait_for(lambda: late)
        await stage.cloud.wait_for(lambda: len(stage.cloud.ports) >= 3)
    vif = late[0]["status"]["vifs"]["eth0"]["vif"]["versioned_object.data"]
    before = set(stage.cloud.ports)
    held.remove()
    stage.proxy.faults.add(
        method="PATCH", path="/kuryrports/late$", times=None, action=answer(403)
    )
    async with stage.controller(**POOLED) as app:
        for number in range(len(before)):
            await stage.cluster.add_pod(f"web-{number}", node=NODE)
        for number in range(len(before)):
            await stage.until_plugged_in(f"web-{number}")
        assert vif["id"] not in await named(stage)
        if lands:
            await stage.client.patch(f"{stage.path('late')}/status", late[0])
            assert (await stage.until_plugged_in("late"))["id"] == vif["id"]
        else:
            stage.proxy.faults.clear()
            await stage.until_plugged_in("late")
        await settle(stage, lambda: app)
