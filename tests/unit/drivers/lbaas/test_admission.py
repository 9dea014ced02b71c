"""How many changes Octavia is given at a time, and whose."""

import contextlib

import pytest

from kuryr_k8s import errors
from kuryr_k8s.drivers.lbaas.admission import AGAIN, FIRST, LOST, MOST, Admission, Urgency
from kuryr_k8s.model.owner import Owner
from tests.kit.clock import ManualClock


class Provider:
    """Its queue, and who was woken."""

    def __init__(self):
        self.clock = ManualClock()
        self.queue, self.woken, self.sent = [], [], 0
        self.admission = Admission(self.clock, lambda _seconds: len(self.queue), self.woken.append)

    def send(self, name, urgency=Urgency.SERVING):
        """Return whether it was accepted."""
        with contextlib.suppress(errors.Wait), self.admission.sending(Owner(name), urgency):
            self.queue.append(name)
            return True
        return False

    def fill(self):
        while len(self.queue) < self.admission.limit:
            self.sent += 1
            assert self.send(f"s{self.sent}")

    def work(self, seconds=1.0):
        """The first of the queue is done."""
        name = self.queue.pop(0)
        self.woken.clear()
        self.admission.ended([seconds])
        return name


@pytest.fixture
def provider():
    return Provider()


def test_only_so_many_are_sent_and_the_others_are_woken_in_turn(provider):
    sent = [provider.send(f"s{number}") for number in range(20)]
    assert sent == [True] * int(FIRST) + [False] * (20 - int(FIRST))
    provider.work()
    assert provider.woken[0] == Owner(f"s{int(FIRST)}")
    assert provider.send(f"s{int(FIRST)}")


def test_who_waits_for_an_answer_goes_before_deletions_of_what_never_served(provider):
    provider.admission.ended([0.1])  # what takes much longer than this has been in a queue
    provider.fill()
    for number in range(30):
        assert not provider.send(f"gone{number}", Urgency.NEVER_SERVED)
    assert not provider.send("living")
    provider.work(seconds=60.0)
    assert provider.woken == [Owner("living")]
    assert not provider.send("gone0", Urgency.NEVER_SERVED), "the one that was woken is on its way"
    assert provider.send("living")


def test_nobody_waits_for_ever(provider):
    for number in range(int(FIRST)):
        provider.send(f"s{number}")
    provider.send("gone", Urgency.NEVER_SERVED)
    for _ in range(20):
        provider.clock.advance(AGAIN)
        provider.send("gone", Urgency.NEVER_SERVED)
    provider.send("living")
    provider.work()
    assert provider.woken[0] == Owner("gone")


def test_one_that_comes_no_more_blocks_nobody(provider):
    for number in range(int(FIRST)):
        provider.send(f"s{number}")
    assert not provider.send("deleted")
    provider.clock.advance(LOST + 1)
    provider.work(60.0)
    provider.work(60.0)
    assert provider.send("gone", Urgency.NEVER_SERVED)


def test_limit_grows_with_a_provider_that_works_side_by_side(provider):
    for _ in range(200):
        provider.fill()
        provider.work(60.0)
    assert provider.admission.limit == MOST


def test_limit_does_not_grow_in_calm_times(provider):
    """The next burst would all be in the provider's queue before it is known how fast it is."""
    for number in range(200):
        assert provider.send(f"s{number}")
        provider.work(0.1)
    assert provider.admission.limit == FIRST


def test_who_prepares_a_change_keeps_its_turn_until_it_gives_it_up(provider):
    provider.admission.ended([0.1])
    provider.fill()
    for name in ("first", "second"):
        assert not provider.send(name)
    provider.work(60.0)
    provider.admission.check(Owner("first"), Urgency.SERVING)
    assert not provider.send("second")
    provider.admission.forget(Owner("first"))
    assert provider.send("second")


def test_limit_falls_to_what_a_provider_works_off_one_by_one(provider):
    """Each change takes half a second, after those that were sent before it."""
    sent = {}
    for _ in range(300):
        provider.fill()
        sent |= {name: provider.clock.now() for name in provider.queue if name not in sent}
        provider.clock.advance(0.5)
        waited = provider.clock.now() - sent[provider.queue[0]]
        provider.work(waited)
    assert 2 <= provider.admission.limit <= 6
