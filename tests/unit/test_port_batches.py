"""Ports asked for together are made together; each caller gets its own answer."""

import asyncio

import pytest

from kuryr_k8s import errors
from kuryr_k8s.cloud.port_batches import IN_FLIGHT, SIZE, PortBatches


class Cloud:
    """Takes batches; those that hold a body with an error are refused as a whole."""

    def __init__(self):
        self.batches = []
        self.held = None

    async def send(self, bodies):
        self.batches.append([body["name"] for body in bodies])
        if self.held is not None:
            await self.held.wait()
        for body in bodies:
            if "error" in body:
                raise body["error"]
        return [{"id": f"port-{body['name']}"} for body in bodies]

    @property
    def sizes(self):
        return [len(batch) for batch in self.batches]


@pytest.fixture
def cloud():
    return Cloud()


async def ask(batches, numbers, **error):
    wanted = [batches.create({"name": str(number), **error}) for number in numbers]
    return await asyncio.gather(*wanted, return_exceptions=True)


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
    batches = PortBatches(cloud.send)
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(ask(batches, range(500)))
        while len(cloud.batches) < IN_FLIGHT:
            await asyncio.sleep(0)
        cloud.held.set()
    assert cloud.sizes[:IN_FLIGHT] == [SIZE] * IN_FLIGHT
    assert len(asking.result()) == 500
    assert not any(isinstance(port, Exception) for port in asking.result())


async def test_one_port_that_is_refused_does_not_take_the_others_with_it(cloud):
    batches = PortBatches(cloud.send)
    refusal = errors.OverQuota("quota", status=409)
    good, bad = await asyncio.gather(
        ask(batches, range(9)), ask(batches, range(9, 10), error=refusal)
    )
    assert good == [{"id": f"port-{number}"} for number in range(9)]
    assert bad == [refusal]


@pytest.mark.parametrize("status", [0, 401, 429, 500, 503])
async def test_failure_that_says_nothing_about_the_ports_is_not_multiplied(cloud, status):
    failure = errors.CloudError("no", status=status)
    assert await ask(PortBatches(cloud.send), range(8), error=failure) == [failure] * 8
    assert sum(cloud.sizes) == 8


async def test_sender_that_is_cancelled_leaves_nobody_waiting(cloud):
    cloud.held = asyncio.Event()
    batches = PortBatches(cloud.send)
    callers = [asyncio.create_task(batches.create({"name": str(n)})) for n in range(8)]
    while len(cloud.batches) < 4:
        await asyncio.sleep(0)
    for caller in callers[::2]:  # each batch of two is sent by its first
        caller.cancel()
    done = await asyncio.gather(*callers, return_exceptions=True)
    assert [type(one) for one in done] == [asyncio.CancelledError, errors.CloudError] * 4
    cloud.held = None
    assert await batches.create({"name": "next"}) == {"id": "port-next"}


async def test_sender_that_is_cancelled_before_it_began_leaves_nobody_waiting(cloud):
    batches = PortBatches(cloud.send)
    callers = [asyncio.create_task(batches.create({"name": str(n)})) for n in range(8)]
    await asyncio.sleep(0)  # they wait
    batches._divide()  # the timer strikes, and in the same turn of the loop:
    callers[0].cancel()
    done = await asyncio.gather(*callers, return_exceptions=True)
    assert isinstance(done[0], asyncio.CancelledError)
    assert isinstance(done[1], errors.CloudError)
    assert done[2:] == [{"id": f"port-{n}"} for n in range(2, 8)]


async def test_caller_who_gave_up_waiting_gets_no_port(cloud):
    cloud.held = asyncio.Event()
    batches = PortBatches(cloud.send)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(batches.create({"name": "first"}))
        while not cloud.batches:
            await asyncio.sleep(0)
        late = [asyncio.create_task(batches.create({"name": f"late-{n}"})) for n in range(3)]
        await asyncio.sleep(0)
        late[1].cancel()
        cloud.held.set()
        rest = group.create_task(asyncio.wait(late))
    assert first.result() == {"id": "port-first"}
    assert len(rest.result()[0]) == 3
    assert "late-1" not in sum(cloud.batches, [])
