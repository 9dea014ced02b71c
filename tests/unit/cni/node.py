"""A node in memory, with the daemon's dispatcher on it."""

import asyncio
import contextlib
import json
from pathlib import Path

from prometheus_client import CollectorRegistry

from kuryr_k8s.cni.bindings.base import Bindings
from kuryr_k8s.cni.dispatcher import Dispatcher
from kuryr_k8s.cni.patience import Patience
from kuryr_k8s.cni.pods.adds import Adds
from kuryr_k8s.cni.pods.attachments import Attachments
from kuryr_k8s.cni.pods.kuryrports import KuryrPorts
from kuryr_k8s.cni.protocol import PUT_OFF, TRY_LATER
from kuryr_k8s.cni.spool import Spool
from tests.kit.node.fakes import (
    Api,
    Cache,
    FakeBinding,
    request_bytes,
)


class Node:
    """:param spool: the directory of put-off DELs; None is an empty one."""

    def __init__(self, *, add_timeout=60.0, patience=60.0, delete=60.0, unusable=None, spool=None):
        self.cache = Cache()
        self.api = Api(self.cache)
        self.binding = FakeBinding()
        settled = asyncio.Event()
        settled.set()
        self.attachments = Attachments(
            Bindings({"VIFOpenVSwitch": self.binding}, unusable),
            KuryrPorts(self.cache, self.api, Patience(kuryrport=patience)),
            adds=Adds(),
            settled=settled,
            add_timeout=add_timeout,
        )
        self.spool = Spool(spool or Path("/nonexistent"))
        self.dispatcher = Dispatcher(self.attachments, self.spool, Patience(delete=delete))
        self.registry = CollectorRegistry()
        for collector in (*self.attachments.collectors(), *self.dispatcher.collectors()):
            self.registry.register(collector)
        self.changed = []
        self.attachments.subscribe(self.changed.append)

    async def ask(self, command, container="c1", **options):
        code, answer = await self.dispatcher.handle(request_bytes(command, container, **options))
        decoded = json.loads(answer) if answer else None
        put_off = command == "DEL" and decoded is not None and decoded.get("code") == TRY_LATER
        assert code == (PUT_OFF if put_off else 1 if decoded and "code" in decoded else 0)
        return decoded

    def containers(self):
        return sorted({attachment.container_id for attachment in self.binding.attached})


async def turns(count=20):
    for _ in range(count):
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def started(coroutine):
    """The request in the background, as far as it gets by itself."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(coroutine)
        await turns()
        yield task
