"""Socket, spool, installed files, threads and the order of the start."""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading

import pytest

from kuryr_k8s import config, errors
from kuryr_k8s.cni import app, installation, server
from kuryr_k8s.cni.netlink import finish, namespace
from kuryr_k8s.cni.netlink.threads import Threads
from kuryr_k8s.cni.pods.housekeeping import Housekeeping
from kuryr_k8s.cni.protocol import PUT_OFF, TRY_LATER
from kuryr_k8s.cni.spool import Spool
from tests.kit.cni_program import SOURCE, kuryr_cni
from tests.kit.node.fakes import kuryrport, ovs_vif, request_bytes
from tests.kit.paths import ETC
from tests.unit.cni.node import Node, turns


async def exchange(path, request):
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(request)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


class Echo:
    def __init__(self):
        self.reached, self.gate = asyncio.Event(), asyncio.Event()
        self.gate.set()
        self.requests = []

    async def __call__(self, request):
        self.requests.append(request)
        self.reached.set()
        await self.gate.wait()
        return 3, request


async def test_the_socket_is_roots_alone_and_serves(tmp_path):
    path, stop = tmp_path / "run" / "cni.sock", asyncio.Event()
    serving = server.Server(path, Echo(), users=(os.geteuid(),))
    async with asyncio.TaskGroup() as group:
        group.create_task(serving.run(stop))
        await turns()
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
        large = b"x" * 1_000_000
        assert await exchange(path, large) == b"3 1000000\n" + large
        stop.set()


async def test_other_users_get_no_answer(tmp_path):
    path, stop = tmp_path / "cni.sock", asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(server.Server(path, Echo(), users=(4711,)).run(stop))
        await turns()
        with contextlib.suppress(ConnectionResetError):
            assert await exchange(path, b"x") == b""
        stop.set()


async def test_requests_in_work_get_their_grace(tmp_path):
    path, stop, echo = tmp_path / "cni.sock", asyncio.Event(), Echo()
    echo.gate.clear()
    serving = server.Server(path, echo, users=(os.geteuid(),))
    async with asyncio.TaskGroup() as group:
        group.create_task(serving.run(stop, grace=60.0))
        await turns()
        asking = group.create_task(exchange(path, b"x"))
        await echo.reached.wait()
        stop.set()
        await turns()
        echo.gate.set()
        assert await asking == b"3 1\nx"


async def test_requests_that_do_not_end_are_cut_off(tmp_path):
    path, stop, echo = tmp_path / "cni.sock", asyncio.Event(), Echo()
    echo.gate.clear()
    serving = server.Server(path, echo, users=(os.geteuid(),))
    async with asyncio.TaskGroup() as group:
        group.create_task(serving.run(stop, grace=0.05))
        await turns()
        asking = group.create_task(exchange(path, b"x"))
        await echo.reached.wait()
        stop.set()
        assert await asking == b""


def test_a_dead_socket_is_replaced_and_a_living_one_is_not(tmp_path):
    path = tmp_path / "cni.sock"
    server.bind(path).close()
    with server.bind(path), pytest.raises(errors.ConfigError, match="another process"):
        server.bind(path)


def test_what_is_no_socket_is_not_replaced(tmp_path):
    path = tmp_path / "cni.sock"
    path.write_text("precious")
    with pytest.raises(errors.ConfigError, match="not a socket"):
        server.bind(path)
    assert path.read_text() == "precious"


async def test_the_spool_keeps_what_fails_and_puts_aside_what_is_none(tmp_path):
    spool = Spool(tmp_path / "spool")
    spool.prepare()
    codes = {"a": 0, "b": 11, "c": 6}
    for name in codes:
        (tmp_path / "spool" / name).write_text(name)
    (tmp_path / "spool" / ".half-written").write_text("")

    async def handle(request):
        code = codes[request.decode()]
        return (1 if code else 0), json.dumps({"code": code}).encode() if code else b""

    assert await spool.drain(handle) == 1
    assert sorted(p.name for p in (tmp_path / "spool").iterdir()) == [
        ".half-written",
        ".unreadable-c",
        "b",
    ]
    codes["b"] = 0
    assert await spool.drain(handle) == 0


async def test_what_is_no_file_is_put_aside_and_ends_no_daemon(tmp_path):
    done = []

    async def handle(request):
        done.append(request)
        return 0, b""

    (tmp_path / "a.directory").mkdir()
    (tmp_path / "a.directory" / "within").touch()
    os.mkfifo(tmp_path / "b.pipe")
    (tmp_path / "c.link").symlink_to("/dev/zero")
    (tmp_path / "d.gone").symlink_to("nowhere")
    (tmp_path / "e.directory").mkdir()
    (tmp_path / ".unreadable-e.directory").mkdir()
    (tmp_path / ".unreadable-e.directory" / "in the way").touch()
    (tmp_path / "f.eth0").write_text("request")
    assert await Spool(tmp_path).drain(handle) == 1
    assert done == [b"request"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".unreadable-a.directory",
        ".unreadable-b.pipe",
        ".unreadable-c.link",
        ".unreadable-d.gone",
        ".unreadable-e.directory",
        "e.directory",
    ]


async def test_del_that_cannot_be_done_now_is_put_off():
    node = Node(delete=0.05)
    node.binding.reached.clear()
    code, answer = await node.dispatcher.handle(request_bytes("DEL"))
    assert code == PUT_OFF
    assert json.loads(answer)["code"] == TRY_LATER
    assert "the binding cannot be reached" in json.loads(answer)["msg"]


async def test_del_that_hangs_is_put_off_and_done_no_more_after_that():
    node = Node(delete=0.05)
    node.cache.put(kuryrport("web", "u1", {"eth0": ovs_vif(1)}))
    await node.ask("ADD")
    node.binding.disconnect_gate.clear()
    assert (await node.ask("DEL"))["code"] == TRY_LATER
    node.binding.disconnect_gate.set()
    await turns()
    assert node.containers() == ["c1"]


async def test_add_does_the_put_off_del_of_its_container_first(tmp_path):
    """Runtimes may use a container's name again; its DEL must not undo the later ADD."""
    node = Node(spool=tmp_path)
    node.cache.put(kuryrport("web", "u1", {"eth0": ovs_vif(1)}))
    await node.ask("ADD")
    for container in ("c1", "c11"):
        (tmp_path / f"{container}.eth0").write_bytes(request_bytes("DEL", container))
    assert "code" not in await node.ask("ADD")
    assert node.binding.log == [("connect", "c1"), ("disconnect", "c1"), ("connect", "c1")]
    assert [path.name for path in tmp_path.iterdir()] == ["c11.eth0"]
    assert await node.spool.drain(node.dispatcher.handle) == 0
    assert node.containers() == ["c1"]


async def test_add_fails_while_the_put_off_del_of_its_container_does(tmp_path):
    node = Node(spool=tmp_path, delete=0.05)
    node.cache.put(kuryrport("web", "u1", {"eth0": ovs_vif(1)}))
    node.binding.reached.clear()
    (tmp_path / "c1.eth0").write_bytes(request_bytes("DEL"))
    answer = await node.ask("ADD")
    assert answer["code"] == TRY_LATER
    assert "an earlier DEL" in answer["msg"]
    assert (tmp_path / "c1.eth0").exists()


async def test_what_is_no_del_is_put_aside_and_blocks_no_later_one(tmp_path):
    node = Node(spool=tmp_path)
    (tmp_path / "c1.eth0").write_bytes(request_bytes("ADD"))
    async with asyncio.timeout(5):
        assert await node.spool.drain(node.dispatcher.handle) == 0
    assert [path.name for path in tmp_path.iterdir()] == [".unreadable-c1.eth0"]
    assert node.binding.log == []


async def test_request_that_nobody_waits_for_any_more_is_not_begun(tmp_path):
    path, stop, echo = tmp_path / "cni.sock", asyncio.Event(), Echo()
    async with asyncio.TaskGroup() as group:
        group.create_task(server.Server(path, echo, users=(os.geteuid(),)).run(stop))
        await turns()
        with socket.socket(socket.AF_UNIX) as abandoned:
            abandoned.connect(str(path))
            abandoned.sendall(b"ADD")
            abandoned.shutdown(socket.SHUT_WR)
        assert await exchange(path, b"x") == b"3 1\nx"
        stop.set()
    assert echo.requests == [b"x"]


async def test_put_off_dels_are_done_before_anything_is_acknowledged(tmp_path):
    node = Node()
    node.attachments.settled.clear()
    node.binding.reached.clear()
    (tmp_path / "c1.eth0").write_bytes(request_bytes("DEL"))
    synced = asyncio.Event()
    keeping = Housekeeping(
        node.attachments,
        Spool(tmp_path),
        node.dispatcher.handle,
        synced=synced,
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(keeping.run())
        for event in (synced, node.binding.reached):
            await turns()
            assert not node.attachments.settled.is_set()
            event.set()
        await turns()
        assert node.attachments.settled.is_set()
        assert list(tmp_path.iterdir()) == []
        task.cancel()


async def test_add_waits_until_the_daemon_has_settled():
    node = Node(add_timeout=0.05)
    node.attachments.settled.clear()
    node.cache.put(kuryrport("web", "u1", {"eth0": ovs_vif(1)}))
    answer = await node.ask("ADD")
    assert answer["code"] == 11
    assert "starting" in answer["msg"]


async def test_a_cancelled_caller_waits_for_its_thread():
    threads, gate = Threads("test", 1), threading.Event()
    order = []

    def work():
        gate.wait(60)
        order.append("thread")

    async def caller():
        try:
            await threads.run(work)
        finally:
            order.append("caller")

    async with asyncio.TaskGroup() as group:
        task = group.create_task(caller())
        await turns()
        task.cancel()
        await turns()
        task.cancel()
        await turns()
        assert order == []
        gate.set()
    assert order == ["thread", "caller"]
    assert task.cancelled()
    threads.close()


async def test_finish_hands_on_result_and_failure():
    future = asyncio.get_running_loop().create_future()
    future.set_result(3)
    assert await finish(future) == 3
    future = asyncio.get_running_loop().create_future()
    future.set_exception(ValueError())
    with pytest.raises(ValueError):  # noqa: PT011
        await finish(future)


def test_the_configuration_that_is_shipped_is_the_one_that_is_installed():
    shipped = ETC / "cni" / installation.NAME
    assert shipped.read_text() == installation.render()


def test_paths_stand_in_the_configuration_where_they_are_not_the_defaults():
    kuryr = json.loads(installation.render("/a", "/b"))["plugins"][0]
    assert (kuryr["type"], kuryr["kuryr_socket"], kuryr["kuryr_spool"]) == (
        "kuryr-cni",
        "/a",
        "/b",
    )


def test_plugin_is_told_of_which_pods_the_bandwidth_is_limited():
    kuryr = json.loads(installation.render())["plugins"][0]
    assert kuryr["capabilities"] == {"bandwidth": True}


def test_defaults_of_plugin_configuration_and_options_agree():
    from kuryr_k8s import config

    defaults = {option.name: option.default for option in config.GROUPS["cni_daemon"]}
    program = SOURCE.read_text()
    assert defaults["socket"] == installation.SOCKET
    assert f'#define SOCKET "{installation.SOCKET}"\n' in program
    assert defaults["spool_dir"] == installation.SPOOL
    assert f'#define SPOOL "{installation.SPOOL}"\n' in program


def test_the_plugin_is_installed_and_needs_nothing_else(tmp_path):
    kuryr_cni()  # built where the daemon takes it from
    installation.install_plugin(tmp_path / "bin")
    installation.install_configuration(tmp_path / "conf", installation.render())
    installed = tmp_path / "bin" / "kuryr-cni"
    empty = tmp_path / "empty"
    empty.mkdir()
    shutil.copy(installed, empty)
    done = subprocess.run(
        ["/kuryr-cni"],
        preexec_fn=(lambda: os.chroot(empty)) if os.geteuid() == 0 else None,
        executable=None if os.geteuid() == 0 else installed,
        env={"CNI_COMMAND": "VERSION"},
        input=b"{}",
        capture_output=True,
        check=True,
    )
    assert b"supportedVersions" in done.stdout
    assert [p.name for p in (tmp_path / "conf").iterdir()] == [installation.NAME]


def test_what_is_installed_already_is_left_alone(tmp_path):
    installation.install_configuration(tmp_path, installation.render())
    before = (tmp_path / installation.NAME).stat()
    installation.install_configuration(tmp_path, installation.render())
    assert (tmp_path / installation.NAME).stat().st_ino == before.st_ino
    installation.install_configuration(tmp_path, installation.render("/other"))
    assert (tmp_path / installation.NAME).stat().st_ino != before.st_ino


def test_name_of_the_node_is_the_hosts_in_lower_case_as_the_kubelets(monkeypatch):
    monkeypatch.delenv("KUBERNETES_NODE_NAME", raising=False)
    monkeypatch.setattr(socket, "gethostname", lambda: "Node-1.Example.org")
    assert app.name_of_node(config.read([], "test")) == "node-1.example.org"


def test_interface_that_cannot_be_isolated_from_the_node_is_reported_once(
    tmp_path, monkeypatch, caplog
):
    (tmp_path / "ipv6").write_text("in the way")
    (tmp_path / "ipv4").write_text("in the way")
    monkeypatch.setattr(namespace, "SYSCTL", tmp_path)
    namespace.isolate("tap1")
    namespace.isolate("tap2")
    [line] = caplog.messages
    assert "past their security groups" in line
    assert f"{tmp_path}: Not a directory" in line


@pytest.mark.parametrize(
    "package",
    ["eventlet", "keystoneauth1", "openstack", "requests", "kubernetes_asyncio.client.models"],
)
def test_the_daemon_does_not_load(package):
    """Each costs every node several MiB, and none of them is used."""
    script = (
        "import sys, kuryr_k8s.cni.app, kuryr_k8s.config; kuryr_k8s.config.read([], 'daemon');"
        f"print({package!r} in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout == b"False\n"
