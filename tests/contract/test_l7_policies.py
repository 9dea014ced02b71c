"""L7 policies and their rules: made, read, moved and refused, through our client and our plans."""

from __future__ import annotations

import dataclasses

import pytest

from kuryr_k8s import errors
from kuryr_k8s.cloud.octavia import bodies as octavia_bodies
from kuryr_k8s.cloud.octavia.api import Octavia as Client
from kuryr_k8s.drivers.lbaas import steps as lb_steps
from kuryr_k8s.drivers.lbaas.outcomes import outcome_of
from kuryr_k8s.drivers.lbaas.steps import take
from kuryr_k8s.model.load_balancer import (
    FoundLoadBalancer,
    L7Policy,
    L7Rule,
    Listener,
    LoadBalancer,
    Member,
    Pool,
)
from tests.kit.lbaas.plans import next_step

from .balancers import POOLS, Octavia, in_no_order, make, statuses, with_l7
from .sides import Side

HOST = L7Rule("HOST_NAME", "REGEX", r"^a\.com(:[0-9]+)?$")
CART = L7Rule("PATH", "REGEX", "^/cart(/.*)?$")
REST = L7Rule("PATH", "STARTS_WITH", "/")
REJECTED = L7Policy(name="forbidden", action="REJECT", rules=(L7Rule("PATH", "EQUAL_TO", "/x"),))
TO_TLS = L7Policy(
    name="to tls",
    action="REDIRECT_PREFIX",
    rules=(dataclasses.replace(CART, invert=True), HOST),
    redirect_prefix="https://a.com",
    redirect_http_code=308,
)


def leads(pool: str, *rules: L7Rule) -> L7Policy:
    return L7Policy(name=pool, action="REDIRECT_TO_POOL", rules=rules, redirect_pool=pool)


def router(side: Side, subnet_id: str, *policies: L7Policy) -> LoadBalancer:
    names = dict.fromkeys(policy.redirect_pool for policy in policies if policy.redirect_pool)
    member = Member(address="10.219.0.101", port=8080, subnet_id=subnet_id)
    pools = tuple(
        Pool(name=name, protocol="HTTP", lb_algorithm="ROUND_ROBIN", members=(member,))
        for name in names
    )
    listener = Listener(name="http", protocol="HTTP", port=80, pool="", policies=policies)
    return with_l7(side, subnet_id, listener, pools=pools)


async def carry_out(
    octavia: Octavia, client: Client, found: FoundLoadBalancer, desired: LoadBalancer
) -> list[str]:
    """Bring it to what is wanted; what each step has made of it is known without a whole read."""
    taken: list[str] = []
    while (step := next_step(desired, found)) is not None:
        assert not isinstance(step, lb_steps.CreateLoadBalancer | lb_steps.Pending)
        assert len(taken) < 30, taken
        created = await take(client, step)
        taken.append(type(step).__name__)
        if isinstance(step, lb_steps.DeletePool):
            await octavia.until_gone(f"{POOLS}/{step.id}")
        assert statuses(await octavia.settled(found.id)) == {"ACTIVE"}
        told = await outcome_of(
            client, found, step, created or "", await client.status_tree(found.id)
        )
        found = await client.read(found.id)
        assert told is not None
        assert in_no_order(told) == in_no_order(found)
    return taken


async def test_router_with_policies_is_made_by_one_call_and_nothing_is_left_to_do(
    side: Side, octavia: Octavia, subnet: str, client: Client
) -> None:
    desired = router(side, subnet, REJECTED, TO_TLS, leads("one", CART, HOST), leads("two", REST))
    balancer_id = await make(octavia, client, desired)
    assert next_step(desired, await client.read(balancer_id)) is None


async def test_policies_are_created_changed_moved_and_deleted_call_by_call(
    side: Side, octavia: Octavia, subnet: str, client: Client
) -> None:
    rest, cart = leads("two", REST), leads("one", CART, HOST)
    balancer_id = await make(octavia, client, router(side, subnet, rest))
    added = router(side, subnet, TO_TLS, cart, rest)
    found = await client.read(balancer_id)
    assert await carry_out(octavia, client, found, added) == [
        *("CreatePolicy", "CreateRule", "CreateRule", "UpdatePolicy"),
        *("CreatePool", "SetMembers"),
        *("CreatePolicy", "CreateRule", "CreateRule", "UpdatePolicy"),
    ]
    moved = router(side, subnet, TO_TLS, rest, dataclasses.replace(cart, redirect_pool="two"))
    found = await client.read(balancer_id)
    assert await carry_out(octavia, client, found, moved) == [
        "UpdatePolicy",
        "MovePolicy",
        "DeletePool",
    ]
    changed = router(side, subnet, dataclasses.replace(TO_TLS, redirect_http_code=301), rest)
    found = await client.read(balancer_id)
    assert await carry_out(octavia, client, found, changed) == ["UpdatePolicy", "DeletePolicy"]
    found = await client.read(balancer_id)
    assert await carry_out(octavia, client, found, router(side, subnet)) == [
        "DeletePolicy",
        "DeletePolicy",
        "DeletePool",
    ]


async def test_rules_that_leave_requests_to_others_are_changed_in_their_place(
    side: Side, octavia: Octavia, subnet: str, client: Client
) -> None:
    def leaving(*values: str) -> LoadBalancer:
        left = (L7Rule("PATH", "REGEX", f"^/{value}$", invert=True) for value in values)
        return router(side, subnet, dataclasses.replace(REJECTED, rules=(HOST, *left)))

    balancer_id = await make(octavia, client, leaving("a"))
    for values, expected in (
        (("b",), ["UpdateRule"]),
        (("c", "d"), ["CreateRule", "UpdateRule"]),
        (("d",), ["DeleteRule"]),
        (("d", "(e|f)"), ["CreateRule"]),
    ):
        found = await client.read(balancer_id)
        assert await carry_out(octavia, client, found, leaving(*values)) == expected


async def test_rules_within_a_new_policy_are_not_taken(
    side: Side, octavia: Octavia, subnet: str, client: Client
) -> None:
    balancer_id = await make(octavia, client, router(side, subnet))
    [listener] = (await client.read(balancer_id)).listeners
    body = octavia_bodies.policy_body(REJECTED, listener.id, 1, None, is_enabled=True)
    rules = {"rules": [octavia_bodies.rule_body(rule) for rule in REJECTED.rules]}
    reply = await octavia.post("/lbaas/l7policies", {"l7policy": body | rules})
    assert reply.status == 500
    assert statuses(await octavia.settled(balancer_id)) == {"ACTIVE"}
    [listener] = (await client.read(balancer_id)).listeners
    assert listener.policies == ()


async def test_pool_of_a_policy_is_not_deleted_before_it(
    side: Side, octavia: Octavia, subnet: str, client: Client
) -> None:
    balancer_id = await make(octavia, client, router(side, subnet, leads("one", REST)))
    [pool] = (await client.read(balancer_id)).pools
    with pytest.raises(errors.Conflict):
        await client.delete_pool(pool.id)


@pytest.mark.parametrize(
    "rule",
    [
        L7Rule("PATH", "REGEX", "^/(unclosed"),
        L7Rule("PATH", "EQUAL_TO", "/with space"),
        L7Rule("PATH", "EQUAL_TO", ""),
    ],
    ids=["expression", "space", "nothing"],
)
async def test_rule_that_no_haproxy_could_evaluate_is_refused(
    side: Side, octavia: Octavia, subnet: str, client: Client, rule: L7Rule
) -> None:
    balancer_id = await make(octavia, client, router(side, subnet, REJECTED))
    [listener] = (await client.read(balancer_id)).listeners
    with pytest.raises(errors.BadRequest):
        await client.create_rule(listener.policies[0].id, octavia_bodies.rule_body(rule))


async def test_policy_takes_the_same_rule_twice(
    side: Side, octavia: Octavia, subnet: str, client: Client
) -> None:
    """The driver replaces such a policy: see drivers/lbaas/policies.py."""
    balancer_id = await make(octavia, client, router(side, subnet, REJECTED))
    [listener] = (await client.read(balancer_id)).listeners
    [rule] = REJECTED.rules
    await client.create_rule(listener.policies[0].id, octavia_bodies.rule_body(rule))
    [listener] = (await client.read(balancer_id)).listeners
    assert listener.policies[0].policy.rules == (rule, rule)


async def test_provider_ovn_has_no_policies(
    side: Side, octavia: Octavia, subnet: str, client: Client
) -> None:
    bare = dataclasses.replace(router(side, subnet), provider="ovn", listeners=())
    tcp = Listener(name="tcp", protocol="TCP", port=80, pool="")
    balancer_id = await make(octavia, client, dataclasses.replace(bare, listeners=(tcp,)))
    [listener] = (await client.read(balancer_id)).listeners
    body = octavia_bodies.policy_body(REJECTED, listener.id, 1, None, is_enabled=True)
    with pytest.raises(errors.Unsupported):
        await client.create_policy(body)
