"""ADD, DEL and the rest through the real plugin, with real namespaces and a real ovsdb-server."""

import asyncio
import contextlib
import dataclasses
import ipaddress
import socket
import struct
import subprocess
import time
from pathlib import Path

import pytest

from kuryr_k8s.cni.ovs.switch import OURS
from tests.kit.node.fakes import kuryrport, ovs_vif
from tests.node.workbench import PATIENT, a_node, eventually, frames, ip, path, shell

HURRIED = dataclasses.replace(PATIENT, delete=0.5)  # for a DEL that is put off


@pytest.fixture
def sandbox(namespaces):
    return namespaces()


async def test_add_wires_both_families_and_del_leaves_nothing(tmp_path, remote, sandbox):
    vif = ovs_vif(1)
    async with a_node(tmp_path, remote) as node:
        node.cache.put(kuryrport("web", "u1", {"eth0": vif}))
        code, result = await node.cni("ADD", netns=path(sandbox), version="1.1.0")
        assert code == 0, result
        host, inside = result["interfaces"]
        assert host["name"] == vif.vif_name
        assert inside == {
            "name": "eth0",
            "mac": vif.address,
            "mtu": 1442,
            "sandbox": path(sandbox),
        }
        [link] = ip("-d", "link", "show", "eth0", netns=sandbox)
        assert link["address"] == vif.address
        assert link["mtu"] == 1442
        assert "UP" in link["flags"]
        found = {
            f"{a['local']}/{a['prefixlen']}"
            for a in ip("addr", "show", "eth0", netns=sandbox)[0]["addr_info"]
            if a["scope"] == "global"
        }
        assert found == {"10.77.0.11/16", "fd77::10/64"} == {i["address"] for i in result["ips"]}
        routes = {(r["dst"], r.get("gateway")) for r in ip("route", netns=sandbox)}
        assert {("default", "10.77.0.1"), ("10.99.0.0/16", "10.77.0.254")} <= routes
        routes6 = {(r["dst"], r.get("gateway")) for r in ip("-6", "route", netns=sandbox)}
        assert ("default", "fd77::1") in routes6
        [outside] = ip("link", "show", vif.vif_name)
        assert outside["address"] == host["mac"]
        assert outside["ifalias"] == (
            f"kuryr:{node.switch.identity()}:c1 u1 eth0 eth0 {path(sandbox)}"
        )
        sysctl = "/proc/sys/net/ipv6/conf/eth0/accept_ra"
        assert shell(f"ip netns exec {sandbox} cat {sysctl}").strip() == "0"
        assert (await node.cni("CHECK", netns=path(sandbox)))[0] == 0
        [row] = node.switch.interfaces()
        assert row.external_ids[OURS] == "c1"
        assert row.external_ids["attached-mac"] == vif.address

        assert await node.cni("DEL") == (0, None)
        assert not node.switch.interfaces()
        assert not node.links.exists(vif.vif_name)
        assert await node.cni("DEL") == (0, None)


async def test_checksums_are_made_in_the_pod_where_the_bridge_is_in_user_space(
    tmp_path, remote, sandbox
):
    async with a_node(tmp_path, remote) as node:
        node.cache.put(kuryrport("web", "u1", {"eth0": ovs_vif(1)}))
        await node.cni("ADD", netns=path(sandbox))
        assert not _offload(sandbox)


def _offload(sandbox):
    """ethtool -k, without ethtool."""
    script = (
        "import array, fcntl, socket, struct\n"
        "value = array.array('I', [0x16, 0])\n"
        "request = struct.pack('16sP16x', b'eth0', value.buffer_info()[0])\n"
        "fcntl.ioctl(socket.socket(), 0x8946, request)\n"
        "print(value[1])"
    )
    done = subprocess.run(
        ["ip", "netns", "exec", sandbox, "python3", "-c", script], check=True, capture_output=True
    )
    return int(done.stdout)


async def test_end_in_the_bridge_that_was_set_down_is_up_with_the_pods_end(
    tmp_path, remote, sandbox
):
    """ovs-vswitchd sets it down when a port of the same name was removed just before."""
    vif = ovs_vif(1)
    async with a_node(tmp_path, remote) as node:
        node.controller.enabled = False
        node.cache.put(kuryrport("web", "u1", {"eth0": vif}))
        async with asyncio.TaskGroup() as group:
            added = group.create_task(node.cni("ADD", netns=path(sandbox)))
            await eventually(node.switch.interfaces)
            shell(f"ip link set {vif.vif_name} down")
            node.controller.enabled = True
            await node.controller.mark()
        assert added.result()[0] == 0
        [link] = ip("link", "show", vif.vif_name)
        assert "UP" in link["flags"]


async def test_adding_again_gives_the_same_answer_and_changes_nothing(tmp_path, remote, sandbox):
    async with a_node(tmp_path, remote) as node:
        node.cache.put(kuryrport("web", "u1", {"eth0": ovs_vif(1)}))
        first = await node.cni("ADD", netns=path(sandbox))
        row = node.switch.interfaces()
        assert first[0] == 0
        assert await node.cni("ADD", netns=path(sandbox)) == first
        assert node.switch.interfaces() == row
    async with a_node(tmp_path, remote) as restarted:
        restarted.cache.put(kuryrport("web", "u1", {"eth0": ovs_vif(1)}))
        assert await restarted.cni("ADD", netns=path(sandbox)) == first
        assert restarted.switch.interfaces() == row
        await restarted.cni("DEL")


async def test_a_new_sandbox_takes_over_and_the_late_del_of_the_old_touches_nothing(
    tmp_path, remote, namespaces
):
    old, new = namespaces(), namespaces()
    async with a_node(tmp_path, remote) as node:
        node.cache.put(kuryrport("web", "u1", {"eth0": ovs_vif(1)}))
        assert (await node.cni("ADD", "old", netns=path(old)))[0] == 0
        assert (await node.cni("ADD", "new", netns=path(new)))[0] == 0
        assert ip("link", "show", netns=old)[1:] == []
        assert await node.cni("DEL", "old") == (0, None)
        assert [row.external_ids[OURS] for row in node.switch.interfaces()] == ["new"]
        assert (await node.cni("CHECK", "new", netns=path(new)))[0] == 0
        await node.cni("DEL", "new")


async def test_a_leftover_of_the_same_name_is_replaced(tmp_path, remote, namespaces):
    sandbox, other = namespaces(), namespaces()
    vif = ovs_vif(1)
    shell(f"ip link add {vif.vif_name} type veth peer name eth0 netns {other}")
    async with a_node(tmp_path, remote) as node:
        node.cache.put(kuryrport("web", "u1", {"eth0": vif}))
        assert (await node.cni("ADD", netns=path(sandbox)))[0] == 0
        assert (await node.cni("CHECK", netns=path(sandbox)))[0] == 0
        await node.cni("DEL")


async def test_add_that_ovn_never_installs_fails_with_11_and_leaves_nothing(
    tmp_path, remote, sandbox
):
    vif = ovs_vif(1)
    for limit in (0.5, 5.0, 50.0):  # on a busy machine it may be over before OVN is waited for
        async with a_node(tmp_path, remote, add_timeout=limit) as node:
            node.controller.enabled = False
            node.cache.put(kuryrport("web", "u1", {"eth0": vif}))
            code, answer = await node.cni("ADD", netns=path(sandbox))
            assert (code, answer["code"]) == (1, 11)
            assert vif.id in answer["msg"]
            if "plugging" in answer["msg"]:
                continue
            assert "OVN has not installed" in answer["msg"]
            assert not node.switch.interfaces()
            assert not node.links.exists(vif.vif_name)
            return
    pytest.fail("the ADD never came as far as OVN")


async def test_del_ends_an_add_in_flight(tmp_path, remote, sandbox):
    async with a_node(tmp_path, remote) as node, asyncio.TaskGroup() as group:
        node.controller.enabled = False
        node.cache.put(kuryrport("web", "u1", {"eth0": ovs_vif(1)}))
        add = group.create_task(node.cni("ADD", netns=path(sandbox)))
        await eventually(node.switch.interfaces)
        assert await node.cni("DEL") == (0, None)
        code, answer = await add
        assert (code, answer["code"]) == (1, 11)
        assert not node.switch.interfaces()


async def test_del_with_the_daemon_down_is_done_at_its_start(tmp_path, remote, sandbox):
    vif = ovs_vif(1)
    async with a_node(tmp_path, remote) as node:
        node.cache.put(kuryrport("web", "u1", {"eth0": vif}))
        await node.cni("ADD", netns=path(sandbox))
    assert await node.cni("DEL") == (0, None)
    assert [p.name for p in node.spool.iterdir()] == ["c1.eth0"]
    async with a_node(tmp_path, remote) as restarted:
        assert not restarted.switch.interfaces()
        assert not restarted.links.exists(vif.vif_name)
        assert list(node.spool.iterdir()) == []


async def test_del_while_open_vswitch_is_down_is_put_off_and_done_once_it_is_back(
    tmp_path, remote, sandbox, database
):
    vif = ovs_vif(1)
    async with a_node(tmp_path, remote, sweep=0.2, patience=HURRIED) as node:
        node.cache.put(kuryrport("web", "u1", {"eth0": vif}))
        assert (await node.cni("ADD", netns=path(sandbox)))[0] == 0
        database.stop()
        await eventually(node.attachments.trouble)
        assert await node.cni("DEL") == (0, None)
        assert [p.name for p in node.spool.iterdir()] == ["c1.eth0"]
        assert node.attachments.of_pod("u1")  # so nobody is told that the Pod has left
        database.start()
        await eventually(lambda: not list(node.spool.iterdir()))
        assert not node.switch.interfaces()
        assert not node.links.exists(vif.vif_name)


async def test_put_off_del_of_an_earlier_sandbox_leaves_the_newer_one_alone(
    tmp_path, remote, namespaces, database
):
    first, second = namespaces(), namespaces()
    vif = ovs_vif(1)
    async with a_node(tmp_path, remote, patience=HURRIED) as node:
        node.cache.put(kuryrport("web", "u1", {"eth0": vif}))
        assert (await node.cni("ADD", "c1", netns=path(first)))[0] == 0
        database.stop()
        await eventually(node.attachments.trouble)
        assert await node.cni("DEL", "c1") == (0, None)
        database.start()
        assert (await node.cni("ADD", "c2", netns=path(second)))[0] == 0
        assert [p.name for p in node.spool.iterdir()] == ["c1.eth0"]
    async with a_node(tmp_path, remote) as node:  # does what was put off before anything else
        node.cache.put(kuryrport("web", "u1", {"eth0": vif}))
        assert list(node.spool.iterdir()) == []
        assert (await node.cni("CHECK", "c2", netns=path(second)))[0] == 0


async def test_missing_namespace_is_code_8(tmp_path, remote):
    async with a_node(tmp_path, remote) as node:
        node.cache.put(kuryrport("web", "u1", {"eth0": ovs_vif(1)}))
        code, answer = await node.cni("ADD", netns="/run/netns/nonesuch")
        assert (code, answer["code"]) == (1, 8)
        code, answer = await node.cni("ADD", netns="/proc/self/ns/net")
        assert (code, answer["code"]) == (1, 8)


async def test_the_database_may_restart(tmp_path, remote, sandbox, database):
    async with a_node(tmp_path, remote) as node:
        node.cache.put(kuryrport("web", "u1", {"eth0": ovs_vif(1)}))
        assert (await node.cni("ADD", netns=path(sandbox)))[0] == 0
        database.stop()
        await eventually(lambda: not node.switch.connected.is_set())
        code, answer = await node.cni("STATUS", version="1.1.0")
        assert (code, answer["code"]) == (1, 50)
        async with asyncio.TaskGroup() as group:
            delete = group.create_task(node.cni("DEL"))
            await eventually(_is_asked)
            database.start()
            assert await delete == (0, None)
        assert not node.switch.interfaces()
        assert (await node.cni("ADD", "c2", netns=path(sandbox)))[0] == 0
        assert (await node.cni("STATUS", version="1.1.0")) == (0, None)
        await node.cni("DEL", "c2")


def _is_asked():
    """Whether the daemon, which runs in this process, has a request to answer."""
    return any(task.get_name() == "cni-request" for task in asyncio.all_tasks())


async def test_a_killed_daemon_leaves_nothing_behind(tmp_path, remote, namespaces):
    """What a kill -9 can leave: a veth without a row, or a row of a Pod that is gone."""
    sandbox, vif, other = namespaces(), ovs_vif(1), ovs_vif(2)
    async with a_node(tmp_path, remote) as node:
        node.cache.put(kuryrport("gone", "u2", {"eth0": other}))
        await node.cni("ADD", "c2", netns=path(sandbox), pod="gone", uid="u2")
        identity = node.switch.identity()
    shell(f"ip netns del {sandbox}")
    held = namespaces()
    shell(f"ip link add {vif.vif_name} type veth peer name eth0 netns {held}")
    shell(f"ip link set {vif.vif_name} alias kuryr:{identity}:c1")
    async with a_node(tmp_path, remote) as restarted:
        await eventually(lambda: not restarted.switch.interfaces())
        await eventually(lambda: not restarted.links.exists(vif.vif_name))


@contextlib.asynccontextmanager
async def outliving(sandbox):
    """The namespace outlives its path: a process is in it."""
    holder = await asyncio.create_subprocess_exec("ip", "netns", "exec", sandbox, "sleep", "600")
    inside = Path(f"/proc/{holder.pid}/ns/net")
    try:
        await eventually(lambda: inside.samefile(path(sandbox)))
        yield
    finally:
        holder.kill()
        await holder.wait()


async def test_addresses_are_announced_when_the_port_is_ready_and_not_before(
    tmp_path, remote, sandbox
):
    """Neighbours may know them with another MAC, and before that nobody forwards the news."""
    vif = ovs_vif(1)
    async with a_node(tmp_path, remote) as node, asyncio.TaskGroup() as group:
        node.controller.enabled = False
        node.cache.put(kuryrport("web", "u1", {"eth0": vif}))
        add = group.create_task(node.cni("ADD", netns=path(sandbox)))
        await eventually(node.switch.interfaces)
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as sniffer:
            sniffer.bind((vif.vif_name, 0))
            sniffer.setblocking(False)
            await asyncio.sleep(0.3)
            assert frames(sniffer) == []
            node.controller.enabled = True
            for row in node.switch.interfaces():
                node.controller.seen.put_nowait(row.row)
            assert (await add)[0] == 0
            mac = bytes.fromhex(vif.address.replace(":", ""))
            ipv4, ipv6 = ipaddress.ip_address("10.77.0.11"), ipaddress.ip_address("fd77::10")
            seen = []

            def announced():
                """Sender and target of the ARP; ICMPv6 type 136, then flags, then the target."""
                seen.extend(frames(sniffer))
                return any(
                    f[12:14] == b"\x08\x06" and f[22:32] == mac + ipv4.packed for f in seen
                ) and any(f[54:55] == b"\x88" and f[62:78] == ipv6.packed for f in seen)

            await eventually(announced)
        await node.cni("DEL")


@pytest.mark.parametrize("ipv6", [False, True])
async def test_no_router_advertisement_gives_a_pod_an_address(tmp_path, remote, sandbox, ipv6):
    vif = ovs_vif(1, ipv6=ipv6)
    async with a_node(tmp_path, remote) as node:
        node.cache.put(kuryrport("web", "u1", {"eth0": vif}))
        assert (await node.cni("ADD", netns=path(sandbox)))[0] == 0
        await eventually(lambda: "fe80:" in shell(f"ip -n {sandbox} -6 address"))  # IPv6 is ready
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as channel:
            channel.bind((vif.vif_name, 0))
            channel.setblocking(False)
            answers = []

            def answered_twice():
                """The second answer is to what was sent when frames already arrived.

                The kernel drops what is sent until it has taken note that a new link is up.
                """
                channel.send(router_advertisement("fd66::"))
                channel.send(arp_request("10.77.0.11"))  # answered after what came before it
                answers.extend(frame for frame in frames(channel) if frame[20:22] == b"\0\2")
                return len(answers) >= 2

            await eventually(answered_twice)
        text = shell(f"ip -n {sandbox} -6 address") + shell(f"ip -n {sandbox} -6 route")
        assert "fd66:" not in text
        assert "proto ra" not in text


ROUTER = bytes.fromhex("fa163effffff")


def router_advertisement(prefix):
    """A frame that gives everybody an address of this /64, and a default route (RFC 4861)."""
    source, everybody = (ipaddress.ip_address(a).packed for a in ("fe80::1", "ff02::1"))
    option = struct.pack("!BBBBIII", 3, 4, 64, 0xC0, 3600, 3600, 0)
    option += ipaddress.ip_address(prefix).packed
    body = struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0) + option
    summed = source + everybody + struct.pack("!II", len(body), 58) + body
    total = sum(struct.unpack(f"!{len(summed) // 2}H", summed))
    total = (total & 0xFFFF) + (total >> 16)
    checksum = 0xFFFF - ((total & 0xFFFF) + (total >> 16))
    body = body[:2] + struct.pack("!H", checksum) + body[4:]
    head = struct.pack("!IHBB", 6 << 28, len(body), 58, 255)
    return bytes.fromhex("333300000001") + ROUTER + b"\x86\xdd" + head + source + everybody + body


def arp_request(ip):
    """A frame that asks who has the address."""
    asking = ROUTER + ipaddress.ip_address("10.77.0.1").packed
    asked = bytes(6) + ipaddress.ip_address(ip).packed
    return b"\xff" * 6 + ROUTER + b"\x08\x06" + bytes.fromhex("0001080006040001") + asking + asked


async def test_what_another_daemon_plugged_on_this_machine_is_no_leftover(
    tmp_path, remote, namespaces
):
    """Regression: a second daemon, with another database, took the first one's veths away."""
    held, vif = namespaces(), ovs_vif(1)
    shell(f"ip link add {vif.vif_name} type veth peer name eth0 netns {held}")
    shell(f"ip link set {vif.vif_name} alias kuryr:another-database:c1")
    async with a_node(tmp_path, remote) as node:
        await node.attachments.sweep()
        assert await node.cni("DEL", "c1") == (0, None)
        assert node.links.exists(vif.vif_name)


async def test_a_running_pod_whose_namespace_is_not_seen_is_not_unplugged(
    tmp_path, remote, namespaces
):
    sandbox = namespaces()
    async with a_node(tmp_path, remote) as node:
        key = node.cache.put(kuryrport("web", "u1", {"eth0": ovs_vif(1)}))
        await node.cni("ADD", netns=path(sandbox))
        async with outliving(sandbox):
            shell(f"ip netns del {sandbox}")
            await node.attachments.sweep()
            [(binding, attachment)] = node.attachments.all()
            assert not binding.vanished(attachment)
            node.cache.remove(key)
            await node.attachments.sweep()
            assert node.attachments.all() == []


async def test_gc_with_an_empty_list_frees_no_running_pod(tmp_path, remote, namespaces):
    living, dead = namespaces(), namespaces()
    async with a_node(tmp_path, remote) as node:
        node.cache.put(kuryrport("a", "ua", {"eth0": ovs_vif(1)}))
        node.cache.put(kuryrport("b", "ub", {"eth0": ovs_vif(2)}))
        await node.cni("ADD", "ca", netns=path(living), pod="a", uid="ua")
        await node.cni("ADD", "cb", netns=path(dead), pod="b", uid="ub")
        shell(f"ip netns del {dead}")
        # the kernel takes its time to remove what was in it
        await eventually(lambda: not node.links.exists(ovs_vif(2).vif_name))
        empty = {"cni.dev/valid-attachments": []}
        assert await node.cni("GC", version="1.1.0", config=empty) == (0, None)
        assert [row.external_ids[OURS] for row in node.switch.interfaces()] == ["ca"]
        await node.cni("DEL", "ca")


async def test_a_hundred_pods_come_and_go_at_once(tmp_path, remote, namespaces):
    count = 100
    sandboxes = [namespaces() for _ in range(count)]
    times = {"ADD": [], "DEL": []}
    async with a_node(tmp_path, remote) as node:

        async def request(command, number):
            started = time.monotonic()
            code, answer = await node.cni(
                command,
                f"c{number}",
                netns=path(sandboxes[number]),
                pod=f"p{number}",
                uid=f"u{number}",
            )
            assert code == 0, answer
            times[command].append(time.monotonic() - started)

        for number in range(count):
            node.cache.put(kuryrport(f"p{number}", f"u{number}", {"eth0": ovs_vif(number + 1)}))
        for command, left in (("ADD", count), ("DEL", 0)):
            async with asyncio.TaskGroup() as group:
                for number in range(count):
                    group.create_task(request(command, number))
            assert len(node.switch.interfaces()) == left
            assert len(times[command]) == count
        assert not [n for n in await node.links.aliases() if n.startswith("tap0000")]
    for command, seconds in times.items():
        print(command, f"p50 {sorted(seconds)[50]:.2f} s, max {max(seconds):.2f} s")
