"""An hour of 401 from Keystone, and of 403 from the API server: what the programs say meanwhile.

Their clock is fast. ``pytest --all-faults -rP`` on this module prints what they say.
"""

import asyncio
import contextlib
import re
import socket
import time

import aiohttp
import pytest

from kuryr_k8s.cni.app import DaemonApp
from kuryr_k8s.engine.clock import LoopClock
from kuryr_k8s.k8s.leader import LeaseLost
from kuryr_k8s.patience import Patience
from tests.kit.confs import NODE
from tests.kit.fakes.faults import answer

FASTER = 240
HOUR = 3600.0
PATIENCE = {"failed_authentication": 1 / FASTER, "refused_authentication": 10 / FASTER}
STARTS_AGAIN = 2.0  # seconds, as systemd does it after exit code 1
FORBIDDEN = answer(403, "Forbidden", 'forbidden: User "kuryr" cannot do this at all')

pytestmark = pytest.mark.complete


class FastClock(LoopClock):
    """A clock that is so many times faster."""

    def now(self):
        return time.monotonic() * FASTER

    async def sleep(self, seconds):
        await asyncio.sleep(seconds / FASTER)

    def call_later(self, seconds, callback):
        return asyncio.get_running_loop().call_later(seconds / FASTER, callback)


CLOCK = FastClock()


@pytest.fixture
async def systemd(tmp_path, monkeypatch):
    """What systemd was last told."""
    told = [""]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(tmp_path / "notify"))
        channel.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        loop = asyncio.get_running_loop()
        loop.add_reader(channel, lambda: told.append(channel.recv(4096).decode()))
        yield lambda: told[-1]
        loop.remove_reader(channel)


@pytest.fixture(autouse=True)
async def bookmarks(stage):
    """Have the API server send a bookmark every minute of this clock."""

    async def send():
        while True:
            for stream in [stream for stream in stage.proxy.streams if stream._version]:
                with contextlib.suppress(ConnectionError):
                    await stream.bookmark()
            await CLOCK.sleep(60)

    async with asyncio.TaskGroup() as group:
        sending = group.create_task(send())
        yield
        sending.cancel()


class Report:
    """What the programs say, gathered to be printed at the end of the test."""

    def __init__(self, capsys):
        self._capsys = capsys
        self._lines = []

    def add(self, what, text):
        self._lines.append(f"{what}: {' '.join(text.split())}")

    def heard(self):
        """The lines that were logged since the last call, without what is in front of them."""
        found = [
            f"{level} {self._plain(text)}"
            for line in self._capsys.readouterr().out.splitlines()
            for level, text in re.findall(r" (INFO|WARNING|ERROR) \S+ \[[^\]]*\] (.*)", line)
        ]
        self._lines += [f"{found.count(line):4} x {line}" for line in dict.fromkeys(found)]
        return found

    @staticmethod
    def _plain(text):
        text = re.sub(r"(, request | \(Request-ID: )req-[0-9a-f-]+\)?", "", text)
        return re.sub(r": kuryr_k8s\.errors\.\w+: .*", "", text).rstrip()  # told twice

    def print(self):
        print("\n".join(self._lines))


@pytest.fixture
def report(capsys):
    report = Report(capsys)
    yield report
    report.heard()
    report.print()


@pytest.fixture
def page(controller_url):
    """Ask the health server."""
    _, url = controller_url

    async def get(path):
        async with aiohttp.ClientSession() as session, session.get(f"{url}{path}") as answer:
            return await answer.text()

    return get


async def pass_an_hour():
    await CLOCK.sleep(HOUR)


async def until_waiting(stage, app, api):
    async def waits():
        return app.registry.get_sample_value("kuryr_start_waiting", {"api": api})

    await stage.until(waits)


def once_a_minute(lines, text):
    return HOUR / 60 * 0.6 <= sum(text in line for line in lines) <= HOUR / 60 * 1.1


# By the API that is waited for: how it refuses us, what is logged each minute, what /readyz does
# not grant meanwhile, and the metric of the refusal.
REFUSALS = {
    "Neutron": (
        lambda stage: stage.cloud.faults.add(
            path="/v3/auth/tokens", times=None, action=answer(401)
        ),
        "WARNING waiting for Neutron: Keystone refuses us",
        "[-] accepted by Keystone",
        ("kuryr_keystone_refused", {}),
    ),
    "Kubernetes": (
        lambda stage: stage.proxy.faults.add(times=None, action=FORBIDDEN),
        "WARNING waiting for Kubernetes: ",
        "[-] nothing refused",
        ("kuryr_kubernetes_refused", {"status": "403"}),
    ),
}


@pytest.mark.parametrize("api", REFUSALS)
async def test_api_refuses_the_controller_at_the_start(
    stage, controller_url, systemd, report, page, api
):
    refuse, told, shown, (metric, labels) = REFUSALS[api]
    refusal = refuse(stage)
    options = {"kubernetes": {"lease_duration": "1200"}} | controller_url[0]
    await stage.cluster.add_pod("web", node=NODE)
    async with stage.controller(leading=False, patience=PATIENCE, clock=CLOCK, **options) as app:
        await until_waiting(stage, app, api)
        await pass_an_hour()
        report.add("systemd", systemd())
        report.add("/readyz", await page("/readyz"))
        lines = report.heard()
        assert once_a_minute(lines, told)
        assert sum("ERROR" in line for line in lines) == 1
        assert shown in await page("/readyz")
        assert app.registry.get_sample_value("kuryr_start_waiting", {"api": api}) == 1
        assert app.registry.get_sample_value(metric, labels) == 1
        refusal.remove()
        await recovered(stage, app, "web", report)
        assert "[-]" not in await page("/readyz")
        assert app.registry.get_sample_value("kuryr_start_waiting", {"api": api}) == 0
    report.heard()


async def test_keystone_refuses_us_in_the_middle(stage, controller_url, report, page):
    options = {"kubernetes": {"lease_duration": "1200"}} | controller_url[0]
    async with stage.controller(patience=PATIENCE, clock=CLOCK, **options) as app:
        await stage.cluster.add_pod("early", node=NODE)
        await stage.until_plugged_in("early")
        report.heard()
        refusal = stage.cloud.faults.add(path="/v3/auth/tokens", times=None, action=answer(401))
        stage.cloud.expire_tokens()
        await stage.cluster.add_pod("web", node=NODE)
        await pass_an_hour()
        report.add("/readyz", await page("/readyz"))
        lines = report.heard()
        assert "[-] accepted by Keystone" in await page("/readyz")
        assert sum("ERROR nothing can be done in OpenStack" in line for line in lines) == 1
        note = dict(await stage.events())["OpenStackRefused"]
        report.add("Event of the Pod", note)
        assert "Keystone refuses us" in note
        refusal.remove()
        await recovered(stage, app, "web", report)
        assert "[-]" not in await page("/readyz")
    report.heard()


async def test_api_server_refuses_the_controller_in_the_middle(
    stage, controller_url, systemd, report, page
):
    """The leader cannot renew its Lease: it ends, and systemd starts it again."""
    options = {"kubernetes": {"lease_duration": "1200"}} | controller_url[0]
    ends, leads = [], asyncio.Event()

    async def restart_for_ever():
        while True:
            try:
                groups = {name: dict(values) for name, values in options.items()}
                async with stage.controller(patience=PATIENCE, clock=CLOCK, **groups) as app:
                    leads.set()
                    await app.leading.wait()
                    await asyncio.Event().wait()
            except* LeaseLost as error:
                ends.append(error)
            await CLOCK.sleep(STARTS_AGAIN)

    async with asyncio.TaskGroup() as group:
        programs = group.create_task(restart_for_ever())
        await leads.wait()
        leads.clear()
        report.heard()
        refusal = stage.proxy.faults.add(times=None, action=FORBIDDEN)
        stage.proxy.cut_watches()
        await stage.cluster.add_pod("web", node=NODE)
        await pass_an_hour()
        report.add("systemd", systemd())
        report.add("/readyz", await page("/readyz"))
        lines = report.heard()
        assert len(ends) == 1
        assert sum("has told nothing" in line for line in lines) <= 5  # once for each cache
        assert sum("WARNING pods: " in line for line in lines) <= 1  # that it was cut
        assert any("WARNING waiting for Kubernetes: " in line for line in lines)
        assert "[-] nothing refused" in await page("/readyz")
        refusal.remove()
        begun = CLOCK.now()
        await leads.wait()
        await stage.until_plugged_in("web")
        report.add("recovery", f"a Pod has its port after {CLOCK.now() - begun:.0f} s")
        assert "[-]" not in await page("/readyz")
        programs.cancel()
    report.heard()


async def test_api_server_refuses_the_daemon_at_the_start_and_in_the_middle(
    stage, load_conf, controller_url, systemd, report, page, tmp_path
):
    conf = load_conf(
        kubernetes={
            "kubeconfig": str(stage.proxy.kubeconfig_for("daemon")),
            "node_name": NODE,
        },
        cni_daemon={
            "socket": str(tmp_path / "cni.sock"),
            "spool_dir": str(tmp_path / "spool"),
            "ovsdb_connection": "",
            "node_ports": "false",
        },
        cni_health_server=controller_url[0]["health_server"],
    )
    refusal = stage.proxy.faults.add(times=None, action=FORBIDDEN)
    daemon = DaemonApp(conf, Patience(), CLOCK)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(daemon.run())
        await stage.proxy.wait_for(lambda: refusal.hits)
        await pass_an_hour()
        report.add("systemd", systemd())
        report.add("/readyz", await page("/readyz"))
        assert once_a_minute(report.heard(), "WARNING waiting for Kubernetes: ")
        assert 'kuryr_start_waiting{api="Kubernetes"} 1.0' in await page("/metrics")
        assert "[-] nothing refused" in await page("/readyz")
        refusal.remove()
        await stage.proxy.wait_for(lambda: stage.proxy.watching("kuryrports"))
        await until_ready(page, report)
        report.heard()
        report.add("then", "an hour in the middle")
        refusal = stage.proxy.faults.add(times=None, action=FORBIDDEN)
        stage.proxy.cut_watches()
        await pass_an_hour()
        report.add("systemd", systemd())
        report.add("/readyz", await page("/readyz"))
        lines = report.heard()
        assert sum("ERROR" in line and "refused" in line for line in lines) <= 2
        assert "[-] caches followed" in await page("/readyz")
        assert not running.done()
        refusal.remove()
        await until_ready(page, report)
        running.cancel()
    report.heard()


async def recovered(stage, app, pod, report):
    """The Pod has its port; how long that took since the refusals have ended."""
    begun = CLOCK.now()
    await stage.until_plugged_in(pod)
    await app.leading.wait()
    report.add("recovery", f"a Pod has its port after {CLOCK.now() - begun:.0f} s")
    assert not any("has told nothing" in line for line in report.heard())


async def until_ready(page, report):
    begun = CLOCK.now()
    async with asyncio.timeout(60):
        while "[-] nothing refused" in await page("/readyz"):
            await CLOCK.sleep(1)
    report.add("recovery", f"nothing is refused after {CLOCK.now() - begun:.0f} s")
