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
from tests.kit.lbaas.plans import carry_out, kinds, next_step

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
    return replace(new, **chosen, additional_vips=())


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
    assert next_step(desired, made(lb_plan.attainable(desired))) is None


@slow
@given(lb_states.desired(), st.data())
def test_changed_members_are_one_call_for_each_changed_pool(desired, data):
    changed = replace(
        desired,
        pools=tuple(replace(pool, members=data.draw(lb_states.members)) for pool in desired.pools),
    )
    there = made(lb_plan.attainable(desired))
    steps = carry_out(changed, there)
    assert all(isinstance(step, lb_steps.SetMembers | lb_steps.AddMembers) for step in steps)
    assert max(Counter(step.pool_id for step in steps).values(), default=0) <= 1
    assert len(steps) == differences(changed, there)


@slow
@given(lb_states.desired(), lb_states.desired())
def test_no_pool_that_stays_is_without_its_listener_in_between(old, new):
    """Whose port, pool and protocol are the same before and after is served all the time."""
    new = without_being_made_anew(old, new)
    protocols = {pool.name: pool.protocol for pool in old.pools}
    stays = {pool.name for pool in new.pools if protocols.get(pool.name) == pool.protocol}
    before = {(listener.key, listener.pool) for listener in old.listeners}
    served = {pair for pair in before if pair[1] in stays}
    served &= {(listener.key, listener.pool) for listener in new.listeners}
    octavia = OctaviaModel(made(old))
    while (step := next_step(new, octavia.found)) is not None:
        octavia.apply(step)
        names = {pool.id: pool.pool.name for pool in octavia.found.pools}
        now = {
            (listener.listener.key, names.get(listener.pool_id))
            for listener in octavia.found.listeners
        }
        assert served <= now, step


@slow
@given(lb_states.desired(), lb_states.desired())
def test_no_listener_leads_to_a_pool_without_the_members_it_is_to_have(old, new):
    new = without_being_made_anew(old, new)
    octavia = OctaviaModel(made(old))
    attainable = lb_plan.attainable(new, octavia.found.provider)
    members = {pool.name: pool.members for pool in attainable.pools}
    while (step := next_step(new, octavia.found)) is not None:
        if isinstance(step, lb_steps.CreateListener | lb_steps.UpdateListener) and step.pool_id:
            [led_to] = [pool.pool for pool in octavia.found.pools if pool.id == step.pool_id]
            assert {member.key for member in led_to.members} == {
                member.key for member in members[led_to.name]
            }
        octavia.apply(step)


@slow
@given(lb_states.desired(), lb_states.desired())
def test_no_other_change_comes_before_the_cas_of_pools_that_stay(old, new):
    """The secrets that they name may be gone, and Octavia would never end it."""
    old = replace(old, provider="amphora")
    new = replace(without_being_made_anew(old, new), vip_sg_ids=None)
    renewed = {
        pool.name: replace(pool, ca_tls_container_ref="new") if pool.tls_enabled else pool
        for pool in new.pools
    }
    new = replace(new, pools=tuple(renewed.values()))
    octavia = OctaviaModel(made(old))
    while (step := next_step(new, octavia.found)) is not None:
        outdated = {
            found.id
            for found in octavia.found.pools
            if (pool := renewed.get(found.pool.name)) is not None
            and pool.protocol == found.pool.protocol
            and pool.ca_tls_container_ref != found.pool.ca_tls_container_ref
        }
        if outdated and not isinstance(step, lb_steps.UpdateListener):  # other secrets
            assert isinstance(step, lb_steps.UpdatePool)
            assert step.id in outdated
        octavia.apply(step)


@given(lb_states.desired(), lb_states.desired(), st.data())
def test_nothing_is_asked_of_a_load_balancer_of_which_anything_is_pending(desired, there, data):
    found = made(there)
    where = data.draw(st.sampled_from(["lb", "listeners", "pools", "members", "monitors"]))
    status = data.draw(st.sampled_from(["PENDING_CREATE", "PENDING_UPDATE", "PENDING_DELETE"]))
    if where == "lb":
        found = replace(found, provisioning_status=status)
    elif where == "members":
        assume(any(pool.pool.members for pool in found.pools))
        found = replace(
            found,
            pools=tuple(
                replace(pool, member_statuses=dict.fromkeys(pool.member_statuses, status))
                for pool in found.pools
            ),
        )
    elif where == "monitors":
        assume(any(pool.pool.health_monitor for pool in found.pools))
        found = replace(
            found,
            pools=tuple(monitored(pool, pool.pool.health_monitor, status) for pool in found.pools),
        )
    else:
        parts = getattr(found, where)
        assume(parts)
        found = replace(
            found, **{where: (replace(parts[0], provisioning_status=status), *parts[1:])}
        )
    assert next_step(desired, found) == lb_steps.Pending(found.id)
    if where == "lb":
        assert next_step(None, found) == lb_steps.Pending(found.id)
