"""Plan for the L7 policies of listeners: from those found to those desired. Pure.

Each step leaves every request where it was before, or where it is to be. Octavia creates a policy
without its rules and takes one rule at a time, and with some of its rules a policy would take
requests of others: until it has all of them, it is disabled. One with a single rule need not be,
as Octavia passes over policies without rules. Policies are created in the order in which Octavia
looks at them. Then those that stay are led elsewhere, or leave other requests to others, in the
opposite order; and those that are not desired any more go, each after all those that are to take
its requests: if one of these cannot be had, it stays. Where they concern different hosts,
``fairness.py`` tells which come first; so policies for hosts that nobody else is to have go in
their turn, and do not wait for all that others ask for.

Rules by which a policy leaves requests to others are changed in their place, so that one host more
costs one call: those that are to be come first, and then those that were go. That is done among
policies of one name: what one of these leaves to others, others take, and it waits for these. It
also waits for policies after it that would get these requests, and are to go, or to leave them to
others themselves; those before it that are to go have them now, and wait for it.

A policy that has one rule twice, as when a call of an earlier leader came late, is replaced.
"""

import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kuryr_k8s.drivers.lbaas.fairness import ANY_HOST, Hosts, namespace_of, turns
from kuryr_k8s.drivers.lbaas.steps import (
    Change,
    CreatePolicy,
    CreatePool,
    CreateRule,
    DeletePolicy,
    DeleteRule,
    MovePolicy,
    UpdatePolicy,
    UpdateRule,
)
from kuryr_k8s.model.l7_hosts import host_of, includes
from kuryr_k8s.model.load_balancer import (
    ANYTHING,
    ERROR,
    HOST_NAME,
    MOST_RULES,
    TURNS,
    FoundL7Policy,
    FoundListener,
    L7Policy,
    L7Rule,
    Match,
)
from kuryr_k8s.model.routes import Host


def broken_policies(listener: FoundListener) -> Iterator[FoundL7Policy]:
    """Yield the policies that are in ERROR, or have a rule that is."""
    return (each for each in listener.policies if ERROR in each.statuses())


def policy_steps(
    listeners: Iterable[tuple[Sequence[L7Policy], FoundListener]],
    pools: Mapping[str, str],
    filled: Collection[str],
    new_pools: Mapping[str, CreatePool],
) -> Iterator[Change]:
    """Yield the steps to the desired policies, in the order in which they should be taken.

    :param listeners: each with its desired policies, in the order of their positions.
    :param pools: ids of the pools that are there, by their names.
    :param filled: the names of those to which a policy can be led.
    :param new_pools: the steps that create the others, by their names.
    """
    planned = [
        _Policies(wanted, found, number) for number, (wanted, found) in enumerate(listeners)
    ]
    unmet = [each for policies in planned for each in policies.unmet(pools)]
    narrowed = [each for each in unmet if each.leaves_more]
    leaving = {each.id: each for each in unmet if each.only_leaves_more(pools)}
    missing = [each for each in unmet if each.id not in leaving]
    hosts = Hosts(Host(each.policy.host) for each in missing)
    ending = [each for policies in planned for each in policies.ending(hosts, leaving.values())]
    waiting: list[_Unmet | _Ending] = [*unmet, *ending]
    turn_of = turns([each.policy for each in waiting])
    waiting.sort(key=lambda each: (turn_of[each.policy.host], each.place))
    left = dict(new_pools)
    last: list[_Unmet] = []
    new = {(each.policies, each.policy.name) for each in missing if not each.takes_requests}
    for each in waiting:
        if isinstance(each, _Unmet):
            new_pool = left.pop(each.policy.redirect_pool or "", None)
            if new_pool is not None:
                yield new_pool
            if (each.policies, each.policy.name) in new and each.leaves_more:
                continue
            if each.id in leaving and each.policies.has_others_after(each, narrowed):
                last.append(each)
                continue
        yield from each.steps(pools, filled)
    for policies in planned:
        yield from policies.moves()
        yield from policies.deletions(missing, leaving.values())
    for each in sorted(last, key=lambda each: -each.turn):
        yield from each.steps(pools, filled)


class _Policies:
    """Desired and found policies of a listener.

    :param number: of the listener.
    """

    def __init__(self, wanted: Sequence[L7Policy], found: FoundListener, number: int) -> None:
        self.number = number
        self.listener_id = found.id
        self._wanted = wanted
        self._kept = _kept(wanted, found.policies)
        self._found = found.policies
        self._ids = [each.id for each in found.policies]
        self._places = {each: place for place, each in enumerate(self._ids)}
        self._key_of = {there.id: key for key, there in self._kept.items()}
        self._turns = {policy.key: turn for turn, policy in enumerate(wanted)}
        in_order = _longest_run(
            [self._turns[self._key_of[each]] for each in self._ids if each in self._key_of]
        )
        self._at_place = {
            each: self._turns[key]
            for each, key in self._key_of.items()
            if self._turns[key] in in_order
        }  # their turns, by id

    def unmet(self, pools: Mapping[str, str]) -> Iterator["_Unmet"]:
        """Yield the desired policies that are not there, or not as desired."""
        for turn, policy in enumerate(self._wanted):
            each = _Unmet(policy, turn, self._kept.get(policy.key), self)
            if not (each.is_complete and each.leads_as_wanted(pools)):
                yield each

    def position_of(self, policy: L7Policy) -> int:
        """Return the position of a policy that is to be created."""
        return _position(self._ids, self._at_place, self._turns[policy.key])

    def moves(self) -> Iterator[Change]:
        """Yield the steps that move policies to their positions."""
        for key, there in self._kept.items():
            if there.id not in self._at_place:
                others = [each for each in self._ids if each != there.id]
                place = _position(others, self._at_place, self._turns[key])
                yield MovePolicy(there.id, place)

    def deletions(
        self, missing: Iterable["_Unmet"], leaving: Iterable["_Unmet"]
    ) -> Iterator[Change]:
        """Yield the steps that delete the policies that are not desired any more.

        :param missing: desired policies that do not take their requests yet.
        :param leaving: those that take too many.
        """
        absent = [each.policy for each in missing if each.policies is self]
        others = [each for each in leaving if each.policies is self]
        awaited = _Awaited(absent)
        for each in self._unwanted():
            later = [other.policy for other in others if self._is_after(other, each)]
            is_awaited = awaited.may_take_requests_of(each.policy) or _Awaited(
                later
            ).may_take_requests_of(each.policy)
            if not (each.is_enabled and is_awaited):
                yield DeletePolicy(each.id)

    def ending(self, missing: Hosts, leaving: Iterable["_Unmet"]) -> Iterator["_Ending"]:
        """Yield the policies that can go before all that is desired is there.

        No other policy is to take requests to their hosts, nor is any to leave them to others.

        :param missing: the hosts of desired policies that do not take their requests yet.
        :param leaving: desired policies that take too many.
        """
        if any(self.moves()):
            return
        unwanted = [(each, host_of(_taken(each.policy)[0])) for each in self._unwanted()]
        others = Hosts(host or ANY_HOST for _, host in unwanted)
        narrowed = [each for each in leaving if each.policies is self]
        for each, host in unwanted:
            after = (other for other in narrowed if self._is_after(other, each))
            later = Hosts(Host(other.policy.host) for other in after)
            if host and not (missing.concern(host) or later.concern(host) or others.touch(host)):
                policy = replace(each.policy, host=host.name)
                yield _Ending(replace(policy, namespace=namespace_of(policy)), each.id)

    def has_others_after(self, kept: "_Unmet", narrowed: Iterable["_Unmet"]) -> bool:
        """Return whether any would get what a policy leaves to others, though it is not to.

        :param narrowed: desired policies that are to leave more to others.
        """
        unwanted = [
            host_of(_taken(each.policy)[0]) or ANY_HOST
            for each in self._unwanted()
            if each.is_enabled and not self._is_after(kept, each)
        ]
        later = [
            Host(each.policy.host)
            for each in narrowed
            if each.policies is self and each.turn > kept.turn
        ]
        return Hosts([*unwanted, *later]).concern(Host(kept.policy.host))

    def _is_after(self, kept: "_Unmet", other: FoundL7Policy) -> bool:
        """Return whether Octavia looks at another policy before one that is kept."""
        there = kept.there
        return there is not None and self._turn_of(there) > self._turn_of(other)

    def _turn_of(self, found: FoundL7Policy) -> tuple[int, int]:
        return TURNS.index(found.policy.action), self._places[found.id]

    def _unwanted(self) -> list[FoundL7Policy]:
        """Return the policies that are not desired, in the order in which they are to go."""
        unwanted = [each for each in self._found if each.id not in self._key_of]
        # backwards: else requests would go where those before it did not let them go
        unwanted.sort(key=lambda each: TURNS.index(each.policy.action))
        unwanted.reverse()
        return unwanted


@dataclass(frozen=True, slots=True)
class _Ending:
    """A policy that can go, whatever else is to be done."""

    policy: L7Policy
    id: str

    @property
    def place(self) -> tuple[bool, int, int]:
        """Sort key among those for one host."""
        return False, 0, 0

    def steps(self, _pools: Mapping[str, str], _filled: Collection[str]) -> Iterator[Change]:
        """Yield the step that deletes it."""
        yield DeletePolicy(self.id)


@dataclass(frozen=True, slots=True)
class _Unmet:
    """A desired policy, and what there is of it.

    :param turn: its place among the desired policies of its listener.
    """

    policy: L7Policy
    turn: int
    there: FoundL7Policy | None
    policies: _Policies

    @property
    def id(self) -> str:
        """The id of what there is; empty if there is nothing."""
        return "" if self.there is None else self.there.id

    @property
    def is_complete(self) -> bool:
        """True if it has its rules, and takes requests."""
        there = self.there
        return (
            there is not None
            and there.is_enabled
            and set(there.policy.rules) == set(self.policy.rules)
        )

    @property
    def place(self) -> tuple[bool, int, int]:
        """Sort key among those for one host: those that are to take more requests come first."""
        if self.takes_requests and not self.takes_more:
            return True, self.policies.number, -self.turn
        return False, self.policies.number, self.turn

    @property
    def takes_requests(self) -> bool:
        """True if it takes any requests now."""
        there = self.there
        return there is not None and there.is_enabled and bool(there.policy.rules)

    @property
    def leaves_more(self) -> bool:
        """True if it takes requests that it is to leave to others of its name."""
        return bool(self.policy.name and self.takes_requests and self._differing()[0])

    @property
    def takes_more(self) -> bool:
        """True if it is to take requests, besides its own, that it leaves to others now."""
        added, removed = self._differing()
        return self.takes_requests and (
            (bool(removed) and not added) or _is_included(added, removed)
        )

    def only_leaves_more(self, pools: Mapping[str, str]) -> bool:
        """Return whether it takes its requests, and some that it is to leave to others."""
        if not self.takes_requests:
            return False
        added, removed = self._differing()
        is_more = (bool(added) and not removed) or _is_included(removed, added)
        return is_more and self.leads_as_wanted(pools)

    def _differing(self) -> tuple[set[L7Rule], set[L7Rule]]:
        """Return the rules that it lacks, and those that it has and should not have."""
        there = set() if self.there is None else set(self.there.policy.rules)
        return set(self.policy.rules) - there, there - set(self.policy.rules)

    def leads_as_wanted(self, pools: Mapping[str, str]) -> bool:
        """Return whether its requests go where they are to go."""
        if self.there is None:
            return False
        if self.policy.redirect_pool:
            return self.there.pool_id == pools.get(self.policy.redirect_pool)
        found = self.there.policy
        return (self.policy.redirect_prefix, self.policy.redirect_http_code) == (
            found.redirect_prefix,
            found.redirect_http_code,
        )

    def steps(self, pools: Mapping[str, str], filled: Collection[str]) -> Iterator[Change]:
        """Yield the next step to it, if its pool is there.

        Octavia changes none that is in ERROR, which is deleted as soon as it may be.
        """
        wanted, there = self.policy, self.there
        if there is not None and ERROR in there.statuses():
            return
        pool_id = pools.get(wanted.redirect_pool or "")
        has_target = not wanted.redirect_pool or wanted.redirect_pool in filled
        if there is not None and set(there.policy.rules) != set(wanted.rules):
            yield _rule_step(wanted, there)
        elif not has_target:
            return
        elif there is not None:
            yield UpdatePolicy(there.id, wanted, pool_id)
        else:
            yield CreatePolicy(
                self.policies.listener_id,
                wanted,
                self.policies.position_of(wanted),
                pool_id,
                is_enabled=len(wanted.rules) == 1,
            )


def _is_included(rules: Collection[L7Rule], others: Collection[L7Rule]) -> bool:
    """Return whether there is one of each, and the other one is for all hosts of the one."""
    return len(rules) == len(others) == 1 and includes(*others, *rules)


def _kept(
    wanted: Sequence[L7Policy], found: Sequence[FoundL7Policy]
) -> dict[Match, FoundL7Policy]:
    """Return the policies that stay: those that are complete, and those that become so.

    What was begun becomes the first one that it can become, as the first one is made first. If
    others are desired by now, it becomes one of these: while it is disabled, its rules can change.
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

    def go_on(can_become: Callable[[FoundL7Policy, L7Policy], bool]) -> None:
        for policy in wanted if begun else ():
            alike = begun.get((policy.name, policy.action), [])
            nearest = next((each for each in alike if can_become(each, policy)), None)
            if policy.key not in kept and nearest is not None:
                kept[policy.key] = nearest
                alike.remove(nearest)

    go_on(_can_become)
    former = {
        _identity(each.policy): each
        for each in found
        if each.is_enabled and each.policy.key not in keys and each.policy.name
    }
    for policy in wanted if former else ():
        identity = _identity(policy)
        changing = former.get(identity)
        if policy.key not in kept and changing is not None and _can_change(changing, policy):
            kept[policy.key] = former.pop(identity)
    go_on(lambda there, policy: not there.is_enabled and _can_change(there, policy))
    return kept


def _identity(policy: L7Policy) -> tuple[object, ...]:
    """Return what of a policy stays while its rules change."""
    return policy.name, policy.action, _taken(policy)


def _can_change(found: FoundL7Policy, wanted: L7Policy) -> bool:
    """Return whether the rules of a policy, but for those of what it takes, can become others."""
    rules = set(found.policy.rules)
    added = set(wanted.rules) - rules
    is_update = len(added) == len(rules - set(wanted.rules)) == 1
    return len(rules) == len(found.policy.rules) and (
        is_update or len(rules) + len(added) <= MOST_RULES
    )


def _rule_step(wanted: L7Policy, found: FoundL7Policy) -> Change:
    """Return the step that brings a policy nearer to its rules."""
    added = [rule for rule in wanted.rules if rule not in found.policy.rules]
    removed = [
        rule_id
        for rule_id, rule in zip(found.rule_ids, found.policy.rules, strict=True)
        if rule not in wanted.rules
    ]
    if len(added) == len(removed) == 1:
        return UpdateRule(found.id, removed[0], added[0])
    if added:
        return CreateRule(found.id, added[0])
    return DeleteRule(found.id, removed[0])


class _Awaited:
    """Desired policies that do not take their requests yet."""

    def __init__(self, missing: Iterable[L7Policy]) -> None:
        self._names: set[str] = set()
        self._by_host: defaultdict[frozenset[L7Rule], list[frozenset[L7Rule]]] = defaultdict(list)
        for policy in missing:
            self._names.add(policy.name)
            host, others = _taken(policy)
            self._by_host[host].append(others)

    def may_take_requests_of(self, policy: L7Policy) -> bool:
        """Return whether any may take requests that a policy takes: others would get them now.

        It is one for the same route, or for the same host and paths within each other.
        """
        host, others = _taken(policy)
        return policy.name in self._names or any(
            others <= each or each <= others for each in self._by_host.get(host, ())
        )


def _taken(policy: L7Policy) -> tuple[frozenset[L7Rule], frozenset[L7Rule]]:
    """Return which requests a policy takes, but for those that it leaves to others.

    :returns: the rules for their hosts, and the others.
    """
    rules = [rule for rule in policy.rules if not rule.invert and rule != ANYTHING]
    hosts = frozenset(rule for rule in rules if rule.type == HOST_NAME)
    return hosts, frozenset(rules) - hosts


def _can_become(found: FoundL7Policy, wanted: L7Policy) -> bool:
    """Return whether a policy takes no requests until it has all rules of the desired one."""
    return Counter(found.policy.rules) <= Counter(wanted.rules) and (
        not found.is_enabled or len(wanted.rules) == 1
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
