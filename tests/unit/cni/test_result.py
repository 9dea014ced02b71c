import pytest
from hypothesis import given
from hypothesis import strategies as st

from kuryr_k8s.cni.bindings import interface
from kuryr_k8s.cni.bindings.base import Attachment
from kuryr_k8s.cni.result import IP, Interface, Result, Route
from tests.kit.node.fakes import ovs_vif

RESULT = Result(
    interfaces=(
        Interface(name="tap1", mac="02:00:00:00:00:01", mtu=1442),
        Interface(name="eth0", mac="02:00:00:00:00:02", mtu=1442, sandbox="/run/netns/x"),
    ),
    ips=(
        IP(address="10.0.0.2/24", interface=1, gateway="10.0.0.1"),
        IP(address="fd00::2/64", interface=1),
    ),
    routes=(Route(destination="0.0.0.0/0", gateway="10.0.0.1"),),
    nameservers=("10.0.0.3",),
)


def test_the_newest_version_tells_the_mtu():
    answer = RESULT.to_json("1.1.0")
    assert [interface["mtu"] for interface in answer["interfaces"]] == [1442, 1442]
    assert answer["cniVersion"] == "1.1.0"
    assert answer["dns"] == {"nameservers": ["10.0.0.3"]}
    assert answer["routes"] == [{"dst": "0.0.0.0/0", "gw": "10.0.0.1"}]


@pytest.mark.parametrize("version", ["0.3.1", "0.4.0", "1.0.0"])
def test_older_versions_do_not(version):
    assert all("mtu" not in i for i in RESULT.to_json(version)["interfaces"])


@pytest.mark.parametrize(("version", "told"), [("0.3.1", True), ("0.4.0", True), ("1.0.0", False)])
def test_old_versions_tell_the_ip_version(version, told):
    ips = RESULT.to_json(version)["ips"]
    assert [ip.get("version") for ip in ips] == (["4", "6"] if told else [None, None])


def test_only_the_pods_end_has_a_sandbox():
    host, inside = RESULT.to_json("1.0.0")["interfaces"]
    assert "sandbox" not in host
    assert inside["sandbox"] == "/run/netns/x"


def test_what_earlier_plugins_made_stays_and_comes_first():
    before = {
        "cniVersion": "1.0.0",
        "interfaces": [{"name": "a"}, {"name": "b"}],
        "ips": [{"address": "192.0.2.1/24", "interface": 1}],
        "routes": [{"dst": "192.0.3.0/24"}],
        "dns": {"nameservers": ["192.0.2.53"], "domain": "example.org"},
        "else": 1,
    }
    answer = RESULT.to_json("1.0.0", before)
    assert [i["name"] for i in answer["interfaces"]] == ["a", "b", "tap1", "eth0"]
    assert [ip["interface"] for ip in answer["ips"]] == [1, 3, 3]
    assert answer["dns"] == {"nameservers": ["192.0.2.53", "10.0.0.3"], "domain": "example.org"}
    assert answer["else"] == 1
    assert len(answer["routes"]) == 2


sizes = st.integers(0, 3)


def a_result(interfaces, ips):
    return Result(
        interfaces=tuple(Interface(name=f"i{n}", mac="") for n in range(interfaces)),
        ips=tuple(IP(address=f"10.0.0.{n}/24", interface=n % interfaces) for n in range(ips))
        if interfaces
        else (),
    )


@given(sizes, sizes, sizes, sizes)
def test_joined_results_keep_each_address_at_its_interface(i1, n1, i2, n2):
    first, second = a_result(i1, n1), a_result(i2, n2)
    joined = first + second
    pairs = [(ip.address, joined.interfaces[ip.interface].name) for ip in joined.ips]
    expected = [
        (ip.address, part.interfaces[ip.interface].name)
        for part in (first, second)
        for ip in part.ips
    ]
    assert pairs == expected
    assert second.to_json("1.0.0", first.to_json("1.0.0")) == joined.to_json("1.0.0")


def attachment(ifname="eth0"):
    return Attachment(
        container_id="c1",
        ifname=ifname,
        request_ifname="eth0",
        netns="/run/netns/x",
        pod_uid="u",
        namespace="default",
        pod="web",
    )


def test_a_vif_becomes_two_ends_addresses_and_routes():
    vif = ovs_vif(1)
    result = interface.describe(attachment(), vif, vif.vif_name, "02:00:00:00:00:01")
    assert [i.name for i in result.interfaces] == [vif.vif_name, "eth0"]
    assert [(ip.address, ip.gateway) for ip in result.ips] == [
        ("10.77.0.11/16", "10.77.0.1"),
        ("fd77::10/64", "fd77::1"),
    ]
    assert [(r.destination, r.gateway) for r in result.routes] == [
        ("10.99.0.0/16", "10.77.0.254"),
        ("0.0.0.0/0", "10.77.0.1"),
        ("::/0", "fd77::1"),
    ]
    assert result.nameservers == ("10.77.0.2",)


def test_only_eth0_gets_default_routes():
    assert [r for r, _ in interface.routes(attachment("net1"), ovs_vif(1))] == ["10.99.0.0/16"]


def test_only_eth0_gives_name_servers():
    """The resolver of a Pod is not bound to an interface."""
    described = interface.describe(attachment("net1"), ovs_vif(1), "tap1", "02:00:00:00:00:01")
    assert described.nameservers == ()


def test_offload_is_the_callers_word():
    wiring = interface.wiring(attachment(), ovs_vif(1), offload=False)
    assert not wiring.offload
    assert wiring.has_ipv6
    assert not interface.wiring(attachment(), ovs_vif(1, ipv6=False), offload=True).has_ipv6
