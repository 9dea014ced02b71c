"""A Pod's network on the real stack: addresses, traffic, and what stands in Neutron."""

import json

from lab.process import run
from tests.lab.cluster import addresses, pod


def test_pod_has_the_addresses_of_its_neutron_port(cluster):
    cluster.apply(pod("one", node="node1"))
    cluster.wait_ready("one")
    vif = cluster.vif("one")
    port = cluster.ports()[vif["id"]]
    live = cluster.get("pod", "one")
    assert addresses(live) == [ip["ip_address"] for ip in port["fixed_ips"]]
    assert port["device_id"] == live["metadata"]["uid"]
    assert port["binding:host_id"] == cluster.lab.nodes["node1"].chassis
    assert port["name"] == f"{cluster.namespace}/one"
    assert port["security_groups"] == [cluster.lab.cloud.security_groups["pods"]]
    cluster.wait_for(
        "the port is ACTIVE", lambda: cluster.ports()[vif["id"]]["status"] == "ACTIVE"
    )
    cluster.wait_for("the record says so", lambda: cluster.vif("one")["active"])


def test_interface_in_the_pod_is_as_neutron_made_it(cluster):
    cluster.apply(pod("one", node="node2"))
    cluster.wait_ready("one")
    vif = cluster.vif("one")
    v4, v6 = addresses(cluster.get("pod", "one"))
    shown = cluster.exec("one", "ip", "addr", "show", "eth0")
    assert f"inet {v4}/16" in shown
    assert f"inet6 {v6}/64" in shown
    assert vif["address"] in shown
    assert "mtu 1442" in shown
    gateway = cluster.lab.cloud.networks["pods"]
    assert f"default via {gateway.v4.gateway} dev eth0" in cluster.exec("one", "ip", "route")
    routes = cluster.exec("one", "ip", "-6", "route")
    assert f"default via {gateway.v6.gateway} dev eth0" in routes


def test_pods_reach_each_other_on_a_node_between_nodes_and_across_the_router(cluster):
    cluster.apply(pod("a", node="node1"), pod("b", node="node1"), pod("c", node="node2"))
    cluster.wait_ready("a", "b", "c")
    vm = cluster.lab.vm1
    targets = [
        *addresses(cluster.get("pod", "b")),
        *addresses(cluster.get("pod", "c")),
        vm.v4,
        vm.v6,
    ]
    for source in ("a", "c"):
        cluster.until_pings(source, *targets)
    cluster.until_vm_pings(*addresses(cluster.get("pod", "c")))  # and a VM reaches Pods


def test_pod_reaches_the_api_server_at_the_nodes_neutron_address(cluster):
    cluster.apply(pod("one", node="node2"))
    cluster.wait_ready("one")
    url = cluster.lab.kubernetes.url.removeprefix("https://")
    host, port = url.split(":")
    ask = ("sh", "-c", f"nc -w 10 {host} {port} </dev/null")
    cluster.wait_for("it is connected", lambda: cluster.tries("one", *ask) is not None)


def test_probes_and_http_between_nodes_work(cluster):
    probe = {"httpGet": {"port": 8080, "path": "/"}, "periodSeconds": 1}
    cluster.apply(
        pod("server", node="node1", container={"readinessProbe": probe}),
        pod("client", node="node2"),
    )
    cluster.wait_ready("server", "client")
    v4, v6 = addresses(cluster.get("pod", "server"))
    for address in (v4, f"[{v6}]"):
        url = f"http://{address}:8080/"
        assert cluster.answering("client", url, 1) == {"server"}


def test_host_network_pod_is_left_alone(cluster):
    cluster.apply(pod("host", node="node1", hostNetwork=True, command=["sleep", "1000"]))
    cluster.wait_ready("host")
    assert cluster.find("kuryrport", "host") is None


def test_finished_pod_gives_its_port_back(cluster):
    cluster.apply(pod("job", node="node2", command=["true"], restartPolicy="Never"))
    cluster.wait_for(
        "it has ended", lambda: cluster.get("pod", "job")["status"]["phase"] == "Succeeded"
    )
    cluster.wait_for("the KuryrPort goes", lambda: cluster.find("kuryrport", "job") is None)
    assert cluster.find("pod", "job") is not None
    cluster.assert_nothing_leaks()


def test_thirty_pods_at_once_all_become_ready_and_leave_nothing(cluster):
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "many"},
        "spec": {
            "replicas": 30,
            "selector": {"matchLabels": {"app": "many"}},
            "template": {
                "metadata": {"labels": {"app": "many"}},
                "spec": pod("x", command=["sleep", "1000"])["spec"],
            },
        },
    }
    cluster.apply(deployment)
    cluster.kubectl("rollout", "status", "deployment/many", "--timeout=400s", timeout=420)
    pods = cluster.get("pods")
    taken = [ip for live in pods for ip in addresses(live)]
    assert len(set(taken)) == 60
    by_id = {port["id"]: port for port in cluster.ports().values()}
    recorded = {item["metadata"]["name"]: item for item in cluster.get("kuryrports")}
    for live in pods:
        entry = recorded[live["metadata"]["name"]]["status"]["vifs"]["eth0"]["vif"]
        port = by_id[entry["versioned_object.data"]["id"]]
        assert addresses(live) == [ip["ip_address"] for ip in port["fixed_ips"]]
    cluster.kubectl("delete", "deployment", "many")
    cluster.wait_for("all KuryrPorts are gone", lambda: not cluster.get("kuryrports"))
    cluster.assert_nothing_leaks()


def test_static_pod_has_a_port_under_its_configurations_hash(cluster):
    node = cluster.lab.nodes["node1"]
    config = json.loads(run(["cat", f"{node.kubelet_root}/../kubelet.json"]))
    assert config.get("staticPodPath"), "the lab's kubelets read static Pods from a directory"
    manifest = pod("static")
    manifest["metadata"]["namespace"] = cluster.namespace
    path = f"{config['staticPodPath']}/{cluster.namespace}.json"
    try:
        run(["tee", path], stdin=json.dumps(manifest))
        name = "static-node1"
        cluster.wait_for("the mirror Pod appears", lambda: cluster.find("pod", name))
        cluster.wait_ready(name)
        mirror = cluster.get("pod", name)
        recorded = cluster.get("kuryrport", name)
        config_hash = mirror["metadata"]["annotations"]["kubernetes.io/config.hash"]
        assert recorded["spec"] == {
            "podUid": config_hash,
            "podNodeName": "node1",
            "podStatic": True,
        }
        cluster.until_pings(name, cluster.lab.vm1.v4)
    finally:
        run(["rm", "-f", path])
    cluster.wait_for("the KuryrPort goes", lambda: cluster.find("kuryrport", name) is None)
