"""The Lease: who stands by hears of it at once, and believes no watch that it is free."""

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from kuryr_k8s import errors
from kuryr_k8s.k8s import resources
from kuryr_k8s.k8s.connect import connect
from kuryr_k8s.k8s.leader import Lease, LeaseLost
from kuryr_k8s.k8s.resources import Key
from tests.kit.clock import ManualClock
from tests.kit.fakes.faults import Hang, answer, dated
from tests.kit.kube.proxy import FLOW_SCHEMA
from tests.kit.stages import ACCOUNT

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"

FLOW_SCHEMAS = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
ACCOUNTS = "/api/v1/namespaces/kube-system/serviceaccounts"


@pytest.fixture
async def account_of_the_controller(stage, lanes, tmp_path):
    """Return the options of a controller that runs as the ServiceAccount of etc/rbac."""
    request = {"spec": {"expirationSeconds": 3600}}
    answer = await stage.client.request("POST", f"{ACCOUNTS}/{ACCOUNT}/token", request)
    token = tmp_path / "token"
    token.write_text(answer["status"]["token"])
    return {"api_root": stage.proxy.url, "token_file": str(token)}


@pytest.fixture
async def candidate(stage, lanes, load_conf):
    """Make a candidate for a Lease of this test's own."""
    name = stage.cluster.namespace
    path = f"{LEASES}/{name}"
    async with contextlib.AsyncExitStack() as stack:

        async def make(identity, duration, *, account=None, **how):
            account = account or {"kubeconfig": str(stage.proxy.kubeconfig_for("controller"))}
            leases = []
            kube = await connect(
                load_conf(kubernetes=account),
                calls=1,
                heard=lambda date: [lease.hear(date) for lease in leases],
            )
            stack.push_async_callback(kube.close)
            leases.append(
                Lease(kube, Key("kube-system", name), identity, duration=duration, **how)
            )
            make.apis[identity] = kube
            return leases[0]

        make.path, make.apis = path, {}
        yield make
    if await stage.client.find(path):
        await stage.client.delete(path)


async def test_lease_that_is_given_back_is_taken_at_once(stage, candidate):
    """By the watch: until its end, or a look now and then, is no time to wait for."""
    leader = await candidate("one", 6000.0)
    standby = await candidate("two", 6000.0, look=600.0)
    ends = asyncio.Event()

    async def lead():
        await leader.hold(ends.wait)
        # the server may have been too slow for its last word: then it says that again
        while await _holder(stage, candidate) == "one":
            await leader.hold(ends.wait)

    async with asyncio.TaskGroup() as group:
        group.create_task(lead())
        await stage.until(lambda: _held(leader))
        waiting = group.create_task(standby.acquire())
        await stage.proxy.wait_for(lambda: stage.proxy.watching("leases"))
        ends.set()
        async with asyncio.timeout(60):
            await waiting
    assert (standby.holder, standby.transitions) == ("two", 2)


async def test_standby_asks_nothing_while_the_watch_tells_of_renewals(stage, candidate):
    leader, standby = await candidate("one", 600.0), await candidate("two", 600.0)
    await leader.acquire()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(standby.acquire())
        await stage.proxy.wait_for(lambda: stage.proxy.watching("leases"))
        reads = stage.proxy.calls.count("get", "leases")
        for renewal in range(1, 6):
            await leader.acquire()  # renews it
            await stage.proxy.wait_for(lambda renewal=renewal: stage.proxy.events.passed > renewal)
        assert stage.proxy.calls.count("get", "leases") == reads + 5  # the leader's own
        waiting.cancel()


@pytest.mark.parametrize("broken", ["silent", "refused"])
async def test_expiry_is_found_out_without_a_watch(stage, candidate, broken):
    if broken == "silent":
        stage.proxy.events.drop(10**6, "leases")
    else:
        stage.proxy.faults.add(
            path="/leases", times=None, action=answer(403), when=lambda r: "watch" in r.query
        )
    clock = ManualClock()
    leader = await candidate("one", 12.0, clock=clock)
    standby = await candidate("two", 12.0, clock=clock)
    await leader.acquire()
    async with asyncio.TaskGroup() as group, asyncio.timeout(60):
        waiting = group.create_task(standby.acquire())
        await stage.proxy.wait_for(lambda: stage.proxy.calls.count("watch", "leases"))
        for _ in range(3):  # it lives: nobody takes it
            await leader.acquire()  # renews it
            until = clock.now() + 6.0
            while clock.now() < until:
                await let_pass(stage, clock)
                assert not waiting.done()
        end = clock.now() + leader.remaining
        while not waiting.done():
            await let_pass(stage, clock)
    assert end <= clock.now() < end + 11.0  # not as long as two Leases
    assert leader.remaining <= 0


async def let_pass(stage, clock):
    """Let half a second pass if somebody waits for it, and not for the server's answer."""
    await stage.proxy.wait_for(lambda: not stage.proxy.asking)
    if clock.pending:
        clock.advance(0.5)
    await asyncio.sleep(0.01)


async def test_lease_deleted_by_hand_is_not_free_before_its_end(stage, candidate):
    """Whoever held it still writes."""
    clock = ManualClock()
    leader = await candidate("one", 4.0, clock=clock)
    standby = await candidate("two", 4.0, clock=clock)
    await leader.acquire()
    async with asyncio.TaskGroup() as group, asyncio.timeout(60):
        waiting = group.create_task(standby.acquire())
        await stage.proxy.wait_for(lambda: stage.proxy.watching("leases"))
        await stage.client.delete(candidate.path)
        while not waiting.done():
            await let_pass(stage, clock)
    assert leader.remaining <= 0


async def test_renewals_are_in_the_priority_level_of_leader_election(
    stage, candidate, account_of_the_controller
):
    """So an API server that is flooded by others still serves them."""
    schema = await stage.client.get(f"{FLOW_SCHEMAS}/system-leader-election")
    classified = []

    async def note(_request, proceed):
        response = await proceed()
        classified.append(response.headers[FLOW_SCHEMA])
        return response

    leader = await candidate("one", 600.0, account=account_of_the_controller)
    await leader.acquire()
    stage.proxy.faults.add(path="/leases", times=None, action=note)
    await leader.acquire()  # renews it
    assert leader.held
    assert set(classified) == {schema["metadata"]["uid"]}


async def test_lease_that_somebody_labels_while_it_is_renewed_stays_with_its_holder(
    stage, candidate
):
    clock, renewal, ends = ManualClock(), Hang(), asyncio.Event()
    leader = await candidate("one", 600.0, clock=clock)
    async with asyncio.TaskGroup() as group:
        group.create_task(leader.hold(ends.wait))
        await stage.until(lambda: _held(leader))
        writes = stage.proxy.faults.add(
            path="/leases/", action=renewal, when=lambda request: request.method != "GET"
        )
        await pass_until(stage, clock, renewal.reached.is_set)
        assert writes.hits == 1
        before = await stage.client.patch(
            candidate.path, {"metadata": {"labels": {"colour": "white"}}}
        )
        renewal.release()

        async def renewed():
            found = await stage.client.get(candidate.path)
            return found["spec"]["renewTime"] != before["spec"]["renewTime"]

        async with asyncio.timeout(60):
            while not await renewed():
                await let_pass(stage, clock)
        found = await stage.client.get(candidate.path)
        assert found["metadata"]["labels"] == {"colour": "white"}
        assert (found["spec"]["holderIdentity"], leader.held) == ("one", True)
        ends.set()


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_leader_survives_requests_that_hang(stage, candidate, method):
    """Two in a row, for ever: the third one is in time."""
    clock, ends = ManualClock(), asyncio.Event()
    leader = await candidate("one", 45.0, clock=clock)
    async with asyncio.TaskGroup() as group:
        group.create_task(leader.hold(ends.wait))
        await stage.until(lambda: _held(leader))
        taken = (await stage.client.get(candidate.path))["spec"]["renewTime"]
        hangs = stage.proxy.faults.add(method=method, path="/leases/", times=2, action=Hang())
        await pass_until(stage, clock, lambda: hangs.hits == 2)
        await pass_until(stage, clock, lambda: leader.remaining > 40.0)
        assert (await stage.client.get(candidate.path))["spec"]["renewTime"] > taken
        ends.set()


@pytest.mark.parametrize("learns", ["when it renews", "when it asks"])
@pytest.mark.parametrize("then", ["released", "deleted", "expired"])
async def test_lease_that_another_had_meanwhile_is_never_taken_back(
    stage, candidate, then, learns
):
    """Two controllers have written: the first one must not go on with what it knew before."""
    clock, asks = ManualClock(), asyncio.Event()
    leader = await candidate("one", 45.0, clock=clock)

    async def work():
        await asks.wait()
        await leader.confirm()
        await asyncio.Event().wait()

    async def until_lost():
        with pytest.raises(BaseExceptionGroup) as caught:
            await leader.hold(work)
        assert caught.group_contains(LeaseLost, match="Lease kube-system/")

    async with asyncio.TaskGroup() as group, asyncio.timeout(60):
        deposed = group.create_task(until_lost())
        await stage.until(lambda: _held(leader))
        other = {"holderIdentity": "two", "leaseDurationSeconds": 1}
        await stage.client.patch(candidate.path, {"spec": other})
        if then == "released":
            await stage.client.patch(candidate.path, {"spec": {"holderIdentity": ""}})
        elif then == "deleted":
            await stage.client.delete(candidate.path)
        if learns == "when it asks":
            asks.set()
        while not deposed.done():
            await let_pass(stage, clock)
    assert not leader.held
    with pytest.raises(LeaseLost):
        await leader.acquire()
    found = await stage.client.find(candidate.path)
    left = {"released": "", "expired": "two", "deleted": None}[then]
    assert (found and found["spec"].get("holderIdentity")) == left


async def test_many_questions_share_a_renewal_and_do_not_cost_the_leader_its_lease(
    stage, candidate
):
    """Each request takes a second, and there are more questions than the Lease has seconds."""
    clock, asks, ends = ManualClock(), asyncio.Event(), asyncio.Event()
    leader = await candidate("one", 45.0, clock=clock)
    answered = []

    async def ask():
        await asks.wait()
        await leader.confirm()
        answered.append(leader.held)

    async def work():
        async with asyncio.TaskGroup() as group:
            for _ in range(60):
                group.create_task(ask())
        await ends.wait()

    async def slow(_request, proceed):
        await clock.sleep(1.0)
        return await proceed()

    async with asyncio.TaskGroup() as group:
        group.create_task(leader.hold(work))
        await stage.until(lambda: _held(leader))
        requests = stage.proxy.faults.add(path="/leases/", times=None, action=slow)
        asks.set()
        await pass_until(stage, clock, lambda: len(answered) == 60)
        assert all(answered)
        assert requests.hits <= 4  # of a renewal that was due, and of theirs
        await pass_until(stage, clock, lambda: clock.now() > 90)
        assert leader.held
        ends.set()
        requests.remove()


async def test_question_is_not_answered_by_a_renewal_that_was_under_way(stage, candidate):
    """That one may have been carried out before whatever gave rise to the question."""
    clock, asks, ends, late = ManualClock(), asyncio.Event(), asyncio.Event(), Hang(applied=True)
    leader = await candidate("one", 45.0, clock=clock)

    async def work():
        await asks.wait()
        await leader.confirm()
        ends.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(leader.hold(work))
        await stage.until(lambda: _held(leader))
        stage.proxy.faults.add(method="PUT", path="/leases/", action=late)
        await pass_until(stage, clock, late.reached.is_set)
        again = Hang()
        stage.proxy.faults.add(method="GET", path="/leases/", action=again)
        asks.set()
        late.release()
        await pass_until(stage, clock, again.reached.is_set)
        assert not ends.is_set()
        again.release()
        await pass_until(stage, clock, ends.is_set)


@pytest.mark.parametrize(("seconds", "left"), [(0, 45), (20, 25), (3600, -3555)])
async def test_time_that_passed_while_all_clocks_stood_still_is_not_left_of_the_lease(
    stage, candidate, seconds, left
):
    """A virtual machine was paused: it learns of that from the API server's answers."""
    now = datetime.now(UTC)
    earlier = stage.proxy.faults.add(times=None, action=dated(format_datetime(now, usegmt=True)))
    leader = await candidate("one", 45.0, clock=ManualClock())
    await leader.acquire()
    assert leader.remaining == 45
    earlier.remove()
    later = format_datetime(now + timedelta(seconds=seconds), usegmt=True)
    stage.proxy.faults.add(times=None, action=dated(later))
    with pytest.raises(errors.KubeError):
        await candidate.apis["one"].get(resources.LEASES, Key("kube-system", "none"))
    assert leader.remaining == left
    await leader.acquire()  # renews it
    assert leader.remaining == 45


async def test_servers_whose_clocks_differ_do_not_end_a_lease_again_and_again(stage, candidate):
    now = datetime.now(UTC)
    leader = await candidate("one", 45.0, clock=ManualClock())
    for _ in range(3):
        for seconds in (0, 40):
            date = format_datetime(now + timedelta(seconds=seconds), usegmt=True)
            server = stage.proxy.faults.add(times=None, action=dated(date))
            await leader.acquire()  # or renews it
            assert leader.remaining == 45
            server.remove()


async def pass_until(stage, clock, condition):
    async with asyncio.timeout(60):
        while not condition():
            await let_pass(stage, clock)


async def _held(lease):
    return lease.held


async def _holder(stage, candidate):
    return (await stage.client.get(candidate.path))["spec"].get("holderIdentity")
