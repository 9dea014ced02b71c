"""Ports asked for together are made together; each caller gets its own answer."""

import asyncio

import pytest

from kuryr_k8s import errors
from kuryr_k8s.cloud.mark import ClusterMark
from kuryr_k8s.cloud.neutron.api import Neutron
from kuryr_k8s.cloud.neutron.port_batches import IN_FLIGHT, SIZE, PortBatches
from kuryr_k8s.engine.limit import Priority, current_priority, prioritized


class Cloud:
    """Takes batches; those that hold a body with an error are refused as a whole."""

    def __init__(self):
        self.batches = []
        self.held = None
        self._sent = asyncio.Condition()

    async def send(self, bodies):
        self.batches.append([body["name"] for body in bodies])
        async with self._sent:
            self._sent.notify_all()
        if self.held is not None:
            await self.held.wait()
        for body in bodies:
            if "error" in body:
                raise body["error"]
        return [{"id": f"port-{body['name']}"} for body in bodies]

    async def until_sent(self, number):
        async with self._sent:
            await self._sent.wait_for(lambda: len(self.batches) >= number)

    @property
    def sizes(self):
        return [len(batch) for batch in self.batches]


@pytest.fixture
def cloud():
    return Cloud()


async def ask(batches, numbers, **error):
    """All at once; the port or the error of each."""
    return await outcomes(batches.create({"name": str(number), **error}) for number in numbers)


async def outcome(wanted):
    try:
        return await wanted
    except errors.CloudError as error:
        return error


async def outcomes(wanted):
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(outcome(coroutine)) for coroutine in wanted]
    return [task.result() for task in tasks]


async def test_one_port_alone_goes_at_once(cloud):
    assert await PortBatches(cloud.send).create({"name": "a"}) == {"id": "port-a"}
    assert cloud.batches == [["a"]]


async def test_everybody_gets_the_port_asked_for(cloud):
    ports = await ask(PortBatches(cloud.send), range(100))
    assert ports == [{"id": f"port-{number}"} for number in range(100)]
    assert len(cloud.batches) == 5
    assert max(cloud.sizes) <= SIZE


async def test_requests_in_flight_are_limited_and_the_others_gather(cloud):
    cloud.held = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(ask(PortBatches(cloud.send), range(500)))
        await cloud.until_sent(IN_FLIGHT)
        cloud.held.set()
    assert cloud.sizes[:IN_FLIGHT] == [SIZE] * IN_FLIGHT
    assert asking.result() == [{"id": f"port-{number}"} for number in range(500)]


async def test_one_port_that_is_refused_does_not_take_the_others_with_it(cloud):
    refusal = errors.OverQuota("quota", status=409)
    bodies = [{"name": str(number)} for number in range(9)] + [{"name": "9", "error": refusal}]
    batches = PortBatches(cloud.send)
    answers = await outcomes(batches.create(body) for body in bodies)
    assert answers == [{"id": f"port-{number}"} for number in range(9)] + [refusal]


async def test_those_who_shared_a_request_with_a_refused_port_get_theirs(cloud):
    refusal = errors.OverQuota("quota", status=409)
    bodies = [{"name": str(number)} for number in range(12)]
    bodies[4]["error"] = refusal
    batches = PortBatches(cloud.send)
    answers = await outcomes(batches.create(body) for body in bodies)
    [refused] = [batch for batch in cloud.batches if "4" in batch and len(batch) > 1]
    expected = [{"id": f"port-{number}"} for number in range(12)]
    assert answers == [*expected[:4], refusal, *expected[5:]]
    alone = [batch for batch in cloud.batches if len(batch) == 1]
    assert sorted(alone) == [[name] for name in refused]  # nobody else's is repeated


@pytest.mark.parametrize("status", [0, 401, 429, 500, 503])
async def test_failure_that_says_nothing_about_the_ports_is_not_multiplied(cloud, status):
    failure = errors.CloudError("no", status=status)
    assert await ask(PortBatches(cloud.send), range(8), error=failure) == [failure] * 8
    assert sum(cloud.sizes) == 8


async def test_sender_that_is_cancelled_leaves_nobody_waiting(cloud):
    cloud.held = asyncio.Event()
    batches = PortBatches(cloud.send)
    async with asyncio.TaskGroup() as group:
        callers = [
            group.create_task(outcome(batches.create({"name": str(number)})))
            for number in range(8)
        ]
        await cloud.until_sent(4)
        for caller in callers[::2]:  # each batch of two is sent by its first
            caller.cancel()
    assert all(caller.cancelled() for caller in callers[::2])
    assert all(isinstance(caller.result(), errors.CloudError) for caller in callers[1::2])
    cloud.held = None
    assert await batches.create({"name": "next"}) == {"id": "port-next"}


async def test_sender_that_is_cancelled_before_it_began_leaves_nobody_waiting(cloud):
    batches = PortBatches(cloud.send)
    async with asyncio.TaskGroup() as group:
        callers = [
            group.create_task(outcome(batches.create({"name": str(number)})))
            for number in range(8)
        ]
        await asyncio.sleep(0)  # they wait
        batches._divide()  # the timer strikes, and in the same turn of the loop:
        callers[0].cancel()
    assert callers[0].cancelled()
    assert isinstance(callers[1].result(), errors.CloudError)
    assert [caller.result() for caller in callers[2:]] == [
        {"id": f"port-{number}"} for number in range(2, 8)
    ]


async def test_senders_that_are_cancelled_before_they_began_leave_room_for_others(cloud):
    batches = PortBatches(cloud.send)
    for _ in range(IN_FLIGHT):
        async with asyncio.TaskGroup() as group:
            caller = group.create_task(batches.create({"name": "given up"}))
            await asyncio.sleep(0)  # it waits
            batches._divide()  # the timer strikes, and in the same turn of the loop:
            caller.cancel()
    async with asyncio.timeout(60):
        assert await batches.create({"name": "next"}) == {"id": "port-next"}
    assert cloud.batches == [["next"]]


async def test_caller_who_gave_up_waiting_gets_no_port(cloud):
    cloud.held = asyncio.Event()
    batches = PortBatches(cloud.send)
    async with asyncio.TaskGroup() as group:
        for number in range(IN_FLIGHT * SIZE):
            group.create_task(batches.create({"name": str(number)}))
        await cloud.until_sent(IN_FLIGHT)
        late = [group.create_task(batches.create({"name": f"late-{n}"})) for n in range(3)]
        await asyncio.sleep(0)  # they wait
        late[1].cancel()
        cloud.held.set()
    sent = {name for batch in cloud.batches for name in batch}
    assert {"late-0", "late-2"} <= sent
    assert "late-1" not in sent


class Transport:
    """Creates whatever ports are asked for, and notes the priority at which it was asked."""

    def __init__(self):
        self.created = {}

    async def call(self, _method, _path, *, body):
        bodies = body.get("ports") or [body["port"]]
        self.created |= {port["device_id"]: current_priority() for port in bodies}
        made = [{"id": port["device_id"], **port} for port in bodies]
        return {"ports": made} if "ports" in body else {"port": made[0]}


async def test_what_a_pod_waits_for_is_not_sent_at_the_priority_of_what_nobody_waits_for():
    transport = Transport()
    neutron = Neutron(transport, ClusterMark("uid"))
    neutron.keeps_tags = True

    async def create(priority, number):
        with prioritized(priority):
            await neutron.create_port({"device_id": f"{priority.name} {number}"})

    async with asyncio.TaskGroup() as group:
        for priority in (Priority.REFILL, Priority.POD):
            for number in range(5):
                group.create_task(create(priority, number))
    assert len(transport.created) == 10
    assert all(name.startswith(asked.name) for name, asked in transport.created.items())
