"""Plan for the L7 policies of one listener: from those found to those desired. Pure.

Each step leaves every request where it was before, or where it is to be. Octavia creates a policy
without its rules and takes one rule at a time, and with some of its rules a policy would take
requests of others: until it has all of them, it is disabled. One with a single rule need not be,
as Octavia passes over policies without rules. Policies are created in the order in which Octavia
looks at them; then those that stay are led elsewhere, and those that are not desired any more go,
in the opposite order.

A policy that has one rule twice, as when a call of an earlier leader came late, is replaced.
"""

import bisect
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from kuryr_k8s.drivers.lbaas.steps import (
    Change,
    CreatePolicy,
    CreateRule,
    DeletePolicy,
    MovePolicy,
    UpdatePolicy,
)
from kuryr_k8s.model.load_balancer import (
    ERROR,
    TURNS,
    FoundL7Policy,
    FoundListener,
    L7Policy,
    Match,
)


def broken_policies(listener: FoundListener) -> Iterator[FoundL7Policy]:
    """Yield the policies that are in ERROR, or have a rule that is."""
    return (each for each in listener.policies if ERROR in each.statuses())


def policy_steps(
    wanted: Sequence[L7Policy], found: FoundListener, pools: Mapping[str, str]
) -> Iterator[Change]:
    """Yield the steps to the desired policies, in the order in which they should be taken.

    :param wanted: in the order of their positions.
    :param pools: ids of the pools that a policy can lead to, by their names.
    """
    kept = _kept(wanted, found.policies)
    turns = {policy.key: turn for turn, policy in enumerate(wanted)}
    key_of = {there.id: key for key, there in kept.items()}
    ids = [each.id for each in found.policies]
    in_order = _longest_run([turns[key_of[each]] for each in ids if each in key_of])
    at_place = {
        each: turns[key] for each, key in key_of.items() if turns[key] in in_order
    }  # their turns, by id
    for policy in wanted:
        there = kept.get(policy.key)
        if there is not None:
            yield from _completed(policy, there, pools)
        elif (policy.redirect_pool or "") in {"", *pools}:
            yield CreatePolicy(
                found.id,
                policy,
                _position(ids, at_place, turns[policy.key]),
                pools.get(policy.redirect_pool or ""),
                is_enabled=len(policy.rules) == 1,
            )
    for policy in wanted:
        there = kept.get(policy.key)
        if there is not None and there.is_enabled:
            yield from _led(policy, there, pools)
    for key, there in kept.items():
        if there.id not in at_place:
            others = [each for each in ids if each != there.id]
            yield MovePolicy(there.id, _position(others, at_place, turns[key]))
    unwanted = [each for each in found.policies if each.id not in key_of]
    # backwards: else requests would go where those before it did not let them go
    unwanted.sort(key=lambda each: TURNS.index(each.policy.action))
    yield from (DeletePolicy(each.id) for each in reversed(unwanted))


def _kept(
    wanted: Sequence[L7Policy], found: Sequence[FoundL7Policy]
) -> dict[Match, FoundL7Policy]:
    """Return the policies that stay: those that are complete, and those that become so.

    What was begun becomes the first one that it can become, as the first one is made first.
    """
    kept: dict[Match, FoundL7Policy] = {}
    keys = {policy.key for policy in wanted}
    for there in found:
        if there.is_enabled and there.policy.key in keys:
            kept.setdefault(there.policy.key, there)
    begun: defaultdict[tuple[str, str], list[FoundL7Policy]] = defaultdict(list)
    for there in found:
        if not (there.is_enabled and there.policy.rules):
            begun[there.policy.name, there.policy.action].append(there)
    for policy in wanted if begun else ():
        alike = begun.get((policy.name, policy.action), [])
        nearest = next((each for each in alike if _can_become(each, policy)), None)
        if policy.key not in kept and nearest is not None:
            kept[policy.key] = nearest
            alike.remove(nearest)
    return kept


def _can_become(found: FoundL7Policy, wanted: L7Policy) -> bool:
    """Return whether a policy takes no requests until it has all rules of the desired one."""
    return Counter(found.policy.rules) <= Counter(wanted.rules) and (
        not found.is_enabled or len(wanted.rules) == 1
    )


def _completed(
    wanted: L7Policy, found: FoundL7Policy, pools: Mapping[str, str]
) -> Iterator[Change]:
    """Yield the step that brings a policy nearer to its rules, or enables it."""
    missing = [rule for rule in wanted.rules if rule not in found.policy.rules]
    if missing:
        yield CreateRule(found.id, missing[0])
    elif not found.is_enabled:
        yield from _updated(wanted, found, pools)


def _led(wanted: L7Policy, found: FoundL7Policy, pools: Mapping[str, str]) -> Iterator[Change]:
    """Yield the step that leads the requests of a policy elsewhere."""
    if not _leads_as_wanted(wanted, found, pools):
        yield from _updated(wanted, found, pools)


def _updated(wanted: L7Policy, found: FoundL7Policy, pools: Mapping[str, str]) -> Iterator[Change]:
    pool_id = pools.get(wanted.redirect_pool or "")
    if pool_id is not None or not wanted.redirect_pool:
        yield UpdatePolicy(found.id, wanted, pool_id)


def _leads_as_wanted(wanted: L7Policy, found: FoundL7Policy, pools: Mapping[str, str]) -> bool:
    if wanted.redirect_pool:
        return found.pool_id == pools.get(wanted.redirect_pool)
    return (wanted.redirect_prefix, wanted.redirect_http_code) == (
        found.policy.redirect_prefix,
        found.policy.redirect_http_code,
    )


def _position(ids: Sequence[str], at_place: Mapping[str, int], turn: int) -> int:
    """Return the position after all those that are at their places and come before."""
    before = [place for place, each in enumerate(ids) if at_place.get(each, turn) < turn]
    return max(before, default=-1) + 2


def _longest_run(turns: Sequence[int]) -> set[int]:
    """Return the longest increasing subsequence."""
    ends: list[int] = []  # the least last member of an increasing subsequence of each length
    lengths = []
    for turn in turns:
        length = bisect.bisect_left(ends, turn)
        ends[length : length + 1] = [turn]
        lengths.append(length)
    run: set[int] = set()
    wanted = len(ends) - 1
    for turn, length in zip(reversed(turns), reversed(lengths), strict=True):
        if length == wanted:
            run.add(turn)
            wanted -= 1
    return run
