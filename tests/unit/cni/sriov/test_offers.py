"""The VFs that the daemon offers itself: nobody gets one twice."""

import dataclasses

import pytest

from kuryr_k8s.cni.bindings.sriov.cards import Cards
from kuryr_k8s.cni.bindings.sriov.offers import Offers
from kuryr_k8s.model.kuryrport import KuryrPort
from tests.kit.node.cards import add_card


class Cache(dict):
    """The KuryrPorts of a node by uid."""

    def add(self, uid, *slots):
        fields = {"physnet": "p", "pciVendorInfo": "8086:10ca"}
        item = {
            "metadata": {"name": uid, "namespace": "n", "uid": uid, "resourceVersion": "1"},
            "spec": {"podUid": f"pod-{uid}", "podNodeName": "node1"},
            "status": {
                "devices": {
                    f"eth{number}": fields | {"pciSlot": slot}
                    for number, slot in enumerate(slots, 1)
                }
            },
        }
        self[uid] = KuryrPort.read(item)
        return self[uid]


@pytest.fixture
def kuryrports():
    return Cache()


@pytest.fixture
def in_use():
    return set()


@pytest.fixture
def slots(tmp_path):
    return add_card(tmp_path, functions=2)


@pytest.fixture
def offers(tmp_path, slots, kuryrports, in_use):
    return Offers({"p": "ens1"}, Cards(tmp_path), kuryrports, lambda: in_use)


def test_vf_is_its_pods_from_the_choice_on_whether_the_api_server_answers_or_not(
    offers, kuryrports, slots
):
    first, second = kuryrports.add("a"), kuryrports.add("b")
    assert offers.choose(first, "p", ()) == slots[0]
    assert offers.choose(second, "p", ()) == slots[1]
    assert offers.choose(first, "p", ()) == slots[0]
    assert offers.choose(kuryrports.add("c"), "p", ()) is None


def test_vf_is_free_again_when_the_kuryrport_and_the_record_are_gone(
    offers, kuryrports, slots, in_use
):
    kuryrports.add("a", slots[1])
    assert offers.choose(kuryrports.add("b"), "p", ()) == slots[0]
    kuryrports.add("b", slots[0])
    assert offers.choose(kuryrports.add("c"), "p", ()) is None
    del kuryrports["b"]
    in_use.add(slots[0])
    assert offers.choose(kuryrports["c"], "p", ()) is None
    in_use.clear()
    assert offers.choose(kuryrports["c"], "p", ()) == slots[0]


def test_interfaces_of_one_pod_get_different_vfs(offers, kuryrports, slots):
    port = kuryrports.add("a")
    assert offers.choose(port, "p", {slots[0]}) == slots[1]
    assert offers.choose(port, "p", set(slots)) is None
    assert offers.choose(port, "q", ()) is None


def test_what_a_pod_was_once_offered_stays_its_own_while_it_may_be_named(
    offers, kuryrports, slots
):
    port = kuryrports.add("a")
    offers.choose(port, "p", ())
    kuryrports["a"] = dataclasses.replace(port, resource_version="2")
    assert offers.choose(kuryrports.add("b"), "p", ()) == slots[1]
