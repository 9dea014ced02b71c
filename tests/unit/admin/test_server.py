"""Requests that change something are taken from root and from the controller's own user alone."""

import asyncio
import contextlib
import os
import shutil
import socket
import tempfile
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from kuryr_k8s import errors
from kuryr_k8s.admin.server import AdminServer

NOBODY = 65534
PYTHON = shutil.which("python3", path="/usr/bin")
# Sends one request over the socket, as another user; it prints the status line, or the error.
CLIENT = """
import socket, sys
channel = socket.socket(socket.AF_UNIX)
try:
    channel.connect(sys.argv[1])
except OSError as error:
    print(error.strerror)
else:
    channel.sendall(b"POST /change HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 0\\r\\n\\r\\n")
    print(channel.recv(4096).decode().splitlines()[0])
"""
as_root = pytest.mark.skipif(
    os.geteuid() != 0 or PYTHON is None, reason="only root can become another user"
)


@pytest.fixture
def path():
    """A path that every user may reach."""
    directory = Path(tempfile.mkdtemp(prefix="kuryr-", dir="/tmp"))
    directory.chmod(0o755)
    yield directory / "admin.sock"
    shutil.rmtree(directory)


@pytest.fixture
def asked():
    """The requests that got through."""
    return []


@pytest.fixture
def running(path, asked):
    """Run the server for so long."""

    async def change(request):
        asked.append(request.path)
        return web.json_response({})

    @contextlib.asynccontextmanager
    async def running(**options):
        server = AdminServer(path, [web.post("/change", change)], **options)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(server.run())
            await until(path.is_socket)
            yield
            task.cancel()

    return running


async def until(condition):
    async with asyncio.timeout(60):
        while True:
            if condition():
                return
            await asyncio.sleep(0)


async def send(path):
    connector = aiohttp.UnixConnector(str(path))
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post("http://localhost/change") as answer,
    ):
        return answer.status, await answer.json()


async def send_as(user, path):
    process = await asyncio.create_subprocess_exec(
        PYTHON, "-c", CLIENT, str(path), stdout=asyncio.subprocess.PIPE, user=user
    )
    printed, _ = await process.communicate()
    return printed.decode().strip()


async def test_own_user_gets_through(running, path, asked):
    async with running():
        assert await send(path) == (200, {})
    assert asked == ["/change"]


@as_root
async def test_root_gets_through_to_a_controller_of_another_user(running, path, asked):
    async with running(users=(0, NOBODY)):
        assert (await send(path))[0] == 200


@as_root
async def test_another_user_cannot_connect(running, path, asked):
    async with running():
        assert await send_as(NOBODY, path) == "Permission denied"
    assert not asked


@as_root
async def test_another_user_is_refused_whatever_the_mode_of_the_socket(running, path, asked):
    async with running():
        path.chmod(0o666)
        assert await send_as(NOBODY, path) == "HTTP/1.1 403 Forbidden"
    assert not asked


async def test_socket_of_a_dead_process_is_replaced(running, path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    inode = path.stat().st_ino
    async with running():
        await until(lambda: path.stat().st_ino != inode)
        assert (await send(path))[0] == 200


async def test_socket_of_another_controller_is_left_to_it(running, path):
    async with running():
        with pytest.raises(errors.ConfigError, match=r"admin_socket: .* served by another"):
            await AdminServer(path, []).run()
        assert (await send(path))[0] == 200


async def test_server_that_ended_answers_nobody(running, path):
    async with running():
        pass
    with pytest.raises(aiohttp.ClientConnectionError):
        await send(path)
