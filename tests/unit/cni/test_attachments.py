"""Requests in every order, on a node in memory."""

import asyncio
import contextlib

import pytest

from kuryr_k8s.cni.bindings.base import BindingError, NamespaceGone, Stray, Unusable
from kuryr_k8s.k8s.resources import Key
from tests.kit.node.fakes import (
    kuryrport,
    ovs_vif,
    vlan_vif,
)
from tests.unit.cni.node import Node, started, turns


@pytest.fixture
async def node():
    node = Node()
    node.cache.put(kuryrport("web", "u1", {"eth0": ovs_vif(1)}))
    return node


async def test_add_then_del(node):
    result = await node.ask("ADD")
    assert [i["name"] for i in result["interfaces"]] == [ovs_vif(1).vif_name, "eth0"]
    assert node.containers() == ["c1"]
    assert await node.ask("DEL") is None
    assert node.containers() == []
    assert node.changed == [Key("default", "web")] * 2


async def test_all_interfaces_are_plugged_the_default_one_first(node):
    node.cache.put(kuryrport("web", "u1", {"net1": ovs_vif(2), "eth0": ovs_vif(1)}))
    result = await node.ask("ADD")
    assert [i["name"] for i in result["interfaces"]][1::2] == ["eth0", "net1"]
    assert await node.ask("DEL") is None
    assert node.containers() == []


@pytest.mark.parametrize(
    ("before", "said"),
    [
        (None, "there is no KuryrPort default/web"),
        (kuryrport("web", "other", {"eth0": ovs_vif(1)}), "an earlier Pod"),
        (kuryrport("web", "u1"), "has no interfaces yet"),
        (kuryrport("web", "u1", {"eth0": ovs_vif(1)}, deleting=True), "being deleted"),
        (kuryrport("web", "u1", {"eth0": ovs_vif(1)}, finalizers=()), "lacks the finalizer"),
    ],
)
async def test_add_waits_for_its_kuryrport(before, said):
    node = Node(add_timeout=0.05)
    if before:
        node.cache.put(before)
    answer = await node.ask("ADD")
    assert answer["code"] == 11
    assert said in answer["msg"]
    assert node.binding.log == []
    node = Node()
    if before:
        node.cache.put(before)
    async with started(node.ask("ADD")) as add:
        assert not add.done()
        node.cache.put(kuryrport("web", "u1", {"eth0": ovs_vif(1)}))
        assert "interfaces" in await add


@pytest.mark.parametrize("change", ["deleting", "gone"])
async def test_add_gives_up_when_its_kuryrport_goes_without_interfaces(change):
    """The Pod is deleted before it had a port, and the kubelet waits for the ADD to end."""
    node = Node(add_timeout=60)
    key = node.cache.put(kuryrport("web", "u1"))
    async with started(node.ask("ADD")) as add:
        assert not add.done()
        if change == "gone":
            node.cache.remove(key)
        else:
            node.cache.change(key, deleting=True)
        async with asyncio.timeout(30):
            answer = await add
    assert answer["code"] == 11
    assert "goes without interfaces" in answer["msg"]
    assert node.binding.log == []


async def test_add_for_which_no_kuryrport_comes_gives_up_long_before_its_limit():
    """Its Pod may be deleted already, and the kubelet waits for the ADD to end."""
    node = Node(add_timeout=60, patience=0.05)
    async with asyncio.timeout(30):
        answer = await node.ask("ADD")
    assert answer["code"] == 11
    assert "is kuryr-k8s-controller running, and" in answer["msg"]


async def test_add_whose_kuryrport_is_there_waits_on_for_its_interfaces():
    """Patience is for a KuryrPort that does not come; this one's port may take its time."""
    node = Node(add_timeout=60, patience=0)
    node.cache.put(kuryrport("web", "u1"))
    async with started(node.ask("ADD")) as add:
        assert not add.done()
        node.cache.put(kuryrport("web", "u1", {"eth0": ovs_vif(1)}))
        assert "interfaces" in await add


async def test_add_that_is_never_ready_says_so_and_is_undone():
    node = Node(add_timeout=0.05)
    node.cache.put(kuryrport("web", "u1", {"eth0": ovs_vif(1)}))
    node.binding.ready_gate.clear()
    answer = await node.ask("ADD")
    assert answer["code"] == 11
    assert f"port {ovs_vif(1).id} is not ready" in answer["msg"]
    assert node.containers() == []


async def test_add_succeeds_only_when_all_interfaces_are_ready(node):
    node.cache.put(kuryrport("web", "u1", {"eth0": ovs_vif(1), "net1": ovs_vif(2)}))
    assert "interfaces" in await node.ask("ADD")
    assert sorted(ready.ifname for ready in node.binding.announced) == ["eth0", "net1"]


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (BindingError("no"), 11),
        (NamespaceGone("gone"), 8),
        (RuntimeError("a bug"), 999),
    ],
)
async def test_failures_are_translated_and_undone(node, failure, code):
    node.binding.failure = failure
    answer = await node.ask("ADD")
    assert answer["code"] == code
    assert node.binding.log[-1] != ("connect", "c2")
    assert node.containers() == []


async def test_unknown_kind_of_vif_is_code_50():
    node = Node()
    node.cache.put(kuryrport("web", "u1", {"eth0": vlan_vif(1)}))
    answer = await node.ask("ADD")
    assert answer["code"] == 50
    assert "no binding is installed for VIFVlanNested" in answer["msg"]


@pytest.mark.parametrize("gate", ["connect_gate", "ready_gate"])
async def test_del_ends_an_add_of_the_same_container(node, gate):
    getattr(node.binding, gate).clear()
    async with started(node.ask("ADD")) as add:
        assert await node.ask("DEL") is None
        answer = await add
    assert answer["code"] == 11
    assert "DEL" in answer["msg"]
    assert node.containers() == []


async def test_del_ends_an_add_that_waits_for_its_kuryrport():
    node = Node()
    async with started(node.ask("ADD")) as add:
        assert await node.ask("DEL") is None
        assert (await add)["code"] == 11


async def test_the_same_add_twice_at_once_is_done_one_after_the_other(node):
    node.binding.ready_gate.clear()
    async with started(node.ask("ADD")) as first, started(node.ask("ADD")) as second:
        assert node.binding.log == [("connect", "c1")]
        node.binding.ready_gate.set()
        assert await first == await second


async def test_del_ends_all_adds_of_the_container(node):
    node.binding.ready_gate.clear()
    async with started(node.ask("ADD")) as first, started(node.ask("ADD")) as second:
        assert await node.ask("DEL") is None
        assert [(await add)["code"] for add in (first, second)] == [11, 11]
    assert node.containers() == []


async def test_the_newest_sandbox_calls_off_the_add_of_the_older(node):
    node.binding.ready_gate.clear()
    async with started(node.ask("ADD", "old")) as old, started(node.ask("ADD", "new")) as new:
        assert (await old)["code"] == 11
        node.binding.ready_gate.set()
        assert "interfaces" in await new
    assert node.containers() == ["new"]


async def test_the_older_sandbox_is_unplugged_before_the_newer_is_plugged(node):
    await node.ask("ADD", "old")
    await node.ask("ADD", "new")
    assert node.binding.log == [("connect", "old"), ("disconnect", "old"), ("connect", "new")]
    assert await node.ask("DEL", "old") is None
    assert node.containers() == ["new"]


async def test_a_pod_made_again_under_its_name_waits_for_its_own_port(node):
    await node.ask("ADD", "c1", uid="u1")
    async with started(node.ask("ADD", "c2", uid="u2")) as add:
        assert node.containers() == ["c1"]
        node.cache.put(kuryrport("web", "u2", {"eth0": ovs_vif(2)}))
        await add
    assert node.containers() == ["c1", "c2"]


async def test_a_port_that_is_deleted_while_the_pod_is_locked_is_not_plugged(node):
    async with contextlib.AsyncExitStack() as stack:
        async with node.attachments._serial.held("u1"):
            add = await stack.enter_async_context(started(node.ask("ADD")))
            node.cache.change(Key("default", "web"), deleting=True)
        await turns()
        assert node.binding.log == []
        assert not node.attachments.adds.plugging("u1")
        await node.ask("DEL")
        assert (await add)["code"] == 11


async def test_pods_do_not_wait_for_each_other(node):
    node.cache.put(kuryrport("db", "u2", {"eth0": ovs_vif(2)}))
    node.binding.ready_gate.clear()
    other = node.ask("ADD", "c2", pod="db", uid="u2")
    async with started(node.ask("ADD", "c1")) as one, started(other) as two:
        assert node.containers() == ["c1", "c2"]
        node.binding.ready_gate.set()
        await one
        await two


async def test_add_needs_the_pods_uid(node):
    args = "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web"
    answer = await node.ask("ADD", CNI_ARGS=args)
    assert answer["code"] == 4
    assert "K8S_POD_UID" in answer["msg"]


async def test_status_speaks_of_the_daemon(node):
    assert await node.ask("STATUS", version="1.1.0") is None
    node.binding.reached.clear()
    assert (await node.ask("STATUS", version="1.1.0"))["code"] == 50
    node.binding.reached.set()
    node.attachments.settled.clear()
    assert (await node.ask("STATUS", version="1.1.0"))["code"] == 50


async def test_check_without_a_kuryrport_is_for_later(node):
    await node.ask("ADD")
    assert await node.ask("CHECK") is None
    node.cache.remove(Key("default", "web"))
    assert (await node.ask("CHECK"))["code"] == 11


async def gc(node, *containers):
    listed = [{"containerID": container, "ifname": "eth0"} for container in containers]
    config = {"cni.dev/valid-attachments": listed}
    return await node.ask("GC", version="1.1.0", config=config)


async def test_gc_frees_what_is_not_listed_and_gone(node):
    node.cache.put(kuryrport("db", "u2", {"eth0": ovs_vif(2)}))
    await node.ask("ADD", "c1")
    await node.ask("ADD", "c2", pod="db", uid="u2")
    node.binding.gone.update(node.binding.attached)
    assert await gc(node, "c1") is None
    assert node.containers() == ["c1"]


async def test_gc_with_an_empty_list_frees_nothing_that_lives(node):
    await node.ask("ADD")
    assert await gc(node) is None
    assert node.containers() == ["c1"]


async def test_gc_asks_the_api_before_it_believes_a_cache(node):
    await node.ask("ADD")
    key = Key("default", "web")
    node.cache.remove(key)
    node.api.live[key] = {"spec": {"podUid": "u1"}}
    await gc(node)
    assert node.containers() == ["c1"]
    node.api.live[key] = None
    await gc(node)
    assert node.containers() == []


async def test_gc_without_a_list_is_code_7(node):
    assert (await node.ask("GC", version="1.1.0"))["code"] == 7


async def test_sweep_leaves_what_a_kuryrport_stands_for(node):
    await node.ask("ADD")
    node.binding.gone.update(node.binding.attached)
    await node.attachments.sweep()
    assert node.containers() == ["c1"]
    node.cache.put(kuryrport("web", "another", {"eth0": ovs_vif(3)}))
    await node.attachments.sweep()
    assert node.containers() == []


async def test_strays_go_unless_their_add_is_in_flight(node):
    node.binding.leftovers = [Stray("c1", "tap1"), Stray("c9", "tap9")]
    node.binding.ready_gate.clear()
    async with started(node.ask("ADD", "c1")):
        await node.attachments.sweep()
        assert node.binding.leftovers == [Stray("c1", "tap1")]
        node.binding.ready_gate.set()


async def test_del_of_an_unknown_container_removes_its_strays(node):
    node.binding.leftovers = [Stray("c1", "tap1"), Stray("c9", "tap9")]
    assert await node.ask("DEL", "c1") is None
    assert node.binding.leftovers == [Stray("c9", "tap9")]


async def test_requests_are_counted(node):
    await node.ask("ADD")
    await node.ask("ADD", CNI_ARGS="")
    count = node.registry.get_sample_value
    assert count("kuryr_cni_requests_total", {"command": "ADD", "code": "0"}) == 1
    assert count("kuryr_cni_requests_total", {"command": "ADD", "code": "4"}) == 1
    assert count("kuryr_cni_attachments") == 1
    assert count("kuryr_cni_request_seconds_count", {"command": "ADD"}) == 2


async def test_adds_in_flight_are_counted(node):
    node.binding.ready_gate.clear()
    count = node.registry.get_sample_value
    async with started(node.ask("ADD")):
        assert count("kuryr_cni_adds_in_flight") == 1
        node.binding.ready_gate.set()
    assert count("kuryr_cni_adds_in_flight") == 0


async def test_a_binding_that_this_node_cannot_use_says_why():
    node = Node(unusable={"VIFVlanNested": Unusable("this node has no trunk")})
    node.cache.put(kuryrport("web", "u1", {"eth0": vlan_vif(1)}))
    answer = await node.ask("ADD")
    assert (answer["code"], answer["msg"]) == (11, "this node has no trunk")
