"""Two controllers: which one leads, and what a new leader does first."""

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from kuryr_k8s.k8s.leader import LeaseLost
from kuryr_k8s.model.annotations import HOST_ID, LEADER
from tests.kit.clock import ManualClock
from tests.kit.confs import HOST, NODE
from tests.kit.fakes.faults import Hang, answer, dated
from tests.kit.kube.proxy import KubeProxy
from tests.kit.stage import Stage


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


async def test_kuryrport_without_interfaces_is_moved_before_its_new_leader_works(stage):
    """Where that fails for a while, the new leader works later."""
    node = f"/api/v1/nodes/{NODE}"
    await stage.client.patch(node, {"metadata": {"annotations": {HOST_ID: None}}})
    async with stage.controller():
        await stage.cluster.add_pod("web", node=NODE)
        await stage.until(lambda: stage.kuryrport("web"))
    before = await stage.kuryrport("web")
    stage.proxy.faults.add(method="PATCH", path="/kuryrports/web$", action=answer(503))
    async with stage.controller():
        after = await stage.kuryrport("web")
        signatures = [found["metadata"]["annotations"][LEADER] for found in (before, after)]
        assert signatures[0] != signatures[1]
        await stage.client.patch(node, {"metadata": {"annotations": {HOST_ID: HOST}}})
        await stage.until_plugged_in("web")


async def test_leader_whose_clocks_stood_still_asks_for_no_port_before_it_has_renewed(stage):
    """A virtual machine was paused. The answer to its first write tells how late it is."""
    clock, renewal = ManualClock(), Hang()
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=700), usegmt=True)
    async with stage.controller(clock=clock, kubernetes={"lease_duration": "600"}) as leader:
        await stage.proxy.wait_for(lambda: stage.proxy.watching("kuryrports") == 1)
        stage.proxy.events.hold("kuryrports")  # so the answer is the first to tell of it
        stage.proxy.faults.add(path="/leases/", action=renewal, times=None)
        stage.proxy.faults.add(method="POST", path="/kuryrports$", action=dated(later))
        await stage.cluster.add_pod("web", node=NODE)
        async with asyncio.timeout(60):
            await renewal.reached.wait()  # at once, and not after a third of the duration

        async def tried():
            labels = {"handler": "kuryrport"}
            return leader.registry.get_sample_value("kuryr_reconcile_seconds_count", labels)

        await stage.until(tried)
        assert not stage.cloud.ports
        renewal.release()
        stage.proxy.events.release()
        async with asyncio.timeout(60):
            while not stage.cloud.ports:
                clock.advance(1)
                await asyncio.sleep(0.01)
        await stage.until_plugged_in("web")
    assert len(stage.cloud.ports) == 1


async def test_kuryrport_signed_by_another_leader_gets_nothing_from_a_deposed_one(
    stage, kube_server, load_conf, tmp_path
):
    """It believes that it leads: its clocks stood still, and no answer has a date. But it asks
    who leads before it gives such a KuryrPort a port."""
    node = f"/api/v1/nodes/{NODE}"
    await stage.client.patch(node, {"metadata": {"annotations": {HOST_ID: None}}})
    short = {"lease_duration": "3"}
    other_lock = {"lock_file": str(tmp_path / "other.lock")}
    async with KubeProxy(kube_server, namespace=stage.cluster.namespace) as proxy:
        proxy.faults.add(times=None, action=dated("unknown"))
        first = Stage(stage.cluster, stage.cloud, proxy, load_conf)
        leads = asyncio.Event()

        async def be_deposed():
            with pytest.raises(BaseExceptionGroup) as caught:  # noqa: PT012
                async with first.controller(clock=ManualClock(), kubernetes=short):
                    leads.set()
                    await asyncio.Event().wait()
            assert caught.group_contains(LeaseLost, match="another controller took the Lease")

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            deposed = group.create_task(be_deposed())
            await leads.wait()
            await stage.cluster.add_pod("web", node=NODE)
            await first.until(lambda: first.kuryrport("web"))
            proxy.events.hold()
            async with stage.controller(kubernetes=short | other_lock):
                stage.proxy.events.hold("nodes")  # the new leader cannot decide yet
                await stage.client.patch(node, {"metadata": {"annotations": {HOST_ID: HOST}}})
                proxy.events.release()
                await deposed
                assert "status" not in await stage.kuryrport("web")
                assert not stage.cloud.ports
                stage.proxy.events.release()
                await stage.until_plugged_in("web")
        assert len(stage.cloud.ports) == 1
