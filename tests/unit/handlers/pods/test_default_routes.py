"""The default routes of a Pod, by the interface that they lead through."""

import pytest

from kuryr_k8s import errors
from kuryr_k8s.cni.bindings import interface
from kuryr_k8s.cni.bindings.base import Attachment
from kuryr_k8s.handlers.pods.default_routes import led_through
from tests.kit.node.fakes import ovs_vif

EVERYWHERE = ("0.0.0.0/0", "::/0")


def default_routes(vifs):
    """The default routes that the node sets, by interface."""
    return {
        ifname: [
            (destination, gateway)
            for destination, gateway in interface.routes(attachment(ifname), vif)
            if destination in EVERYWHERE
        ]
        for ifname, vif in vifs.items()
    }


def attachment(ifname):
    return Attachment(
        container_id="c",
        ifname=ifname,
        request_ifname="eth0",
        netns="/run/netns/x",
        pod_uid="u",
        namespace="default",
        pod="web",
    )


VIFS = {"eth0": ovs_vif(1), "net1": ovs_vif(2)}
BOTH = [("0.0.0.0/0", "10.77.0.1"), ("::/0", "fd77::1")]


def test_default_routes_lead_through_the_default_interface_if_nobody_asks():
    assert default_routes(VIFS) == {"eth0": BOTH, "net1": []}


@pytest.mark.parametrize("ifname", ["net1", "eth0"])
def test_gateways_of_the_subnets_serve_if_none_is_named(ifname):
    found = default_routes(led_through(VIFS, ifname, ()))
    assert found == {"eth0": [], "net1": []} | {ifname: BOTH}


def test_only_the_family_of_the_gateway_changes():
    found = default_routes(led_through(VIFS, "net1", ("10.77.0.9",)))
    assert found == {"eth0": BOTH[1:], "net1": [("0.0.0.0/0", "10.77.0.9")]}


def test_default_interface_may_have_another_gateway():
    found = default_routes(led_through(VIFS, "eth0", ("10.77.0.9",)))
    assert found == {"eth0": [("0.0.0.0/0", "10.77.0.9"), BOTH[1]], "net1": []}


def test_gateway_must_be_in_a_subnet_of_the_interface():
    with pytest.raises(errors.Refused, match=r"192\.0\.2\.1 is in none"):
        led_through(VIFS, "net1", ("192.0.2.1",))
