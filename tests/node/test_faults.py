"""Bad input and sudden ends, from the executable to the daemon: the CNI code of each, no trace."""

import asyncio
import json
import signal
import sys

import pytest

from kuryr_k8s.cni import installation
from kuryr_k8s.cni.protocol import VERSIONS
from tests.kit.cni_program import variant
from tests.kit.node.fakes import kuryrport, ovs_vif
from tests.node.workbench import Controller, a_node, cni, eventually, path, shell

VIF = ovs_vif(1)
ARGS = "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_UID=u1"
UNKNOWN = ARGS.replace("u1", "u9")


def text(**changes):
    """A configuration as JSON; None takes a key away."""
    config = {"cniVersion": "1.0.0", "name": "kuryr", "type": "kuryr-cni"} | changes
    return json.dumps({key: value for key, value in config.items() if value is not None})


# (what is wrong, command, environment, standard input, code). A network namespace is filled in.
BAD_INPUT = [
    ("stdin is empty", "ADD", {}, "", 6),
    ("stdin is no JSON", "ADD", {}, "{", 6),
    ("stdin is a list", "ADD", {}, "[]", 6),
    ("stdin is no UTF-8", "ADD", {}, b"\xff\xfe", 6),
    ("stdin is nested too deeply", "ADD", {}, "[" * 100_000, 6),
    ("stdin is longer than any request", "ADD", {}, " " * (5 << 20), 6),
    ("version 0.2.0", "ADD", {}, text(cniVersion="0.2.0"), 1),
    ("version 2.0.0", "ADD", {}, text(cniVersion="2.0.0"), 1),
    ("version is a number", "ADD", {}, text(cniVersion=1), 1),
    ("no version", "ADD", {}, text(cniVersion=None), 1),
    ("DEL of an unknown version", "DEL", {}, text(cniVersion="9.9.9"), 1),
    ("CHECK before it was known", "CHECK", {}, text(cniVersion="0.3.1"), 1),
    ("STATUS before it was known", "STATUS", {}, text(), 1),
    ("GC before it was known", "GC", {}, text(), 1),
    ("no name", "ADD", {}, text(name=None), 7),
    ("a name with a slash", "ADD", {}, text(name="a/b"), 7),
    ("prevResult is a list", "ADD", {}, text(prevResult=[]), 7),
    ("GC without a list", "GC", {}, text(cniVersion="1.1.0"), 7),
    ("no command", "", {}, text(), 4),
    ("an unknown command", "FROB", {}, text(), 4),
    ("no CNI_CONTAINERID", "ADD", {"CNI_CONTAINERID": None}, text(), 4),
    ("no CNI_NETNS", "ADD", {"CNI_NETNS": None}, text(), 4),
    ("no CNI_IFNAME", "ADD", {"CNI_IFNAME": None}, text(), 4),
    ("no CNI_ARGS", "ADD", {"CNI_ARGS": None}, text(), 4),
    ("no K8S_POD_UID", "ADD", {"CNI_ARGS": ARGS.partition(";K8S_POD_UID")[0]}, text(), 4),
    ("DEL without CNI_CONTAINERID", "DEL", {"CNI_CONTAINERID": None}, text(), 4),
    ("a container's name with a slash", "ADD", {"CNI_CONTAINERID": "../c1"}, text(), 4),
    ("an interface's name with a slash", "ADD", {"CNI_IFNAME": "eth/0"}, text(), 4),
    ("an interface's name of 16 letters", "ADD", {"CNI_IFNAME": "x" * 16}, text(), 4),
    ("an interface called ..", "ADD", {"CNI_IFNAME": ".."}, text(), 4),
    ("the interface's name is taken: lo", "ADD", {"CNI_IFNAME": "lo"}, text(), 11),
    ("a namespace that is not there", "ADD", {"CNI_NETNS": "/run/netns/nonesuch"}, text(), 8),
    ("the node's own namespace", "ADD", {"CNI_NETNS": "/proc/self/ns/net"}, text(), 8),
    ("a namespace that is a file", "ADD", {"CNI_NETNS": "/etc/hostname"}, text(), 8),
    ("a Pod that nobody knows", "ADD", {"CNI_ARGS": UNKNOWN}, text(), 11),
    ("CHECK of what was never added", "CHECK", {}, text(), 101),
    ("DEL of what was never added", "DEL", {}, text(), 0),
    ("DEL in a namespace that is gone", "DEL", {"CNI_NETNS": "/run/netns/gone"}, text(), 0),
]


async def run(program, socket, spool, command, environ, stdin):
    """Run kuryr-cni with this environment and input, whatever they are.

    :returns: (exit code, CNI's code).
    """
    content = stdin if isinstance(stdin, bytes) else stdin.encode()
    # where it is a JSON object, it says where the daemon is, as the shipped one does
    if content.startswith(b"{") and content.endswith(b"}"):
        config = json.loads(content) | {"kuryr_socket": str(socket), "kuryr_spool": str(spool)}
        content = json.dumps(config).encode()
    process = await asyncio.create_subprocess_exec(
        program,
        env={name: value for name, value in environ.items() if value is not None},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate(content)
    answer = json.loads(out) if out else {}
    if answer:
        assert answer["msg"]
        assert answer["cniVersion"] in VERSIONS
    return process.returncode, answer.get("code", 0)


async def test_bad_input_has_its_code_and_leaves_no_trace(tmp_path, remote, namespaces, subtests):
    """One node for all of them: each leaves it as it was."""
    sandbox = path(namespaces())
    async with a_node(tmp_path, remote, add_timeout=0.5) as node:
        node.cache.put(kuryrport("web", "u1", {"eth0": VIF}))
        # compiled for this daemon: input that is no configuration cannot say where it is
        program = variant(tmp_path, (f'"{installation.SOCKET}"', f'"{node.socket}"'))
        for what, command, changes, stdin, code in BAD_INPUT:
            environ = {
                "CNI_COMMAND": command,
                "CNI_CONTAINERID": "c1",
                "CNI_NETNS": sandbox,
                "CNI_IFNAME": "eth0",
                "CNI_ARGS": ARGS,
            }
            with subtests.test(what):
                seen = await run(
                    program, node.socket, node.spool, command, environ | changes, stdin
                )
                assert seen == (1 if code else 0, code)
                assert not node.switch.interfaces()
                assert not await node.links.aliases()


async def test_add_whose_namespace_vanishes_half_way_has_code_8_and_leaves_no_trace(
    tmp_path, remote, namespaces
):
    sandbox = namespaces()
    async with a_node(tmp_path, remote) as node, asyncio.TaskGroup() as group:
        node.controller.enabled = False
        node.cache.put(kuryrport("web", "u1", {"eth0": VIF}))
        add = group.create_task(node.cni("ADD", netns=path(sandbox)))
        await eventually(node.switch.interfaces)
        shell(f"ip netns del {sandbox}")
        node.controller.enabled = True
        for row in node.switch.interfaces():
            node.controller.seen.put_nowait(row.row)
        code, answer = await add
        assert (code, answer["code"]) == (1, 8)
        assert not node.switch.interfaces()
        assert not await node.links.aliases()


# At which point of an ADD the daemon is killed, by what holds the ADD up there.
POINTS = ("no vifs yet", "veth, no row yet", "row, not installed yet", "answered, not yet active")


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("then", ["the Pod is gone", "DEL", "ADD again"])
async def test_daemon_killed_at_each_point_of_an_add_leaves_no_trace(
    tmp_path, remote, namespaces, database, point, then
):
    """After its restart: gone with the Pod, by the runtime's DEL; or whole by its next ADD."""
    sandbox, sockets = namespaces(), (tmp_path / "cni.sock", tmp_path / "spool")
    async with asyncio.TaskGroup() as group:
        controller = Controller(remote)
        controller.enabled = point == "answered, not yet active"
        installing = group.create_task(controller.run())
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.node.daemon_process", tmp_path, remote),
            *(["without vifs"] if point == "no vifs yet" else []),
        )
        try:
            await eventually((tmp_path / "settled").exists)
            if point == "veth, no row yet":
                database.process.send_signal(signal.SIGSTOP)
            add = group.create_task(cni(*sockets, "ADD", netns=path(sandbox)))
            await eventually(lambda: reached(point, tmp_path, database, add))
            process.kill()
            await process.wait()
            code, answer = await add
        finally:
            if process.returncode is None:
                process.kill()
            database.process.send_signal(signal.SIGCONT)
        if point == "answered, not yet active":
            assert code == 0
        else:
            assert (code, answer["code"]) == (1, 11)
        installing.cancel()
    if then == "DEL":  # while the daemon is down
        assert await cni(*sockets, "DEL", netns=path(sandbox)) == (0, None)
    if then == "the Pod is gone":
        shell(f"ip netns del {sandbox}")
    # what the dead daemon had asked of a stalled database may be done after the restart
    async with a_node(tmp_path, remote, sweep=0.5) as node:
        if then == "ADD again":
            node.cache.put(kuryrport("web", "u1", {"eth0": VIF}))
            assert (await node.cni("ADD", netns=path(sandbox)))[0] == 0
            assert (await node.cni("CHECK", netns=path(sandbox)))[0] == 0
            assert list(await node.links.aliases()) == [VIF.vif_name]
            assert await node.cni("DEL") == (0, None)
        await eventually(
            lambda: not node.switch.interfaces() and not node.links.exists(VIF.vif_name)
        )


def reached(point, directory, database, add):
    """Has the ADD come as far as this?"""
    match point:
        case "no vifs yet":
            return (directory / "asked").exists()
        case "veth, no row yet":
            return VIF.vif_name in shell("ip -o link show")
        case "row, not installed yet":
            listed = ("ovsdb-client", "dump", f"unix:{database.socket}", "Interface", "name")
            return VIF.vif_name in shell(" ".join(listed))
    return add.done()
