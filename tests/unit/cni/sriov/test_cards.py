"""Cards and their VFs, as sysfs shows them."""

import pytest

from kuryr_k8s.cni.bindings.sriov.cards import Cards
from tests.kit.node.cards import PRODUCT, VENDOR, add_card, give_to, take_away


@pytest.fixture
def slots(tmp_path):
    return add_card(tmp_path)


def test_vf_is_found_by_its_address(tmp_path, slots):
    found = Cards(tmp_path).find(slots[2])
    assert (found.card, found.number, found.ifname) == ("ens1", 2, "ens1v2")
    assert found.vendor_info == f"{VENDOR}:{PRODUCT}"
    assert found.is_home


def test_vf_in_a_namespace_is_not_at_home(tmp_path, slots):
    take_away(tmp_path, slots[0])
    assert not Cards(tmp_path).find(slots[0]).is_home


def test_vf_that_a_program_drives_has_no_interface_and_is_at_home(tmp_path, slots):
    take_away(tmp_path, slots[0])
    give_to(tmp_path, slots[0], "vfio-pci")
    found = Cards(tmp_path).find(slots[0])
    assert found.is_in_userspace
    assert found.is_home


def test_vfs_of_a_card_come_in_the_order_of_their_numbers(tmp_path):
    slots = add_card(tmp_path, functions=8)
    assert [each.pci_slot for each in Cards(tmp_path).of("ens1")] == slots
    assert Cards(tmp_path).of("ens2") == []


@pytest.mark.parametrize("slot", ["0000:03:00.0", "0000:09:10.0", "../../etc", ""])
def test_what_is_no_vf_is_not_found(tmp_path, slots, slot):
    assert Cards(tmp_path).find(slot) is None
