"""`python -m lab restart NAME`: what the short names stand for."""

import pytest

from lab.lifecycle.names import UnknownName, resolve

KNOWN = [
    *("kube-apiserver", "kube-controller-manager", "kuryr-controller", "neutron"),
    *("neutron-maintenance", "kuryr-daemon-node1", "kuryr-daemon-node2"),
    *("ovn-controller-node1", "ovn-controller-node2", "ovs-vswitchd-node1", "ovn-nb"),
    *("containerd-node1", "containerd-vmnode1"),
]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("neutron", ["neutron"]),
        ("ovn-controller", ["ovn-controller-node1", "ovn-controller-node2"]),
        ("kube-apiserver", ["kube-apiserver"]),
        ("daemon", ["kuryr-daemon-node1", "kuryr-daemon-node2"]),
        ("kuryr-daemon", ["kuryr-daemon-node1", "kuryr-daemon-node2"]),
        ("daemon-node2", ["kuryr-daemon-node2"]),
        ("controller", ["kuryr-controller"]),
        ("kuryr-controller", ["kuryr-controller"]),
        ("ovn-controller-node2", ["ovn-controller-node2"]),
        ("ovs-vswitchd", ["ovs-vswitchd-node1"]),
        ("containerd", ["containerd-node1", "containerd-vmnode1"]),
        ("containerd-vmnode1", ["containerd-vmnode1"]),
    ],
)
def test_a_short_name_means_all_that_it_stands_for_and_a_full_one_just_itself(name, meant):
    assert resolve([name], KNOWN) == meant


def test_what_is_named_twice_is_meant_once():
    wanted = ["kuryr-daemon-node2", "kuryr-daemon-node1", "neutron"]
    assert resolve(["daemon-node2", "daemon", "neutron"], KNOWN) == wanted


@pytest.mark.parametrize("name", ["", "kube", "node1", "ovn", "-node1", "octavia"])
def test_a_name_that_means_nothing_is_answered_with_those_that_do(name):
    with pytest.raises(UnknownName) as caught:
        resolve([name], KNOWN)
    for offered in ("daemon", "controller", "ovn-controller", "kuryr-daemon-node2", "neutron"):
        assert offered in str(caught.value).replace(",", "").split()
