"""Keeps a controller running over a life: another one follows on a crash or new options."""

import asyncio
import contextlib

from tests.kit.fakes.faults import Answer, cut, drop


class Crash:
    """A fault that is the controller's death, as by kill -9: nothing of it arrives any more."""

    def __init__(self, *, applied):
        self.struck = asyncio.Event()
        self._applied = applied
        self._sides = ()
        self._silence = []

    def on(self, stage):
        """The stage that it is to happen on."""
        self._sides = (stage.proxy, stage.cloud)
        return self

    async def __call__(self, request, proceed):
        self._silence = [
            (side.calls, len(side.calls), side.faults.add(times=None, action=cut()))
            for side in self._sides
        ]
        if self._applied:
            with contextlib.suppress(Answer):  # it dies of a refusal as well
                await proceed()
        self.struck.set()
        return drop(request)

    def bury(self):
        """The process is gone; what it would have sent meanwhile was never sent."""
        for calls, number, rule in self._silence:
            rule.remove()
            del calls[number:]
        self.struck.clear()


class Keeper:
    """Runs controllers on a stage, one after another; ``app`` is the present one."""

    def __init__(self, stage, crash, **groups):
        self._stage = stage
        self._crash = crash
        self._groups = groups
        self.app = None
        self._leads = asyncio.Event()
        self._replace = asyncio.Event()

    @contextlib.asynccontextmanager
    async def keeping(self):
        """Controllers run while the block does; the first one leads when it begins."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self._run())
            await self._leads.wait()
            yield self
            task.cancel()

    async def restart(self, **groups):
        """Another controller with these options besides; returns when it leads."""
        self._groups = self._groups | groups
        self._leads.clear()
        self._replace.set()
        await self._leads.wait()

    async def _run(self):
        while True:
            groups = {name: dict(values) for name, values in self._groups.items()}
            async with self._stage.controller(**groups) as self.app:
                self._leads.set()
                await self._until_over()
            self._replace.clear()
            if self._crash.struck.is_set():
                self._crash.bury()

    async def _until_over(self):
        async with asyncio.TaskGroup() as group:
            ends = [
                group.create_task(event.wait()) for event in (self._crash.struck, self._replace)
            ]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in ends:
                task.cancel()
