"""The driver lbaasv2: several owners on one load balancer, and on those of an operator."""

import dataclasses
import math

import pytest

from kuryr_k8s import errors
from kuryr_k8s.cloud.octavia.api import Octavia
from kuryr_k8s.drivers.base import Owned
from kuryr_k8s.model.owner import Owner, Role
from tests.component.lbaas.octavia_calls import FAULTS, calls
from tests.kit.confs import CLUSTER
from tests.kit.fakes.octavia.kinds import LISTENER, POOL
from tests.kit.load_balancer_worker import wanted

OWNER = Owner("6f1c9a52-1111-4222-8333-444455556666")
SECOND = Owner("0e3b7d10-1111-4222-8333-444455556666", Role.SHARED)
THIRD = Owner("77777777-1111-4222-8333-444455556666", Role.SHARED)


@pytest.fixture
def make_worker(make_worker):
    """As elsewhere, and changes that cannot be seen are given up soon."""

    def make(patience=None, **groups):
        soon = {"unseen_change": 0.1, "unseen_change_look": 0.02}
        return make_worker(soon | (patience or {}), **groups)

    return make


def shown(cloud, *ids):
    """All that is in the load balancer, by port: whose it is, and its members."""
    (balancer_id,) = ids or cloud.load_balancers
    return {
        (listener["protocol"], listener["protocol_port"]): (
            listener["name"].removeprefix("default/").partition(":")[0],
            [member["address"] for member in (listener["pool"] or {"members": []})["members"]],
        )
        for listener in cloud.octavia.tree(balancer_id)["listeners"]
    }


def parts(cloud, kind):
    return list(cloud.octavia.store.of(kind).values())


PATIENT = {"first_refused": 300.0, "refused": 300.0}  # nobody comes back by himself


async def operators(cloud, worker, **attributes):
    """A load balancer of an operator, with a listener and a pool of its own; its id."""
    pool = {"name": "own", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN", "members": []}
    listener = {"name": "own", "protocol": "TCP", "protocol_port": 22, "default_pool": pool}
    body = {
        "name": "operator's",
        "project_id": cloud.project_id,
        "vip_subnet_id": cloud.services["subnets"][0],
        "listeners": [listener],
    }
    made = await Octavia(worker.transport).create_load_balancer(body | attributes)
    cloud.octavia.progress.finish(made.id)
    return made.id


OWN = {("TCP", 22): ("own", [])}
POD = ["10.62.1.1"]


async def test_two_services_have_their_ports_on_the_load_balancer_of_a_third(worker, cloud):
    x = (await worker.have(OWNER, wanted(cloud, OWNER, ports=["http"], pods=1))).id
    found = await worker.have_in(SECOND, x, wanted(cloud, SECOND, ports=["dns"], pods=1))
    await worker.have_in(THIRD, x, wanted(cloud, THIRD, ports=["dns-tcp", "sip"], pods=1))
    assert [listener.listener.port for listener in found.listeners] == [53]
    assert found.vip_address == cloud.load_balancers[x]["vip_address"]
    expected = {
        ("TCP", 80): (OWNER.uid, POD),
        ("UDP", 53): (SECOND.uid, POD),
        ("TCP", 53): (THIRD.uid, POD),
        ("SCTP", 5060): (THIRD.uid, POD),
    }
    assert shown(cloud) == expected
    # each changes its own alone
    await worker.have(OWNER, wanted(cloud, OWNER, ports=["http"], pods=0))
    await worker.have_in(THIRD, x, wanted(cloud, THIRD, ports=["sip"], pods=1))
    del expected["TCP", 53]
    assert shown(cloud) == expected | {("TCP", 80): (OWNER.uid, [])}


async def test_unchanged_attachment_asks_octavia_nothing(worker, cloud):
    x = await operators(cloud, worker)
    await worker.have_in(SECOND, x, wanted(cloud, SECOND))
    cloud.calls.clear()
    await worker.have_in(SECOND, x, wanted(cloud, SECOND))
    assert calls(cloud, writes=True) == calls(cloud, writes=False) == []


async def test_members_of_others_are_not_asked_for(make_worker, cloud):
    async with make_worker() as worker:
        x = (await worker.have(OWNER, wanted(cloud, OWNER, ports=["http", "dns"]))).id
        await worker.have_in(SECOND, x, wanted(cloud, SECOND, ports=["sip"]))
    async with make_worker() as worker:
        cloud.calls.clear()
        await worker.have_in(SECOND, x, wanted(cloud, SECOND, ports=["sip"]))
    assert calls(cloud, writes=False).count("GET pools/{pool_id}/members") == 1


async def test_attached_to_an_operators_load_balancer_touches_nothing_else_of_it(worker, cloud):
    x = await operators(cloud, worker)
    before = cloud.octavia.tree(x)
    await worker.have_in(SECOND, x, wanted(cloud, SECOND, ports=["http"], pods=1))
    assert shown(cloud) == OWN | {("TCP", 80): (SECOND.uid, POD)}
    await worker.have(SECOND, None)
    assert cloud.octavia.tree(x) == before


async def test_port_of_another_is_refused_to_whoever_comes_later_and_the_rest_is_served(
    worker, cloud
):
    x = (await worker.have(OWNER, wanted(cloud, OWNER, ports=["http"], pods=1))).id
    worker.want_in(SECOND, x, wanted(cloud, SECOND, ports=["http", "dns"], pods=1))
    problem = await worker.trouble(SECOND)
    assert problem.reason == "KuryrPortTaken"
    assert f"TCP 80 by listener default/{OWNER.uid}:TCP:80" in str(problem)
    assert shown(cloud) == {("TCP", 80): (OWNER.uid, POD), ("UDP", 53): (SECOND.uid, POD)}
    # now the owner itself comes too late
    worker.want(OWNER, wanted(cloud, OWNER, ports=["http", "dns"], pods=2))
    problem = await worker.trouble(OWNER)
    assert f"UDP 53 by listener default/{SECOND.uid}:UDP:53" in str(problem)
    assert shown(cloud)["TCP", 80] == (OWNER.uid, ["10.62.1.1", "10.62.1.2"])


async def test_port_that_becomes_free_goes_to_who_waits_for_it_at_once(make_worker, cloud):
    async with make_worker(PATIENT) as worker:
        x = (await worker.have(OWNER, wanted(cloud, OWNER, ports=["http"]))).id
        worker.want_in(SECOND, x, wanted(cloud, SECOND, ports=["http"], pods=1))
        await worker.trouble(SECOND)
        await worker.have(OWNER, wanted(cloud, OWNER, ports=["dns"], pods=1))
        await worker.done(SECOND)
        assert shown(cloud) == {("UDP", 53): (OWNER.uid, POD), ("TCP", 80): (SECOND.uid, POD)}


async def test_who_names_another_one_waits_no_more_for_the_former(worker, cloud):
    x = (await worker.have(OWNER, wanted(cloud, OWNER, ports=["http"]))).id
    await worker.driver.list_owned()  # the surveys are over
    wakes = []
    worker.driver.subscribe(wakes.append)
    for named in (x, "5d0b1f5e-0000-4222-8333-444455556666"):
        with pytest.raises(errors.Refused):
            await worker.driver.attach(SECOND, named, wanted(cloud, SECOND, ports=["http"]))
    await worker.have(OWNER, wanted(cloud, OWNER, ports=["dns"]))
    assert SECOND not in wakes


@pytest.mark.parametrize("protocol", ["HTTP", "HTTPS", "TERMINATED_HTTPS"])
async def test_what_is_carried_by_tcp_shares_no_port(worker, cloud, protocol):
    listener = {"protocol": protocol, "protocol_port": 80}
    if protocol == "TERMINATED_HTTPS":
        listener["default_tls_container_ref"] = "https://barbican.example/1"
        cloud.octavia.store.certificates.add("https://barbican.example/1")
    x = await operators(cloud, worker, listeners=[listener])
    worker.want_in(SECOND, x, wanted(cloud, SECOND, ports=["http"]))
    assert (await worker.trouble(SECOND)).reason == "KuryrPortTaken"
    assert len(parts(cloud, LISTENER)) == 1


async def test_owner_that_goes_leaves_the_load_balancer_to_the_others_until_the_last_has_left(
    worker, cloud
):
    x = (await worker.have(OWNER, wanted(cloud, OWNER, ports=["http"]))).id
    await worker.have_in(SECOND, x, wanted(cloud, SECOND, ports=["dns"], pods=1))
    await worker.have_in(THIRD, x, wanted(cloud, THIRD, ports=["sip"], pods=1))
    worker.want(OWNER, None)
    problem = await worker.trouble(OWNER)
    assert problem.reason == "KuryrLoadBalancerShared"
    assert f"default/{SECOND.uid}:UDP:53, default/{THIRD.uid}:SCTP:5060" in str(problem)
    assert shown(cloud) == {("UDP", 53): (SECOND.uid, POD), ("SCTP", 5060): (THIRD.uid, POD)}
    assert len(parts(cloud, POOL)) == 2
    await worker.have(SECOND, None)
    assert list(cloud.load_balancers) == [x]
    await worker.have(THIRD, None)
    await worker.done(OWNER)
    assert not cloud.load_balancers


async def test_owner_that_goes_after_a_restart_leaves_what_others_have_attached_since(
    make_worker, cloud
):
    async with make_worker() as worker:
        x = (await worker.have(OWNER, wanted(cloud, OWNER, ports=["http"]))).id
    async with make_worker() as worker:
        await worker.driver.list_owned()  # the surveys are over
        await worker.have_in(SECOND, x, wanted(cloud, SECOND, ports=["dns"], pods=1))
        worker.want(OWNER, None)
        assert (await worker.trouble(OWNER)).reason == "KuryrLoadBalancerShared"
        assert shown(cloud) == {("UDP", 53): (SECOND.uid, POD)}


async def test_last_that_leaves_lets_the_owner_go_at_once(make_worker, cloud):
    async with make_worker(PATIENT) as worker:
        x = (await worker.have(OWNER, wanted(cloud, OWNER, ports=["http"]))).id
        await worker.have_in(SECOND, x, wanted(cloud, SECOND, ports=["dns"]))
        worker.want(OWNER, None)
        await worker.trouble(OWNER)
        await worker.have(SECOND, None)
        await worker.done(OWNER)
        assert not cloud.load_balancers


async def test_deletion_of_an_attached_one_leaves_the_others(worker, cloud):
    x = (await worker.have(OWNER, wanted(cloud, OWNER, ports=["http"], pods=1))).id
    await worker.have_in(SECOND, x, wanted(cloud, SECOND, ports=["dns"]))
    await worker.have(SECOND, None)
    assert shown(cloud) == {("TCP", 80): (OWNER.uid, POD)}
    assert len(parts(cloud, POOL)) == 1


async def test_attachment_moves_with_what_names_its_load_balancer(worker, cloud):
    first, second = await operators(cloud, worker), await operators(cloud, worker)
    await worker.have_in(SECOND, first, wanted(cloud, SECOND, ports=["http"], pods=1))
    await worker.have_in(SECOND, second, wanted(cloud, SECOND, ports=["http"], pods=1))
    assert shown(cloud, first) == OWN
    assert shown(cloud, second) == OWN | {("TCP", 80): (SECOND.uid, POD)}
    worker.want_in(SECOND, "there-is-none", wanted(cloud, SECOND, ports=["http"], pods=1))
    assert (await worker.trouble(SECOND)).reason == "KuryrLoadBalancerUnusable"
    await cloud.wait_for(lambda: shown(cloud, second) == OWN)


@pytest.mark.parametrize("change", ["error", "provider"])
async def test_load_balancer_that_is_made_anew_gets_back_what_was_attached(
    make_worker, cloud, change
):
    async with make_worker({"refused": 300.0}) as worker:
        desired = wanted(cloud, OWNER, ports=["http"], pods=1, address="10.3.0.7")
        x = (await worker.have(OWNER, desired)).id
        await worker.have_in(SECOND, x, wanted(cloud, SECOND, ports=["dns"], pods=1))
        if change == "error":
            cloud.octavia.set_error(x)
            cloud.load_balancers[x]["updated_at"] = "2031-01-01T00:00:00"
            await worker.driver.list_owned()
        else:
            desired = dataclasses.replace(desired, vip_address="10.3.0.8")
        await worker.have(OWNER, desired)
        (again,) = cloud.load_balancers
        assert again != x
        expected = {("TCP", 80): (OWNER.uid, POD), ("UDP", 53): (SECOND.uid, POD)}
        await cloud.wait_for(lambda: shown(cloud) == expected)
    # and another controller finds it by the id that it had
    cloud.calls.clear()
    async with make_worker() as worker:
        await worker.have(OWNER, desired)
        found = await worker.have_in(SECOND, x, wanted(cloud, SECOND, ports=["dns"], pods=1))
        assert found.id == again
        assert calls(cloud, writes=True) == []
        # deleted by hand and made once more, it is found still
        cloud.octavia.remove(again)
        await worker.driver.list_owned()
        worker.want_in(SECOND, x, wanted(cloud, SECOND, ports=["dns"], pods=1))
        await worker.trouble(SECOND)
        await worker.have(OWNER, desired)
        await worker.done(SECOND)
        assert shown(cloud) == expected


async def test_work_of_others_is_waited_for_and_not_told(worker, cloud):
    x = await operators(cloud, worker)
    await worker.have_in(SECOND, x, wanted(cloud, SECOND, ports=["http"], pods=1))
    cloud.octavia_pending = math.inf
    await worker.rename(x)
    worker.want_in(SECOND, x, wanted(cloud, SECOND, ports=["http"], pods=2))
    await cloud.wait_for(lambda: "PUT pools/{pool_id}/members" in calls(cloud, writes=True))
    await cloud.wait_for(lambda: calls(cloud, writes=False)[-1] == "GET loadbalancers")
    cloud.octavia_pending = 0.0
    cloud.octavia.progress.finish(x)
    await worker.done(SECOND)
    assert shown(cloud)["TCP", 80] == (SECOND.uid, ["10.62.1.1", "10.62.1.2"])
    assert SECOND not in worker.problems


async def test_owners_that_change_at_the_same_time_wait_for_each_other(make_worker, cloud):
    async with make_worker(options={"immutable_limit": 1}) as worker:  # a refusal is told
        x = (await worker.have(OWNER, wanted(cloud, OWNER, ports=["http"]))).id
        for pods in (1, 2, 3):
            worker.want(OWNER, wanted(cloud, OWNER, ports=["http"], pods=pods))
            worker.want_in(SECOND, x, wanted(cloud, SECOND, ports=["dns"], pods=pods))
            worker.want_in(THIRD, x, wanted(cloud, THIRD, ports=["sip"], pods=pods))
        for owner in (OWNER, SECOND, THIRD):
            await worker.done(owner)
        three = ["10.62.1.1", "10.62.1.2", "10.62.1.3"]
        assert [pods for _, pods in shown(cloud).values()] == [three] * 3
        assert not worker.problems


@pytest.mark.parametrize("how", ["error", "project", "none"])
async def test_load_balancer_that_cannot_be_used_is_told(worker, cloud, how):
    x = await operators(cloud, worker)
    desired = wanted(cloud, SECOND)
    if how == "error":
        cloud.octavia.set_error(x)
    elif how == "project":
        desired = dataclasses.replace(desired, project_id="another")
    else:
        cloud.octavia.remove(x)
    worker.want_in(SECOND, x, desired)
    assert (await worker.trouble(SECOND)).reason == "KuryrLoadBalancerUnusable"
    assert len(parts(cloud, LISTENER)) == (how != "none")


async def test_load_balancer_that_was_in_error_is_used_when_it_is_not(worker, cloud):
    x = await operators(cloud, worker)
    cloud.octavia.set_error(x)
    worker.want_in(SECOND, x, wanted(cloud, SECOND, ports=["http"], pods=1))
    await worker.trouble(SECOND)
    cloud.load_balancers[x]["provisioning_status"] = "ACTIVE"
    await worker.done(SECOND)
    assert shown(cloud) == OWN | {("TCP", 80): (SECOND.uid, POD)}


async def test_broken_load_balancer_of_an_owner_that_goes_is_removed_with_all_that_is_in_it(
    worker, cloud
):
    x = (await worker.have(OWNER, wanted(cloud, OWNER, ports=["http"]))).id
    await worker.have_in(SECOND, x, wanted(cloud, SECOND, ports=["dns"]))
    cloud.octavia.set_error(x)
    await worker.have(OWNER, None)
    assert not cloud.load_balancers
    await worker.have(SECOND, None)


@pytest.mark.parametrize("kind", ["listener", "pool"])
async def test_part_that_was_deleted_by_hand_is_made_again_after_a_resync(worker, cloud, kind):
    x = await operators(cloud, worker)
    desired = wanted(cloud, SECOND, ports=["http"], pods=1)
    await worker.have_in(SECOND, x, desired)
    before = cloud.octavia.tree(x)
    [mine] = [
        part for part in parts(cloud, LISTENER if kind == "listener" else POOL) if part["tags"]
    ]
    cloud.octavia.remove(mine["id"])
    await worker.driver.list_owned()
    await worker.have_in(SECOND, x, desired)
    assert cloud.octavia.tree(x) == before


async def test_what_nobody_wants_any_more_is_found_after_a_restart_and_removed(make_worker, cloud):
    async with make_worker() as worker:
        x = await operators(cloud, worker)
        await worker.have_in(SECOND, x, wanted(cloud, SECOND, ports=["http", "dns"]))
    async with make_worker() as worker:
        owned = Owned(SECOND, "default", x, frozenset({CLUSTER}))
        assert await worker.driver.list_owned() == [owned]
        await worker.have(SECOND, None)
        assert shown(cloud) == OWN
        assert len(parts(cloud, POOL)) == 1
        assert await worker.driver.list_owned() == []


async def test_restarted_controller_reads_and_writes_nothing(make_worker, cloud):
    async with make_worker() as worker:
        x = await operators(cloud, worker)
        await worker.have_in(SECOND, x, wanted(cloud, SECOND))
    cloud.calls.clear()
    async with make_worker() as worker:
        await worker.have_in(SECOND, x, wanted(cloud, SECOND))
    assert calls(cloud, writes=True) == []


# -- faults


async def _live(worker, cloud, x):
    """Attached, changed, moved to other ports; the tree afterwards."""
    await worker.have_in(SECOND, x, wanted(cloud, SECOND, ports=["http"], pods=1))
    await worker.have_in(SECOND, x, wanted(cloud, SECOND, ports=["http"], pods=2))
    await worker.have_in(SECOND, x, wanted(cloud, SECOND, ports=["dns"], pods=2))
    return cloud.octavia.tree(x)


WRITES_OF_A_LIFE = 9
WRITES_OF_THE_END = 2


@pytest.mark.sampled(3)
@pytest.mark.parametrize("fault", FAULTS, ids=str)
async def test_fault_at_any_write_leaves_what_an_undisturbed_life_leaves(
    make_worker, cloud, fault
):
    async with make_worker() as worker:
        x = await operators(cloud, worker)
        alone = cloud.octavia.tree(x)
        cloud.calls.clear()
        undisturbed = await _live(worker, cloud, x)
        assert len(calls(cloud, writes=True)) == WRITES_OF_A_LIFE
        await worker.have(SECOND, None)
        assert len(calls(cloud, writes=True)) == WRITES_OF_A_LIFE + WRITES_OF_THE_END
        assert cloud.octavia.tree(x) == alone
    for number in range(1, WRITES_OF_A_LIFE + WRITES_OF_THE_END + 1):
        async with make_worker() as worker:
            cloud.calls.clear()
            cloud.faults.at_write(number, FAULTS[fault])
            assert await _live(worker, cloud, x) == undisturbed
            await worker.have(SECOND, None)
            assert cloud.octavia.tree(x) == alone


async def test_controller_that_dies_at_any_write_is_succeeded_by_one_that_ends_it(
    make_worker, cloud
):
    desired = None
    for number in range(1, 4):  # pool, members, listener
        async with make_worker() as worker:
            if desired is None:
                x = await operators(cloud, worker)
                desired = wanted(cloud, SECOND, ports=["http"], pods=1)
                alone = cloud.octavia.tree(x)
            cloud.faults.at_write(number, FAULTS["reply lost"])
            worker.want_in(SECOND, x, desired)
            await worker.trouble(SECOND)
        async with make_worker() as worker:
            await worker.have_in(SECOND, x, desired)
            assert shown(cloud) == OWN | {("TCP", 80): (SECOND.uid, POD)}
            assert len(parts(cloud, POOL)) == 2
            cloud.faults.at_write(1 + number % 2, FAULTS["reply lost"])
            worker.want(SECOND, None)
            await worker.trouble(SECOND)
        async with make_worker() as worker:
            await worker.have(SECOND, None)
            assert cloud.octavia.tree(x) == alone
