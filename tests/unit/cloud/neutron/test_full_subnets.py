"""Which subnets are full, by what Neutron refuses, makes and deletes."""

import logging

import pytest

from kuryr_k8s.cloud.neutron.full_subnets import PAUSE, FullSubnets
from tests.kit.clock import ManualClock

A, B, SIX, OTHER_SIX = "subnet-a", "subnet-b", "subnet-six", "subnet-other-six"
SILENT = "No more IP addresses available on network n."


@pytest.fixture
def clock():
    return ManualClock(100.0)


@pytest.fixture
def full(clock):
    return FullSubnets(clock.now)


def test_subnet_that_was_asked_alone_is_full_for_a_while(full, clock):
    full.refused([A], SILENT)
    assert full.is_full(A)
    assert not full.has_room([A])
    assert not full.has_room([A, SIX])
    assert full.has_room([B])
    clock.advance(PAUSE)
    assert full.has_room([A])
    assert full.is_full(A)  # until an attempt shows otherwise
    full.made([A], clock.now())
    assert not full.is_full(A)


def test_one_attempt_after_the_pause_is_for_all(full, clock):
    full.refused([A], SILENT)
    clock.advance(PAUSE)
    full.attempt([A, SIX])
    assert not full.has_room([A])
    full.made([A, SIX], clock.now())
    assert full.has_room([A])


def test_of_two_subnets_it_is_not_known_which_is_full_until_a_port_shows_it(full, clock):
    full.refused([A, SIX], SILENT)
    assert not full.has_room([A, SIX])
    assert full.has_room([B, SIX])
    assert full.has_room([A, OTHER_SIX])
    assert not full.is_full(A)
    assert not full.is_full(SIX)
    full.made([B, SIX], clock.now())
    assert full.is_full(A)
    assert full.has_room([SIX])


def test_answer_that_names_the_subnet_tells_which_is_full(full):
    full.refused([A, SIX], "No more IP addresses available for subnet subnet-a.")
    assert full.is_full(A)
    assert not full.is_full(SIX)


def test_vast_subnet_is_never_the_full_one(full):
    full.measure(SIX, [("fd64::2", "fd64::ffff:ffff:ffff:ffff")])
    full.measure(A, [("10.0.0.2", "10.0.0.6")])
    full.refused([A, SIX], SILENT)
    assert full.is_full(A)
    assert full.has_room([SIX])


def test_refusal_of_what_is_known_to_be_full_tells_nothing_of_the_others(full, clock):
    full.refused([A], SILENT)
    full.refused([A, SIX], SILENT)
    full.made([A], clock.now())
    assert full.has_room([A, SIX])


def test_port_that_was_requested_before_a_refusal_does_not_prove_that_there_is_room(full, clock):
    asked = clock.now()
    clock.advance(1)
    full.refused([A], SILENT)
    full.made([A], asked)
    assert full.is_full(A)
    assert not full.has_room([A])


def test_deleted_port_makes_room_in_its_subnets(full):
    full.refused([A], SILENT)
    full.refused([B, SIX], SILENT)
    full.freed([B])
    assert full.has_room([B, SIX])
    assert full.is_full(A)
    full.freed([A, SIX])
    assert not full.is_full(A)


def test_log_has_one_line_for_each_change(full, caplog):
    caplog.set_level(logging.INFO)
    for _ in range(3):
        full.refused([A], SILENT)
    for _ in range(3):
        full.freed([A])
    assert caplog.messages == [
        "subnet subnet-a is full",
        "subnet subnet-a has free addresses again",
    ]
