"""Plans for load balancers: wherever they begin, they end as is wanted, by the fewest calls."""

from collections import Counter
from dataclasses import replace

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kuryr_k8s.drivers.lbaas import plan as lb_plan
from kuryr_k8s.drivers.lbaas import steps as lb_steps
from tests.kit.lbaas import states as lb_states
from tests.kit.lbaas.differences import differences
from tests.kit.lbaas.octavia_model import OctaviaModel, made, monitored
from tests.kit.lbaas.plans import carry_out, kinds

slow = settings(
    max_examples=3 * settings().max_examples,
    suppress_health_check=list(HealthCheck),
    deadline=None,
)


def without_being_made_anew(old, new):
    """``new`` with what was chosen when ``old`` was made."""
    chosen = dict.fromkeys(
        ("provider", "vip_address", "vip_network_id", "vip_port_id", "flavor_id")
    )
    chosen |= {"availability_zone": None, "vip_subnet_id": None, "project_id": old.project_id}
    return replace(new, **chosen)


@slow
@given(lb_states.pairs())
def test_from_anything_to_anything_each_call_removes_a_difference_until_none_is_left(pair):
    desired, found = pair
    steps = carry_out(desired, found)
    assert len(steps) <= differences(desired, found)


@slow
@given(lb_states.desired())
def test_what_is_not_there_is_made_by_one_call_and_left_alone_afterwards(desired):
    assert kinds(carry_out(desired, None)) == ["CreateLoadBalancer"]
    assert lb_plan.next_step(desired, made(lb_plan.attainable(desired))) is None


@slow
@given(lb_states.desired(), st.data())
def test_changed_members_are_one_call_for_each_changed_pool(desired, data):
    changed = replace(
        desired,
        pools=tuple(replace(one, members=data.draw(lb_states.members)) for one in desired.pools),
    )
    steps = carry_out(changed, made(desired))
    assert all(isinstance(step, lb_steps.SetMembers) for step in steps)
    assert max(Counter(step.pool_id for step in steps).values(), default=0) <= 1
    assert len(steps) == differences(changed, made(desired))


@slow
@given(lb_states.desired(), lb_states.desired())
def test_no_pool_that_stays_is_without_its_listener_in_between(old, new):
    """Whose port, pool and protocol are the same before and after is served all the time."""
    new = without_being_made_anew(old, new)
    protocols = {one.name: one.protocol for one in old.pools}
    stays = {one.name for one in new.pools if protocols.get(one.name) == one.protocol}
    before = {(one.key, one.pool) for one in old.listeners}
    served = {pair for pair in before if pair[1] in stays}
    served &= {(one.key, one.pool) for one in new.listeners}
    octavia = OctaviaModel(made(old))
    while (step := lb_plan.next_step(new, octavia.found)) is not None:
        octavia.apply(step)
        names = {one.id: one.pool.name for one in octavia.found.pools}
        now = {(one.listener.key, names.get(one.pool_id)) for one in octavia.found.listeners}
        assert served <= now, step


@slow
@given(lb_states.desired(), lb_states.desired())
def test_no_listener_leads_to_a_pool_without_the_members_it_is_to_have(old, new):
    new = without_being_made_anew(old, new)
    octavia = OctaviaModel(made(old))
    attainable = lb_plan.attainable(new, octavia.found.provider)
    members = {one.name: one.members for one in attainable.pools}
    while (step := lb_plan.next_step(new, octavia.found)) is not None:
        if isinstance(step, lb_steps.CreateListener | lb_steps.UpdateListener) and step.pool_id:
            [led_to] = [one.pool for one in octavia.found.pools if one.id == step.pool_id]
            assert {one.key for one in led_to.members} == {one.key for one in members[led_to.name]}
        octavia.apply(step)


@given(lb_states.desired(), lb_states.desired(), st.data())
def test_nothing_is_asked_of_a_load_balancer_of_which_anything_is_pending(desired, there, data):
    found = made(there)
    where = data.draw(st.sampled_from(["lb", "listeners", "pools", "members", "monitors"]))
    status = data.draw(st.sampled_from(["PENDING_CREATE", "PENDING_UPDATE", "PENDING_DELETE"]))
    if where == "lb":
        found = replace(found, provisioning_status=status)
    elif where == "members":
        assume(any(one.pool.members for one in found.pools))
        found = replace(
            found,
            pools=tuple(
                replace(one, member_statuses=dict.fromkeys(one.member_statuses, status))
                for one in found.pools
            ),
        )
    elif where == "monitors":
        assume(any(one.pool.health_monitor for one in found.pools))
        found = replace(
            found,
            pools=tuple(monitored(one, one.pool.health_monitor, status) for one in found.pools),
        )
    else:
        parts = getattr(found, where)
        assume(parts)
        found = replace(
            found, **{where: (replace(parts[0], provisioning_status=status), *parts[1:])}
        )
    assert lb_plan.next_step(desired, found) == lb_steps.Pending(found.id)
    if where == "lb":
        assert lb_plan.next_step(None, found) == lb_steps.Pending(found.id)
