"""The binding VIFMacvlanNested, with real interfaces and traffic."""

import dataclasses
import subprocess

import pytest
from oslo_config import cfg

from kuryr_k8s import config
from kuryr_k8s.cni.bindings.base import BindingError, Claim
from kuryr_k8s.cni.bindings.macvlan import MacvlanBinding
from kuryr_k8s.cni.netlink import Links
from kuryr_k8s.k8s.resources import Key
from tests.kit.node.fakes import macvlan_vif, vlan_vif
from tests.node.workbench import attachment, bare_context, eventually, ip, shell

LINK, GATEWAY = "nic", "10.77.0.1"


@pytest.fixture
def behind(namespaces):
    """The network behind the interface of the node, with the gateways of Pods."""
    beyond = namespaces()
    shell(f"ip link add {LINK} mtu 1442 type veth peer name eth0 netns {beyond}")
    shell(f"ip link set {LINK} up")
    shell(f"ip -n {beyond} addr add {GATEWAY}/16 dev eth0")
    shell(f"ip -n {beyond} addr add fd77::1/64 dev eth0 nodad")
    shell(f"ip -n {beyond} link set eth0 up")
    yield beyond
    subprocess.run(["ip", "link", "del", LINK], check=False, stderr=subprocess.DEVNULL)


@pytest.fixture
def daemon(tmp_path, behind):
    """Makes the binding as a daemon does at its start: what it knows is in its directory."""
    links = Links()
    yield lambda: make(tmp_path, links)
    links.close()


def make(directory, links):
    conf = cfg.ConfigOpts()
    conf.register_opts(config.GROUPS["binding"], group="binding")
    conf.set_override("state_dir", str(directory / "vlan"), group="binding")
    conf.set_override("link_iface", LINK, group="binding")
    conf([])
    return MacvlanBinding(bare_context(conf, links))


def pod_link(netns):
    return next((link for link in ip("-d", "link", netns=netns) if link["ifname"] == "eth0"), None)


def answers(address, netns):
    """Does it answer a ping?"""
    ping = ["ip", "netns", "exec", netns, "ping", "-c", "1", "-W", "5", address]
    return subprocess.run(ping, check=False, stdout=subprocess.DEVNULL).returncode == 0


async def connected(binding, netns, number=1):
    vif = macvlan_vif(number)
    attached = attachment(netns, f"c{number}", f"u{number}")
    await binding.connect(attached, vif)
    await binding.ready(attached, vif)
    return attached, vif


async def test_pod_reaches_the_network_and_other_pods_of_the_node(daemon, namespaces):
    first, second, binding = namespaces(), namespaces(), daemon()
    attached, vif = await connected(binding, first)
    await connected(binding, second, 2)
    link = pod_link(first)
    assert (link["linkinfo"]["info_kind"], link["address"], link["mtu"]) == (
        "macvlan",
        vif.address,
        1442,
    )
    for address in (GATEWAY, "fd77::1", "10.77.0.12"):
        assert answers(address, first)
    await binding.check(attached, vif)
    assert binding.working(attached)


async def test_link_with_a_smaller_mtu_than_its_network_limits_the_pods(daemon, namespaces):
    shell(f"ip link set {LINK} mtu 1300")
    netns, binding = namespaces(), daemon()
    attached, vif = await connected(binding, netns)
    assert pod_link(netns)["mtu"] == 1300
    await binding.check(attached, vif)


async def test_pod_that_was_connected_twice_has_one_interface(daemon, namespaces):
    netns, binding = namespaces(), daemon()
    attached, vif = await connected(binding, netns)
    index = pod_link(netns)["ifindex"]
    await binding.connect(attached, vif)
    assert pod_link(netns)["ifindex"] == index


async def test_disconnected_pod_has_no_interface_and_the_node_keeps_nothing(
    daemon, namespaces, tmp_path
):
    netns, binding = namespaces(), daemon()
    attached, vif = await connected(binding, netns)
    await daemon().disconnect(attached)
    assert pod_link(netns) is None
    assert not list((tmp_path / "macvlan").iterdir())
    with pytest.raises(BindingError):
        await daemon().check(attached, vif)
    await binding.disconnect(attached)


async def test_record_outlives_the_daemon(daemon, namespaces):
    netns = namespaces()
    attached, _vif = await connected(daemon(), netns)
    again = daemon()
    assert list(again.attachments()) == [attached]
    assert again.working(attached)
    assert not again.vanished(attached)


async def test_interface_vanishes_with_its_namespace(daemon, namespaces):
    netns, binding = namespaces(), daemon()
    attached, vif = await connected(binding, netns)
    shell(f"ip netns del {netns}")
    await eventually(lambda: binding.vanished(attached))
    claim = Claim(key=Key("default", "web"), pod_uid="u1", name="eth0", vif=vif)
    assert await binding.lost([claim]) == []
    await binding.disconnect(attached)
    assert not binding.attachments()


async def test_interface_that_was_deleted_in_the_pod_is_made_again(daemon, namespaces):
    netns, binding = namespaces(), daemon()
    attached, vif = await connected(binding, netns)
    shell(f"ip -n {netns} link del eth0")
    assert binding.vanished(attached)
    claim = Claim(key=Key("default", "web"), pod_uid="u1", name="eth0", vif=vif)
    lost = await binding.lost([claim])
    assert [item.attachment for item in lost] == [attached]
    await binding.restore(lost)
    await binding.finish(attached, vif)
    assert answers(GATEWAY, netns)


@pytest.mark.parametrize("change", ["name lan0", "address 02:00:00:00:00:99"])
async def test_interface_that_its_pod_changed_is_no_loss_and_goes_with_the_pod(
    daemon, namespaces, change
):
    netns, binding = namespaces(), daemon()
    attached, vif = await connected(binding, netns)
    before = len(ip("link", netns=netns))
    shell(f"ip -n {netns} link set eth0 down")
    shell(f"ip -n {netns} link set eth0 {change}")
    claim = Claim(key=Key("default", "web"), pod_uid="u1", name="eth0", vif=vif)
    assert not await binding.lost([claim])
    assert not binding.vanished(attached)
    await binding.disconnect(attached)
    assert len(ip("link", netns=netns)) == before - 1


async def test_interface_of_another_in_the_namespace_is_left_alone(daemon, namespaces):
    """Its user has deleted ours, and made one of the same name."""
    netns, binding = namespaces(), daemon()
    attached, _vif = await connected(binding, netns)
    shell(f"ip -n {netns} link del eth0")
    shell(f"ip -n {netns} link add eth0 type veth peer name other")
    await binding.disconnect(attached)
    assert pod_link(netns)["linkinfo"]["info_kind"] == "veth"


async def test_namespace_that_is_away_is_said_and_a_foreign_vif_refused(daemon, namespaces):
    binding = daemon()
    with pytest.raises(BindingError, match="is not a VIFMacvlanNested"):
        await binding.connect(attachment(namespaces()), vlan_vif(1))


async def test_number_of_a_dead_namespace_means_the_interface_of_nobody_else(daemon, namespaces):
    old, new, binding = namespaces(), namespaces(), daemon()
    dead, _vif = await connected(binding, old)
    shell(f"ip netns del {old}")
    await eventually(lambda: binding.vanished(dead))
    alive, _vif = await connected(binding, new, 2)
    of_dead, of_alive = (binding._records.get(each) for each in (dead, alive))
    binding._records.put(dataclasses.replace(of_dead, number=of_alive.number))  # as the kernel may
    assert binding.vanished(dead)
    await binding.disconnect(dead)
    assert answers(GATEWAY, new)
    assert list(binding.attachments()) == [alive]
