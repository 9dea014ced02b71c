"""A past to which the API server returns, as after a restore from a backup, for many lives."""

import asyncio

from tests.kit.controllers import Crash, Keeper


class Past:
    """The moment of the copy, and the return to it, for all lives of a test."""

    def __init__(self, server, client, lives, *, restarted):
        self.proxies = []  # of the lives
        self._server, self._client = server, client
        self._ready = asyncio.Barrier(lives)
        self._done = asyncio.Barrier(lives)
        self._copied, self._rewound = asyncio.Event(), asyncio.Event()
        self._restarted = restarted
        self._copy = None

    @property
    def is_behind(self):
        return self._rewound.is_set()

    async def copy(self):
        """The copy is made when all lives stand where it is to find them."""
        if await self._ready.wait() == 0:
            self._copy = await asyncio.to_thread(self._server.snapshot)
            self._copied.set()
        await self._copied.wait()

    async def come_back(self, keeper):
        """Everything since the copy has never happened."""
        if await self._done.wait() == 0:
            await self._much_happens()
            await self._go_away()
            await asyncio.to_thread(self._server.rewind, self._copy)
            self._rewound.set()
        await self._rewound.wait()
        if self._restarted:
            await keeper.restart()

    async def _go_away(self):
        """A copy is not restored in a moment: whoever watches asks in vain meanwhile."""
        watched = [(proxy, each.resource) for proxy in self.proxies for each in proxy.streams]
        await asyncio.to_thread(self._server.stop_apiserver, kill=True)
        before = {(proxy, what): _asked(proxy, what) for proxy, what in watched}
        for proxy, what in watched:
            await proxy.wait_for(
                lambda proxy=proxy, what=what: _asked(proxy, what) > before[proxy, what] + 1
            )

    async def _much_happens(self):
        """A backup is old: the versions of the lost past are ahead of the present ones."""
        path = "/api/v1/namespaces/default"
        for number in range(500):
            await self._client.patch(path, {"metadata": {"labels": {"number": f"n{number}"}}})


def _asked(proxy, resource):
    return proxy.calls.count("list", resource) + proxy.calls.count("watch", resource)


async def lived_again(lanes, points, groups_of, *, restarted):
    """Live these lives, which are all set back at once; what came out wrong, in a line each.

    :param points: coroutine functions of the stage, the past, and what runs the controllers.
    :param groups_of: tells the options of the controller, for a point.
    :param restarted: the controllers are, when all is set back.
    """
    past = Past(lanes.server, lanes.client, len(points), restarted=restarted)
    problems = []

    async def life(point):
        groups = groups_of(point)
        # the Lease outlives the server's absence
        groups["kubernetes"] = groups.get("kubernetes", {}) | {"lease_duration": "180"}
        async with lanes.open() as stage:
            past.proxies.append(stage.proxy)
            crash = Crash(applied=False).on(stage)
            async with Keeper(stage, crash, **groups).keeping() as keeper:
                try:
                    await point(stage, past, keeper)
                except (AssertionError, TimeoutError) as error:
                    if not past.is_behind:
                        raise  # the others would wait for it
                    problems.append(
                        f"{point.__name__}: {error!r}; ports {list(stage.cloud.ports)}"
                    )

    async with asyncio.timeout(250), asyncio.TaskGroup() as group:
        for point in points:
            group.create_task(life(point))
    return problems
