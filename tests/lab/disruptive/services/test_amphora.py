"""The lab's provider amphora, by Octavia's API alone: Octavia's own driver, a real haproxy."""

import contextlib
import json
import os
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest

from lab import topology
from lab.openstack.rest import ApiError
from lab.process import run
from tests.lab import product
from tests.lab.cluster import addresses, fresh_cluster, pod

NAME = "test-amphora"
pytestmark = pytest.mark.lab_only


@pytest.fixture(scope="module")
def cluster():
    product.ensure("full")
    with fresh_cluster() as found:
        yield found
    found.assert_nothing_leaks()


@pytest.fixture(scope="module")
def octavia(cluster):
    return cluster.site.octavia


@pytest.fixture(scope="module")
def balanced(cluster, octavia):
    """Two Pods, and a load balancer over them for each family, among the Pods, whose group lets
    it in; in the end nothing is left.
    """
    cluster.apply(pod("a", node="node1"), pod("b", node="node2"), pod("asks", node="node2"))
    cluster.wait_ready("a", "b", "asks")
    before = (*networks_of_amphorae(), octavias_ports(cluster))
    made = []
    network = cluster.lab.cloud.networks["pods"]
    for number, subnet in enumerate((network.v4, network.v6)):
        members = [addresses(cluster.get("pod", name))[number] for name in ("a", "b")]
        body = load_balancer(cluster.lab.cloud.project_id, subnet.id, members)
        made.append(octavia.post("/loadbalancers", {"loadbalancer": body})["loadbalancer"])
    yield [until_active(cluster, octavia, balancer["id"]) for balancer in made]
    for balancer in made:
        octavia.call("DELETE", f"/loadbalancers/{balancer['id']}", query={"cascade": "true"})
    cluster.wait_for("they are gone", lambda: all(is_gone(octavia, balancer) for balancer in made))

    def nothing_more():
        # what others had left may be gone by now
        left = (*networks_of_amphorae(), octavias_ports(cluster))
        return all(now <= then for now, then in zip(left, before, strict=True))

    cluster.wait_for("nothing of them is left", nothing_more)


def load_balancer(project, subnet, members):
    pool = {
        "name": "web",
        "protocol": "TCP",
        "lb_algorithm": "ROUND_ROBIN",
        "members": [{"address": address, "protocol_port": 8080} for address in members],
    }
    listener = {"name": "web", "protocol": "TCP", "protocol_port": 80, "default_pool": pool}
    return {
        "name": NAME,
        "provider": "amphora",
        "project_id": project,
        "vip_subnet_id": subnet,
        "listeners": [listener],
    }


def until_active(cluster, octavia, identifier):
    def active():
        found = octavia.get(f"/loadbalancers/{identifier}")["loadbalancer"]
        assert found["provisioning_status"] != "ERROR"
        return found if found["provisioning_status"] == "ACTIVE" else None

    return cluster.wait_for("the load balancer is ACTIVE", active)


def is_gone(octavia, balancer):
    try:
        octavia.get(f"/loadbalancers/{balancer['id']}")
    except ApiError as error:
        return error.status == 404
    return False


def networks_of_amphorae():
    """Their namespaces, and their links in the host."""
    links = json.loads(run(["ip", "-j", "link", "show"]))
    named = {link["ifname"] for link in links if link["ifname"].startswith(topology.AMPHORA)}
    spaces = Path("/run/netns").glob(f"{topology.AMPHORA}-*")
    return named, {space.name for space in spaces}


def octavias_ports(cluster):
    ports = cluster.neutron.get("/ports")["ports"]
    return {port["id"] for port in ports if port["name"].startswith("octavia-lb")}


def url_of(balancer):
    address = balancer["vip_address"]
    return f"http://[{address}]/" if ":" in address else f"http://{address}/"


def answers(cluster, balancer, count=4):
    """Who answers a Pod's requests, one after another; None: nobody."""
    return [cluster.fetch("asks", url_of(balancer)) for _ in range(count)]


def haproxies():
    found = subprocess.run(["pgrep", "-x", "haproxy"], capture_output=True, text=True, check=False)
    return {int(pid) for pid in found.stdout.split()}


def test_load_balancer_spreads_requests_over_its_members_and_its_haproxy_comes_back(
    cluster, balanced
):
    for balancer in balanced:
        # ACTIVE comes before its address is known everywhere
        cluster.wait_for(
            "both members answer",
            lambda balancer=balancer: set(answers(cluster, balancer)) == {"a", "b"},
        )
    before = haproxies()
    for pid in before:
        with contextlib.suppress(ProcessLookupError):  # a worker ends with its master
            os.kill(pid, signal.SIGKILL)
    for balancer in balanced:
        cluster.wait_for(
            "it answers again", lambda balancer=balancer: None not in answers(cluster, balancer, 1)
        )
    cluster.wait_for("others serve now", lambda: not haproxies() & before)


def test_floating_ip_leads_the_host_to_a_load_balancer(cluster, octavia, balanced):
    public = cluster.lab.cloud.networks["public"].id
    for_vip = {"floating_network_id": public, "port_id": balanced[0]["vip_port_id"]}
    body = for_vip | {"project_id": cluster.lab.cloud.project_id}
    made = cluster.neutron.post("/floatingips", {"floatingip": body})["floatingip"]
    try:
        url = f"http://{made['floating_ip_address']}/"
        seen = set()

        def both():
            with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2) as answer:
                seen.add(answer.read().decode().strip())
            return seen == {"a", "b"}

        cluster.wait_for("both members answer the host", both)
    finally:
        cluster.neutron.delete(f"/floatingips/{made['id']}")
