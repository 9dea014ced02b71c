"""What the programs tell systemd, and what they do when it asks something of them."""

import asyncio
import os
import signal
import socket
import sys

import pytest

from kuryr_k8s.engine import systemd
from kuryr_k8s.process import Waiting

CONTROLLER, DAEMON = "kuryr_k8s.app", "kuryr_k8s.cni.app"
SECONDS = 60
NOWHERE = "http://127.0.0.1:1"  # nobody listens there
HANGS = """
import sys, threading
from kuryr_k8s.process import start

class Program:
    def __init__(self, conf):
        pass

    async def run(self):
        print("hangs", flush=True)
        threading.Event().wait()

sys.exit(start("hanging", [], Program))
"""
WORKS = """
import asyncio, logging, sys
from kuryr_k8s.process import start

class Program:
    def __init__(self, conf):
        pass

    async def run(self):
        while True:
            logging.info("at work")
            logging.debug("at work")
            await asyncio.sleep(0.05)

sys.exit(start("working", sys.argv[1:], Program))
"""


class Manager:
    """Listens as systemd does."""

    def __init__(self, path):
        self.path = path
        self.told = []
        self._channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._channel.setblocking(False)
        self._channel.bind(str(path))

    def close(self):
        self._channel.close()

    async def until(self, *beginnings):
        """Listen until a message with each of these beginnings was told, in any order."""
        missing = set(beginnings)
        async with asyncio.timeout(SECONDS):
            while missing:
                message = await asyncio.get_running_loop().sock_recv(self._channel, 4096)
                self.told.append(message.decode())
                missing = {text for text in missing if not self.told[-1].startswith(text)}

    def hear(self):
        """Take what was told meanwhile."""
        while True:
            try:
                self.told.append(self._channel.recv(4096).decode())
            except BlockingIOError:
                return self.told


@pytest.fixture
async def manager(tmp_path):
    manager = Manager(tmp_path / "notify")
    yield manager
    manager.close()


class Launcher:
    """Starts programs as their units do, on a node where nothing else runs yet."""

    def __init__(self, directory, manager):
        self.directory = directory
        self.conf = directory / "kuryr.conf"
        self.started = []
        self.port = 0
        self._manager = manager

    def write(self, *, debug=False):
        """Write kuryr.conf."""
        here = self.directory
        self.conf.write_text(
            f"[DEFAULT]\ndebug = {debug}\n"
            f"[kubernetes]\napi_root = {NOWHERE}\nnode_name = node1\nlock_file = {here}/lock\n"
            f"[neutron]\nauth_type = password\nauth_url = {NOWHERE}\n"
            f"[neutron_defaults]\nproject = pods\nresource_tags = tag\n"
            f"[health_server]\nport = {self.port}\nadmin_socket = {here}/admin.sock\n"
            f"[cni_health_server]\nport = {self.port}\n"
            f"[cni_daemon]\nsocket = {here}/cni.sock\nspool_dir = {here}/spool\n"
            f"cni_conf_dir = {here}/net.d\novsdb_connection = unix:{here}/no-switch\n"
            "node_ports = false\n"
        )

    async def module(self, module, **environment):
        self.write()
        program = f"from {module} import main; main()"
        return await self.program(program, "--config-file", str(self.conf), **environment)

    async def program(self, program, *arguments, **environment):
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program, *arguments),
            env=os.environ | {"NOTIFY_SOCKET": str(self._manager.path)} | environment,
            stdout=pipe,
            stderr=pipe,
        )
        self.started.append(process)
        return process


@pytest.fixture
async def launch(tmp_path, manager):
    launcher = Launcher(tmp_path, manager)
    yield launcher
    for process in launcher.started:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def ended(process):
    """Wait for the end; the exit code, and what was printed to standard error."""
    async with asyncio.timeout(SECONDS):
        _, printed = await process.communicate()
    return process.returncode, printed.decode()


async def until_logged(process, text):
    async with asyncio.timeout(SECONDS):
        async for line in process.stdout:
            if text in line.decode():
                return
    raise AssertionError((await process.stderr.read()).decode())


@pytest.mark.parametrize("module", [CONTROLLER, DAEMON])
async def test_unit_starts_without_an_api_server_and_says_what_it_waits_for(
    launch, manager, module
):
    await launch.module(module)
    await manager.until("READY=1", "STATUS=waiting for Kubernetes: ")
    assert not (launch.directory / "net.d" / "10-kuryr.conflist").exists()


@pytest.mark.parametrize("module", [CONTROLLER, DAEMON])
async def test_unit_does_not_start_where_the_health_port_is_taken(launch, manager, module):
    with socket.create_server(("127.0.0.1", 0)) as other:
        launch.port = other.getsockname()[1]
        process = await launch.module(module)
        code, printed = await ended(process)
    assert code == 2, printed
    assert "cannot serve health on" in printed
    assert "READY=1" not in manager.hear()


async def test_unit_of_the_daemon_does_not_start_where_the_plugin_cannot_be_installed(
    launch, manager
):
    (launch.directory / "net.d").write_text("no directory")
    process = await launch.module(DAEMON)
    code, printed = await ended(process)
    assert code == 2, printed
    assert "cannot install kuryr-cni" in printed
    assert "READY=1" not in manager.hear()


@pytest.mark.parametrize("module", [CONTROLLER, DAEMON])
async def test_watchdog_hears_of_the_loop_again_and_again(launch, manager, module):
    process = await launch.module(module, WATCHDOG_USEC="300000")
    await manager.until("READY=1")
    for _ in range(3):
        await manager.until("WATCHDOG=1")
    process.terminate()
    await manager.until("STOPPING=1")
    assert (await ended(process))[0] == 0


async def test_watchdog_hears_nothing_of_a_loop_that_hangs_and_its_signal_shows_where(
    launch, manager
):
    process = await launch.program(HANGS, WATCHDOG_USEC="30000")
    await until_logged(process, "hangs")
    process.send_signal(signal.SIGABRT)
    code, printed = await ended(process)
    assert code == -signal.SIGABRT
    assert " in run" in printed
    assert manager.hear() == []


@pytest.mark.parametrize("module", [CONTROLLER, DAEMON])
async def test_reload_ends_nothing(launch, manager, module):
    process = await launch.module(module)
    await manager.until("READY=1")
    launch.write(debug=True)
    process.send_signal(signal.SIGHUP)
    await until_logged(process, "the configuration was read again; options that changed: debug")
    assert process.returncode is None


async def test_reload_applies_the_log_level(launch):
    launch.write()
    process = await launch.program(WORKS, "--config-file", str(launch.conf))
    await until_logged(process, " INFO ")
    launch.write(debug=True)
    process.send_signal(signal.SIGHUP)
    await until_logged(process, " DEBUG ")


async def test_reload_of_a_wrong_file_changes_nothing(launch, manager):
    process = await launch.module(DAEMON)
    await manager.until("READY=1")
    launch.conf.write_text("no section")
    process.send_signal(signal.SIGHUP)
    await until_logged(process, "the configuration was not read again")
    assert process.returncode is None


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({"WATCHDOG_USEC": "60000000"}, 20.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}, 20.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "often"}, None),
        ({}, None),
    ],
)
def test_watchdog_is_for_the_process_that_systemd_names(monkeypatch, environment, seconds):
    for name in ("WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert systemd.watchdog_interval() == seconds


async def test_status_is_the_latest_wait_that_lasts_or_else_the_work(manager, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", str(manager.path))
    waiting = Waiting()
    waiting.does("working")
    with waiting.wait("Neutron") as say:
        say("503")
        with waiting.wait("Kubernetes") as say_too:
            say_too("no answer")
            say("504")
    assert manager.hear() == [
        "STATUS=working",
        "STATUS=waiting for Neutron: 503",
        "STATUS=waiting for Kubernetes: no answer",
        "STATUS=waiting for Neutron: 504",
        "STATUS=working",
    ]
