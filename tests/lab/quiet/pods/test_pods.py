"""A Pod's network on the real stack: addresses, traffic, and what stands in Neutron."""

import json

import pytest

from lab.suite import interrupted
from tests.lab.cluster import addresses, pod


def test_pod_has_the_addresses_of_its_neutron_port(cluster):
    cluster.apply(pod("one", node="node1"))
    cluster.wait_ready("one")
    vif = cluster.vif("one")
    port = cluster.ports()[vif["id"]]
    live = cluster.get("pod", "one")
    assert addresses(live) == [ip["ip_address"] for ip in port["fixed_ips"]]
    assert port["binding:host_id"] == cluster.site.nodes["node1"].host
    # a pool's port is told a moment later whose it is
    whose = (live["metadata"]["uid"], f"{cluster.namespace}/one")
    cluster.wait_for(
        "the port says whose it is",
        lambda: (
            (cluster.ports()[vif["id"]]["device_id"], cluster.ports()[vif["id"]]["name"]) == whose
        ),
    )
    groups = [
        cluster.neutron.get(f"/security-groups/{group}")["security_group"]
        for group in port["security_groups"]
    ]
    others = [group["name"] for group in groups if group["id"] != cluster.site.pod_security_group]
    assert len(groups) == len(others) + 1
    assert others == [f"kuryr {cluster.site.cluster_tag}: from load balancers"]
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
    first, second = cluster.site.pods["v4"], cluster.site.pods["v6"]
    assert f"inet {v4}/{first['cidr'].partition('/')[2]}" in shown
    assert f"inet6 {v6}/{second['cidr'].partition('/')[2]}" in shown
    assert vif["address"] in shown
    assert f"mtu {cluster.site.pods['mtu']}" in shown
    assert f"default via {first['gateway']} dev eth0" in cluster.exec("one", "ip", "route")
    assert f"default via {second['gateway']} dev eth0" in cluster.exec("one", "ip", "-6", "route")


def test_pods_reach_each_other_on_a_node_between_nodes_and_across_the_router(cluster):
    cluster.apply(pod("a", node="node1"), pod("b", node="node1"), pod("c", node="node2"))
    cluster.wait_ready("a", "b", "c")
    targets = [
        *addresses(cluster.get("pod", "b")),
        *addresses(cluster.get("pod", "c")),
        *cluster.site.beyond,
    ]
    for source in ("a", "c"):
        cluster.until_pings(source, *targets)


@pytest.mark.lab_only
def test_pod_reaches_the_api_server_at_its_address(cluster):
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


@pytest.mark.lab_only
def test_static_pod_has_a_port_under_its_configurations_hash(cluster):
    node = cluster.lab.nodes["node1"]
    manifest = pod("static")
    manifest["metadata"]["namespace"] = cluster.namespace
    path = interrupted.static_pods(node) / f"{cluster.namespace}.json"
    try:
        path.write_text(json.dumps(manifest))
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
        cluster.until_vm_pings(*addresses(mirror))
    finally:
        path.unlink()
    cluster.wait_for("the KuryrPort goes", lambda: cluster.find("kuryrport", name) is None)
