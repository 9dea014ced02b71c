"""Pools under all that Pods, nodes, people and Neutron do to them, in any order."""

import math
from functools import partial

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kuryr_k8s.drivers.base.pool import Limits
from tests.kit.pools.model import CLAIMS, KEYS, PODS
from tests.kit.pools.steps import PoolSteps

SIZE = 4  # ports of one creation at the most
ROUNDS = 12
OUTCOMES = st.sampled_from(["all", "all", "all", "some", "none", "lost", "unfit"])
keys = st.sampled_from([KEYS[0], *KEYS])  # one is busier than the others


class PoolMachine(PoolSteps, RuleBasedStateMachine):
    @initialize(
        minimum=st.integers(0, 3),
        batch=st.integers(1, 4),
        maximum=st.sampled_from([0, 2, 3]),
        ttl=st.sampled_from([0.0, 40.0]),
        idle=st.sampled_from([0.0, 100.0]),
        cooldown=st.sampled_from([0.0, 15.0]),
    )
    def begin_with(self, **options):
        self.begin(Limits(**options))

    # -- Pods

    @rule(key=keys, claims=st.lists(st.sampled_from(CLAIMS), min_size=1, max_size=4))
    def pods_ask(self, key, claims):
        for claim in claims:
            self.ask(key, claim)
            self.observe()

    @precondition(lambda self: self.has or self.recorded)
    @rule(data=st.data(), count=st.integers(1, 3))
    def pods_let_go(self, data, count):
        for _ in range(count):
            if self.has or self.recorded:
                self.return_port(data.draw(st.sampled_from(self.in_use())))
                self.observe()

    @precondition(lambda self: self.has)
    @rule(data=st.data(), key=keys)
    def pod_is_to_be_elsewhere(self, data, key):
        self.change_mind(key, data.draw(st.sampled_from(sorted(self.has))))

    def in_use(self):
        return sorted([*self.has.values(), *self.recorded])

    @rule(pod=st.sampled_from(PODS))
    def pod_goes(self, pod):
        self.return_ports_of(pod)

    # -- Neutron

    @rule(key=keys, outcome=OUTCOMES, at_once=st.booleans())
    def creation_begins(self, key, outcome, at_once):
        awaited, refill = self.state.wanted(key, self.now)
        self.create(key, min(awaited or refill, SIZE), outcome)
        self.observe()
        if at_once and self.creations:
            self.creation_is_answered(self.creations.pop())

    @precondition(lambda self: self.creations)
    @rule(data=st.data())
    def creation_ends(self, data):
        index = data.draw(st.integers(0, len(self.creations) - 1))
        self.creation_is_answered(self.creations.pop(index))

    @rule(at_once=st.booleans())
    def survey_goes_on(self, at_once):
        if not self.surveys:
            self.survey_begins()
            if not at_once:
                return
        self.survey_ends()

    @precondition(lambda self: "leaving" in self.places.values())
    @rule(data=st.data())
    def port_is_removed(self, data):
        leaving = [port for port, place in self.places.items() if place == "leaving"]
        self.bury(data.draw(st.sampled_from(sorted(leaving))))

    # -- the pool's own work

    @rule(key=keys, at_once=st.booleans(), changed=st.integers(-4, 4))
    def check_goes_on(self, key, at_once, changed):
        if not self.checking.get(key):
            self.checking[key] = self.due(key)
            if not at_once:
                return
        self.check(key, changed)

    @rule(key=keys)
    def pool_is_tidied(self, key):
        self.tidy(key)

    @precondition(lambda self: self.places)
    @rule(data=st.data())
    def port_is_dismissed(self, data):
        self.dismiss(data.draw(st.sampled_from(sorted(self.places))))

    # -- nodes, people, time

    @rule(data=st.data(), place=st.sampled_from(["node1", "node2"]))
    def node_tells_what_it_parks(self, data, place):
        self.park({port for port in sorted(self.neutron) if data.draw(st.booleans())}, place)

    @rule(key=keys, count=st.one_of(st.none(), st.integers(1, 3)))
    def people_free_ports(self, key, count):
        self.free(key, count)

    @rule(key=keys, count=st.integers(1, 5))
    def people_order_ports(self, key, count):
        self.populate(key, count)

    @rule(seconds=st.sampled_from([5.0, 20.0, 60.0, 110.0]))
    def time_passes(self, seconds):
        self.now += seconds

    @rule(key=keys)
    def node_or_network_goes(self, key):
        self.close(key)

    @rule(kind=st.integers(0, 5), key=keys, data=st.data())
    def trouble_comes(self, kind, key, data):
        if kind == 0:
            named = {port: it for it, port in self.has.items() if data.draw(st.booleans())}
            self.start_again(named)
        elif kind == 1:
            self.refuse(key)
        elif kind == 2 and self.in_use():
            self.orphan(data.draw(st.sampled_from(self.in_use())))
        elif kind == 3 and self.in_use():
            self.vanish(data.draw(st.sampled_from(self.in_use())))
        elif kind == 4:
            self.others_give(key)
        elif self.neutron:
            del self.neutron[data.draw(st.sampled_from(sorted(self.neutron)))]

    # -- all is well

    @rule()
    def all_goes_well_until_nothing_is_left_to_do(self):
        self.quota = math.inf  # and Neutron allows all of it
        for _ in range(ROUNDS):
            before = self.picture()
            self.one_round()
            if before == self.picture() and "returning" not in self.places.values():
                break
        else:
            raise AssertionError("there is no end of it")
        del self.quota
        assert not any(self.queues.values())
        assert set(self.neutron) == set(self.places)
        assert set(self.places.values()) <= {"available", "in_use"}
        for key in self.state.pools:
            free = len(self.pool(key, "available"))
            assert self.target(key) <= free <= (self.limits.maximum or math.inf)

    def picture(self):
        return str((sorted(self.places.items()), self.queues, self.creations))

    def one_round(self):
        """All that is to be done is done once, and succeeds."""
        self.surveys.clear()
        steps = [self.survey_begins, self.survey_ends]
        for key in KEYS:
            steps += [partial(self.all_is_checked, key), partial(self.tidy, key)]
            steps += [partial(self.all_leave, key), partial(self.all_is_created, key)]
        for step in [*steps, partial(self.time_passes, self.limits.cooldown)]:
            step()
            self.observe()

    def all_is_checked(self, key):
        self.checking.pop(key, None)
        for port in self.due(key):
            self.restore(key, port)

    def all_leave(self, key):
        for port in self.pool(key, "leaving"):
            self.bury(port)

    def all_is_created(self, key):
        for count in self.state.wanted(key, self.now):
            self.create(key, count, "all")
        for creation in [creation for creation in self.creations if creation[0] == key]:
            self.creations.remove(creation)
            self.creation_is_answered(creation)

    @invariant()
    def all_is_as_expected(self):
        self.observe()


PoolMachine.TestCase.settings = settings(
    max_examples=4 * settings().max_examples, stateful_step_count=60, deadline=None
)
TestPoolMachine = PoolMachine.TestCase
