"""Services at their ClusterIPs: load balancers of a real Octavia by the provider ovn.

Beside the tests' own load balancers there are those of `kubernetes` and of the cluster's DNS.
"""

import itertools

import pytest

from lab.install import images
from tests.lab.cluster import pod
from tests.lab.service_cases import (
    test_load_balancer_is_reached_from_outside_at_the_address_in_its_status,
    test_pod_whose_groups_let_in_nobody_is_reached_by_its_load_balancer,
    test_pod_with_the_readiness_gate_is_ready_only_once_its_load_balancer_leads_to_it,
    test_ports_come_and_go_and_the_others_go_on_to_answer,
    test_service_is_answered_by_its_pods_from_every_node_and_follows_them,
    test_service_made_again_with_the_same_address_has_a_load_balancer_of_its_own,
    test_service_of_ipv6_is_answered,
    test_services_on_one_load_balancer_are_answered_each_by_its_own_pods,
)
from tests.lab.services import PROXY_NAME, answered, service, status_of, url_of, web

__all__ = [
    "test_load_balancer_is_reached_from_outside_at_the_address_in_its_status",
    "test_pod_whose_groups_let_in_nobody_is_reached_by_its_load_balancer",
    "test_pod_with_the_readiness_gate_is_ready_only_once_its_load_balancer_leads_to_it",
    "test_ports_come_and_go_and_the_others_go_on_to_answer",
    "test_service_is_answered_by_its_pods_from_every_node_and_follows_them",
    "test_service_made_again_with_the_same_address_has_a_load_balancer_of_its_own",
    "test_service_of_ipv6_is_answered",
    "test_services_on_one_load_balancer_are_answered_each_by_its_own_pods",
]


def test_pod_asks_the_api_server_by_name_and_by_address_with_its_own_token(cluster):
    """Through two load balancers: that of the cluster's DNS, and that of `kubernetes`."""
    asks = pod("asks", node="node2", container={"image": images.CURL})
    cluster.apply(asks)
    cluster.wait_ready("asks")
    address = cluster.get("service", "kubernetes", namespace="default")["spec"]["clusterIP"]
    look_up = ("nslookup", "kubernetes.default")
    cluster.wait_for(
        "its name is known", lambda: address in (cluster.tries("asks", *look_up) or "")
    )
    for host in ("kubernetes.default", address):
        script = (
            "cd /var/run/secrets/kubernetes.io/serviceaccount && "
            f'curl -fsS -m 10 --cacert ca.crt -H "Authorization: Bearer $(cat token)" '
            f"https://{host}/version"
        )
        ask = ("sh", "-c", script)
        cluster.wait_for(
            f"{host} answers",
            lambda ask=ask: '"gitVersion"' in (cluster.tries("asks", *ask) or ""),
        )


def test_service_that_becomes_anothers_is_let_go(cluster):
    cluster.apply(service("web"))
    cluster.until_active("web")
    cluster.kubectl("label", "service", "web", f"{PROXY_NAME}=another")
    cluster.wait_for("its load balancer goes", lambda: not cluster.load_balancers())
    cluster.until_untouched("web")


def test_service_is_reached_by_its_name(cluster):
    asks = pod("asks", node="node2", container={"image": images.CURL})
    cluster.apply(service("web"), web("a", "node1"), asks)
    cluster.wait_ready("a", "asks")
    cluster.until_active("web")
    ask = ("curl", "-sS", "-m", "10", "http://web/")
    cluster.wait_for("it answers", lambda: cluster.tries("asks", *ask) == "a")


@pytest.mark.lab_only
def test_node_port_is_answered_at_every_node_to_pods_hosts_and_others(cluster):
    """Without kube-proxy, at all addresses of the nodes, of both families."""
    dual = {"type": "NodePort", "ipFamilyPolicy": "RequireDualStack"}
    cluster.apply(service("web", **dual), web("a", "node1"), pod("asks", node="node2"))
    cluster.wait_ready("a", "asks")
    cluster.until_all_active("web")
    [port] = cluster.get("service", "web")["spec"]["ports"]
    lab, number = cluster.lab, port["nodePort"]
    nodes = [(node.underlay_v4, node.underlay_v6) for node in lab.nodes.values()]
    for address in itertools.chain(*nodes):
        assert cluster.answering("asks", url_of(address, number), 1) == {"a"}
    for node in lab.nodes.values():
        for address in (node.underlay_v4, node.underlay_v6):
            url = url_of(address, number)
            for netns in (lab.outside.netns, "node2", None):
                cluster.wait_for(
                    f"{url} answers {netns or 'the machine'}",
                    lambda url=url, netns=netns: answered(url, netns=netns) == "a",
                )


@pytest.mark.lab_only
def test_health_check_port_of_a_node_answers_while_an_endpoint_is_ready(cluster):
    """As a balancer in front of the nodes asks, which is not ours."""
    theirs = {"type": "LoadBalancer", "loadBalancerClass": "example.com/balancer"}
    cluster.apply(service("web", externalTrafficPolicy="Local", **theirs))
    port = cluster.get("service", "web")["spec"]["healthCheckNodePort"]
    url = url_of(cluster.lab.nodes["node1"].underlay_v4, port)
    cluster.wait_for("nothing is ready", lambda: status_of(url) == "503")
    cluster.apply(web("a", "node2"))
    cluster.wait_ready("a")
    cluster.wait_for("a Pod is ready", lambda: status_of(url) == "200")
    cluster.delete("pod", "a")
    cluster.wait_for("nothing is ready", lambda: status_of(url) == "503")
