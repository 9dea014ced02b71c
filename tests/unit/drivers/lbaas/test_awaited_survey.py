"""Owners wait for the first survey, which a loop reads until it has ended."""

import asyncio

import pytest

from kuryr_k8s import errors
from kuryr_k8s.drivers.lbaas.survey import AwaitedSurvey
from kuryr_k8s.model.owner import Owner
from tests.kit.clock import ManualClock
from tests.kit.contexts import driver_context

OWNERS = [Owner("first"), Owner("second")]


class Lists:
    """What a driver lists: an attempt fails for each error that is given, then all is known."""

    def __init__(self, *problems):
        self.problems = list(problems)
        self.readings = []
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def __call__(self, reading):
        self.readings.append(reading)
        self.begun.set()
        await self.go_on.wait()
        if self.problems:
            raise self.problems.pop(0)
        return "all"


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def survey_of(clock):
    def make(lists):
        woken = []
        context = driver_context(None, None, clock=clock)
        survey = AwaitedSurvey(context, "survey", lists, woken.append)
        return survey, woken

    return make


def refuse(survey, owner, kind=errors.Wait):
    with pytest.raises(kind):
        survey.check(owner)


async def step(survey):
    """What the loop does with the next key."""
    key = await survey.loop.queue.get()
    await survey.loop.step(key)
    survey.loop.queue.done(key)


async def test_owners_that_wait_are_woken_once_when_everything_is_known(survey_of):
    lists = Lists()
    survey, woken = survey_of(lists)
    for owner in (*OWNERS, *OWNERS):
        refuse(survey, owner)
    assert survey.is_running
    await step(survey)
    assert woken == OWNERS
    assert not survey.is_running
    assert len(lists.readings) == 1
    survey.check(OWNERS[0])
    assert not len(survey.loop.queue)


async def test_attempt_goes_on_where_the_one_before_stopped_without_being_asked(survey_of, clock):
    lists = Lists(errors.CloudError("busy", status=503), errors.CloudError("busy", status=503))
    survey, woken = survey_of(lists)
    refuse(survey, OWNERS[0])
    for _ in range(2):
        await step(survey)
        refuse(survey, OWNERS[1], errors.CloudError)
        assert not len(survey.loop.queue), "an owner that waits does not hasten it"
        clock.advance(60.0)
    woken.clear()
    await step(survey)
    assert woken == OWNERS
    first, *others = lists.readings
    assert all(reading is first for reading in others)


async def pair(survey_of, *problems):
    """Two surveys for which the first owner waits, and the second owner for one of them."""
    first, woken = survey_of(Lists())
    second, more = survey_of(Lists(*problems))
    first.beside, second.beside = second, first
    for survey in (first, second):
        refuse(survey, OWNERS[0])
    refuse(first, OWNERS[1])
    return first, second, lambda: woken + more


async def test_owner_that_waits_for_two_surveys_is_woken_once_when_both_have_ended(survey_of):
    first, second, woken = await pair(survey_of)
    await step(first)
    assert woken() == []
    await step(second)
    assert woken() == OWNERS


async def test_owner_does_not_wait_for_a_survey_beside_that_reads_nothing(survey_of):
    first, second, woken = await pair(survey_of, errors.CloudError("down", status=503))
    await step(second)
    assert woken() == OWNERS[:1], "it is told"
    await step(first)
    assert sorted(woken()) == sorted([*OWNERS, OWNERS[0]])


async def test_survey_that_only_a_sweep_has_begun_goes_on_for_those_that_come_from_another(
    survey_of,
):
    attempts = []

    async def list_all(reading):
        attempts.append(reading)
        if len(attempts) == 1:
            reading.of("/pools", {}).found["a"] = {}
            raise errors.CloudError("busy", status=503)

    first, woken = survey_of(Lists())
    second, more = survey_of(list_all)
    first.beside, second.beside = second, first
    refuse(first, OWNERS[0])
    with pytest.raises(errors.CloudError):
        await second.repeat()
    await step(first)
    assert woken == []
    await step(second)
    assert more == OWNERS[:1]


async def test_sweep_that_comes_first_reads_for_all(survey_of):
    lists = Lists()
    survey, woken = survey_of(lists)
    lists.go_on.clear()
    async with asyncio.TaskGroup() as group:
        sweep = group.create_task(survey.repeat())
        await lists.begun.wait()
        refuse(survey, OWNERS[0])
        looking = group.create_task(step(survey))
        lists.go_on.set()
        assert await sweep == "all"
        await looking
    assert woken == OWNERS[:1]
    assert len(lists.readings) == 1
    assert await survey.repeat() == "all"
    assert lists.readings[1] is not lists.readings[0]
    assert woken == OWNERS[:1]


async def test_sweep_that_fails_leaves_nobody_waiting_for_ever(survey_of):
    lists = Lists(errors.CloudError("busy", status=503))
    survey, woken = survey_of(lists)
    with pytest.raises(errors.CloudError):
        await survey.repeat()
    assert survey.is_running
    refuse(survey, OWNERS[0], errors.CloudError)
    await step(survey)
    assert woken == OWNERS[:1]


async def test_owners_hear_of_an_outage_once_and_of_its_end(survey_of, clock):
    problem = errors.CloudError("down", status=503)
    lists = Lists(problem, problem, problem)
    survey, woken = survey_of(lists)
    refuse(survey, OWNERS[0])
    await step(survey)
    assert woken == OWNERS[:1], "it does not wait in vain for the list to end"
    for _ in range(2):
        for owner in OWNERS:
            with pytest.raises(errors.CloudError, match="down"):
                survey.check(owner)
        clock.advance(60.0)
        await step(survey)
    assert woken == OWNERS[:1]
    clock.advance(60.0)
    await step(survey)
    assert woken == [OWNERS[0], *OWNERS]
    survey.check(OWNERS[0])


async def test_outage_is_told_no_more_as_soon_as_something_is_read(survey_of, clock):
    problem = errors.CloudError("down", status=503)
    lists = Lists(problem)
    survey, _woken = survey_of(lists)
    refuse(survey, OWNERS[0])
    await step(survey)
    clock.advance(60.0)
    lists.begun.clear()
    lists.go_on.clear()
    async with asyncio.TaskGroup() as group:
        group.create_task(step(survey))
        await lists.begun.wait()
        refuse(survey, OWNERS[0], errors.CloudError)
        lists.readings[-1].of("/pools", {}).found["a"] = {}
        refuse(survey, OWNERS[0])
        lists.go_on.set()


async def test_later_list_goes_on_where_it_stopped_and_the_next_one_begins_again(survey_of):
    lists = Lists()
    survey, _woken = survey_of(lists)
    await survey.repeat()
    lists.problems = [errors.CloudError("busy", status=503)]
    with pytest.raises(errors.CloudError):
        await survey.repeat()
    await survey.repeat()
    await survey.repeat()
    first, failed, again, last = lists.readings
    assert failed is again
    assert len({id(each) for each in (first, again, last)}) == 3


async def test_controller_that_stands_by_waits_for_nothing(survey_of):
    survey, _woken = survey_of(Lists())
    assert not survey.is_running


@pytest.mark.parametrize(("reads", "failures"), [(True, 1), (False, 3)])
async def test_pause_grows_only_while_nothing_is_read(survey_of, clock, reads, failures):
    async def list_all(reading):
        if reads:
            reading.of("/pools", {}).found[str(reading.rows)] = {}
        raise errors.CloudError("busy", status=503)

    survey, _woken = survey_of(list_all)
    refuse(survey, OWNERS[0])
    for _ in range(3):
        await step(survey)
        clock.advance(60.0)
    assert survey.loop.queue.failures(survey.KEY) == failures
