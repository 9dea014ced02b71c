"""Two controllers on a stage, as on two hosts: one leads, and the other follows when it dies."""

import asyncio
import contextlib
import itertools

from tests.kit.clock import SkippingClock
from tests.kit.controllers import Crash, Keeper
from tests.kit.fakes.faults import Answer, drop
from tests.kit.fakes.relay import Relay
from tests.lives.pods import LONG

LEASES = "/apis/coordination.k8s.io/v1/leases"  # of all namespaces
# Seconds, and those between two looks for who holds it. Two thirds of it is much longer than a
# loop with many controllers is late; nobody waits for its end, see Pair.
LEASE = 120.0
LOOK = 0.3


class Kill(Crash):
    """The death of the one that leads: its wires are cut in the midst of a request."""

    def __init__(self, *, applied):
        super().__init__(applied=applied)
        self.victim = None

    async def __call__(self, request, proceed):
        if self._applied:
            await proceed()  # first: the proxy drops what its client does not wait for
        self.victim.cut()
        self.struck.set()
        return drop(request)

    def bury(self):
        """Nothing is left to be done: it was cut off, and the other one was not."""
        self.struck.clear()


class Late(Kill):
    """The leader is paused for good in the midst of a write, which arrives when another one leads.

    `at_once`: as soon as that one leads. Otherwise when the life comes to its next moment, and so
    when the other one has done all that was to be done.
    """

    def __init__(self, *, at_once):
        super().__init__(applied=False)
        self.at_once = at_once
        self._write = None  # that did not arrive yet

    async def __call__(self, request, proceed):
        self._write = proceed
        self.victim.cut()
        self.struck.set()
        return drop(request)

    async def land(self):
        """Let the write arrive, if it is under way; return whether it was."""
        write, self._write = self._write, None
        if write is not None:
            with contextlib.suppress(Answer):  # nobody hears of it
                await write()
        return write is not None


class Member:
    """One of the two: a controller behind wires of its own."""

    def __init__(self, stage, number):
        self._stage = stage
        self._number = number
        self._wires = ()
        self.clock = SkippingClock()
        self.app = None

    def cut(self):
        for wire in self._wires:
            wire.cut()

    @contextlib.asynccontextmanager
    async def running(self, groups, *, leading):
        kube, cloud = Relay(self._stage.proxy.url), Relay(self._stage.cloud.url)
        async with kube, cloud:
            self._wires = (kube, cloud)
            options = self._options(groups, kube.url, cloud.url)
            running = self._stage.controller(leading=leading, clock=self.clock, **options)
            async with running as self.app:
                yield self

    def _options(self, groups, kube, cloud):
        """Its own lock besides, as on a host of its own."""
        groups = {name: dict(values) for name, values in groups.items()}
        kubeconfig = self._stage.proxy.kubeconfig_for("controller", kube)
        lock = kubeconfig.with_name(f"{self._stage.cluster.namespace}-{self._number}.lock")
        own = {
            "kubeconfig": str(kubeconfig),
            "lock_file": str(lock),
            "lease_duration": str(LEASE),
        }
        groups["kubernetes"] = groups.get("kubernetes", {}) | own
        reached = {"auth_url": f"{cloud}/v3", "endpoint_override": cloud}
        groups["neutron"] = groups.get("neutron", {}) | reached
        return groups


class Pair(Keeper):
    """A Keeper whose controllers are two; the successor is the one that stood by.

    Its clock skips the rest of the Lease of the one that died.
    """

    async def _run(self):
        while True:
            first, second = Member(self._stage, 1), Member(self._stage, 2)
            async with (
                contextlib.AsyncExitStack() as standing,
                contextlib.AsyncExitStack() as leading,
            ):
                await leading.enter_async_context(first.running(self._groups, leading=True))
                self.app = first.app
                await standing.enter_async_context(second.running(self._groups, leading=False))
                await self._until_hot()
                if isinstance(self._crash, Kill):
                    self._crash.victim = first
                self._leads.set()
                await self._until_over()
                if self._crash.struck.is_set():
                    self.app = second.app
                    await leading.aclose()
                    self._crash.bury()
                    await self._until_taken(second)
                    if isinstance(self._crash, Late) and self._crash.at_once:
                        await second.app.leading.wait()
                        await self._crash.land()
                    await self._replace.wait()
            self._replace.clear()

    async def _until_taken(self, successor):
        """The successor has taken the Lease.

        Its clock skips as long as the Lease lasts, then a second at a time: its write may be under
        way for many looks, and must not come too late for a Lease that has begun with it.
        """
        former = await self._holder()
        for step in itertools.chain([LEASE / 3] * 3, itertools.repeat(1.0)):
            if await self._holder() != former:
                return
            successor.clock.skip(step)
            await asyncio.sleep(LOOK)

    async def _holder(self):
        name = self._stage.cluster.namespace
        [lease] = await self._stage.client.list(f"{LEASES}?fieldSelector=metadata.name%3D{name}")
        return lease["spec"]["holderIdentity"]

    async def _until_hot(self):
        """The second one's caches are full: it watches the Lease."""
        await self._stage.proxy.wait_for(lambda: self._stage.proxy.watching("leases"), within=LONG)
