"""Node ports at a node that is a virtual machine."""

import pytest

from tests.lab.cluster import machine, pod
from tests.lab.services import service, url_of, web

pytestmark = [pytest.mark.lab_only, pytest.mark.complete]


def test_node_port_is_answered_at_both_addresses_of_the_machine(cluster):
    dual = {"type": "NodePort", "ipFamilyPolicy": "RequireDualStack"}
    cluster.apply(service("web", **dual), web("a", "node1"), pod("asks", node="node2"))
    cluster.wait_ready("a", "asks")
    cluster.until_all_active("web")
    [port] = cluster.get("service", "web")["spec"]["ports"]
    worker = machine(cluster.lab)
    for address in (worker.v4, worker.v6):
        url = url_of(address, port["nodePort"])
        assert cluster.answering("asks", url, 1) == {"a"}
