"""What an informer learns from the answers to our own writes, and what it makes of the watch."""

import asyncio
import functools
from dataclasses import dataclass

import pytest

from kuryr_k8s import errors
from kuryr_k8s.engine.clock import CLOCK
from kuryr_k8s.k8s.informer import Informer
from kuryr_k8s.k8s.resources import KURYRPORTS, Key
from kuryr_k8s.patience import PATIENCE
from tests.kit.clock import ManualClock

KEY = Key("ns", "web")


@dataclass(frozen=True)
class View:
    uid: str
    resource_version: str
    state: str

    @classmethod
    def read(cls, item):
        meta, state = item["metadata"], item.get("state", "")
        if not isinstance(state, str):
            raise TypeError("no text")
        return cls(meta["uid"], meta["resourceVersion"], state)


def item(version, state="", uid="u1", *, name="web", gone=False, notes=None):
    meta = {"namespace": "ns", "name": name, "uid": uid, "resourceVersion": str(version)}
    meta |= {"annotations": notes} if notes else {}
    return {"metadata": meta | ({"deletionTimestamp": "now"} if gone else {}), "state": state}


class Server:
    """Hands out the events that a test puts in; an exception among them ends the watch."""

    def __init__(self):
        self.events = asyncio.Queue()
        self.queries = []
        self.version = 10
        self._asked = asyncio.Condition()

    async def watch(self, _resource, query, *, idle):
        async with self._asked:
            self.queries.append(query)
            self._asked.notify_all()
        while True:
            event = await self.events.get()
            try:
                if isinstance(event, Exception):
                    raise event
                yield event
            finally:
                self.events.task_done()  # it is taken in: the next one is asked for

    async def newest_version(self, _resource, _selectors):
        return self.version

    async def until_asked(self, times):
        async with self._asked:
            await self._asked.wait_for(lambda: len(self.queries) >= times)

    def tell(self, kind, obj):
        self.events.put_nowait({"type": kind, "object": obj})

    def bookmark(self, version, *, end_of_list=False):
        marks = {"k8s.io/initial-events-end": "true"} if end_of_list else {}
        meta = {"resourceVersion": str(version), "annotations": marks}
        self.tell("BOOKMARK", {"metadata": meta})


class Followed:
    """An informer that runs, and what its subscriber was told."""

    def __init__(self, clock=CLOCK):
        self.server = Server()
        self.informer = Informer(self.server, KURYRPORTS, View.read, clock=clock)
        self.informer.keep("colour")
        self.told = []
        self.informer.subscribe(lambda _key, _old, new: self.told.append(new and new.state))

    @property
    def state(self):
        known = self.informer.get(KEY)
        return known and known.state

    async def heard(self):
        """Return when all events are taken in."""
        await self.server.events.join()


@pytest.fixture
async def followed():
    followed = Followed()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(followed.informer.run())
        followed.server.bookmark(10, end_of_list=True)
        await followed.informer.synced.wait()
        yield followed
        task.cancel()


BAD = {"a": "dict"}


class TestUnreadable:
    """An object that the view cannot read costs only itself."""

    async def test_others_are_followed_on_and_it_is_logged_once(self, followed, caplog):
        followed.server.tell("ADDED", item(20, BAD, name="odd", uid="u2"))
        followed.server.tell("ADDED", item(21, "made"))
        followed.server.tell("MODIFIED", item(22, "changed"))
        await followed.heard()
        assert followed.state == "changed"
        assert followed.informer.get(Key("ns", "odd")) is None
        assert [each.message for each in caplog.records if "odd" in each.message] == [
            "KuryrPort ns/odd cannot be read: TypeError('no text')"
        ]
        followed.server.tell("MODIFIED", item(23, "mended", name="odd", uid="u2"))
        await followed.heard()
        assert followed.informer.get(Key("ns", "odd")).state == "mended"

    async def test_it_is_as_before_until_it_goes(self, followed):
        followed.server.tell("ADDED", item(20, "made"))
        followed.server.tell("MODIFIED", item(21, BAD))
        await followed.heard()
        assert followed.state == "made"
        followed.server.tell("DELETED", item(22, BAD))
        await followed.heard()
        assert followed.state is None

    async def test_it_is_not_taken_for_one_of_another_uid(self, followed):
        followed.server.tell("ADDED", item(20, "made"))
        followed.server.tell("MODIFIED", item(21, BAD, uid="u2"))
        await followed.heard()
        assert followed.state is None

    async def test_in_a_list_it_is_left_out_and_logged_once(self, followed, caplog):
        for version in (30, 31):
            followed.server.events.put_nowait(errors.KubeGone("too old", status=410))
            followed.server.tell("ADDED", item(29, BAD, name="odd", uid="u2"))
            followed.server.tell("ADDED", item(28, "listed"))
            followed.server.bookmark(version, end_of_list=True)
            await followed.heard()
            assert followed.state == "listed"
        assert len([each for each in caplog.records if "odd" in each.message]) == 1

    async def test_own_write_of_one_is_forgotten_by_the_next_list(self, followed):
        followed.informer.learn(item(40, BAD))
        followed.server.events.put_nowait(errors.KubeGone("too old", status=410))
        followed.server.bookmark(30, end_of_list=True)
        await followed.heard()
        assert followed.state is None


async def test_own_write_is_known_at_once_and_told_once(followed):
    followed.informer.learn(item(20, "made"))
    assert followed.state == "made"
    followed.server.tell("ADDED", item(20, "made"))
    await followed.heard()
    assert followed.told == ["made"]


async def test_events_that_are_older_than_what_was_learned_change_nothing(followed):
    followed.informer.learn(item(20, "made"))
    followed.informer.learn(item(30, "changed"))
    followed.server.tell("ADDED", item(20, "made"))
    followed.server.tell("MODIFIED", item(30, "changed"))
    followed.server.tell("MODIFIED", item(40, "by another"))
    await followed.heard()
    assert followed.told == ["made", "changed", "by another"]


async def test_answer_that_comes_after_the_watch_changes_nothing(followed):
    followed.server.tell("ADDED", item(20, "made"))
    followed.server.tell("MODIFIED", item(30, "changed"))
    followed.server.tell("DELETED", item(40, "changed"))
    await followed.heard()
    followed.informer.learn(item(30, "changed"))
    followed.informer.learn(item(35, "changed", gone=True))
    assert followed.state is None


async def test_object_learned_to_be_gone_does_not_come_back_by_a_late_event(followed):
    followed.informer.learn(item(20, "made"))
    followed.informer.learn(item(20, "made", gone=True))
    assert followed.state is None
    followed.server.tell("ADDED", item(20, "made"))
    followed.server.tell("MODIFIED", item(25, "going"))
    followed.server.tell("DELETED", item(30, "going"))
    await followed.heard()
    assert followed.told == ["made", None]


async def test_late_answer_about_one_that_went_does_not_take_its_successor(followed):
    followed.server.tell("ADDED", item(20, "first"))
    followed.server.tell("DELETED", item(30, "first"))
    followed.server.tell("ADDED", item(40, "second", uid="u2"))
    await followed.heard()
    followed.informer.learn(item(25, "first", gone=True))
    assert followed.state == "second"


async def test_what_was_learned_stands_while_a_list_from_before_it_comes(followed):
    followed.server.events.put_nowait(errors.KubeGone("too old", status=410))
    await followed.server.until_asked(2)
    followed.informer.learn(item(30, "learned"))
    followed.server.bookmark(20, end_of_list=True)
    await followed.heard()
    assert followed.state == "learned"
    followed.server.tell("ADDED", item(30, "learned"))
    await followed.heard()
    assert followed.told == ["learned"]


async def test_list_that_shows_what_was_learned_meanwhile_costs_no_further_list(followed):
    """Neither the change nor the end of an object comes as an event after it."""
    followed.server.tell("ADDED", item(15, "first"))
    followed.server.tell("ADDED", item(16, "other", name="other"))
    followed.server.events.put_nowait(errors.KubeGone("too old", status=410))
    await followed.server.until_asked(2)
    followed.informer.learn(item(20, "learned"))
    followed.informer.learn(item(16, "other", name="other", gone=True))
    followed.server.tell("ADDED", item(20, "learned"))
    followed.server.bookmark(30, end_of_list=True)
    for version in (40, 50, 60):
        followed.server.bookmark(version)
    await followed.heard()
    assert followed.state == "learned"
    assert followed.informer.get(Key("ns", "other")) is None
    assert len(followed.server.queries) == 2


async def test_end_learned_while_a_list_that_shows_the_object_comes_is_no_surprise(followed):
    followed.server.tell("ADDED", item(15, "made"))
    followed.server.events.put_nowait(errors.KubeGone("too old", status=410))
    await followed.server.until_asked(2)
    followed.informer.learn(item(15, "made", gone=True))
    followed.server.tell("ADDED", item(15, "made"))
    followed.server.bookmark(20, end_of_list=True)
    followed.server.tell("MODIFIED", item(25, "going"))
    followed.server.tell("DELETED", item(30, "going"))
    await followed.heard()
    assert followed.told == ["made", None]


async def test_successor_learned_while_a_list_that_shows_the_first_comes_is_kept(followed):
    followed.server.tell("ADDED", item(15, "first"))
    followed.server.events.put_nowait(errors.KubeGone("too old", status=410))
    await followed.server.until_asked(2)
    followed.informer.learn(item(15, "first", gone=True))
    followed.informer.learn(item(30, "second", uid="u2"))
    followed.server.tell("ADDED", item(15, "first"))
    followed.server.bookmark(20, end_of_list=True)
    followed.server.tell("DELETED", item(25, "first"))
    followed.server.tell("ADDED", item(30, "second", uid="u2"))
    await followed.heard()
    assert followed.told == ["first", None, "second"]


async def test_short_life_after_a_list_does_not_come_back_by_late_events(followed):
    followed.server.events.put_nowait(errors.KubeGone("too old", status=410))
    await followed.server.until_asked(2)
    followed.informer.learn(item(30, "made"))
    followed.informer.learn(item(30, "made", gone=True))
    followed.server.bookmark(20, end_of_list=True)
    followed.server.tell("ADDED", item(30, "made"))
    followed.server.tell("DELETED", item(31, "made"))
    await followed.heard()
    assert followed.told == ["made", None]


async def test_writes_of_one_object_in_succession_are_not_taken_for_one(followed):
    """Each is seen after the bookmark that follows its answer."""
    for version in range(20, 50, 10):
        followed.informer.learn(item(version, "made"))
        followed.server.bookmark(version - 1)
        followed.server.tell("MODIFIED", item(version, "made"))
        await followed.heard()
    assert len(followed.server.queries) == 1


async def test_annotation_that_somebody_reads_is_that_of_the_newest_version(followed):
    known = functools.partial(followed.informer.annotation, KEY)
    followed.server.events.put_nowait(errors.KubeGone("too old", status=410))
    await followed.server.until_asked(2)
    followed.server.tell("ADDED", item(5, notes={"colour": "white"}))
    followed.informer.learn(item(20, notes={"colour": "red", "size": "small"}))
    assert (known("colour"), known("size")) == ("red", None)
    followed.server.bookmark(10, end_of_list=True)
    await followed.heard()
    assert known("colour") == "red"
    followed.server.tell("MODIFIED", item(30))
    await followed.heard()
    assert known("colour") is None
    followed.server.tell("MODIFIED", item(40, notes={"colour": "blue"}))
    await followed.heard()
    assert known("colour") == "blue"
    followed.server.tell("DELETED", item(50, notes={"colour": "blue"}))
    await followed.heard()
    assert known("colour") is None


async def test_write_that_the_server_never_shows_is_not_believed_for_ever(followed):
    """etcd was set back to before it: a second bookmark has passed and nothing came."""
    followed.informer.learn(item(30, "learned"))
    followed.server.bookmark(40)
    followed.server.bookmark(50)
    await followed.server.until_asked(2)
    assert "resourceVersion" not in followed.server.queries[1]
    followed.server.bookmark(60, end_of_list=True)
    await followed.heard()
    assert followed.state is None


async def test_confirmed_writes_cost_no_list(followed):
    for version in range(20, 40, 2):
        followed.informer.learn(item(version, "made", uid=f"u{version}"))
        followed.informer.learn(item(version, "made", uid=f"u{version}", gone=True))
        followed.server.tell("ADDED", item(version, "made", uid=f"u{version}"))
        followed.server.tell("DELETED", item(version + 1, "made", uid=f"u{version}"))
        followed.server.bookmark(version + 1)
        await followed.heard()
    assert len(followed.server.queries) == 1


@pytest.mark.parametrize(("asked", "waited"), [(30.0, 30.0), (10000.0, PATIENCE.longest_asked)])
async def test_server_that_asks_for_time_gets_it(asked, waited):
    clock = ManualClock()
    followed = Followed(clock=clock)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(followed.informer.run())
        followed.server.bookmark(10, end_of_list=True)
        await followed.informer.synced.wait()
        others = list(clock.pending)
        busy = errors.KubeError("too many requests", status=429, retry_after=asked)
        followed.server.events.put_nowait(busy)
        await followed.heard()
        (timer,) = [timer for timer in clock.pending if timer not in others]
        assert waited <= timer.due <= 1.2 * waited
        clock.advance(1.2 * waited)
        await followed.server.until_asked(2)
        assert followed.server.queries[1]["resourceVersion"] == "10"
        task.cancel()


@pytest.mark.parametrize(("version", "lists"), [(15, True), (20, False), (25, False)])
async def test_server_that_was_set_back_is_found_out_when_it_is_there_again(
    followed, version, lists
):
    followed.server.tell("ADDED", item(20, "made"))
    await followed.heard()
    followed.server.version = version
    followed.server.events.put_nowait(errors.KubeError("cut"))
    await followed.server.until_asked(2)
    assert ("resourceVersion" not in followed.server.queries[1]) == lists


async def test_server_that_accepts_connections_and_is_silent_is_listed_from_again():
    """It may have been set back meanwhile, and be past our version by now."""
    clock = ManualClock()
    followed = Followed(clock=clock)
    silent = iter(range(2))

    async def newest_version(_resource, _selectors):
        if next(silent, None) is None:
            return 10
        clock.advance(30)
        raise errors.KubeError("no answer in time")

    followed.server.newest_version = newest_version
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        task = group.create_task(followed.informer.run())
        followed.server.bookmark(10, end_of_list=True)
        await followed.informer.synced.wait()
        followed.server.events.put_nowait(errors.KubeError("cut"))
        while len(followed.server.queries) < 2:
            await asyncio.sleep(0)
            clock.advance(10)
        assert "resourceVersion" not in followed.server.queries[1]
        task.cancel()
