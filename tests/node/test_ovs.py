"""Open vSwitch's database as it comes, stalls, goes and comes back."""

import asyncio
import contextlib
import signal
import time

import pytest

from kuryr_k8s.cni.ovs import database as ovsdb
from kuryr_k8s.cni.ovs.commands import AddPorts
from kuryr_k8s.cni.ovs.switch import OURS, NewPort, OpenVSwitch, OVSError
from kuryr_k8s.cni.patience import Patience
from tests.node.workbench import PATIENCE, eventually

IDS = {OURS: "c1", "iface-id": "port-1"}


@contextlib.asynccontextmanager
async def following(remote, transaction=PATIENCE):
    switch = OpenVSwitch(remote, Patience(transaction=transaction))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(switch.run())
        try:
            yield switch
        finally:
            task.cancel()


@contextlib.asynccontextmanager
async def connected(remote, transaction=PATIENCE):
    async with following(remote, transaction) as switch:
        await switch.connected.wait()
        yield switch


@contextlib.contextmanager
def stalled(database):
    """The server lives, and answers nothing."""
    database.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        database.process.send_signal(signal.SIGCONT)


async def install(switch, name):
    """As ovn-controller does."""

    class Install(ovsdb.command.BaseCommand):
        def run_idl(self, txn):
            for row in self.api.idl.tables["Interface"].rows.values():
                if row.name == name:
                    row.setkey("external_ids", "ovn-installed", "true")

    await switch._database.commit(Install(switch._database))


def value_of(gauge):
    [metric] = gauge.collect()
    return metric.samples[0].value


async def test_the_server_may_come_later(database, remote):
    database.stop()
    async with following(remote) as switch:
        told = []
        switch.subscribe(lambda: told.append(switch.host_id()))
        await asyncio.sleep(0.3)
        [reached] = switch.collectors()
        assert not switch.connected.is_set()
        assert value_of(reached) == 0
        database.start()
        await eventually(switch.connected.is_set)
        assert value_of(reached) == 1
        assert told == ["chassis1"]
        assert switch.in_user_space("br-int")


async def test_what_was_committed_is_seen_at_once(remote):
    async with connected(remote) as switch:
        for number in range(50):
            await switch.add_port("br-int", f"tap{number}", IDS)
            assert switch.find(f"tap{number}").iface_id == "port-1"
            await switch.del_port(f"tap{number}")
            assert switch.find(f"tap{number}") is None


async def test_adding_again_makes_a_fresh_row(remote):
    async with connected(remote) as switch:
        await switch.add_port("br-int", "tap1", IDS)
        old = switch.find("tap1")
        await switch.add_port("br-int", "tap1", IDS)
        assert switch.find("tap1").row != old.row
        assert len(switch.interfaces()) == 1


async def test_a_row_is_replaced_in_one_step(remote):
    async with connected(remote) as switch, asyncio.TaskGroup() as group:
        await switch.add_port("br-int", "tap1", IDS)
        seen = set()

        async def look():
            while True:
                seen.add((len(switch.interfaces()), switch.find("tap1") is None))
                await asyncio.sleep(0)

        looking = group.create_task(look())
        for _ in range(200):
            await switch.add_port("br-int", "tap1", IDS)
        looking.cancel()
        assert seen == {(1, False)}


async def test_a_bridge_that_is_missing_is_named(remote):
    async with connected(remote) as switch:
        with pytest.raises(OVSError, match="no bridge br-none"):
            await switch.add_port("br-none", "tap1", IDS)
        assert not switch.interfaces()


async def test_removing_what_is_not_there_is_no_error(remote):
    async with connected(remote) as switch:
        await switch.del_port("tap1")


async def test_several_writers_of_one_bridge_do_not_collide(remote):
    async with connected(remote) as one, connected(remote) as other:
        async with asyncio.TaskGroup() as group:
            for number in range(30):
                group.create_task(one.add_port("br-int", f"one{number}", IDS))
                group.create_task(other.add_port("br-int", f"other{number}", IDS))
        await eventually(lambda: len(one.interfaces()) == len(other.interfaces()) == 60)


async def test_waiting_ends_when_the_very_row_is_installed(remote):
    async with connected(remote) as switch, asyncio.TaskGroup() as group:
        waiting = group.create_task(switch.wait_installed("tap1", "port-1"))
        await switch.add_port("br-int", "tap1", IDS)
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await install(switch, "tap1")
        async with asyncio.timeout(PATIENCE):
            assert (await waiting).installed


async def test_what_changed_while_away_is_seen_afterwards(database, remote):
    """No event says so: the copy is made anew."""
    async with connected(remote) as switch:
        await switch.add_port("br-int", "gone", IDS)
        await switch.add_port("br-int", "kept", IDS)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(switch.wait_installed("kept", "port-1"))
            database.stop()
            await eventually(lambda: not switch.connected.is_set())
            with database.elsewhere() as other_remote:
                async with connected(other_remote) as other:
                    await other.del_port("gone")
                    await install(other, "kept")
                assert switch.find("gone")
            database.start()
            await waiting
        assert [row.name for row in switch.interfaces()] == ["kept"]


async def test_ports_asked_for_while_the_server_restarts_are_made(database, remote):
    async with connected(remote) as switch:
        async with asyncio.TaskGroup() as group:
            for number in range(100):
                group.create_task(switch.add_port("br-int", f"tap{number}", IDS))
            await asyncio.sleep(0.03)
            database.stop()
            database.start()
        assert len(switch.interfaces()) == 100


async def test_a_stalled_server_blocks_nobody(database, remote):
    """One transaction is under way until its limit: only its caller waits for it. One after the
    other they would take 120 s."""
    limit = 20.0
    async with connected(remote, limit) as switch:
        commit = switch._database.commit
        with stalled(database):
            begun = time.monotonic()
            commands = [_add(switch, f"t{n}") for n in range(20)]
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(_refused(commit(c, 6.0))) for c in commands]
                longest, last = 0.0, time.monotonic()
                while not all(task.done() for task in tasks):
                    await asyncio.sleep(0.01)
                    now = time.monotonic()
                    longest, last = max(longest, now - last), now
            assert time.monotonic() - begun < 5 * limit
            assert longest < 0.9 * limit
        await switch.add_port("br-int", "tap1", IDS)
        assert {row.name for row in switch.interfaces()} <= {"tap1", "t0"}


def _add(switch, name):
    return AddPorts(switch._database, [NewPort("br-int", name, IDS)])


async def _refused(commit):
    with pytest.raises(OVSError, match="did not answer"):
        await commit


async def test_the_end_does_not_wait_for_a_stalled_server(database, remote):
    limit = 20.0
    with contextlib.ExitStack() as stack:
        async with connected(remote, limit) as switch:
            stack.enter_context(stalled(database))
            async with asyncio.TaskGroup() as group:
                for number in range(3):
                    wanted = _add(switch, f"tap{number}")
                    group.create_task(_refused(switch._database.commit(wanted, 0.2)))
            begun = time.monotonic()
        assert time.monotonic() - begun < ovsdb.STOP + 0.9 * limit


async def test_the_end_leaves_nobody_waiting(remote):
    async with asyncio.TaskGroup() as group:
        async with connected(remote, 600.0) as switch:
            adding = [
                group.create_task(_made_or_stopped(switch.add_port("br-int", f"tap{number}", IDS)))
                for number in range(20)
            ]
            await asyncio.wait(adding, return_when=asyncio.FIRST_COMPLETED)
        async with asyncio.timeout(PATIENCE / 2):  # by then their own time is not up
            await asyncio.wait(adding)


async def _made_or_stopped(commit):
    with contextlib.suppress(OVSError):
        await commit


async def test_marks_that_come_together_are_one_transaction(database, remote):
    async with connected(remote) as switch:
        for number in range(20):
            await switch.add_port("br-int", f"tap{number}", IDS)
        told = []
        switch._database._changed, hear = told.append, switch._database._changed
        rows = [row.row for row in switch.interfaces()]
        async with asyncio.TaskGroup() as group:
            marks = [group.create_task(switch.mark(row, {OURS: row})) for row in rows]
        switch._database._changed = hear
        assert all(mark.result() for mark in marks)
        assert len(told) <= 2  # the first one, and all that came meanwhile
        assert sum(map(len, told)) == 20


async def test_mark_changes_no_other_id_and_can_be_taken_away(remote):
    async with connected(remote) as switch:
        await switch.add_port("br-int", "tap1", IDS)
        await install(switch, "tap1")
        row = switch.find("tap1").row
        assert await switch.mark(row, {"kuryr-netns": "x"})
        assert switch.find("tap1").external_ids == IDS | {
            "ovn-installed": "true",
            "kuryr-netns": "x",
        }
        assert await switch.mark(row, {"kuryr-netns": None})
        assert switch.find("tap1").external_ids == IDS | {"ovn-installed": "true"}


async def test_mark_of_a_row_that_is_gone_says_so_and_spoils_no_other(remote):
    async with connected(remote) as switch:
        await switch.add_port("br-int", "tap1", IDS)
        await switch.add_port("br-int", "tap2", IDS)
        gone, there = switch.find("tap1").row, switch.find("tap2").row
        await switch.del_port("tap1")
        async with asyncio.TaskGroup() as group:
            lost = group.create_task(switch.mark(gone, {OURS: "c9"}))
            made = group.create_task(switch.mark(there, {OURS: "c9"}))
        assert (lost.result(), made.result()) == (False, True)
        assert switch.find("tap2").external_ids[OURS] == "c9"


async def test_mark_whose_caller_left_keeps_nobody_from_being_marked(database, remote):
    async with connected(remote) as switch:
        for name in ("tap1", "tap2"):
            await switch.add_port("br-int", name, IDS)
        one, other = switch.find("tap1").row, switch.find("tap2").row
        async with asyncio.TaskGroup() as group:
            with stalled(database):
                first = group.create_task(switch.mark(one, {OURS: "c9"}))
                second = group.create_task(switch.mark(other, {OURS: "c9"}))
                third = group.create_task(switch.mark(other, {"kuryr-netns": "x"}))
                await eventually(lambda: len(switch._marking._asked) == 2)
                second.cancel()
                await asyncio.wait([second])
        assert first.result()
        assert third.result()
        assert switch.find("tap2").external_ids["kuryr-netns"] == "x"
        assert switch.find("tap2").external_ids[OURS] == "c1"
