"""Node ports, and health check ports, while somebody is away on whom they depend."""

import pytest

from lab.kuryr.installation import daemon
from lab.process import run
from tests.lab import metrics
from tests.lab.cluster import pod
from tests.lab.services import service, status_of, url_of, web

pytestmark = pytest.mark.lab_only


def test_node_port_outlives_the_daemon_and_is_closed_when_its_service_has_gone(cluster):
    cluster.apply(service("web", type="NodePort"), web("a", "node1"), pod("asks", node="node2"))
    cluster.wait_ready("a", "asks")
    cluster.until_active("web")
    [port] = cluster.get("service", "web")["spec"]["ports"]
    number = port["nodePort"]
    url = url_of(cluster.lab.nodes["node1"].underlay_v4, number)
    assert cluster.answering("asks", url, 1) == {"a"}
    told = metrics.of_daemon(cluster.lab.nodes["node1"])
    assert told.value("kuryr_node_ports") > 0
    assert told.value("kuryr_node_ports_seconds_count") > 0
    cluster.supervisor.kill(daemon("node1"))
    try:
        assert cluster.answering("asks", url, 1) == {"a"}
        cluster.delete("service", "web")
        assert str(number) in table_of_node_ports()
    finally:
        cluster.supervisor.start(daemon("node1"))
    cluster.wait_for("it is closed", lambda: str(number) not in table_of_node_ports())


def test_health_check_port_follows_the_endpoints_after_the_api_server_was_away(cluster):
    theirs = {"type": "LoadBalancer", "loadBalancerClass": "example.com/balancer"}
    cluster.apply(service("web", externalTrafficPolicy="Local", **theirs), web("a", "node1"))
    cluster.wait_ready("a")
    port = cluster.get("service", "web")["spec"]["healthCheckNodePort"]
    url = url_of(cluster.lab.nodes["node1"].underlay_v4, port)
    cluster.wait_for("a Pod is ready", lambda: status_of(url) == "200")
    cluster.supervisor.kill("kube-apiserver")
    try:
        assert status_of(url) == "200"
    finally:
        cluster.supervisor.start("kube-apiserver")
    cluster.delete("pod", "a")
    cluster.wait_for("nothing is ready", lambda: status_of(url) == "503")


def table_of_node_ports():
    """Return the table of node1, as nft shows it."""
    return run(["nft", "list", "table", "inet", "kuryr-node-ports"])
