"""An aiohttp server's end, also where a client connects at the very last moment."""

import asyncio

from aiohttp import web


async def close(runner: web.AppRunner) -> None:
    """Clean up; then close what was being accepted meanwhile, which nobody else would."""
    server = runner.server
    await runner.cleanup()
    accepting = [
        task
        for task in asyncio.all_tasks()
        if getattr(task.get_coro(), "__name__", "") == "_accept_connection2"
    ]
    if accepting:
        await asyncio.wait(accepting)
    if server is not None:
        await server.shutdown(0)
