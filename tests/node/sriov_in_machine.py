"""VIFSriov with a real card: run in a virtual machine that has one, see test_kernel.py.

Tests of the lab may use VFs at the same time; these use the last two.
"""

import asyncio
import dataclasses
import subprocess
from pathlib import Path

import pytest
from oslo_config import cfg

from kuryr_k8s import config
from kuryr_k8s.cni.bindings.base import BindingError, Claim
from kuryr_k8s.cni.bindings.sriov.binding import SRIOVBinding
from kuryr_k8s.cni.bindings.sriov.cards import Cards
from kuryr_k8s.cni.netlink import Links
from kuryr_k8s.k8s.resources import Key
from tests.kit.node.fakes import Cache, sriov_vif, vlan_vif
from tests.node import workbench
from tests.node.workbench import bare_context, eventually, ip, shell

CARD = "card"  # see lab.machine.machine, of which the machine has no copy
VLAN = 77


class Caches:
    def follow(self, _resource, _selectors):
        return Cache()


@pytest.fixture
def own_node():
    """No namespace for the test: the card is in the machine's own."""


@pytest.fixture
def functions():
    """The last two VFs of the card; afterwards they have to be as they were."""
    cards = Cards()
    found = cards.of(CARD)[-2:]
    before = [
        (each, on_card(each.number), Path(f"/sys/class/net/{each.ifname}/address").read_text())
        for each in found
    ]
    yield found
    for each, settings, address in before:
        assert cards.find(each.pci_slot) == each
        # a card does not know the MAC that a VF has chosen before it was ever up
        assert on_card(each.number) in (settings, (address.strip(), 0))
        assert Path(f"/sys/class/net/{each.ifname}/address").read_text() == address


def on_card(number):
    """(MAC, VLAN) of a VF on its card."""
    (link,) = ip("-d", "link", "show", CARD)
    (found,) = [each for each in link["vfinfo_list"] if each["vf"] == number]
    return found["address"], found["vlan_list"][0].get("vlan", 0)


@pytest.fixture
def daemon(tmp_path, functions):
    """Makes the binding as a daemon does at its start: what it knows is in its directory."""
    links = Links()
    yield lambda: make(tmp_path, links)
    links.close()


def make(directory, links):
    conf = cfg.ConfigOpts()
    for group in ("binding", "sriov"):
        conf.register_opts(config.GROUPS[group], group=group)
    conf.set_override("state_dir", str(directory / "vlan"), group="binding")
    conf.set_override("resource_physnets", {"a.org/b": "physnet1"}, group="sriov")
    conf([])
    return SRIOVBinding(bare_context(conf, links, caches=Caches()))


def attachment(netns, container="c1", uid="u1"):
    return workbench.attachment(netns, container, uid, ifname="eth1")


def pod_link(netns, name="eth1"):
    return next((link for link in ip("link", netns=netns) if link["ifname"] == name), None)


def answers(address, netns):
    ping = ["ip", "netns", "exec", netns, "ping", "-c", "1", "-W", "5", address]
    return subprocess.run(ping, check=False, stdout=subprocess.DEVNULL).returncode == 0


async def connected(binding, netns, function, number=1, vlan=VLAN):
    vif = sriov_vif(number, pci_slot=function.pci_slot, vlan=vlan)
    attached = attachment(netns, f"c{number}", f"u{number}")
    await binding.connect(attached, vif)
    await binding.ready(attached, vif)
    return attached, vif


async def test_pod_gets_the_vf_with_its_mac_and_vlan_and_gives_it_back(
    daemon, namespaces, functions, tmp_path
):
    netns, binding, function = namespaces(), daemon(), functions[0]
    vif = sriov_vif(1, pci_slot=function.pci_slot, vlan=VLAN)
    attached = attachment(netns)
    result = await binding.connect(attached, vif)
    await binding.ready(attached, vif)
    assert result.to_json("1.1.0")["interfaces"][1]["pciID"] == function.pci_slot
    link = pod_link(netns)
    assert (link["address"], link["mtu"]) == (vif.address, 1500)
    assert on_card(function.number) == (vif.address, VLAN)
    await binding.check(attached, vif)
    assert binding.working(attached)
    assert not binding.vanished(attached)
    await daemon().disconnect(attached)
    assert pod_link(netns) is None
    assert not list((tmp_path / "sriov").iterdir())


async def test_pods_on_one_vlan_reach_each_other_and_no_other(daemon, namespaces, functions):
    first, second, binding = namespaces(), namespaces(), daemon()
    await connected(binding, first, functions[0])
    attached, _vif = await connected(binding, second, functions[1], 2)
    await eventually(lambda: answers("10.77.0.12", first))
    await eventually(lambda: answers("fd77::20", first))
    await binding.disconnect(attached)
    await connected(binding, second, functions[1], 2, vlan=VLAN + 1)
    assert not answers("10.77.0.12", first)
    for each in list(binding.attachments()):
        await binding.disconnect(each)


async def test_vf_comes_home_when_its_namespace_dies_first(daemon, namespaces, functions):
    netns, binding = namespaces(), daemon()
    attached, vif = await connected(binding, netns, functions[0])
    shell(f"ip netns del {netns}")
    await eventually(lambda: binding.vanished(attached))
    claim = Claim(key=Key("default", "web"), pod_uid="u1", name="eth1", vif=vif)
    assert await binding.lost([claim]) == []
    await binding.disconnect(attached)
    assert not binding.attachments()


async def test_pod_that_was_connected_twice_has_its_vf(daemon, namespaces, functions):
    netns, binding = namespaces(), daemon()
    attached, vif = await connected(binding, netns, functions[0])
    index = pod_link(netns)["ifindex"]
    await daemon().connect(attached, vif)
    assert pod_link(netns)["ifindex"] == index
    await binding.disconnect(attached)


@pytest.mark.parametrize("cut", ["set", "plug", "prepare"])
async def test_daemon_that_died_on_the_way_is_undone_or_goes_on(
    daemon, namespaces, functions, cut, monkeypatch
):
    netns, binding = namespaces(), daemon()
    vif = sriov_vif(1, pci_slot=functions[0].pci_slot, vlan=VLAN)
    attached = attachment(netns)
    dying = daemon()
    await die(dying, attached, vif, cut, monkeypatch)
    again = daemon()
    assert list(again.attachments()) == [attached]
    await again.connect(attached, vif)
    await again.ready(attached, vif)
    await again.check(attached, vif)
    await daemon().disconnect(attached)
    await die(binding, attached, vif, cut, monkeypatch)
    await daemon().disconnect(attached)


async def die(binding, attached, vif, cut, monkeypatch):
    """Connect, and end in the middle."""
    from kuryr_k8s.cni.netlink import namespace, virtual_functions

    module, name = {
        "set": (virtual_functions, "_set"),
        "plug": (virtual_functions, "_plug"),
        "prepare": (namespace, "prepare"),
    }[cut]

    def end(*_arguments, **_named):
        raise OSError(5, "the daemon died")

    with monkeypatch.context() as patch:
        patch.setattr(module, name, end)
        with pytest.raises(BindingError):
            await binding.connect(attached, vif)


async def test_vf_of_another_pod_is_not_taken(daemon, namespaces, functions):
    first, second, binding = namespaces(), namespaces(), daemon()
    attached, _vif = await connected(binding, first, functions[0])
    with pytest.raises(BindingError, match="is still that of eth1 of Pod default/web"):
        await connected(binding, second, functions[0], 2)
    assert pod_link(first)
    await binding.disconnect(attached)


async def test_of_two_pods_that_want_one_vf_at_once_one_gets_it(daemon, namespaces, functions):
    binding = daemon()
    failures = []

    async def attempt(number):
        try:
            return await connected(binding, namespaces(), functions[0], number)
        except BindingError as error:
            failures.append(error)

    async with asyncio.TaskGroup() as group:
        attempts = [group.create_task(attempt(number)) for number in (1, 2)]
    assert len(failures) == 1
    ((attached, vif),) = filter(None, (each.result() for each in attempts))
    await binding.check(attached, vif)
    await binding.disconnect(attached)


async def test_card_drops_other_macs_unless_the_port_has_no_port_security(
    daemon, namespaces, functions
):
    netns, binding, function = namespaces(), daemon(), functions[0]
    for is_filtered in (True, False):
        vif = sriov_vif(1, pci_slot=function.pci_slot, vlan=VLAN)
        vif = dataclasses.replace(vif, has_traffic_filtering=is_filtered)
        await binding.connect(attachment(netns), vif)
        (link,) = ip("-d", "link", "show", CARD)
        (found,) = [each for each in link["vfinfo_list"] if each["vf"] == function.number]
        assert found["spoofchk"] is is_filtered
        await binding.disconnect(attachment(netns))


async def test_vf_gets_its_name_back_from_its_alternative_names(daemon, namespaces, functions):
    netns, binding, function = namespaces(), daemon(), functions[0]
    attached, _vif = await connected(binding, netns, function)
    shell(f"ip -n {netns} link property add dev eth1 altname {function.ifname}")
    await binding.disconnect(attached)


async def test_vf_that_somebody_has_taken_is_said(daemon, namespaces, functions):
    thief, netns, binding, function = namespaces(), namespaces(), daemon(), functions[0]
    shell(f"ip link set {function.ifname} netns {thief}")
    with pytest.raises(BindingError, match="in use by somebody else"):
        await connected(binding, netns, function)
    assert not binding.attachments()
    shell(f"ip -n {thief} link set {function.ifname} netns 1")


async def test_vf_that_was_moved_back_is_lost_and_plugged_again(daemon, namespaces, functions):
    netns, binding, function = namespaces(), daemon(), functions[0]
    attached, vif = await connected(binding, netns, function)
    shell(f"ip -n {netns} link set eth1 down")
    shell(f"ip -n {netns} link set eth1 name away")
    shell(f"ip -n {netns} link set away netns 1")
    assert not binding.working(attached)
    claim = Claim(key=Key("default", "web"), pod_uid="u1", name="eth1", vif=vif)
    lost = await binding.lost([claim])
    assert [item.attachment for item in lost] == [attached]
    await binding.restore(lost)
    assert list(binding.restored()) == [attached]
    await binding.finish(attached, vif)
    await binding.check(attached, vif)
    await binding.disconnect(attached)


async def test_interface_that_its_pod_renamed_comes_home(daemon, namespaces, functions):
    netns, binding = namespaces(), daemon()
    attached, vif = await connected(binding, netns, functions[0])
    shell(f"ip -n {netns} link set eth1 down")
    shell(f"ip -n {netns} link set eth1 name lan0")
    claim = Claim(key=Key("default", "web"), pod_uid="u1", name="eth1", vif=vif)
    assert not await binding.lost([claim])
    await binding.disconnect(attached)
    assert pod_link(netns, "lan0") is None


async def test_change_on_the_card_is_found_by_check(daemon, namespaces, functions):
    netns, binding, function = namespaces(), daemon(), functions[0]
    attached, vif = await connected(binding, netns, function)
    shell(f"ip link set {CARD} vf {function.number} vlan 99")
    with pytest.raises(BindingError, match="VLAN 99 on its card, not"):
        await binding.check(attached, vif)
    await binding.disconnect(attached)


async def test_vif_of_another_kind_and_vf_that_is_away_are_refused(daemon, namespaces):
    binding, netns = daemon(), namespaces()
    with pytest.raises(BindingError, match="is not a VIFSriov"):
        await binding.connect(attachment(netns), vlan_vif(1))
    with pytest.raises(BindingError, match="has no VF"):
        await binding.connect(attachment(netns), sriov_vif(1, pci_slot="0000:ff:10.0"))
    assert not binding.attachments()
