"""Multus calls the plugin for each network on its own; a node in memory."""

import pytest

from kuryr_k8s.cni.bindings.base import BindingError, Stray
from kuryr_k8s.cni.protocol import BAD_CONFIG
from tests.kit.node.fakes import kuryrport, ovs_vif
from tests.unit.cni.node import Node

NETWORK = "default/storage"
CALL = {"ifname": "net1", "config": {"netAttachDefName": NETWORK}}
VIFS = {"eth0": ovs_vif(1), "eth1": ovs_vif(2), "net1": ovs_vif(3)}


@pytest.fixture
async def node():
    node = Node()
    node.cache.put(kuryrport("web", "u1", VIFS, delegated={"net1": NETWORK}))
    return node


def plugged(node):
    return sorted((each.container_id, each.ifname) for each in node.binding.attached)


def inside(result):
    return [each["name"] for each in result["interfaces"] if each.get("sandbox")]


async def test_each_call_plugs_the_interfaces_that_it_is_for(node):
    assert inside(await node.ask("ADD")) == ["eth0", "eth1"]
    assert plugged(node) == [("c1", "eth0"), ("c1", "eth1")]
    assert inside(await node.ask("ADD", **CALL)) == ["net1"]
    assert plugged(node) == [("c1", "eth0"), ("c1", "eth1"), ("c1", "net1")]


@pytest.mark.parametrize("config", [CALL["config"], {}], ids=["whole", "Multus lost the keys"])
async def test_each_del_unplugs_what_its_add_has_plugged(node, config):
    await node.ask("ADD")
    await node.ask("ADD", **CALL)
    assert await node.ask("DEL", ifname="net1", config=config) is None
    assert plugged(node) == [("c1", "eth0"), ("c1", "eth1")]
    assert await node.ask("DEL") is None
    assert plugged(node) == []


async def test_add_that_fails_leaves_the_interfaces_of_other_calls(node):
    await node.ask("ADD")
    node.binding.failure = BindingError("no")
    assert "code" in await node.ask("ADD", **CALL)
    assert plugged(node) == [("c1", "eth0"), ("c1", "eth1")]


async def test_new_sandbox_takes_over_network_by_network(node):
    await node.ask("ADD")
    await node.ask("ADD", **CALL)
    await node.ask("ADD", "c2")
    assert plugged(node) == [("c1", "net1"), ("c2", "eth0"), ("c2", "eth1")]
    await node.ask("ADD", "c2", **CALL)
    await node.ask("DEL", "c1", **CALL)
    await node.ask("DEL", "c1")
    assert plugged(node) == [("c2", "eth0"), ("c2", "eth1"), ("c2", "net1")]


async def test_check_looks_at_the_interfaces_of_its_call(node):
    await node.ask("ADD", **CALL)
    assert await node.ask("CHECK", **CALL) is None
    assert "code" in await node.ask("CHECK")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ({"ifname": "net1"}, "netAttachDefName is missing"),
        (
            {"ifname": "net2", "config": CALL["config"]},
            "has no net2 for Multus in default/storage",
        ),
        (
            {"ifname": "net1", "config": {"netAttachDefName": "x/y"}},
            "has no net1 for Multus in x/y",
        ),
    ],
)
async def test_call_that_does_not_fit_the_kuryrport_is_refused(node, call, words):
    answer = await node.ask("ADD", **call)
    assert answer["code"] == BAD_CONFIG
    assert words in answer["msg"]
    assert plugged(node) == []


async def test_network_that_is_not_delegated_gets_no_other_ones_interface(node):
    """The KuryrPort is from before Multus was in use."""
    node.cache.put(kuryrport("web", "u1", VIFS))
    assert inside(await node.ask("ADD")) == ["eth0", "eth1", "net1"]
    assert (await node.ask("ADD", **CALL))["code"] == BAD_CONFIG
    assert (await node.ask("ADD", ifname="net7"))["code"] == BAD_CONFIG
    assert plugged(node) == [("c1", "eth0"), ("c1", "eth1"), ("c1", "net1")]


async def test_del_of_one_network_leaves_what_others_have_lost_the_record_of(node):
    lost = Stray("c1", "tap1", "u1", "eth0")
    node.binding.leftovers = [lost, Stray("c1", "tap3", "u1", "net1")]
    await node.ask("DEL", **CALL)
    assert node.binding.leftovers == [lost]


async def test_default_network_of_another_plugin_is_not_ours():
    node = Node()
    vifs = {"net1": ovs_vif(3)}
    node.cache.put(kuryrport("web", "u1", vifs, delegated={"net1": NETWORK}))
    answer = await node.ask("ADD")
    assert answer["code"] == BAD_CONFIG
    assert "[kubernetes] multus" in answer["msg"]
    assert inside(await node.ask("ADD", **CALL)) == ["net1"]


async def test_interfaces_are_known_by_their_names_whoever_asked_for_them(node):
    await node.ask("ADD", ifname="if0")
    await node.ask("ADD", **CALL)
    names = {each.ifname: each.name_in(VIFS) for each in node.binding.attached}
    assert names == {"if0": "eth0", "eth1": "eth1", "net1": "net1"}


async def test_pod_may_have_its_default_interface_in_a_network_that_it_selects(node):
    """Multus calls the plugin of that network in place of its own default one."""
    assert inside(await node.ask("ADD", config=CALL["config"])) == ["eth0", "eth1"]
    assert await node.ask("CHECK", config=CALL["config"]) is None
    assert await node.ask("DEL", config=CALL["config"]) is None
    assert plugged(node) == []
