"""A Pod with a second interface that a third party's binding plugs."""

import pytest
from kuryr_example.binding import IsolatedBinding
from kuryr_example.model import VIFIsolated

from tests.kit.node.fakes import kuryrport, ovs_vif
from tests.node.workbench import a_node, eventually, ip, path, shell

OTHERS = {"VIFIsolated": IsolatedBinding}
LIKE = ovs_vif(2)
SECOND = VIFIsolated(id=LIKE.id, address=LIKE.address, network=LIKE.network, vif_name="iso-net1")
VIFS = {"eth0": ovs_vif(1), "net1": SECOND}


@pytest.fixture
def sandbox(namespaces):
    return namespaces()


def names(netns):
    return {link["ifname"] for link in ip("link", netns=netns)}


async def test_both_bindings_plug_and_unplug_one_pod(tmp_path, remote, sandbox):
    async with a_node(tmp_path, remote, others=OTHERS) as node:
        node.cache.put(kuryrport("web", "u1", VIFS))
        code, result = await node.cni("ADD", netns=path(sandbox))
        assert code == 0, result
        found = [each["name"] for each in result["interfaces"]]
        assert found[1:] == ["eth0", "iso-net1", "net1"]
        assert {address["interface"] for address in result["ips"]} == {1, 3}
        [second] = ip("link", "show", "net1", netns=sandbox)
        assert second["address"] == SECOND.address
        assert "UP" in second["flags"]
        assert await node.cni("CHECK", netns=path(sandbox)) == (0, None)
        shell(f"ip -n {sandbox} link set net1 down")
        code, answer = await node.cni("CHECK", netns=path(sandbox))
        assert (code, answer["code"]) == (1, 101)
        assert "interface net1 is down" in answer["msg"]
        assert await node.cni("DEL", netns=path(sandbox)) == (0, None)
        assert names(sandbox) == {"lo"}
        assert node.attachments.all() == []


async def test_its_records_outlive_the_daemon(tmp_path, remote, sandbox):
    async with a_node(tmp_path, remote, others=OTHERS) as node:
        node.cache.put(kuryrport("web", "u1", VIFS))
        assert (await node.cni("ADD", netns=path(sandbox)))[0] == 0
    async with a_node(tmp_path, remote, others=OTHERS) as restarted:
        assert len(restarted.attachments.all()) == 2
        assert await restarted.cni("DEL") == (0, None)
        assert names(sandbox) == {"lo"}
        assert restarted.attachments.all() == []


async def test_what_vanished_without_del_is_swept(tmp_path, remote, namespaces):
    name = namespaces()
    async with a_node(tmp_path, remote, others=OTHERS, sweep=0.05) as node:
        node.cache.put(kuryrport("web", "u1", VIFS))
        assert (await node.cni("ADD", netns=path(name)))[0] == 0
        shell(f"ip netns del {name}")
        for key in list(node.cache.objects):
            node.cache.remove(key)
        await eventually(lambda: not node.attachments.all())
