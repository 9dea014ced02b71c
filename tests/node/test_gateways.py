"""The question whether a Pod's gateways answer, with real namespaces."""

import pytest

from kuryr_k8s.cni.netlink import Links
from tests.node.workbench import path, shell

GATEWAY = "10.77.0.1"


@pytest.fixture
def nested():
    links = Links()
    yield links.nested
    links.close()


async def test_gateway_answers_although_the_pod_has_asked_for_it_already(namespaces, nested):
    """As a Pod does whose interface is made again while it runs."""
    pod, beyond = namespaces(), namespaces()
    shell(f"ip -n {pod} link add eth0 type veth peer name eth0 netns {beyond}")
    for netns, address in ((pod, "10.77.0.11/16"), (beyond, f"{GATEWAY}/16")):
        shell(f"ip -n {netns} address add {address} dev eth0")
        shell(f"ip -n {netns} link set eth0 up")
    shell(f"ip netns exec {pod} ping -c1 -W5 {GATEWAY}")
    assert await nested.answers(path(pod), "eth0", [GATEWAY])
