"""A program that ends while it starts to serve leaves no socket that listens."""

import asyncio
import contextlib
import socket

from prometheus_client import CollectorRegistry

from kuryr_k8s.engine.health import HealthServer

STEPS = 12  # of the loop, in which it serves long since


async def answered(port):
    """Whether anybody listens there."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


@contextlib.asynccontextmanager
async def running(server, steps):
    """So many steps of the loop after its start; ended afterwards."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(server.run())
        for _ in range(steps):
            await asyncio.sleep(0)
        yield
        task.cancel()


async def test_start_that_is_cancelled_at_any_step_leaves_nobody_listening():
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    for steps in range(STEPS):
        server = HealthServer("127.0.0.1", port, {}, CollectorRegistry())
        async with running(server, steps):
            pass
        assert not await answered(port), f"cancelled after {steps} steps"
    async with running(server, STEPS):
        assert await answered(port)
