"""Services of a namespace and their load balancers, as tests see them."""

import contextlib
import functools
import re

import pytest

from lab.process import run
from tests.lab.cluster import Cluster, fresh_cluster, pod

PROXY_NAME = "service.kubernetes.io/service-proxy-name"
NAMESPACE_TAG, SERVICE_TAG = "kuryr-namespace", "kuryr-service"
# Names of VIPs' ports by provider; an amphora's own are called octavia-lb-vrrp.
_VIPS = re.compile("ovn-lb-vip|octavia-lb-(?!vrrp)")


class ServiceCluster(Cluster):
    """One namespace of the cluster, with its Services and their load balancers."""

    @property
    def octavia(self):
        """Octavia, as its administrator sees it."""
        return self.site.octavia

    def load_balancers(self):
        """Return those of the namespace by their owner: the Service's uid, and what follows it
        where they are of a second family."""
        found = self.octavia.get("/loadbalancers", tags=self._tags)["loadbalancers"]
        return {owner_of(balancer): balancer for balancer in found}

    @property
    def _tags(self):
        return f"{self.site.cluster_tag},{NAMESPACE_TAG}:{self.namespace}"

    def assert_no_vip_is_left(self):
        """Check that no port of a VIP is without its load balancer.

        Others make and delete load balancers meanwhile: what is as it should be at one look is not
        looked at again.
        """
        suspects = None

        def none():
            nonlocal suspects
            found = self.vips_without_load_balancers() - vips_of_others()
            suspects = found if suspects is None else suspects & found
            return not suspects

        self.wait_for("every port of a VIP has its load balancer", none)

    def vips_without_load_balancers(self):
        """Return the names of the ports of VIPs whose load balancers are not there."""
        network = self.site.services_network
        ports = self.neutron.get("/ports", network_id=network)["ports"]
        there = {
            balancer["vip_port_id"]
            for balancer in self.octavia.get("/loadbalancers")["loadbalancers"]
        }
        vips = [port for port in ports if _VIPS.match(port["name"])]
        return {port["name"] for port in vips if port["id"] not in there}

    def until_active(self, name):
        """Return the Service's load balancer, when all of it is ACTIVE."""
        uid = self.get("service", name)["metadata"]["uid"]

        def is_active():
            found = self.load_balancers().get(uid)
            return found if found and self.statuses(found["id"]) == {"ACTIVE"} else None

        return self.wait_for(f"the load balancer of {name} is ACTIVE", is_active)

    def until_all_active(self, name):
        """Return both load balancers of a dual-stack Service, when all of them is ACTIVE."""
        uid = self.get("service", name)["metadata"]["uid"]
        owners = (uid, f"{uid}-second")

        def are_active():
            found = self.load_balancers()
            mine = [found[owner] for owner in owners if owner in found]
            active = [balancer for balancer in mine if self.statuses(balancer["id"]) == {"ACTIVE"}]
            return active if len(active) == len(owners) else None

        return self.wait_for(f"both load balancers of {name} are ACTIVE", are_active)

    def statuses(self, load_balancer_id):
        tree = self.octavia.get(f"/loadbalancers/{load_balancer_id}/status")["statuses"]
        return set(provisioning(tree["loadbalancer"]))

    def until_members(self, name, *pods):
        """Wait until the Service's pools have these Pods' addresses, and no others."""
        uid = self.get("service", name)["metadata"]["uid"]

        def are_members():
            balancer = self.load_balancers().get(uid)
            return balancer and self.members(balancer["id"]) == {self.address(pod) for pod in pods}

        self.wait_for(f"the members of {name} are {pods}", are_members)

    def members(self, load_balancer_id):
        pools = self.octavia.get("/pools", loadbalancer_id=load_balancer_id)["pools"]
        return {
            member["address"]
            for pool in pools
            for member in self.octavia.get(f"/pools/{pool['id']}/members")["members"]
        }

    def address(self, pod):
        return self.get("pod", pod)["status"]["podIP"]

    def ingress(self, name):
        """Return the addresses in the status of the Service."""
        status = self.get("service", name)["status"].get("loadBalancer", {})
        return [entry["ip"] for entry in status.get("ingress", ())]

    def until_ingress(self, name, *addresses):
        """Wait until its status names these addresses, and no others."""
        self.wait_for(
            f"{name} is reached at {addresses}", lambda: self.ingress(name) == [*addresses]
        )

    def until_untouched(self, name):
        """Wait until nothing of ours is on the Service."""

        def is_untouched():
            meta = self.get("service", name)["metadata"]
            ours = [
                annotation for annotation in meta.get("annotations", {}) if "kuryr" in annotation
            ]
            return not ours and not meta.get("finalizers")

        self.wait_for(f"nothing of ours is on {name}", is_untouched)

    def floating_ips(self):
        found = self.neutron.get("/floatingips", tags=self._tags)["floatingips"]
        return {
            floating_ip["floating_ip_address"]: floating_ip["fixed_ip_address"]
            for floating_ip in found
        }

    def url_of(self, name):
        return f"http://{self.get('service', name)['spec']['clusterIP']}/"

    @contextlib.contextmanager
    def kept_from_all_but_load_balancers(self, pod):
        """Replace the operator's group of the Pod's port, for a while, by one that lets nothing in
        (and everything out, as all groups do); yield the names of the groups that it keeps."""
        path = f"/ports/{self.vif(pod)['id']}"
        groups = self.neutron.get(path)["port"]["security_groups"]
        kept = [group_id for group_id in groups if group_id != self.site.pod_security_group]
        body = {"name": self.namespace, "project_id": self.site.project_id}
        made = self.neutron.post("/security-groups", {"security_group": body})["security_group"]
        self.neutron.put(path, {"port": {"security_groups": [*kept, made["id"]]}})
        shown = [
            self.neutron.get(f"/security-groups/{group_id}")["security_group"] for group_id in kept
        ]
        yield [group["name"] for group in shown]
        self.neutron.put(path, {"port": {"security_groups": groups}})
        self.neutron.delete(f"/security-groups/{made['id']}")


def owner_of(load_balancer):
    tags = [tag for tag in load_balancer["tags"] if tag.startswith(f"{SERVICE_TAG}:")]
    return tags[0].partition(":")[2]


def provisioning(node):
    """Yield the provisioning statuses of a part of the status tree, and of all below it."""
    yield node["provisioning_status"]
    for kind in ("listeners", "pools", "members"):
        for below in node.get(kind, ()):
            yield from provisioning(below)


@pytest.fixture
def provider(request):
    """The provider of the load balancers that the controller makes."""
    marker = request.node.get_closest_marker("product")
    return "amphora" if marker and marker.args[0] == "amphora" else "ovn"


@pytest.fixture
def cluster(configured):
    """A namespace of one's own; no load balancer and no address of a Service is left of it."""
    vips_of_others()
    with fresh_cluster() as found:
        cluster = ServiceCluster(found.namespace)
        yield cluster
        cluster.delete("services", "--all")
        assert not cluster.floating_ips()
        # no finalizer holds a ClusterIP
        cluster.wait_for("its load balancers go", lambda: not cluster.load_balancers())
        cluster.assert_no_vip_is_left()
    cluster.assert_nothing_leaks()


@functools.cache
def vips_of_others():
    """Return the ports of VIPs without load balancers that were there before the first test."""
    return ServiceCluster("default").vips_without_load_balancers()


def service(name, *ports, **spec):
    """Return a Service of the Pods with the label tier=web."""
    ports = ports or ({"port": 80, "targetPort": 8080},)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"tier": "web"}, "ports": list(ports), **spec},
    }


def web(name, node):
    """Return a Pod with the label tier=web."""
    made = pod(name, node=node)
    made["metadata"]["labels"]["tier"] = "web"
    return made


def url_of(address, number):
    return f"http://[{address}]:{number}/" if ":" in address else f"http://{address}:{number}/"


def status_of(url):
    """Return the HTTP status that the URL answers to this machine; 000 where nobody answers."""
    shown = ["-s", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "5"]
    return run(["curl", *shown, url], check=False).strip()


def answered(url, *, netns=None):
    """Return what the URL answers to this machine, or within a network namespace; empty where
    nobody answers."""
    return run(["curl", "-sf", "--max-time", "5", url], netns=netns, check=False).strip()
