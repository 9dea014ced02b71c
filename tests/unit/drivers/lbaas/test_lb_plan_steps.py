"""Plans for load balancers: what is done about which trouble and which change, in which order."""

from dataclasses import replace

import pytest

from kuryr_k8s.cloud.octavia.found import StatusTree
from kuryr_k8s.drivers.lbaas import plan as lb_plan
from kuryr_k8s.drivers.lbaas import steps as lb_steps
from kuryr_k8s.drivers.lbaas.outcomes import as_repopulated
from kuryr_k8s.model.load_balancer import DELETED, ERROR
from tests.kit.lbaas.octavia_model import OctaviaModel, found_pool, made, monitored
from tests.kit.lbaas.plans import MONITOR, carry_out, kinds, listener, next_step, pool, wanted


def test_load_balancer_in_error_goes_whatever_its_parts_are_waiting_for():
    desired = wanted(listener(), pool())
    found = made(desired)
    stuck = replace(found.listeners[0], provisioning_status="PENDING_CREATE")
    found = replace(found, provisioning_status=ERROR, listeners=(stuck,))
    assert next_step(desired, found) == lb_steps.DeleteLoadBalancer(found.id)
    assert next_step(None, found) == lb_steps.DeleteLoadBalancer(found.id)


def test_deleted_one_that_octavia_still_shows_is_none():
    desired = wanted()
    found = replace(made(desired), provisioning_status=DELETED)
    assert next_step(desired, found) == lb_steps.CreateLoadBalancer(desired)
    assert next_step(None, found) is None


def test_drained_member_is_one_call_that_keeps_the_others():
    old = wanted(listener(), pool(members=["10.2.0.1", "10.2.0.2"]))
    first, second = old.pools[0].members
    new = replace(old, pools=(replace(old.pools[0], members=(replace(first, weight=0), second)),))
    [step] = carry_out(new, made(old))
    assert [(member.address, member.weight) for member in step.members] == [
        ("10.2.0.1", 0),
        ("10.2.0.2", 1),
    ]


def test_drained_member_goes_where_the_provider_knows_no_weights():
    old = replace(wanted(listener(), pool(members=["10.2.0.1", "10.2.0.2"])), provider="ovn")
    first, second = old.pools[0].members
    new = replace(old, pools=(replace(old.pools[0], members=(replace(first, weight=0), second)),))
    [step] = carry_out(new, made(old))
    assert [(member.address, member.weight) for member in step.members] == [("10.2.0.2", 1)]


def members_alone(desired, found):
    """{pool: addresses} of the steps of members."""
    return {
        step.pool_id: [member.address for member in step.members]
        for step in lb_plan.steps_of_members(desired, found)
    }


def test_members_alone_are_changed_whatever_else_differs():
    old = wanted(listener(), pool(), listener("dns", 53, "UDP"), pool("dns", "UDP"))
    found = made(old)
    web, dns = (each.id for each in found.pools)
    new = wanted(
        listener(protocol="HTTP"), pool(protocol="HTTP", members=["10.2.0.9"]), vip_address=None
    )
    new = replace(new, project_id="other", vip_port_id="port")
    assert members_alone(new, found) == {web: ["10.2.0.9"], dns: []}
    assert members_alone(old, found) == {}


def test_members_that_come_are_added_and_the_others_are_not_sent_again():
    old = wanted(listener(), pool(members=["10.2.0.1", "10.2.0.2"]))
    new = wanted(listener(), pool(members=["10.2.0.1", "10.2.0.2", "10.2.0.3"]))
    [step] = carry_out(new, made(old))
    assert isinstance(step, lb_steps.AddMembers)
    assert [member.address for member in step.members] == ["10.2.0.3"]


@pytest.mark.parametrize(
    "before",
    [[], ["10.2.0.1", "10.2.0.9"], ["10.2.0.9"]],
    ids=["the pool is empty", "one goes", "all go"],
)
def test_all_members_are_sent_where_one_goes_or_there_is_none(before):
    new = wanted(listener(), pool(members=["10.2.0.1", "10.2.0.2"]))
    [step] = carry_out(new, made(wanted(listener(), pool(members=before))))
    assert isinstance(step, lb_steps.SetMembers)


@pytest.mark.parametrize(("before", "calls"), [(0, [250, 250, 50]), (200, [250, 100])])
def test_many_members_come_in_several_calls(before, calls):
    addresses = [f"10.2.{number // 200}.{number % 200 + 1}" for number in range(550)]
    desired = wanted(listener(), pool(members=addresses))
    octavia = OctaviaModel(made(wanted(listener(), pool(members=addresses[:before]))))
    for count in calls:
        step = next_step(desired, octavia.found)
        assert isinstance(step, lb_steps.AddMembers)
        assert len(step.members) == count
        octavia.apply(step)
    assert next_step(desired, octavia.found) is None


def shown(found):
    """The status tree of what is found."""
    pools = {pool.id: pool for pool in found.pools}
    members = {
        each.pool_id: {
            member.key: f"id-{member.address}" for member in pools[each.pool_id].pool.members
        }
        for each in found.listeners
    }
    return StatusTree(frozenset(found.statuses()), members, {})


def test_what_members_have_become_is_known_from_the_status_tree():
    before = made(wanted(listener(), pool(members=["10.2.0.1", "fd02::1"])))
    octavia = OctaviaModel(before)
    step = lb_steps.AddMembers(before.pools[0].id, pool(members=["10.2.0.3"]).members)
    octavia.apply(step)
    own = as_repopulated(before, step, shown(octavia.found))
    assert (
        next_step(wanted(listener(), pool(members=["10.2.0.1", "fd02::1", "10.2.0.3"])), own)
        is None
    )
    assert own.pools[0].member_ids.keys() == {member.key for member in own.pools[0].pool.members}


@pytest.mark.parametrize("what", ["not done yet", "another's change", "a port is gone"])
def test_what_is_otherwise_than_it_was_to_become_is_not_known(what):
    two = (listener("dns", 53), pool("dns"))
    before = made(wanted(listener(), pool(), *two))
    step = lb_steps.SetMembers(before.pools[0].id, pool(members=["10.2.0.3"]).members)
    octavia = OctaviaModel(before)
    if what != "not done yet":
        octavia.apply(step)
    if what == "another's change":
        other = lb_steps.SetMembers(before.pools[1].id, pool(members=["10.2.0.4"]).members)
        octavia.apply(other)
    if what == "a port is gone":
        octavia.apply(lb_steps.DeleteListener(before.listeners[1].id))
    assert as_repopulated(before, step, shown(octavia.found)) is None


def test_udp_beside_tcp_on_the_same_port_leaves_tcp_alone():
    tcp = (listener("dns-tcp", 53, "TCP"), pool("dns-tcp", "TCP"))
    udp = (listener("dns", 53, "UDP"), pool("dns", "UDP"))
    steps = carry_out(wanted(*tcp, *udp), made(wanted(*tcp)))
    assert kinds(steps) == ["CreatePool", "SetMembers", "CreateListener"]
    steps = carry_out(wanted(*udp), made(wanted(*tcp, *udp)))
    assert kinds(steps) == ["DeleteListener", "DeletePool"]


def test_port_whose_number_changes_takes_its_pool_along():
    steps = carry_out(wanted(listener(port=81), pool()), made(wanted(listener(port=80), pool())))
    assert kinds(steps) == ["DeleteListener", "CreateListener"]


def test_port_whose_protocol_changes_is_down_for_two_calls_alone():
    old = wanted(listener("web", 80, "TCP"), pool("web", "TCP"))
    new = wanted(listener("site", 80, "HTTP"), pool("site", "HTTP"))
    assert kinds(carry_out(new, made(old))) == [
        "CreatePool",
        "SetMembers",
        "DeleteListener",
        "CreateListener",
        "DeletePool",
    ]


def test_another_pool_of_a_listener_is_filled_before_it_takes_over():
    old = wanted(listener("web"), pool("web"))
    new = wanted(listener("web2"), pool("web2"))
    assert kinds(carry_out(new, made(old))) == [
        "CreatePool",
        "SetMembers",
        "UpdateListener",
        "DeletePool",
    ]


def test_protocol_of_a_pool_is_changed_by_another_pool_of_its_name():
    old = wanted(listener(), pool(protocol="TCP"))
    new = wanted(listener(), pool(protocol="PROXY"))
    assert kinds(carry_out(new, made(old))) == ["DeletePool", "CreatePool", "SetMembers"]


def test_pool_in_use_goes_after_its_successor_though_one_that_cannot_serve_has_the_name():
    old = wanted(listener("old"), pool("old"))
    found = made(old)
    useless = found_pool(pool("web", "TCP"))
    new = wanted(listener("web"), pool("web", "PROXY"))
    steps = carry_out(new, replace(found, pools=(*found.pools, useless)))
    assert steps[0] == lb_steps.DeletePool(useless.id)
    assert kinds(steps[1:]) == ["CreatePool", "SetMembers", "UpdateListener", "DeletePool"]


def test_pools_that_two_ports_exchange_are_kept():
    old = wanted(listener("a", 80), pool("a"), listener("b", 81), pool("b"))
    new = wanted(listener("b", 80), pool("a"), listener("a", 81), pool("b"))
    steps = carry_out(new, made(old))
    assert kinds(steps) == ["DeleteListener", "UpdateListener", "CreateListener"]


def test_persistence_and_algorithm_are_changed_in_place_and_by_one_call():
    old = wanted(listener(), pool(persistence="SOURCE_IP"))
    changed = replace(pool(), lb_algorithm="LEAST_CONNECTIONS")
    [step] = carry_out(wanted(listener(), changed), made(old))
    assert isinstance(step, lb_steps.UpdatePool)
    assert step.pool.persistence is None


def test_affinity_where_clients_are_hashed_is_another_pool_that_is_filled_before_it_takes_over():
    """The ovn provider applies an algorithm only when it creates a pool."""
    loose = wanted(listener(), pool(), provider="ovn")
    affine = wanted(listener(), pool(persistence="SOURCE_IP"), provider="ovn")
    [created, *steps] = carry_out(affine, made(loose))
    assert (created.pool.lb_algorithm, created.pool.persistence) == ("SOURCE_IP", None)
    assert kinds(steps) == ["SetMembers", "UpdateListener", "DeletePool"]
    [created, *steps] = carry_out(loose, made(lb_plan.attainable(affine)))
    assert created.pool.lb_algorithm == "ROUND_ROBIN"
    assert kinds(steps) == ["SetMembers", "UpdateListener", "DeletePool"]


def test_affinity_that_is_asked_for_again_before_the_change_is_done_is_a_further_pool():
    """The pool that was created last decides for all of its protocol, also after it has gone."""
    affine = wanted(listener(), pool(persistence="SOURCE_IP"), provider="ovn")
    loose = wanted(listener(), pool(), provider="ovn")
    octavia = OctaviaModel(made(lb_plan.attainable(affine)))
    octavia.apply(next_step(loose, octavia.found))
    assert len(octavia.found.pools) == 2
    steps = carry_out(affine, octavia.found)
    assert kinds(steps[:3]) == ["CreatePool", "SetMembers", "UpdateListener"]
    assert steps[0].pool.lb_algorithm == "SOURCE_IP"
    assert kinds(steps[3:]) == ["DeletePool", "DeletePool"]


def test_of_two_pools_of_one_second_the_one_that_we_made_last_is_known():
    affine = wanted(listener(), pool(persistence="SOURCE_IP"), provider="ovn")
    loose = wanted(listener(), pool(), provider="ovn")
    octavia = OctaviaModel(made(loose))
    octavia.apply(next_step(affine, octavia.found))
    at_once = tuple(replace(each, created_at="1") for each in octavia.found.pools)
    found = replace(octavia.found, pools=at_once)
    newest = at_once[-1]
    assert newest.pool.lb_algorithm == "SOURCE_IP"
    assert kinds([next(lb_plan.steps(affine, found))]) == ["CreatePool"]
    assert kinds([next(lb_plan.steps(affine, found, newest.id))]) == ["SetMembers"]


def test_health_monitor_comes_and_goes_by_one_call_and_its_type_by_two():
    bare, checked = wanted(listener(), pool()), wanted(listener(), pool(health_monitor=MONITOR))
    other = wanted(listener(), pool(health_monitor=replace(MONITOR, type="TLS-HELLO")))
    assert kinds(carry_out(checked, made(bare))) == ["CreateHealthMonitor"]
    assert kinds(carry_out(bare, made(checked))) == ["DeleteHealthMonitor"]
    assert kinds(carry_out(other, made(checked))) == ["DeleteHealthMonitor", "CreateHealthMonitor"]


def test_health_monitor_is_not_updated_where_octavia_would_never_end_it():
    slower = replace(MONITOR, delay=9)
    old, new = (
        wanted(listener(), pool(health_monitor=monitor), provider="ovn")
        for monitor in (MONITOR, slower)
    )
    assert kinds(carry_out(new, made(old))) == ["DeleteHealthMonitor", "CreateHealthMonitor"]


def test_health_monitor_in_error_is_made_again():
    desired = wanted(listener(), pool(health_monitor=MONITOR))
    found = made(desired)
    broken = replace(found, pools=(monitored(found.pools[0], MONITOR, ERROR),))
    assert kinds(carry_out(desired, broken)) == ["DeleteHealthMonitor", "CreateHealthMonitor"]
    bare = wanted(listener(), pool())
    assert kinds(carry_out(bare, broken)) == ["DeleteHealthMonitor"]


def test_tags_that_are_missing_are_put_on_once_and_those_of_others_stay():
    tags = ("cluster", "kuryr-service:u1")
    old = wanted(listener(tags=("somebody's",)), pool(tags=("cluster",)))
    new = wanted(listener(tags=tags), pool(tags=tags))
    found = made(old)
    front, back = carry_out(new, found)[::-1]
    assert front.listener.tags == (*tags, "somebody's")
    assert back.pool.tags == tags
    more = replace(found.listeners[0].listener, tags=("somebody's", *tags[::-1]))
    seen = replace(found, listeners=(replace(found.listeners[0], listener=more),))
    assert kinds(carry_out(new, seen)) == ["UpdatePool"]


def test_what_is_in_error_is_made_again_and_the_rest_stays():
    desired = wanted(listener(), pool(), listener("api", 81), pool("api"))
    found = made(desired)
    broken = replace(found.listeners[0], provisioning_status=ERROR)
    steps = carry_out(desired, replace(found, listeners=(broken, found.listeners[1])))
    assert kinds(steps) == ["DeleteListener", "CreateListener"]
    broken = replace(found.pools[0], provisioning_status=ERROR)
    steps = carry_out(desired, replace(found, pools=(broken, found.pools[1])))
    assert kinds(steps) == ["DeletePool", "CreatePool", "SetMembers"]


def over_tls(ref):
    return listener(port=443, protocol="TERMINATED_HTTPS", default_tls_container_ref=ref)


def test_listener_over_tls_in_error_is_updated_and_stays():
    desired = wanted(over_tls("a"), pool(protocol="HTTP"))
    found = made(desired)
    broken = replace(found.listeners[0], provisioning_status=ERROR)
    [step] = carry_out(desired, replace(found, listeners=(broken,)))
    assert (kinds([step]), step.id) == (["UpdateListener"], broken.id)


def test_certificates_change_before_all_else_and_with_another_pool_by_one_call():
    web = pool(protocol="HTTP")
    old = wanted(over_tls("a"), web)
    new = wanted(over_tls("b"), pool(protocol="HTTP", members=["10.2.0.2"]))
    assert kinds(carry_out(new, made(old))) == ["UpdateListener", "SetMembers"]
    elsewhere = replace(over_tls("b"), pool="other")
    new = wanted(elsewhere, pool("other", protocol="HTTP"))
    assert kinds(carry_out(new, made(old))) == [
        *("CreatePool", "SetMembers"),
        *("UpdateListener", "DeletePool"),
    ]


def test_cas_of_pools_change_before_all_else_but_certificates_of_listeners():
    def back(ref, *members):
        return pool(protocol="HTTP", members=members, tls_enabled=True, ca_tls_container_ref=ref)

    old = wanted(over_tls("a"), back("ca", "10.2.0.1"))
    new = wanted(over_tls("b"), back("another ca", "10.2.0.2"))
    steps = carry_out(new, made(old))
    assert kinds(steps) == ["UpdateListener", "UpdatePool", "SetMembers"]
    assert steps[1].pool.ca_tls_container_ref == "another ca"


def test_member_in_error_is_set_anew_by_one_call():
    desired = wanted(listener(), pool(members=["10.2.0.1", "10.2.0.2"]))
    found = made(desired)
    first = found.pools[0].pool.members[0].key
    broken = replace(found.pools[0], member_statuses={first: ERROR})
    steps = carry_out(desired, replace(found, pools=(broken,)))
    assert steps == [lb_steps.SetMembers(broken.id, desired.pools[0].members)]


def test_second_pool_of_a_name_goes_and_the_one_in_its_place_stays():
    desired = wanted(listener(), pool())
    found = made(desired)
    for name in ("0", "z"):
        twin = replace(found_pool(desired.pools[0]), id=name)
        steps = carry_out(desired, replace(found, pools=(twin, *found.pools)))
        assert steps == [lb_steps.DeletePool(twin.id)]


def test_pool_that_two_listeners_have_stays_with_its_own():
    desired = wanted(listener("a", 80), pool("a"), listener("b", 81), pool("b"))
    found = made(desired)
    a, b = found.listeners
    shared = replace(found, listeners=(a, replace(b, pool_id=a.pool_id)))
    assert kinds(carry_out(desired, shared)) == ["UpdateListener"]
