"""Watches that end, expire, come twice or late, and servers without streaming lists."""

import asyncio

import pytest

from tests.kit.confs import NODE
from tests.kit.fakes.faults import Hang, answer
from tests.kit.kube.proxy import is_watch


async def test_watches_that_are_cut_go_on_where_they_were(stage):
    async with stage.controller():
        await stage.proxy.wait_for(lambda: stage.proxy.watching("pods") == 1)
        stage.proxy.cut_watches()
        await stage.cluster.add_pod("web", node=NODE)
        await stage.until_plugged_in("web")


async def test_expired_watch_is_listed_again_and_tells_what_it_missed(stage):
    """A deletion in the gap is the hardest: nothing ever says it again."""
    async with stage.controller():
        gone = await stage.cluster.add_pod("gone", node=NODE)
        await stage.until_plugged_in("gone")
        stage.proxy.events.drop(2, "pods")  # of the deletion, and of the next Pod
        await stage.cluster.delete_pod(gone)
        await stage.cluster.add_pod("late", node=NODE)
        await stage.proxy.wait_for(lambda: not stage.proxy.events._drop.get("pods"))
        stage.proxy.expire_watches("pods")
        await stage.until_deleting("gone")
        await stage.until_plugged_in("late")


async def test_events_that_come_twice_make_nothing_twice(stage):
    async with stage.controller():
        stage.proxy.events.double(50)
        pod = await stage.cluster.add_pod("web", node=NODE)
        await stage.until_plugged_in("web")
        await stage.cluster.add_pod("witness", node=NODE)
        await stage.until_plugged_in("witness")
    assert len(stage.ports_of(pod)) == 1


async def test_server_without_streaming_lists_is_listed_in_pages(stage):
    def streams_a_list(request):
        return is_watch(request) and "sendInitialEvents" in request.query

    refusal = answer(422, "Invalid", "sendInitialEvents is forbidden")
    stage.proxy.faults.add(when=streams_a_list, times=None, action=refusal)
    await stage.cluster.add_pod("early", node=NODE)
    async with stage.controller():
        await stage.until_plugged_in("early")
        await stage.cluster.add_pod("late", node=NODE)
        await stage.until_plugged_in("late")


@pytest.mark.parametrize(
    ("status", "lists"), [(400, 2), (401, 1), (403, 1), (410, 2), (429, 1), (500, 1), (503, 1)]
)
async def test_watch_that_is_refused_for_a_while_goes_on_where_it_was(stage, status, lists):
    """All is listed again only if the version is the reason."""
    async with stage.controller(patience={"first_watch_retry": 0.1}):
        await stage.cluster.add_pod("early", node=NODE)
        await stage.until_plugged_in("early")
        stage.proxy.faults.add(
            when=lambda r: is_watch(r) and "resourceVersion" in r.query,
            times=1 if lists > 1 else 5,
            action=answer(status),
        )
        stage.proxy.cut_watches("pods")
        await stage.cluster.add_pod("web", node=NODE)
        await stage.until_plugged_in("web")
    watches = [
        call.query for call in stage.proxy.calls if (call.method, call.what) == ("watch", "pods")
    ]
    assert sum("sendInitialEvents" in query for query in watches) == lists


async def test_list_that_lacks_a_living_pod_does_not_take_its_port(stage):
    """A list's silence is no word that the Pod is gone: the API server is asked."""
    async with stage.controller():
        pod = await stage.cluster.add_pod("web", node=NODE)
        vif = await stage.until_plugged_in("web")
        stage.proxy.events.drop(1, "pods")  # of the list that follows
        stage.proxy.expire_watches("pods")
        await stage.proxy.wait_for(lambda: stage.proxy.calls.count("get", "pods") >= 2)
        recorded = await stage.kuryrport("web")
        assert "deletionTimestamp" not in recorded["metadata"]
        assert vif["id"] in stage.cloud.ports
        await stage.cluster.delete_pod(pod)
        await stage.until_deleting("web")


async def test_end_that_the_watch_tells_costs_no_read(stage):
    async with stage.controller():
        pods = [await stage.cluster.add_pod(name, node=NODE) for name in ("gone", "finished")]
        for pod in pods:
            await stage.until_plugged_in(pod["metadata"]["name"])
        await stage.cluster.delete_pod(pods[0])
        await stage.cluster.set_phase(pods[1], "Succeeded")
        for pod in pods:
            await stage.until_deleting(pod["metadata"]["name"])
        assert stage.proxy.calls.count("get", "pods") == 0


async def test_lagging_watch_of_kuryrports_holds_up_nothing_and_repeats_no_write(stage):
    async with stage.controller():
        await stage.proxy.wait_for(lambda: stage.proxy.watching("kuryrports") == 1)
        stage.proxy.events.hold("kuryrports")
        pod = await stage.cluster.add_pod("web", node=NODE)
        await stage.until_plugged_in("web")
        await stage.cluster.set_phase(pod, "Running")  # something to look at it again for
        await stage.cluster.delete_pod(pod)
        await stage.until_deleting("web")
        stage.proxy.events.release()
        await stage.let_go("web")
        await stage.until_gone("web")
    assert [write.method for write in stage.cloud.faults.writes] == ["POST", "DELETE"]
    methods = [write.method for write in stage.proxy.faults.writes]
    assert methods == ["POST", "PATCH", "DELETE", "PATCH"]


@pytest.mark.parametrize("restarted", [False, True])
async def test_kuryrport_taken_away_by_force_comes_back_with_the_port_it_had(stage, restarted):
    async with stage.controller():
        pod = await stage.cluster.add_pod("web", node=NODE)
        vif = await stage.until_plugged_in("web")
        first = await stage.kuryrport("web")
        if not restarted:
            await take_away(stage, "web")
            await stage.until_replaced(first)
            assert (await stage.until_plugged_in("web"))["id"] == vif["id"]
    if restarted:
        await take_away(stage, "web")
        async with stage.controller():
            await stage.until_replaced(first)
            assert (await stage.until_plugged_in("web"))["id"] == vif["id"]
    assert [port["id"] for port in stage.ports_of(pod)] == [vif["id"]]


async def take_away(stage, name):
    """Delete a KuryrPort as if it had no finalizers (so does an etcd that is set back)."""
    await stage.client.request("DELETE", stage.path(name))
    await stage.client.patch(stage.path(name), {"metadata": {"finalizers": None}})


async def test_controller_that_cannot_renew_its_lease_stops_at_once(stage):
    def renews(request):
        return request.method == "PUT" and "/leases/" in request.path

    with pytest.raises(BaseExceptionGroup) as caught:  # noqa: PT012
        async with stage.controller(kubernetes={"lease_duration": "3"}):
            stage.proxy.faults.add(when=renews, times=None, action=answer(500))
            await stage.proxy.wait_for(lambda: False)  # it ends by what happens meanwhile
    assert caught.group_contains(Exception, match="could not be renewed")


async def test_list_that_lacks_a_living_node_does_not_take_its_ports(stage):
    """Only a live read says that nobody is left to let go of a port."""
    async with stage.controller():
        pod = await stage.cluster.add_pod("web", node=NODE)
        vif = await stage.until_plugged_in("web")
        stage.proxy.events.drop(1, "nodes")  # of the list that follows
        stage.proxy.expire_watches("nodes")
        await stage.proxy.wait_for(lambda: not stage.proxy.events.dropping)
        await stage.proxy.wait_for(lambda: stage.proxy.watching("nodes") == 1)
        await stage.cluster.delete_pod(pod)
        await stage.until_deleting("web")
        await stage.proxy.wait_for(lambda: stage.proxy.calls.count("get", "nodes"))
        assert vif["id"] in stage.cloud.ports
        await stage.let_go("web")
        await stage.until_gone("web")
    assert not stage.cloud.ports


async def test_controller_that_takes_over_looks_for_the_ports_that_the_other_made(stage, tmp_path):
    """It stood by and saw the Pod's creation, but cannot vouch that nobody made a port."""
    first_ends, first_leads = asyncio.Event(), asyncio.Event()

    async def first():
        async with stage.controller():
            first_leads.set()
            await first_ends.wait()

    lock = {"lock_file": str(tmp_path / "other.lock")}
    async with asyncio.TaskGroup() as group:
        group.create_task(first())
        await first_leads.wait()
        async with stage.controller(leading=False, kubernetes=lock) as second:
            await stage.proxy.wait_for(lambda: stage.proxy.watching("pods") == 2)
            pod = await stage.cluster.add_pod("web", node=NODE)
            vif = await stage.until_plugged_in("web")
            made = await stage.kuryrport("web")
            first_ends.set()
            await second.leading.wait()
            await stage.cluster.add_pod("witness", node=NODE)
            await stage.until_plugged_in("witness")
            await take_away(stage, "web")
            await stage.until_replaced(made)
            assert (await stage.until_plugged_in("web"))["id"] == vif["id"]
    assert [port["id"] for port in stage.ports_of(pod)] == [vif["id"]]


async def test_answer_that_comes_after_the_end_of_its_object_is_forgotten(stage):
    """No event will ever tell that it is gone: the watch has done so before."""
    late = Hang(applied=True)
    async with stage.controller():
        stage.proxy.faults.add(method="PATCH", path="/kuryrports/web/status$", action=late)
        old = await stage.cluster.add_pod("web", node=NODE)
        await late.reached.wait()
        await stage.cluster.delete_pod(old)
        await stage.until_deleting("web")
        await stage.client.patch(stage.path("web"), {"metadata": {"finalizers": None}})
        await stage.until_gone("web")
        await stage.cluster.add_pod("witness", node=NODE)
        await stage.until_plugged_in("witness")
        late.release()
        new = await stage.cluster.add_pod("web", node=NODE)
        for number in range(3):
            await witness(stage, number)
            await stage.proxy.bookmark("kuryrports")
        await stage.until_plugged_in("web")
    assert len(stage.ports_of(new)) == 1


async def test_writes_of_ours_cost_no_list(stage):
    """Neither what the watch told before the answer did, nor what is gone, is still expected."""
    late = Hang(applied=True)
    async with stage.controller():
        gone = await stage.cluster.add_pod("gone", node=NODE)
        await stage.until_plugged_in("gone")
        await stage.cluster.delete_pod(gone)
        await stage.until_deleting("gone")
        await stage.let_go("gone")
        await stage.until_gone("gone")
        stage.proxy.faults.add(method="PATCH", path="/kuryrports/.*/status$", action=late)
        told = stage.proxy.events.told
        await stage.cluster.add_pod("web", node=NODE)
        await late.reached.wait()
        # its KuryrPort, and the same with its interfaces
        await stage.proxy.wait_for(lambda: told["kuryrports", "web"] >= 2)
        late.release()
        for number in range(3):
            pod = await witness(stage, number)
            await stage.proxy.bookmark("kuryrports")
        await no_list_was_needed(stage, pod)


async def test_late_answer_about_an_old_kuryrport_does_not_hide_the_new_one(stage):
    """The watch told its end before the answer did, and the new one was made meanwhile."""
    late = Hang(applied=True)
    async with stage.controller():
        old = await stage.cluster.add_pod("web", node=NODE)
        await stage.until_plugged_in("web")
        first = await stage.kuryrport("web")
        await stage.cluster.delete_pod(old)
        new = await stage.cluster.add_pod("web", node=NODE)
        await stage.until_deleting("web")
        stage.proxy.faults.add(method="PATCH", path="/kuryrports/web$", action=late)
        await stage.let_go("web")
        await late.reached.wait()
        await stage.until_replaced(first)
        await stage.cluster.add_pod("witness", node=NODE)
        await stage.until_plugged_in("witness")
        late.release()
        await stage.until_plugged_in("web")
    assert len(stage.ports_of(new)) == 1


async def test_late_answer_about_what_is_gone_costs_no_list(stage):
    late = Hang(applied=True)
    async with stage.controller():
        pod = await stage.cluster.add_pod("web", node=NODE)
        await stage.until_plugged_in("web")
        await stage.cluster.delete_pod(pod)
        await stage.until_deleting("web")
        stage.proxy.faults.add(method="PATCH", path="/kuryrports/web$", action=late)
        await stage.let_go("web")
        await late.reached.wait()
        await stage.until_gone("web")
        for number in range(4):
            pod = await witness(stage, number)
            if number == 0:
                late.release()
            await stage.proxy.bookmark("kuryrports")
        await no_list_was_needed(stage, pod)


async def test_end_that_the_answer_told_before_the_watch_costs_no_list(stage):
    last = Hang()
    async with stage.controller():
        pod = await stage.cluster.add_pod("web", node=NODE)
        await stage.until_plugged_in("web")
        await stage.cluster.delete_pod(pod)
        await stage.until_deleting("web")
        stage.proxy.faults.add(method="PATCH", path="/kuryrports/web$", action=last)
        await stage.let_go("web")
        await last.reached.wait()
        stage.proxy.events.hold("kuryrports")
        last.release()
        await stage.until_gone("web")
        await stage.cluster.add_pod("witness", node=NODE)
        await stage.until_plugged_in("witness")
        stage.proxy.events.release()
        for number in range(3):
            pod = await witness(stage, number)
            await stage.proxy.bookmark("kuryrports")
        await no_list_was_needed(stage, pod)


async def witness(stage, number):
    """A Pod whose story the watches have told: a bookmark is not to overtake it."""
    name, told = f"witness-{number}", stage.proxy.events.told
    pod = await stage.cluster.add_pod(name, node=NODE)
    await stage.until_plugged_in(name)
    # its KuryrPort, and the same with its interfaces
    await stage.proxy.wait_for(lambda: told["kuryrports", name] >= 2)
    return pod


async def no_list_was_needed(stage, pod):
    """The first watch of KuryrPorts is there still: it brings the node's word about this Pod."""
    name = pod["metadata"]["name"]
    await stage.cluster.delete_pod(pod)
    await stage.until_deleting(name)
    await stage.let_go(name)
    await stage.until_gone(name)
    assert stage.proxy.calls.count("watch", "kuryrports") == 1
