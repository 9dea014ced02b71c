"""Plans for L7 policies: every request goes where it went, or where it is to go, all the time."""

from dataclasses import replace

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kuryr_k8s.drivers.lbaas import plan as lb_plan
from kuryr_k8s.drivers.lbaas import steps as lb_steps
from kuryr_k8s.model.load_balancer import ACTIVE, ERROR, L7Policy, L7Rule, Member
from tests.kit.lbaas import l7_rules
from tests.kit.lbaas.octavia_model import OctaviaModel, found_policy, made
from tests.kit.lbaas.plans import kinds, next_step, router

slow = settings(
    max_examples=3 * settings().max_examples,
    suppress_health_check=list(HealthCheck),
    deadline=None,
)
TURNS = ("REJECT", "REDIRECT_PREFIX", "REDIRECT_TO_POOL")
NAMES = ("one", "two", "three")
# a request is the set of rules that match it
RULES = tuple(L7Rule("PATH", "EQUAL_TO", f"/{name}") for name in "abc")
REQUESTS = [
    frozenset(rule for number, rule in enumerate(RULES) if bits >> number & 1) for bits in range(8)
]


@st.composite
def policies(draw):
    action = draw(st.sampled_from(TURNS))
    rules = draw(st.lists(st.sampled_from(RULES), min_size=1, max_size=3, unique=True))
    inverted = [replace(rule, invert=draw(st.booleans())) for rule in rules]
    target = draw(st.sampled_from(NAMES))
    return L7Policy(
        # those of one name leave requests to others that take them (see test_lb_fairness.py)
        name=draw(st.sampled_from(["", f"{action} {inverted}"])),
        action=action,
        rules=tuple(inverted),
        redirect_pool=target if action == "REDIRECT_TO_POOL" else None,
        redirect_prefix=f"https://{target}" if action == "REDIRECT_PREFIX" else None,
        redirect_http_code=302 if action == "REDIRECT_PREFIX" else None,
    )


lists = st.lists(policies(), max_size=6, unique_by=lambda policy: policy.key).map(
    lambda some: sorted(some, key=lambda policy: TURNS.index(policy.action))
)


def matches(policy, request):
    return all(
        (replace(rule, invert=False) in request) is not rule.invert for rule in policy.rules
    )


def taken(request, found):
    """What becomes of a request."""
    return l7_rules.taken(found, lambda policy: matches(policy, request))


def carried_out(desired, found):
    octavia, steps = OctaviaModel(found), []
    while (step := next_step(desired, octavia.found)) is not None:
        octavia.apply(step)
        steps.append(step)
        assert len(steps) < 60, steps
        yield octavia.found, steps


def as_wanted(found, some):
    assert found.statuses() == {ACTIVE}
    shown = [replace(each.policy, name="") for each in found.listeners[0].policies]
    wanted = [replace(policy, name="") for policy in some]
    keys = [(policy.key, policy.redirect_pool, policy.redirect_prefix) for policy in shown]
    assert keys == [(each.key, each.redirect_pool, each.redirect_prefix) for each in wanted]
    assert all(each.is_enabled for each in found.listeners[0].policies)


@slow
@given(lists, lists)
def test_each_request_goes_where_a_policy_for_it_leads_after_every_call(old, new):
    """One that was there or is to be there; and where there was one and is to be one, always."""
    found, desired = made(router(old)), router(new)
    for now, steps in carried_out(desired, found):
        found = now
        for request in REQUESTS:
            fitting = [policy for policy in (*old, *new) if matches(policy, request)]
            has = [any(matches(policy, request) for policy in some) for some in (old, new)]
            result = taken(request, now)
            assert result in {target(policy) for policy in fitting} or not (result or all(has)), (
                steps
            )
    assert as_said(found) == [(policy.key, target(policy)) for policy in new]


@slow
@given(lists, lists)
def test_each_request_goes_where_it_went_or_where_it_is_to_go_after_every_call(old, new):
    """Also where policies stay and lead elsewhere; not where they change their order."""
    turns = {policy.key: turn for turn, policy in enumerate(new)}
    order = [turns[policy.key] for policy in old if policy.key in turns]
    assume(order == sorted(order))
    found, desired = made(router(old)), router(new)
    after = made(desired)
    for now, steps in carried_out(desired, found):
        for request in REQUESTS:
            allowed = (taken(request, found), taken(request, after))
            assert taken(request, now) in allowed, steps


def target(policy):
    return policy.action, policy.redirect_pool, policy.redirect_prefix


def as_said(found):
    names = {each.id: each.pool.name for each in found.pools}
    assert all(each.is_enabled for each in found.listeners[0].policies)
    return [
        (
            each.policy.key,
            (each.policy.action, names.get(each.pool_id), each.policy.redirect_prefix),
        )
        for each in found.listeners[0].policies
    ]


@slow
@given(lists, st.data())
def test_one_more_policy_costs_its_own_calls_only(some, data):
    new = data.draw(lists.filter(bool))
    added = next((each for each in new if each.key not in {old.key for old in some}), None)
    if added is None:
        return
    at = data.draw(st.integers(0, len(some)))
    more = sorted([*some[:at], added, *some[at:]], key=lambda each: TURNS.index(each.action))
    wanted = router(more)
    *_, (_, steps) = carried_out(wanted, made(router(some)))
    own = [
        step for step in steps if not isinstance(step, lb_steps.CreatePool | lb_steps.SetMembers)
    ]
    assert len(own) == 1 + len(added.rules) + (len(added.rules) > 1)


def test_policy_or_rule_in_error_is_made_anew():
    policy = L7Policy(name="a", action="REJECT", rules=RULES[:2])
    found = made(router([policy]))
    [listener] = found.listeners
    for broken in (
        replace(listener.policies[0], provisioning_status=ERROR),
        replace(listener.policies[0], rule_statuses=(ACTIVE, ERROR)),
    ):
        there = replace(found, listeners=(replace(listener, policies=(broken,)),))
        *_, (now, steps) = carried_out(router([policy]), there)
        assert kinds(steps) == ["DeletePolicy", "CreatePolicy", "CreateRule", "CreateRule",
                                "UpdatePolicy"]  # fmt: skip
        assert as_said(now) == [(policy.key, target(policy))]


def with_policy(there):
    """A router with this policy alone."""
    found = made(router([]))
    return replace(found, listeners=(replace(found.listeners[0], policies=(there,)),))


def test_creation_that_was_broken_off_goes_on():
    policy = L7Policy(name="a", action="REJECT", rules=RULES)
    begun = found_policy(replace(policy, rules=RULES[:1]), None, is_enabled=False)
    *_, (now, steps) = carried_out(router([policy]), with_policy(begun))
    assert kinds(steps) == ["CreateRule", "CreateRule", "UpdatePolicy"]
    assert as_said(now) == [(policy.key, target(policy))]


def test_creation_that_was_broken_off_goes_on_though_its_rules_are_others_by_now():
    policy = L7Policy(name="a", action="REJECT", rules=RULES)
    outdated = (replace(RULES[0], value="/former"), RULES[1])
    begun = found_policy(replace(policy, rules=outdated), None, is_enabled=False)
    *_, (now, steps) = carried_out(router([policy]), with_policy(begun))
    assert kinds(steps) == ["CreateRule", "UpdateRule", "UpdatePolicy"]
    assert as_said(now) == [(policy.key, target(policy))]


def test_policy_in_error_whose_repairs_are_used_up_is_asked_for_nothing():
    policy = L7Policy(name="a", action="REJECT", rules=RULES)
    begun = found_policy(replace(policy, rules=RULES[:1]), None, is_enabled=False)
    begun = replace(begun, provisioning_status=ERROR)
    steps = list(lb_plan.steps(router([policy]), with_policy(begun)))
    assert kinds(steps) == ["DeletePolicy"]


def test_policy_with_a_rule_twice_is_replaced_when_another_one_takes_its_requests():
    policy = L7Policy(name="a", action="REJECT", rules=RULES[:2])
    found = made(router([policy]))
    [listener] = found.listeners
    twice = replace(policy, rules=(*RULES[:2], RULES[0]))
    for is_enabled in (True, False):
        doubled = found_policy(twice, None, is_enabled=is_enabled)
        there = replace(found, listeners=(replace(listener, policies=(doubled,)),))
        *_, (now, steps) = carried_out(router([policy]), there)
        assert kinds(steps) == ["CreatePolicy", "CreateRule", "CreateRule", "UpdatePolicy",
                                "DeletePolicy"]  # fmt: skip
        [left] = now.listeners[0].policies
        assert sorted(map(str, left.policy.rules)) == sorted(map(str, policy.rules))


def test_policy_that_people_have_disabled_or_led_elsewhere_is_corrected_by_one_call():
    policies = [
        L7Policy(action="REDIRECT_TO_POOL", rules=(rule,), redirect_pool=name)
        for name, rule in zip(NAMES, RULES, strict=True)
    ]
    found = made(router(policies))
    [listener] = found.listeners
    first, second, third = listener.policies
    for changed in (replace(first, is_enabled=False), replace(first, pool_id=second.pool_id)):
        there = replace(listener, policies=(changed, second, third))
        *_, (now, steps) = carried_out(router(policies), replace(found, listeners=(there,)))
        assert kinds(steps) == ["UpdatePolicy"]
        assert as_said(now) == [(policy.key, target(policy)) for policy in policies]


def leading_to(*pools):
    return [
        L7Policy(action="REDIRECT_TO_POOL", rules=(rule,), redirect_pool=name)
        for name, rule in zip(pools, RULES, strict=False)
    ]


def with_members(desired, name, *addresses):
    members = tuple(Member(address=each, port=8080) for each in addresses)
    pools = (replace(p, members=members) if p.name == name else p for p in desired.pools)
    return replace(desired, pools=tuple(pools))


def test_pods_that_come_and_go_hold_up_neither_other_pools_nor_policies():
    desired, found = router(leading_to("one", "two")), made(router(leading_to("one", "two")))
    desired = with_members(with_members(desired, "one", "10.2.0.7"), "two", "10.2.0.8")
    desired = replace(desired, listeners=router([*leading_to("one")]).listeners)
    one, two = (pool.id for pool in found.pools)
    for had_turn, wanted in (
        ((), [one, two, "DeletePolicy"]),
        ((one,), [two, "DeletePolicy", one]),
        ((one, two), ["DeletePolicy", one, two]),
    ):
        steps = [
            step.pool_id if isinstance(step, lb_steps.SetMembers) else type(step).__name__
            for step in lb_plan.steps(desired, found, "", had_turn)
        ]
        assert steps == wanted


def test_pool_that_is_to_go_gets_its_members_while_policies_lead_to_it():
    found = made(router(leading_to("one")))
    desired = with_members(router(leading_to("two")), "two", "10.2.0.8")
    former = with_members(router(leading_to("one")), "one", "10.2.0.7").pools
    first = next_step(replace(desired, former_pools=former), found)
    assert isinstance(first, lb_steps.SetMembers)
    assert [each.address for each in first.members] == ["10.2.0.7"]
    assert first.pool_id == found.pools[0].id


def test_pool_of_which_nobody_knows_anything_any_more_loses_its_members_at_last():
    found = made(router(leading_to("one")))
    steps = list(lb_plan.steps(router(leading_to("two")), found))
    assert kinds(steps) == ["CreatePool", "SetMembers"]
    assert (steps[-1].pool_id, steps[-1].members) == (found.pools[0].id, ())


def test_pool_in_error_that_is_left_to_people_holds_up_no_policy():
    found = made(router(leading_to("one")))
    [listener] = found.listeners
    broken = replace(found.pools[0], provisioning_status=ERROR)
    found = replace(found, pools=(broken,), listeners=(replace(listener, policies=()),))
    desired = with_members(router([*leading_to("one"), *rejecting()]), "one", "10.2.0.7")
    steps = list(lb_plan.steps(desired, found))
    assert kinds(steps) == ["DeletePool", "CreatePolicy"]


def rejecting():
    return [L7Policy(action="REJECT", rules=(RULES[2],))]


def test_pool_goes_after_the_policies_that_led_to_it():
    rules = RULES[:1]
    old = L7Policy(action="REDIRECT_TO_POOL", rules=rules, redirect_pool="one")
    *_, (_, steps) = carried_out(router([]), made(router([old])))
    assert kinds(steps) == ["DeletePolicy", "DeletePool"]


def test_policies_in_another_order_are_moved():
    policies = [L7Policy(action="REJECT", rules=(rule,)) for rule in RULES]
    moved = [policies[2], *policies[:2]]
    *_, (now, steps) = carried_out(router(moved), made(router(policies)))
    assert kinds(steps) == ["MovePolicy"]
    assert as_said(now) == [(policy.key, target(policy)) for policy in moved]
