"""Lives with two processes, of which the leading one gets a signal in the midst of a write."""

import asyncio
import contextlib
import signal

from tests.kit.fakes.faults import Hang, drop
from tests.kit.processes import two
from tests.tables.runs import LATE, Cell
from tests.tables.state import differences, state_of

LONG = 150.0  # seconds in which the other one makes good what came late
SWEEPS = {"sweep_interval": "1"}  # what comes late may be a case for them


class Struck:
    """What becomes of the leading process; its write is held until the other one stands by."""

    name: str

    def __init__(self):
        self.leader = asyncio.get_running_loop().create_future()
        self.is_struck = self.is_over = False


class Frozen(Struck):
    """It is stopped; the write is carried out, and it wakes, when all is done without it."""

    name = "frozen"

    def __init__(self):
        super().__init__()
        self._held = Hang()

    async def __call__(self, request, proceed):
        (await self.leader).send(signal.SIGSTOP)
        self.is_struck = True
        return await self._held(request, proceed)

    async def end(self):
        """Let the write arrive, and the process end."""
        self.is_over = True
        self._held.release()
        process = await self.leader
        process.send(signal.SIGCONT)
        await process.ended()
        await asyncio.sleep(LATE)  # what it causes takes time to see


class Ended(Struck):
    """It gets a signal that ends it; the write is carried out, and nobody hears of it."""

    number: signal.Signals

    async def __call__(self, request, proceed):
        process = await self.leader
        await proceed()  # first: the proxy drops what its client does not wait for
        process.send(self.number)
        self.is_struck = True
        return drop(request)

    async def end(self):
        """Wait until it has ended."""
        self.is_over = True
        await (await self.leader).ended()


class Killed(Ended):
    name = "SIGKILL"
    number = signal.SIGKILL


class Terminated(Ended):
    name = "SIGTERM"
    number = signal.SIGTERM


async def signalled(lanes, life, record, places, how, *, at_once, seen=None, **options):
    """Live it once for each of these writes, with the leader struck in the midst of it; the cells.

    :param how: a class of this module.
    :param seen: is called with the stage at each moment; what it returns must never change.
    :param at_once: so many lives, each of which starts two processes.
    """
    some = asyncio.Semaphore(at_once)

    async def cell(place):
        made = Cell(life.name, place, how.name, [])
        async with some:
            try:
                await _live(lanes, life, record, made, how, seen, options)
            except (TimeoutError, AssertionError, BaseExceptionGroup) as error:
                made.problems.append(f"never came to its end: {error!r}")
        return made

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(cell(place)) for place in places]
    return [task.result() for task in tasks]


async def _live(lanes, life, record, cell, how, seen, options):
    shown = set()
    action = how()
    async with contextlib.AsyncExitStack() as stack:
        stage = await stack.enter_async_context(lanes.open())
        cell.place.strike(stage, action)
        both = two(stage, neutron_defaults=SWEEPS, **options)
        first, second = await stack.enter_async_context(both)
        action.leader.set_result(first)

        def note():
            if seen is not None:
                shown.add(seen(stage))

        async def at(moment):
            wanted = record.states[moment]
            if action.is_struck and not action.is_over:
                await stage.until(second.leads, within=LONG)  # what was done before may suffice
                cell.problems += differences(wanted, await state_of(stage))
                note()
                await action.end()

            async def as_undisturbed():
                return not differences(wanted, await state_of(stage))

            try:
                await stage.until(as_undisturbed, within=LONG)
            except TimeoutError:
                cell.problems += differences(wanted, await state_of(stage))
            note()

        await life.steps(stage, None, at)
        if not action.is_over:
            cell.problems.append("it was not struck")
    if len(shown) > 1:
        cell.problems.append(f"there were {len(shown)}: {sorted(shown)}")
