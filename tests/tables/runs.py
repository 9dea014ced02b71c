"""One run of a life, undisturbed or with one fault in it, and what differs between the two."""

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass, field

from tests.kit.controllers import Crash, Keeper
from tests.kit.fakes.faults import Hang
from tests.kit.ledger import one_holder_each
from tests.kit.pair import Kill, Late
from tests.tables.state import differences, state_of
from tests.tables.targets import Place, places, writes

LATE = 1.3  # seconds: longer than a first back-off and than the Retry-After below
CORRECTED = 40.0  # seconds in which sweeps undo what a late write did
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
    ("kube", "patch", "neutronports/status"),  # binds it to the Pod
    ("kube", "create", "neutronports"),  # for the Pod, or for the next one
    ("kube", "patch", "neutronports"),
    ("neutron", "POST", "/v2.0/ports"),
    ("neutron", "PUT", "/v2.0/ports/{id}"),  # takes a port that a user made
    ("neutron", "PUT", "/v2.0/ports/{id}/tags/{tag}"),  # and attaches it to a trunk
    ("neutron", "PUT", "/v2.0/trunks/{id}/add_subports"),
}

# The one that takes over tells how far a Service is, and the other one had not come so far.
TOLD = ("kube", "patch", "services/status")

# The one that takes over may delete what the other one has begun to delete: Octavia refuses that
# (409), or it is gone by then (404).
REMOVED = ("neutron", "DELETE", "/load-balancer/v2.0/lbaas/loadbalancers/{id}")

# A port of a pool that is not attached to its trunk is no port to give away: another one is made.
# Pools are filled beside all else, so any crash may come between the creation and this, and all
# ports of one creation may be in that state.
ATTACH = ("neutron", "PUT", "/v2.0/trunks/{id}/add_subports")
# By these writes a controller lets a port leave its pool.
DISMISSALS = (("neutron", "PUT", "/v2.0/ports/{id}"), ("kube", "patch", "kuryrportpools"))

# Any of these that comes late may leave a pool without a maximum with more ports for good: ports
# that it made, or one that was withheld, since the KuryrPort that came might have been given it
# by the former leader. Its Pod does not wait until that is known.
LEAVES_PORTS = (("neutron", "POST", "/v2.0/ports"), ("kube", "create", "kuryrports"))

REPLACED = (
    ("neutron", "POST", "/v2.0/ports"),
    ("neutron", "PUT", "/v2.0/ports/{id}"),
    ("neutron", "DELETE", "/v2.0/ports/{id}"),
)


@dataclass
class Record:
    """An undisturbed life: its states at each moment, and every request in it."""

    states: dict = field(default_factory=dict)
    places: list = field(default_factory=list)
    batched: frozenset = frozenset()  # kinds of writes that are as many as the time allowed
    before: dict = field(default_factory=dict)  # the writes before each moment
    held_twice: list = field(default_factory=list)  # ports that two Pods had at the same time
    batch: int = 0  # ports that are made for pools at once; 0: there are no pools
    corrected: bool = False  # something was undone, in writes of which none are counted
    # Patches of what was gone already, which change nothing: watches of two resources are in no
    # order, and whoever sees a Service's Endpoints go first moves what they said to the Service.
    found_nothing: Counter = field(default_factory=Counter)

    @property
    def writes(self):
        return [place for place in self.places if place.is_write]

    @property
    def has_vifs(self):
        """Whether there were interfaces at any moment."""
        found = [port for state in self.states.values() for port in state["kuryrports"]]
        return any(port.get("status", {}).get("vifs") for port in found)

    @property
    def attaches(self):
        """Whether ports are attached to a trunk."""
        return any(place[:3] == ATTACH for place in self.places)

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
            wanted = record.states if isinstance(action, Late) else None
            found = await _live(stage, life, crash.on(stage), groups, keeping, wanted)
        except Exception as error:
            requests = ", ".join(map(str, places(stage)[-8:]))
            cell.problems.append(f"never came to its end: {error!r}; last {requests}")
            return cell
        finally:
            _let_go(action)
        if not rule.hits:
            cell.problems.append("there was no such request")
    cell.problems += found.held_twice
    compare(
        cell,
        record,
        found,
        crashed=isinstance(action, Crash),
        taken_over=isinstance(action, Kill),
    )
    return cell


def compare(cell, record, found, *, crashed=False, taken_over=False):
    """Put into the cell what differs from the undisturbed record."""
    for moment, state in record.states.items():
        lines = differences(state, found.states[moment])
        if found.corrected:  # Events may tell of what was undone
            lines = [line for line in lines if not line.startswith("events")]
        if found.corrected and record.batch:
            lines = _without_what_late_leaves(cell, record, state, lines)
        cell.problems += [f"{moment}: {line}" for line in lines]
    if found.corrected:
        return
    repeated = Counter(place[:3] for place in found.writes)
    repeated.subtract(place[:3] for place in record.writes)
    repeated.subtract(found.found_nothing)
    repeated.update(record.found_nothing)
    cell.extra = sum(repeated.values())
    if isinstance(cell.place, Place) and cell.place.is_write:
        repeated[cell.place[:3]] -= 1  # it may be made once more
        if crashed and cell.place[:3] in RECORDED_BY:
            repeated[RECORDED_BY[cell.place[:3]]] -= 1
        if crashed and record.attaches and repeated[ATTACH] <= 0:
            repeated.subtract(REPLACED * record.batch)
        if taken_over:
            repeated[TOLD] -= 1
            repeated[REMOVED] -= 1
        if crashed and (cell.place[:3] in BEFORE_VIFS or not record.has_vifs):
            repeated[MOVE] -= 1
    cell.problems += [
        f"{times} more {' '.join(kind)} than needed"
        for kind, times in repeated.items()
        if times > 0 and kind[2] not in record.batched
    ]


def _without_what_late_leaves(cell, record, state, lines):
    """The differences without those in numbers of ports that a late write may leave for good."""
    number = len(state["ports"])
    if cell.place[:3] in LEAVES_PORTS:
        for more in range(1, record.batch + 1):
            kept = [f"ports: {number + more}, undisturbed {number}"]
            for nth, trunk in enumerate(state["trunks"]):
                attached = len(trunk["sub_ports"])
                kept.append(f"trunks[{nth}].sub_ports: {attached + more}, undisturbed {attached}")
            if kept[0] in lines:
                return [line for line in lines if line not in kept]
        return lines
    last = "ports: 0, undisturbed 1"
    if cell.place[:3] in DISMISSALS and last in lines:  # an empty pool rests until it is asked
        return [line for line in lines if line != last and not line.startswith("trunks[")]
    return lines


async def strike_all(lanes, life, record, chosen, **how):
    """Run the life once for each chosen (request, faults by name), many at the same time."""
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(struck(lanes, life, record, place, fault, make, **how))
            for place, faults in chosen
            for fault, make in faults.items()
        ]
    return [task.result() for task in tasks]


async def _live(stage, life, crash, groups, keeping=Keeper, wanted=None):
    """`wanted`: the states that are waited for, since a write that came late is undone by then."""
    record = Record(
        batched=frozenset(life.batched),
        batch=int(life.options.get("vif_pool", {}).get("ports_pool_batch", 0)),
        corrected=wanted is not None,
    )

    async def at(moment):
        if wanted is not None:
            await _undone(stage, crash, wanted[moment])
        record.states[moment] = await state_of(stage)
        record.before[moment] = frozenset(writes(stage))

    options = {
        name: {**life.options.get(name, {}), **groups.get(name, {})}
        for name in life.options.keys() | groups.keys()
    }
    keeper = keeping(stage, crash.on(stage), **options)
    async with (
        asyncio.timeout(PATIENCE),
        one_holder_each(stage) as record.held_twice,
        keeper.keeping(),
    ):
        await life.steps(stage, keeper, at)
        await asyncio.sleep(LATE)  # nothing may come any more: that takes time to see
    record.places = places(stage)
    record.found_nothing.update(
        {("kube", "patch", what): number for what, number in stage.proxy.found_nothing.items()}
    )
    return record


async def _undone(stage, crash, wanted):
    """Let the late write arrive, and wait until nothing of it is left."""
    if await crash.land():
        await asyncio.sleep(LATE)  # what it causes takes time to see

    async def as_undisturbed():
        return not differences(wanted, await state_of(stage))

    with contextlib.suppress(TimeoutError):  # the comparison tells what is left
        await stage.until(as_undisturbed, within=CORRECTED)


def _let_go(action):
    if isinstance(action, Hang):
        action.release()
