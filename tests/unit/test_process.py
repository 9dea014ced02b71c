"""The wait for an API at the start of a program: what ends it, and what shows it."""

import asyncio
import logging
import socket

import pytest

from kuryr_k8s import errors
from kuryr_k8s.process import Waiting, reach
from tests.kit.clock import ManualClock

HOUR = 3600


class Api:
    """Answers with an error until it is mended."""

    def __init__(self, error):
        self.error = error
        self.asked = asyncio.Event()

    async def call(self):
        self.asked.set()
        if self.error is not None:
            raise self.error

    async def was_asked(self):
        await self.asked.wait()
        self.asked.clear()


def waiting(gauge, api):
    (metric,) = gauge.collect()
    return next(sample.value for sample in metric.samples if sample.labels == {"api": api})


@pytest.mark.parametrize(
    "error",
    [
        errors.KubeError("Unauthorized", status=401),
        errors.BadRequest("Keystone refuses us", status=401),
        errors.Refused("there is no such subnet"),
        errors.Wait("the group is being made", delay=1.0),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_answer_of_an_api_is_waited_for_and_told_once_a_minute(error, caplog):
    caplog.set_level(logging.INFO)
    clock, gauge, api = ManualClock(), Waiting(), Api(error)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        task = group.create_task(reach("Neutron", api.call, gauge, clock=clock))
        while clock.now() < HOUR:
            await api.was_asked()
            clock.advance(clock.pending[0].due - clock.now())
        assert waiting(gauge, "Neutron") == 1
        told = [line for line in caplog.messages if line == f"waiting for Neutron: {error}"]
        assert HOUR / 70 < len(told) <= HOUR / 60 + 1
        api.error = None
        while not task.done():
            await asyncio.sleep(0)
            clock.advance(HOUR)
    assert waiting(gauge, "Neutron") == 0
    assert caplog.messages[-1] == "Neutron: what was waited for is there"


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    """The socket that systemd reads."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.settimeout(10)
        channel.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield channel


async def reach_later(error):
    """Wait once for an API that answers with an error, and then as it should."""
    clock, api = ManualClock(), Api(error)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        task = group.create_task(reach("Neutron", api.call, Waiting(), clock=clock))
        await api.was_asked()
        api.error = None
        while not task.done():
            await asyncio.sleep(0)
            clock.advance(60)


async def test_systemd_is_told_one_short_line_whatever_an_api_says(systemd, caplog):
    # half a character in a captured log cannot be sent by the test's process
    caplog.set_level(logging.CRITICAL, logger="kuryr_k8s.process")
    await reach_later(errors.KubeError("<html>\nREADY=1\r\n\ud800" + "é" * 100_000, status=500))
    told = systemd.recv(1 << 20).decode()
    assert told.startswith("STATUS=waiting for Neutron: <html> READY=1 ?éé")
    assert told.splitlines() == [told]
    assert len(told) < 500
    assert systemd.recv(1 << 20) == b"STATUS="


async def test_start_goes_on_without_systemds_socket(systemd, tmp_path):
    (tmp_path / "notify").unlink()
    await reach_later(errors.KubeError("Forbidden", status=403))


async def test_wrong_file_ends_the_start():
    api = Api(errors.ConfigError("there is no such driver"))
    with pytest.raises(errors.ConfigError):
        await reach("Neutron", api.call, Waiting())


async def test_each_of_several_waits_for_one_api_is_counted():
    clock, gauge = ManualClock(), Waiting()
    first, second = (Api(errors.KubeError("Forbidden", status=403)) for _ in range(2))
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for api in (first, second):
            group.create_task(reach("Kubernetes", api.call, gauge, clock=clock))
            await api.was_asked()
        assert waiting(gauge, "Kubernetes") == 2
        first.error = None
        while waiting(gauge, "Kubernetes") == 2:
            await asyncio.sleep(0)
            clock.advance(60)
        assert waiting(gauge, "Kubernetes") == 1
        second.error = None
        while waiting(gauge, "Kubernetes"):
            await asyncio.sleep(0)
            clock.advance(60)
