"""Controllers as processes, to be frozen, woken, killed and ended by the kernel's signals."""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import aiohttp

from tests.kit.confs import new_socket
from tests.kit.kube.children import free_ports

CONTROLLER = "from kuryr_k8s.app import main; main()"
STARTING = 120.0  # seconds, on a machine with better things to do


class Process:
    """One controller: a lock of its own, as on another host, if no path of one is given.

    ``tree``: where the sources of another version are; None: this one.
    """

    def __init__(self, stage, name, *, lock=None, lease, tree=None, **groups):
        (self._port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self._port}"
        kubeconfig = stage.proxy.kubeconfig_for("controller")
        own = {"kubeconfig": str(kubeconfig), "lease_duration": str(lease)}
        groups["kubernetes"] = groups.get("kubernetes", {}) | own
        groups["health_server"] = {"port": str(self._port), "admin_socket": str(new_socket())}
        path = stage.conf_file(name, **groups)
        self._arguments = [f"--config-file={path}"]
        lock = lock or path.with_suffix(".lock")
        own_lock = path.with_suffix(".lock.conf")
        own_lock.write_text(f"[kubernetes]\nlock_file = {lock}\n")
        self._arguments.append(f"--config-file={own_lock}")
        self._log = Path(path).with_suffix(".log")
        self._process = None
        self._tree = tree

    async def start(self):
        other = {"PYTHONPATH": str(self._tree)} if self._tree else {}
        with self._log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                CONTROLLER,
                *self._arguments,
                stdout=log,
                stderr=log,
                cwd=self._tree,
                env=os.environ | other,
            )

    def send(self, number):
        self._process.send_signal(number)

    async def ended(self):
        """Its exit code."""
        async with asyncio.timeout(STARTING):
            return await self._process.wait()

    async def stop(self):
        """End it, whatever was done to it."""
        if self._process is not None and self._process.returncode is None:
            self.send(signal.SIGCONT)
            self.send(signal.SIGTERM)
            try:
                await self.ended()
            except TimeoutError:
                self.send(signal.SIGKILL)
                raise

    async def status(self):
        """What it says of itself; None while it does not."""
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{self.url}/status") as got,
            ):
                return await got.json()
        except aiohttp.ClientError:
            return None

    async def leads(self):
        state = await self.status()
        return state is not None and state["leading"]

    async def stands_by(self):
        """Its caches are full, and it knows who leads."""
        state = await self.status()
        full = state and state["caches"] and all(c["synced"] for c in state["caches"].values())
        return full and not state["leading"] and state["lease"]["holder"]

    def log(self):
        return self._log.read_text()


@contextlib.asynccontextmanager
async def two(stage, *, same_host=False, **options):
    """One that leads and one that stands by; ended at the end."""
    lock = stage.conf_file("host").with_suffix(".lock") if same_host else None
    first, second = (Process(stage, name, lock=lock, **options) for name in ("first", "second"))
    async with contextlib.AsyncExitStack() as stack:
        for process in (second, first):  # the first one is stopped first
            stack.push_async_callback(process.stop)
        await first.start()
        await stage.until(first.leads, within=STARTING)
        await second.start()
        await stage.until(second.stands_by, within=STARTING)
        yield first, second
