"""What holds for Services with every provider of load balancers.

Modules of tests for one provider import these cases.
"""

from tests.lab.cluster import pod
from tests.lab.services import answered, service, url_of, web


def test_service_is_answered_by_its_pods_from_every_node_and_follows_them(cluster):
    cluster.apply(service("web"), web("a", "node1"), web("b", "node2"))
    cluster.apply(pod("asks-1", node="node1"), pod("asks-2", node="node2"))
    cluster.wait_ready("a", "b", "asks-1", "asks-2")
    cluster.until_active("web")
    cluster.until_members("web", "a", "b")
    url = f"http://{cluster.get('service', 'web')['spec']['clusterIP']}/"
    for asker in ("asks-1", "asks-2"):
        assert cluster.answering(asker, url, 2) == {"a", "b"}
    cluster.delete("pod", "a")
    cluster.until_members("web", "b")
    cluster.until_active("web")
    # Octavia knows before what forwards does
    cluster.wait_for(
        "only b answers", lambda: all(cluster.fetch("asks-1", url) == "b" for _ in range(6))
    )


def test_service_of_ipv6_is_answered(cluster):
    cluster.apply(
        service("web", ipFamilies=["IPv6"]), web("a", "node1"), pod("asks", node="node2")
    )
    cluster.wait_ready("a", "asks")
    cluster.until_active("web")
    url = f"http://[{cluster.get('service', 'web')['spec']['clusterIP']}]/"
    assert cluster.answering("asks", url, 1) == {"a"}


def test_load_balancer_is_reached_from_outside_at_the_address_in_its_status(cluster):
    cluster.apply(service("web", type="LoadBalancer"), web("a", "node1"))
    cluster.wait_ready("a")
    (address,) = cluster.wait_for("web has an address", lambda: cluster.ingress("web"))
    inside = cluster.get("service", "web")["spec"]["clusterIP"]
    assert cluster.floating_ips() == {address: inside}
    cluster.wait_for("the machine is answered", lambda: answered(url_of(address, 80)) == "a")
    cluster.apply(service("web", type="ClusterIP"))
    cluster.wait_for("the address is gone", lambda: not cluster.floating_ips())
    cluster.until_ingress("web")


def test_services_on_one_load_balancer_are_answered_each_by_its_own_pods(cluster):
    other = service("other", {"port": 81, "targetPort": 8080}, type="LoadBalancer")
    other["spec"]["selector"] = {"app": "b"}
    cluster.apply(service("web", type="LoadBalancer"), web("a", "node1"), pod("b", node="node2"))
    cluster.wait_ready("a", "b")
    (address,) = cluster.wait_for("web has an address", lambda: cluster.ingress("web"))
    shared = cluster.until_active("web")["id"]
    other["metadata"]["annotations"] = {"loadbalancer.openstack.org/load-balancer-id": shared}
    cluster.apply(other)
    first, second = url_of(address, 80), url_of(address, 81)
    cluster.wait_for("each is answered", lambda: (answered(first), answered(second)) == ("a", "b"))
    cluster.until_ingress("other", address)  # told when Octavia is done, which answers sooner
    cluster.kubectl("delete", "service", "web", "--wait=false")  # it is held until the other goes
    cluster.wait_for("the first is closed", lambda: not answered(first))
    cluster.wait_for("the other goes on to be answered", lambda: answered(second) == "b")
    assert cluster.ingress("other") == [address]


def test_pod_whose_groups_let_in_nobody_is_reached_by_its_load_balancer(cluster, provider):
    """An amphora asks in its own name. With ovn it is the client who asks, and is kept out as
    without a Service; the Pod reaches itself, in the name of the ClusterIP."""
    cluster.apply(service("web"), web("a", "node1"), pod("asks", node="node2"))
    cluster.wait_ready("a", "asks")
    cluster.until_active("web")
    open_to, by_service = (f"http://{cluster.address('a')}:8080/", cluster.url_of("web"))
    assert cluster.answering("asks", open_to, 1) == {"a"}
    with cluster.kept_from_all_but_load_balancers("a") as names:
        assert names == [f"kuryr {cluster.site.cluster_tag}: from load balancers"]
        cluster.wait_for("it is closed", lambda: cluster.fetch("asks", open_to) is None)
        asks = {"ovn": "a", "amphora": "asks"}[provider]
        assert cluster.answering(asks, by_service, 1) == {"a"}
        if provider == "ovn":
            cluster.wait_for("others are kept out", lambda: not cluster.fetch("asks", by_service))


def test_ports_come_and_go_and_the_others_go_on_to_answer(cluster):
    one = {"name": "one", "port": 80, "targetPort": 8080}
    two = {"name": "two", "port": 81, "targetPort": 8080}
    cluster.apply(service("web", one), web("a", "node1"), pod("asks", node="node2"))
    cluster.wait_ready("a", "asks")
    cluster.until_active("web")
    address = cluster.get("service", "web")["spec"]["clusterIP"]
    assert cluster.answering("asks", f"http://{address}:80/", 1) == {"a"}
    cluster.apply(service("web", one, two))
    assert cluster.answering("asks", f"http://{address}:81/", 1) == {"a"}
    assert cluster.answering("asks", f"http://{address}:80/", 1) == {"a"}
    cluster.apply(service("web", two))
    cluster.wait_for("port 80 is closed", lambda: not cluster.fetch("asks", f"http://{address}/"))
    assert cluster.answering("asks", f"http://{address}:81/", 1) == {"a"}


def test_service_made_again_with_the_same_address_has_a_load_balancer_of_its_own(cluster):
    cluster.apply(service("web"), web("a", "node1"), pod("asks", node="node2"))
    cluster.wait_ready("a", "asks")
    first = cluster.until_active("web")
    address = cluster.get("service", "web")["spec"]["clusterIP"]
    cluster.delete("service", "web")
    cluster.apply(service("web", clusterIP=address))
    second = cluster.until_active("web")
    assert second["id"] != first["id"]
    assert cluster.answering("asks", f"http://{address}/", 1) == {"a"}


def test_pod_with_the_readiness_gate_is_ready_only_once_its_load_balancer_leads_to_it(cluster):
    gate = "kuryr.openstack.org/load-balancer-ready"
    gated = web("a", "node1")
    gated["spec"]["readinessGates"] = [{"conditionType": gate}]
    cluster.apply(service("web"), gated, pod("asks", node="node2"))
    cluster.wait_ready("a", "asks")
    conditions = cluster.get("pod", "a")["status"]["conditions"]
    reasons = {condition["type"]: condition.get("reason") for condition in conditions}
    assert reasons[gate] == "LoadBalancerMember"
    cluster.until_members("web", "a")
    assert cluster.answering("asks", cluster.url_of("web"), 1) == {"a"}


def test_client_stays_with_its_server_while_affinity_is_asked_for(cluster):
    """In both families, switched on and off under traffic."""
    names = ("a", "b", "c")
    dual = {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}
    cluster.apply(service("web", **dual, sessionAffinity="ClientIP"), pod("asks", node="node2"))
    cluster.apply(
        *(web(name, node) for name, node in zip(names, ("node1", "node2", "node1"), strict=True))
    )
    cluster.wait_ready(*names, "asks")
    cluster.until_all_active("web")
    cluster.until_members("web", *names)
    first, second = cluster.get("service", "web")["spec"]["clusterIPs"]
    for url in (f"http://{first}/", f"http://[{second}]/"):
        cluster.wait_for("it is answered", lambda url=url: cluster.fetch("asks", url))
        assert len({cluster.fetch("asks", url) for _ in range(12)}) == 1
    cluster.apply(service("web", **dual, sessionAffinity="None"))
    for url in (f"http://{first}/", f"http://[{second}]/"):
        assert len(cluster.answering("asks", url, 2)) >= 2
        assert None not in [cluster.fetch("asks", url) for _ in range(6)]
    cluster.apply(service("web", **dual, sessionAffinity="ClientIP"))

    def stays(url):
        return len({cluster.fetch("asks", url) for _ in range(12)}) == 1

    for url in (f"http://{first}/", f"http://[{second}]/"):
        cluster.wait_for("the client stays with its server", lambda url=url: stays(url))
