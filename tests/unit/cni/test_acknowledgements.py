"""When the node says that a port has left it, and what it writes otherwise."""

import pytest

from kuryr_k8s import errors
from kuryr_k8s.cni.host_id import HostIdPublisher
from kuryr_k8s.cni.pods.acknowledgements import Acknowledgements
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.annotations import HOST_ID
from tests.kit.node.fakes import kuryrport, ovs_vif
from tests.unit.cni.node import Node, started

KEY = Key("default", "web")


class Chassis:
    """An Open vSwitch with this hostname."""

    def __init__(self, hostname):
        self.hostname = hostname

    def host_id(self):
        return self.hostname

    def subscribe(self, subscriber):
        pass


def publisher_of(node, chassis):
    return HostIdPublisher(node.api, Key("", "node1"), chassis)


@pytest.fixture
async def node():
    node = Node()
    node.acknowledgements = Acknowledgements(node.cache, node.api, node.attachments)
    node.cache.put(kuryrport("web", "u1", {"eth0": ovs_vif(1)}))
    return node


async def test_an_interface_that_left_is_not_active_any_more(node):
    node.cache.put(kuryrport("web", "u1", {"eth0": ovs_vif(1, active=True)}))
    await node.acknowledgements.reconcile(Key("default", "web"))
    [(_, _, patch, subresource)] = node.api.patches
    assert subresource == "status"
    data = patch["status"]["vifs"]["eth0"]["vif"]["versioned_object.data"]
    assert data == {"active": False}


async def test_a_working_interface_is_marked_active_once(node):
    await node.acknowledgements.reconcile(KEY)
    assert node.api.patches == []
    await node.ask("ADD")
    await node.acknowledgements.reconcile(KEY)
    [(plural, key, patch, subresource)] = node.api.patches
    assert (plural, key, subresource) == ("kuryrports", KEY, "status")
    assert patch == {
        "metadata": {"uid": "kp-u1"},
        "status": {"vifs": {"eth0": {"vif": {"versioned_object.data": {"active": True}}}}},
    }
    node.cache.put(kuryrport("web", "u1", {"eth0": ovs_vif(1, active=True)}))
    await node.acknowledgements.reconcile(KEY)
    assert len(node.api.patches) == 1


async def test_a_parked_interface_is_active_without_a_word_from_us(node):
    node.cache.put(kuryrport("web", "u1", {"eth0": ovs_vif(1, active=True)}))
    node.binding.parked_ports.add(ovs_vif(1).id)
    await node.acknowledgements.reconcile(KEY)
    await node.ask("ADD")
    node.binding.parked_ports.clear()
    await node.acknowledgements.reconcile(KEY)
    assert node.api.patches == []


async def test_an_interface_that_is_attached_but_does_not_work_is_not_active(node):
    await node.ask("ADD")
    node.binding.announced.clear()  # as after a restart of ovn-controller
    await node.acknowledgements.reconcile(KEY)
    assert node.api.patches == []


async def test_nothing_is_marked_before_the_add_is_done(node):
    node.binding.ready_gate.clear()
    async with started(node.ask("ADD")):
        await node.acknowledgements.reconcile(KEY)
        assert node.api.patches == []
        node.binding.ready_gate.set()


async def test_a_port_that_was_never_here_is_released_at_once(node):
    node.cache.change(KEY, deleting=True)
    assert await node.acknowledgements.reconcile(KEY) is None
    assert node.api.released == [(KEY, "kp-u1")]


async def test_an_attached_port_is_released_after_del(node):
    await node.ask("ADD")
    node.cache.change(KEY, deleting=True)
    assert await node.acknowledgements.reconcile(KEY) > 0
    assert node.api.released == []
    await node.ask("DEL")
    assert node.changed[-1] == KEY
    await node.acknowledgements.reconcile(KEY)
    assert node.api.released == [(KEY, "kp-u1")]


async def test_a_port_whose_namespace_is_gone_is_unplugged_and_released(node):
    await node.ask("ADD")
    node.binding.gone.update(node.binding.attached)
    node.cache.change(KEY, deleting=True)
    await node.acknowledgements.reconcile(KEY)
    assert node.containers() == []
    assert node.api.released == [(KEY, "kp-u1")]


async def test_nothing_is_released_while_an_add_is_at_work(node):
    node.binding.ready_gate.clear()
    async with started(node.ask("ADD")):
        node.cache.change(KEY, deleting=True)
        with pytest.raises(errors.Wait):
            await node.acknowledgements.reconcile(KEY)
        assert node.api.released == []
        node.binding.ready_gate.set()


async def test_nothing_is_released_while_a_lost_interface_is_made_again(node):
    await node.ask("ADD")
    async with node.attachments.idle(list(node.binding.attached)):
        node.binding.attached.clear()
        node.cache.change(KEY, deleting=True)
        with pytest.raises(errors.Wait):
            await node.acknowledgements.reconcile(KEY)
    assert node.api.released == []


@pytest.mark.parametrize("unknown", ["settled", "connected"])
async def test_nothing_is_released_while_it_is_not_known_what_is_attached(node, unknown):
    (node.attachments.settled if unknown == "settled" else node.binding.reached).clear()
    node.cache.change(KEY, deleting=True)
    with pytest.raises(errors.Wait):
        await node.acknowledgements.reconcile(KEY)
    assert node.api.released == []


async def test_what_has_no_finalizer_of_ours_is_not_our_business(node):
    node.cache.put(kuryrport("web", "u1", deleting=True, finalizers=["other"]))
    await node.acknowledgements.reconcile(KEY)
    assert node.api.released == []


async def test_the_other_pod_of_the_name_does_not_hold_the_port_back(node):
    await node.ask("ADD")
    node.cache.put(kuryrport("web", "another", {"eth0": ovs_vif(5)}, deleting=True))
    await node.acknowledgements.reconcile(KEY)
    assert node.api.released == [(KEY, "kp-another")]


async def test_the_chassis_is_published_when_it_differs(node):
    chassis = Chassis("chassis1")
    publisher = publisher_of(node, chassis)
    key = Key("", "node1")
    with pytest.raises(errors.Wait) as absent:  # a kubelet registers it, sooner or later
        await publisher.reconcile(key)
    assert absent.value.delay <= 5.0
    async with started(publisher.started()) as waiting:
        assert not waiting.done()
        waiting.cancel()
    node.api.nodes[key] = {"metadata": {"annotations": {HOST_ID: "chassis1"}}}
    await publisher.reconcile(key)
    await publisher.started()
    assert node.api.patches == []
    chassis.hostname = "chassis9"
    await publisher.reconcile(key)
    [(_, _, patch, _)] = node.api.patches
    assert patch == {"metadata": {"annotations": {HOST_ID: "chassis9"}}}


async def test_the_chassis_is_published_anew_on_a_node_that_was_registered_anew(node):
    publisher = publisher_of(node, Chassis("chassis1"))
    key = Key("", "node1")
    node.api.nodes[key] = {"metadata": {"annotations": {HOST_ID: "chassis1"}}}
    assert await publisher.reconcile(key)  # it will look again
    node.api.nodes[key] = {"metadata": {}}
    await publisher.reconcile(key)
    assert len(node.api.patches) == 1


async def test_without_a_chassis_there_is_nothing_to_publish(node):
    publisher = publisher_of(node, Chassis(None))
    with pytest.raises(errors.Wait):
        await publisher.reconcile(Key("", "node1"))
    async with started(publisher.started()) as waiting:
        assert not waiting.done()
        waiting.cancel()
