"""One run of a life, undisturbed or with one fault in it, and what differs between the two."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from tests.kit.controllers import Crash, Keeper
from tests.kit.fakes.faults import Hang
from tests.tables.state import differences, state_of
from tests.tables.targets import Place, places, writes

LATE = 1.3  # seconds: longer than a first back-off and than the Retry-After below
PATIENCE = 250.0  # seconds for a whole run

# What the one write did is recorded by the other. A controller that follows on a crash between
# the two makes it again: that is how it finds out.
RECORDED_BY = {
    ("kube", "patch", "kuryrports"): ("neutron", "DELETE", "/v2.0/ports/{id}"),
    ("kube", "patch", "kuryrports/status"): ("neutron", "PUT", "/v2.0/ports/{id}"),
}
# Whoever follows on a crash moves the KuryrPort that has no interfaces yet: its predecessor's
# request may be under way.
MOVE = ("kube", "patch", "kuryrports")
BEFORE_VIFS = {
    ("kube", "create", "kuryrports"),
    ("kube", "patch", "kuryrports/status"),
    ("neutron", "POST", "/v2.0/ports"),
    ("neutron", "PUT", "/v2.0/trunks/{id}/add_subports"),
}


@dataclass
class Record:
    """An undisturbed life: its states at each moment, and every request in it."""

    states: dict = field(default_factory=dict)
    places: list = field(default_factory=list)
    batched: frozenset = frozenset()  # kinds of writes that are as many as the time allowed
    before: dict = field(default_factory=dict)  # the writes before each moment

    @property
    def writes(self):
        return [place for place in self.places if place.is_write]

    @property
    def has_vifs(self):
        """Whether there were interfaces at any moment."""
        found = [port for state in self.states.values() for port in state["kuryrports"]]
        return any(port.get("status", {}).get("vifs") for port in found)

    @property
    def reads(self):
        return [place for place in self.places if not place.is_write]


@dataclass
class Cell:
    """One fault at one request of a life."""

    life: str
    place: object
    fault: str
    problems: list
    extra: int = 0

    def __str__(self):
        return "; ".join([f"{self.life}: {self.fault} at {self.place}", *self.problems])

    @property
    def brief(self):
        """The cell in the table: all is well, or how many writes more, or another difference."""
        number = f"{self.extra:+d}" if self.extra else ""
        return f"DIFF{number}" if self.problems else f"ok{number}"


async def undisturbed(lanes, life, **groups):
    """The record of the life without any fault."""
    async with lanes.open() as stage:
        return await _live(stage, life, Crash(applied=False), groups)


async def struck(lanes, life, record, place, fault, make, *, keeping=Keeper, **groups):
    """Live it again with one request struck; the cell says what came out otherwise.

    `keeping` is the class that runs the controllers.
    """
    cell = Cell(life.name, place, fault, [])
    async with lanes.open() as stage:
        action = make()
        crash = action if isinstance(action, Crash) else Crash(applied=False)
        rule = place.strike(stage, action)
        try:
            found = await _live(stage, life, crash.on(stage), groups, keeping)
        except Exception as error:
            requests = ", ".join(map(str, places(stage)[-8:]))
            cell.problems.append(f"never came to its end: {error!r}; last {requests}")
            return cell
        finally:
            _let_go(action)
        if not rule.hits:
            cell.problems.append("there was no such request")
    compare(cell, record, found, crashed=isinstance(action, Crash))
    return cell


def compare(cell, record, found, *, crashed=False):
    """Put into the cell what differs from the undisturbed record."""
    for moment, state in record.states.items():
        lines = differences(state, found.states[moment])
        cell.problems += [f"{moment}: {line}" for line in lines]
    repeated = Counter(place[:3] for place in found.writes)
    repeated.subtract(place[:3] for place in record.writes)
    cell.extra = sum(repeated.values())
    if isinstance(cell.place, Place) and cell.place.is_write:
        repeated[cell.place[:3]] -= 1  # it may be made once more
        if crashed and cell.place[:3] in RECORDED_BY:
            repeated[RECORDED_BY[cell.place[:3]]] -= 1
        if crashed and (cell.place[:3] in BEFORE_VIFS or not record.has_vifs):
            repeated[MOVE] -= 1
    cell.problems += [
        f"{times} more {' '.join(kind)} than needed"
        for kind, times in repeated.items()
        if times > 0 and kind[2] not in record.batched
    ]


async def strike_all(lanes, life, record, chosen, **how):
    """Run the life once for each chosen (request, faults by name), many at the same time."""
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(struck(lanes, life, record, place, fault, make, **how))
            for place, faults in chosen
            for fault, make in faults.items()
        ]
    return [task.result() for task in tasks]


async def _live(stage, life, crash, groups, keeping=Keeper):
    record = Record(batched=frozenset(life.batched))

    async def at(moment):
        record.states[moment] = await state_of(stage)
        record.before[moment] = frozenset(writes(stage))

    options = {**life.options, **groups}
    keeper = keeping(stage, crash.on(stage), **options)
    async with asyncio.timeout(PATIENCE), keeper.keeping():
        await life.steps(stage, keeper, at)
        await asyncio.sleep(LATE)  # nothing may come any more: that takes time to see
    record.places = places(stage)
    return record


def _let_go(action):
    if isinstance(action, Hang):
        action.release()
