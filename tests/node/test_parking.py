"""Ports that wait plugged, with real namespaces and a real ovsdb-server."""

import asyncio
import contextlib
import dataclasses
import ipaddress
import socket
import subprocess

import pytest

from kuryr_k8s.cni.netlink import LinkError
from kuryr_k8s.cni.netlink.parked_pairs import lower
from kuryr_k8s.cni.ovs.switch import OURS, PARKED
from tests.kit.node.fakes import kuryrport, ovs_vif, pool_entry, pool_item
from tests.node.parked_ports import VIF, end, kind, parked, parked_rows, pool
from tests.node.workbench import NODE, a_node, eventually, frames, ip, path, shell


@pytest.fixture
def sandbox(namespaces):
    return namespaces()


async def test_port_of_the_pool_is_plugged_with_its_peer_down_and_reported(tmp_path, remote):
    async with a_node(tmp_path, remote) as node:
        await parked(node, VIF)
        [row] = parked_rows(node)
        assert (row.name, row.iface_id) == (VIF.vif_name, VIF.id)
        assert OURS not in row.external_ids
        assert "UP" in end(VIF.vif_name)["flags"]
        below = end(lower(VIF.vif_name))
        assert "UP" not in below["flags"]
        assert (below["address"], below["mtu"]) == (VIF.address, 1442)
        assert node.attachments.all() == []
        assert node.pool_api.patches == [{VIF.id: {}}]


async def test_parked_port_is_handed_over_without_another_word_to_ovn(tmp_path, remote, sandbox):
    async with a_node(tmp_path, remote) as node:
        await parked(node, VIF)
        [before] = node.switch.interfaces()
        node.controller.enabled = False  # whoever waits for OVN now waits for ever
        node.cache.put(kuryrport("web", "u1", {"eth0": VIF}))
        code, result = await node.cni("ADD", netns=path(sandbox), version="1.1.0")
        assert code == 0, result
        assert {i["address"] for i in result["ips"]} == {"10.77.0.11/16", "fd77::10/64"}
        link = end("eth0", netns=sandbox)
        assert (kind(link), link["address"], link["mtu"]) == ("macvlan", VIF.address, 1442)
        assert "UP" in link["flags"]
        assert "UP" in end(lower(VIF.vif_name))["flags"]
        routes = {(r["dst"], r.get("gateway")) for r in ip("route", netns=sandbox)}
        assert ("default", "10.77.0.1") in routes
        [row] = node.switch.interfaces()
        assert row.row == before.row
        assert row.installed
        assert row.external_ids[OURS] == "c1"
        assert (await node.cni("CHECK", netns=path(sandbox)))[0] == 0
        assert await node.cni("ADD", netns=path(sandbox), version="1.1.0") == (0, result)
        assert node.pool_api.patches == [{VIF.id: {}}]


async def test_pod_whose_bandwidth_is_limited_gets_a_veth_instead_of_the_parked_pair(
    tmp_path, remote, sandbox
):
    """The plugin bandwidth works on the peer of the Pod's interface; a macvlan has none."""
    limits = {"runtimeConfig": {"bandwidth": {"ingressRate": 1000000, "ingressBurst": 1000000}}}
    async with a_node(tmp_path, remote) as node:
        await parked(node, VIF)
        node.cache.put(kuryrport("web", "u1", {"eth0": VIF}))
        code, result = await node.cni("ADD", netns=path(sandbox), config=limits)
        assert code == 0, result
        inside, outside = end("eth0", netns=sandbox), end(VIF.vif_name)
        assert (kind(inside), kind(outside)) == ("veth", "veth")
        assert inside["link_index"] == outside["ifindex"]
        assert inside["address"] == VIF.address
        assert await node.cni("DEL", netns=path(sandbox)) == (0, None)
        await eventually(lambda: parked_rows(node))  # for the next Pod


@pytest.mark.parametrize("mtu", [1300, 1500])
async def test_parked_port_has_the_mtu_that_its_network_has_got_meanwhile(
    tmp_path, remote, sandbox, mtu
):
    async with a_node(tmp_path, remote) as node:
        await parked(node, VIF)
        node.controller.enabled = False
        changed = dataclasses.replace(VIF, network=dataclasses.replace(VIF.network, mtu=mtu))
        node.cache.put(kuryrport("web", "u1", {"eth0": changed}))
        code, result = await node.cni("ADD", netns=path(sandbox), version="1.1.0")
        assert code == 0, result
        link = end("eth0", netns=sandbox)
        assert (kind(link), link["mtu"]) == ("macvlan", mtu)
        assert [end(name)["mtu"] for name in (VIF.vif_name, lower(VIF.vif_name))] == [mtu, mtu]


async def test_del_parks_again_and_leaves_nothing_of_the_pod(tmp_path, remote, namespaces):
    one, other = namespaces(), namespaces()
    async with a_node(tmp_path, remote) as node:
        await parked(node, VIF)
        [before] = node.switch.interfaces()
        for number, sandbox in enumerate((one, other)):
            node.cache.put(kuryrport("web", f"u{number}", {"eth0": VIF}))
            about = {"uid": f"u{number}", "container": f"c{number}"}
            assert (await node.cni("ADD", netns=path(sandbox), **about))[0] == 0
            assert await node.cni("DEL", netns=path(sandbox), **about) == (0, None)
            assert ip("link", "show", netns=sandbox)[1:] == []
            assert "UP" not in end(lower(VIF.vif_name))["flags"]
            [row] = parked_rows(node)
            assert row == before
            assert node.vswitchd.forgotten == [7] * (number + 1)
        assert node.pool_api.patches == [{VIF.id: {}}]


async def test_del_parks_again_when_the_namespace_has_gone_before(tmp_path, remote, sandbox):
    async with a_node(tmp_path, remote) as node:
        await parked(node, VIF)
        node.cache.put(kuryrport("web", "u1", {"eth0": VIF}))
        assert (await node.cni("ADD", netns=path(sandbox)))[0] == 0
        [(binding, attachment)] = node.attachments.all()
        assert not binding.vanished(attachment)
        shell(f"ip netns del {sandbox}")
        await eventually(lambda: binding.vanished(attachment))
        assert await node.cni("DEL") == (0, None)
        assert "UP" not in end(lower(VIF.vif_name))["flags"]
        assert len(parked_rows(node)) == 1


async def test_port_whose_connections_cannot_be_forgotten_is_plugged_anew(
    tmp_path, remote, sandbox
):
    async with a_node(tmp_path, remote) as node:
        await parked(node, VIF)
        [before] = node.switch.interfaces()
        node.cache.put(kuryrport("web", "u1", {"eth0": VIF}))
        assert (await node.cni("ADD", netns=path(sandbox)))[0] == 0
        node.vswitchd.refuses = True
        assert await node.cni("DEL") == (0, None)
        await eventually(lambda: [row.row for row in parked_rows(node)] not in ([], [before.row]))
        assert node.vswitchd.forgotten == []


async def test_port_marked_to_remove_is_unplugged_and_then_reported(tmp_path, remote):
    async with a_node(tmp_path, remote) as node:
        await parked(node, VIF, ovs_vif(2))
        node.pool.name({VIF: "remove", ovs_vif(2): "keep"}, parked=pool(node).parked)
        await eventually(lambda: pool(node).parked == {ovs_vif(2).id})
        assert [row.iface_id for row in parked_rows(node)] == [ovs_vif(2).id]
        assert not node.links.exists(VIF.vif_name)
        assert not node.links.exists(lower(VIF.vif_name))


async def test_port_marked_to_remove_stays_while_a_pod_has_it(tmp_path, remote, sandbox):
    async with a_node(tmp_path, remote) as node:
        await parked(node, VIF)
        node.cache.put(kuryrport("web", "u1", {"eth0": VIF}))
        assert (await node.cni("ADD", netns=path(sandbox)))[0] == 0
        node.pool.name({VIF: "remove", ovs_vif(2): "keep"}, parked=pool(node).parked)
        await eventually(lambda: parked_rows(node))  # the other one: the daemon has seen it
        assert (await node.cni("CHECK", netns=path(sandbox)))[0] == 0
        assert await node.cni("DEL") == (0, None)
        assert [row.iface_id for row in node.switch.interfaces()] == [ovs_vif(2).id]
        await eventually(lambda: pool(node).parked == {ovs_vif(2).id})


async def test_cache_that_lags_unplugs_nothing(tmp_path, remote):
    async with a_node(tmp_path, remote) as node:
        await parked(node, VIF, ovs_vif(2))
        node.pool_api.live = pool_item({v.id: pool_entry(v) for v in (VIF, ovs_vif(2))})
        asked = asyncio.Event()
        find = node.pool_api.find

        async def noticed(resource, key):
            asked.set()
            return await find(resource, key)

        node.pool_api.find = noticed
        node.pool.name({ovs_vif(2): "keep"})  # an earlier state of it
        await eventually(asked.is_set)
        await node.parking.step(NODE)
        assert len(parked_rows(node)) == 2


async def test_port_that_is_named_no_more_is_unplugged(tmp_path, remote):
    async with a_node(tmp_path, remote) as node:
        await parked(node, VIF, ovs_vif(2))
        node.pool.name({ovs_vif(2): "keep"})
        await eventually(lambda: [r.iface_id for r in parked_rows(node)] == [ovs_vif(2).id])


async def test_restarted_daemon_keeps_what_is_parked_and_what_is_handed_over(
    tmp_path, remote, sandbox
):
    other = ovs_vif(2, active=True)
    async with a_node(tmp_path, remote) as node:
        await parked(node, VIF, other)
        node.cache.put(kuryrport("web", "u1", {"eth0": VIF}))
        assert (await node.cni("ADD", netns=path(sandbox)))[0] == 0
        before = {row.iface_id: row for row in node.switch.interfaces()}
    async with a_node(tmp_path, remote) as restarted:
        restarted.cache.put(kuryrport("web", "u1", {"eth0": VIF}))
        restarted.pool.name({VIF: "keep", other: "keep"})
        await eventually(lambda: pool(restarted).parked == {VIF.id, other.id})
        assert {row.iface_id: row for row in restarted.switch.interfaces()} == before
        assert (await restarted.cni("CHECK", netns=path(sandbox)))[0] == 0
        assert await restarted.cni("DEL") == (0, None)
        assert len(parked_rows(restarted)) == 2


async def test_pod_that_leaves_before_the_pool_is_known_leaves_its_port_parked(
    tmp_path, remote, sandbox
):
    async with a_node(tmp_path, remote) as node:
        await parked(node, VIF)
        node.cache.put(kuryrport("web", "u1", {"eth0": VIF}))
        assert (await node.cni("ADD", netns=path(sandbox)))[0] == 0
    async with a_node(tmp_path, remote) as restarted:
        restarted.pool.synced.clear()
        assert await restarted.cni("DEL") == (0, None)
        [row] = parked_rows(restarted)
        restarted.pool.synced.set()
        restarted.pool.name({VIF: "remove"})
        await eventually(lambda: not parked_rows(restarted))
    assert row.iface_id == VIF.id


async def test_pairs_that_went_with_the_nodes_restart_are_made_again(tmp_path, remote):
    async with a_node(tmp_path, remote) as node:
        await parked(node, VIF)
        [before] = node.switch.interfaces()
    shell(f"ip link del {VIF.vif_name}")
    async with a_node(tmp_path, remote) as restarted:
        await parked(restarted, VIF)
        [row] = parked_rows(restarted)
        assert row.row != before.row
        assert "UP" not in end(lower(VIF.vif_name))["flags"]


async def test_what_a_dead_daemon_left_up_is_set_down(tmp_path, remote):
    async with a_node(tmp_path, remote) as node:
        await parked(node, VIF)
    shell(f"ip link set {lower(VIF.vif_name)} up")
    async with a_node(tmp_path, remote) as restarted:
        await parked(restarted, VIF)
        await eventually(lambda: "UP" not in end(lower(VIF.vif_name))["flags"])


async def test_port_that_another_pod_still_has_is_plugged_anew(tmp_path, remote, namespaces):
    """Its interface was not to be found when it was parked again. Never do two Pods have it."""
    old, new = namespaces(), namespaces()
    async with a_node(tmp_path, remote) as node:
        await parked(node, VIF)
        name, below = VIF.vif_name, lower(VIF.vif_name)
        shell(f"ip link add link {below} name eth0 netns {old} type macvlan mode passthru")
        node.cache.put(kuryrport("web", "u1", {"eth0": VIF}))
        assert (await node.cni("ADD", netns=path(new)))[0] == 0
        assert kind(end("eth0", netns=new)) == "veth"
        assert ip("link", "show", netns=old)[1:] == []
        [row] = node.switch.interfaces()
        assert (row.name, PARKED in row.external_ids) == (name, False)
        assert await node.cni("DEL") == (0, None)
        await parked(node, VIF)


async def test_changed_mac_is_not_handed_on(tmp_path, remote, sandbox):
    async with a_node(tmp_path, remote) as node:
        await parked(node, VIF)
        shell(f"ip link set {lower(VIF.vif_name)} address fa:16:3e:66:66:66")
        node.cache.put(kuryrport("web", "u1", {"eth0": VIF}))
        assert (await node.cni("ADD", netns=path(sandbox)))[0] == 0
        link = end("eth0", netns=sandbox)
        assert (kind(link), link["address"]) == ("veth", VIF.address)


async def test_mac_that_a_pod_changed_is_its_own_again_for_the_next(tmp_path, remote, namespaces):
    one, other = namespaces(), namespaces()
    async with a_node(tmp_path, remote) as node:
        await parked(node, VIF)
        node.cache.put(kuryrport("web", "u1", {"eth0": VIF}))
        assert (await node.cni("ADD", netns=path(one)))[0] == 0
        shell(f"ip -n {one} link set eth0 address fa:16:3e:66:66:66")
        assert await node.cni("DEL") == (0, None)
        node.cache.put(kuryrport("web", "u2", {"eth0": VIF}))
        assert (await node.cni("ADD", "c2", uid="u2", netns=path(other)))[0] == 0
        link = end("eth0", netns=other)
        assert (kind(link), link["address"]) == ("macvlan", VIF.address)


async def test_namespace_that_is_gone_leaves_the_port_parked(tmp_path, remote):
    async with a_node(tmp_path, remote) as node:
        await parked(node, VIF)
        [before] = node.switch.interfaces()
        node.cache.put(kuryrport("web", "u1", {"eth0": VIF}))
        code, answer = await node.cni("ADD", netns="/run/netns/nonesuch")
        assert (code, answer["code"]) == (1, 8)
        assert parked_rows(node) == [before]


async def test_new_sandbox_gets_the_port_from_the_old_one(tmp_path, remote, namespaces):
    old, new = namespaces(), namespaces()
    async with a_node(tmp_path, remote) as node:
        await parked(node, VIF)
        node.cache.put(kuryrport("web", "u1", {"eth0": VIF}))
        assert (await node.cni("ADD", "old", netns=path(old)))[0] == 0
        assert (await node.cni("ADD", "new", netns=path(new)))[0] == 0
        assert ip("link", "show", netns=old)[1:] == []
        assert kind(end("eth0", netns=new)) == "macvlan"
        assert await node.cni("DEL", "old") == (0, None)
        assert (await node.cni("CHECK", "new", netns=path(new)))[0] == 0


async def test_twenty_pods_at_once_get_twenty_parked_ports(tmp_path, remote, namespaces):
    vifs = [ovs_vif(number, active=True) for number in range(1, 21)]
    async with a_node(tmp_path, remote) as node:
        await parked(node, *vifs)
        before = {row.row for row in parked_rows(node)}
        node.controller.enabled = False
        pods = [{"pod": f"pod{number}", "uid": f"u{number}"} for number in range(20)]
        for pod, vif in zip(pods, vifs, strict=True):
            node.cache.put(kuryrport(pod["pod"], pod["uid"], {"eth0": vif}))
        sandboxes = [namespaces() for _ in pods]
        async with asyncio.TaskGroup() as group:
            adds = [
                group.create_task(node.cni("ADD", pod["uid"], netns=path(sandbox), **pod))
                for pod, sandbox in zip(pods, sandboxes, strict=True)
            ]
        assert [add.result()[0] for add in adds] == [0] * 20
        assert {row.row for row in node.switch.interfaces()} == before
        async with asyncio.TaskGroup() as group:
            dels = [group.create_task(node.cni("DEL", pod["uid"], **pod)) for pod in pods]
        assert [each.result() for each in dels] == [(0, None)] * 20
        assert {row.row for row in parked_rows(node)} == before


async def test_hand_over_that_the_kernel_refuses_is_done_in_the_ordinary_way(
    tmp_path, remote, sandbox
):
    async with a_node(tmp_path, remote) as node:
        await parked(node, VIF)

        async def refused(*_, **__):
            raise LinkError("no such thing here")

        node.links.hand_over = refused
        node.cache.put(kuryrport("web", "u1", {"eth0": VIF}))
        assert (await node.cni("ADD", netns=path(sandbox)))[0] == 0
        assert kind(end("eth0", netns=sandbox)) == "veth"
        assert (await node.cni("CHECK", netns=path(sandbox)))[0] == 0


async def test_nothing_reaches_or_leaves_a_parked_port(tmp_path, remote):
    async with a_node(tmp_path, remote) as node:
        await parked(node, VIF)
        with contextlib.suppress(subprocess.CalledProcessError):
            shell(f"ip addr add 10.77.0.1/16 dev {VIF.vif_name}")
            shell(f"ping -c 3 -i 0.2 -W 1 -I {VIF.vif_name} 10.77.0.11")
        [below] = ip("-s", "link", "show", lower(VIF.vif_name))
        counted = below["stats64"]
        assert (counted["rx"]["packets"], counted["tx"]["packets"]) == (0, 0)


async def test_addresses_are_announced_at_the_hand_over(tmp_path, remote, sandbox):
    async with a_node(tmp_path, remote) as node:
        await parked(node, VIF)
        node.cache.put(kuryrport("web", "u1", {"eth0": VIF}))
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as sniffer:
            sniffer.bind((VIF.vif_name, 0))
            sniffer.setblocking(False)
            assert (await node.cni("ADD", netns=path(sandbox)))[0] == 0
            seen = []
            await eventually(lambda: seen.extend(frames(sniffer)) or announced(seen))


@pytest.mark.parametrize("installed", ["installed before", "installed after"])
async def test_end_in_the_bridge_that_was_set_down_is_up_again(
    tmp_path, remote, sandbox, installed
):
    """ovs-vswitchd sets it down when a port of the same name was removed just before."""
    async with a_node(tmp_path, remote) as node:
        node.controller.enabled = installed == "installed before"
        node.pool.name(dict.fromkeys([VIF], "keep"))
        await eventually(lambda: parked_rows(node))
        if node.controller.enabled:
            await eventually(lambda: all(row.installed for row in parked_rows(node)))
        shell(f"ip link set {VIF.vif_name} down")
        node.cache.put(kuryrport("web", "u1", {"eth0": VIF}))
        async with asyncio.TaskGroup() as group:
            added = group.create_task(node.cni("ADD", netns=path(sandbox)))
            await eventually(lambda: not parked_rows(node))
            node.controller.enabled = True
            await node.controller.mark()
        assert added.result()[0] == 0
        assert "UP" in end(VIF.vif_name)["flags"]
        assert kind(end("eth0", netns=sandbox)) == "macvlan"  # it was handed over


def announced(seen):
    """Are both addresses, by ARP and by a neighbour advertisement?"""
    mac, ipv4 = bytes.fromhex(VIF.address.replace(":", "")), ipaddress.ip_address("10.77.0.11")
    ipv6 = ipaddress.ip_address("fd77::10")
    arp = any(f[12:14] == b"\x08\x06" and f[22:32] == mac + ipv4.packed for f in seen)
    return arp and any(f[54:55] == b"\x88" and f[62:78] == ipv6.packed for f in seen)
