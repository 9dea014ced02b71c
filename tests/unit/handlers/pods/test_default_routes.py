"""The default routes of a Pod, by the interface that they lead through."""

from dataclasses import replace

import pytest

from kuryr_k8s.cni.bindings import interface
from kuryr_k8s.cni.bindings.base import Attachment
from kuryr_k8s.drivers.base import InterfaceRequest, PodNetwork
from kuryr_k8s.handlers.pods.default_routes import routed
from kuryr_k8s.model.vif import Route
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


def asking(ifname, gateways):
    """The requests of interfaces of which one asks for the default routes."""
    network = PodNetwork(network=None, subnets=())
    return {
        name: InterfaceRequest(pod_network=network, gateways=gateways if name == ifname else None)
        for name in VIFS
    }


@pytest.mark.parametrize("ifname", ["net1", "eth0"])
def test_gateways_of_the_subnets_serve_if_none_is_named(ifname):
    found = default_routes(routed(VIFS, asking(ifname, ())))
    assert found == {"eth0": [], "net1": []} | {ifname: BOTH}


def test_only_the_family_of_the_gateway_changes():
    found = default_routes(routed(VIFS, asking("net1", ("10.77.0.9",))))
    assert found == {"eth0": BOTH[1:], "net1": [("0.0.0.0/0", "10.77.0.9")]}


def test_default_interface_may_have_another_gateway():
    found = default_routes(routed(VIFS, asking("eth0", ("10.77.0.9",))))
    assert found == {"eth0": [("0.0.0.0/0", "10.77.0.9"), BOTH[1]], "net1": []}


def with_host_route(vif):
    """The VIF, with a host route to everywhere in its first subnet."""
    first, *others = vif.network.subnets
    first = replace(first, routes=(Route(cidr="0.0.0.0/0", gateway="10.77.0.3"),))
    return replace(vif, network=replace(vif.network, subnets=(first, *others)))


@pytest.mark.parametrize("ifname", [None, "net1"])
def test_host_routes_to_everywhere_count_for_the_default_interface_alone(ifname):
    vifs = {name: with_host_route(vif) for name, vif in VIFS.items()}
    found = default_routes(routed(vifs, asking(ifname, ())))
    if ifname is None:
        assert found["eth0"][0] == ("0.0.0.0/0", "10.77.0.3")
        assert found["net1"] == []
    else:
        assert found == {"eth0": [], "net1": BOTH}
