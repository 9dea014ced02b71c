"""Services at their ClusterIPs: load balancers of a real Octavia, whose members are Pods' ports.

The controller makes them for as long as this file runs, first with the provider ovn, then with
amphora. Beside the tests' own there are those of `kubernetes` and of the cluster's DNS.
"""

import contextlib
import itertools
import os
import re

import pytest

from lab.install import images
from lab.kubernetes import dns
from lab.kuryr import services as balancing
from lab.kuryr.installation import CLUSTER_TAG, CONTROLLER, Installation, daemon, kubectl
from lab.openstack.rest import Api
from lab.process import run
from lab.progress import Progress
from tests.lab.cluster import PATIENCE, Cluster, fresh_cluster, machine, pod

PROXY_NAME = "service.kubernetes.io/service-proxy-name"
SERVICE_TAG = "kuryr-service"
# Names of VIPs' ports by provider; an amphora's own are called octavia-lb-vrrp.
_VIPS = re.compile("ovn-lb-vip|octavia-lb-(?!vrrp)")


@pytest.fixture(scope="module", params=["ovn", "amphora"])
def services(request):
    """The controller has load balancers of this provider from now on; in the end there are none.

    That of the API server goes when its Service is somebody else's.
    """
    if os.geteuid() != 0:
        pytest.fail("these tests run as root, on a machine with the lab")
    quiet = Progress(quiet=True)
    root = Installation(progress=quiet).root
    debug = "debug = true" in (root / f"{CONTROLLER}.conf").read_text()
    without = Installation(progress=quiet, debug=debug)
    making = Installation(progress=quiet, debug=debug, with_services=True, provider=request.param)
    with contextlib.ExitStack() as stack:
        stack.callback(start_controller, without)
        # it would begin to make that of the API server again
        stack.callback(label, making.lab, f"{PROXY_NAME}-")
        stack.callback(making.supervisor.stop, CONTROLLER)
        start_controller(making)
        stack.callback(take_away, making.lab)
        balancing.up(making.lab, request.param, PATIENCE)
        yield request.param


def take_away(lab):
    """The load balancers that no test has made."""
    dns.down(lab, wait=False)
    label(lab, f"{PROXY_NAME}=nobody")
    system = ServiceCluster(dns.NAMESPACE)
    system.wait_for("the DNS is gone", lambda: system.find("service", dns.NAME) is None)
    cluster = ServiceCluster("default")
    cluster.wait_for("no load balancer is left", lambda: not cluster.all_load_balancers())
    cluster.until_untouched("kubernetes")


def label(lab, text):
    kubectl(lab, "label", "service", "kubernetes", text, "--overwrite")


def start_controller(installation):
    installation.register_controller(1)
    installation.supervisor.start(CONTROLLER)


# What comes after the load balancer, or before it, is the same with each provider.
ANY_PROVIDER = pytest.mark.parametrize("services", ["ovn"], indirect=True)


class ServiceCluster(Cluster):
    """What tests ask of Services and of their load balancers."""

    @property
    def octavia(self):
        return Api(f"{self.lab.cloud.octavia_url}/v2/lbaas", self.secret)

    def all_load_balancers(self):
        """Those of this cluster, by the Service's uid; what follows it is of a second family."""
        found = self.octavia.get("/loadbalancers", tags=CLUSTER_TAG)["loadbalancers"]
        return {owner_of(one): one for one in found}

    def load_balancers(self):
        """Those of the Services that tests have made."""
        lasting = (("default", "kubernetes"), (dns.NAMESPACE, dns.NAME))
        others = tuple(self.uid(*name) for name in lasting)
        found = self.all_load_balancers()
        return {owner: one for owner, one in found.items() if not owner.startswith(others)}

    def uid(self, namespace, name):
        found = self.get("service", name, namespace=namespace)
        return found["metadata"]["uid"]

    def vip_ports(self):
        """Names of ports of VIPs whose load balancers are not there."""
        network = self.lab.cloud.networks["services"].id
        there = {one["vip_port_id"] for one in self.all_load_balancers().values()}
        ports = self.neutron.get("/ports", network_id=network)["ports"]
        vips = [port for port in ports if _VIPS.match(port["name"])]
        return [port["name"] for port in vips if port["id"] not in there]

    def until_active(self, name):
        """The Service's load balancer, when all of it is ACTIVE."""
        uid = self.get("service", name)["metadata"]["uid"]

        def is_active():
            found = self.load_balancers().get(uid)
            return found if found and self.statuses(found["id"]) == {"ACTIVE"} else None

        return self.wait_for(f"the load balancer of {name} is ACTIVE", is_active)

    def until_all_active(self, name):
        """Those of a dual-stack Service."""
        uid = self.get("service", name)["metadata"]["uid"]
        owners = (uid, f"{uid}-second")

        def are_active():
            found = self.load_balancers()
            mine = [found[owner] for owner in owners if owner in found]
            active = [one for one in mine if self.statuses(one["id"]) == {"ACTIVE"}]
            return active if len(active) == len(owners) else None

        return self.wait_for(f"both load balancers of {name} are ACTIVE", are_active)

    def statuses(self, load_balancer_id):
        tree = self.octavia.get(f"/loadbalancers/{load_balancer_id}/status")["statuses"]
        return set(provisioning(tree["loadbalancer"]))

    def until_members(self, name, *pods):
        """Wait until the Service's pools have these Pods' addresses, and no others."""
        uid = self.get("service", name)["metadata"]["uid"]

        def are_members():
            one = self.load_balancers().get(uid)
            return one and self.members(one["id"]) == {self.address(pod) for pod in pods}

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
        """At which addresses its status says that it is reached."""
        status = self.get("service", name)["status"].get("loadBalancer", {})
        return [one["ip"] for one in status.get("ingress", ())]

    def until_ingress(self, name, *addresses):
        """Wait until its status names these addresses, and no others."""
        self.wait_for(
            f"{name} is reached at {addresses}", lambda: self.ingress(name) == [*addresses]
        )

    def until_untouched(self, name):
        """Wait until nothing of ours is on the Service."""

        def is_untouched():
            meta = self.get("service", name)["metadata"]
            ours = [one for one in meta.get("annotations", {}) if "kuryr" in one]
            return not ours and not meta.get("finalizers")

        self.wait_for(f"nothing of ours is on {name}", is_untouched)

    def floating_ips(self):
        found = self.neutron.get("/floatingips", tags=CLUSTER_TAG)["floatingips"]
        return {one["floating_ip_address"]: one["fixed_ip_address"] for one in found}

    def url_of(self, name):
        return f"http://{self.get('service', name)['spec']['clusterIP']}/"

    @contextlib.contextmanager
    def kept_from_all_but_load_balancers(self, pod):
        """The Pod's port has, instead of the operator's groups, one that lets nothing in (and
        everything out, as all groups do); the names of the groups that it keeps."""
        path = f"/ports/{self.vif(pod)['id']}"
        groups = self.neutron.get(path)["port"]["security_groups"]
        kept = [one for one in groups if one != self.lab.cloud.security_groups["pods"]]
        body = {"name": self.namespace, "project_id": self.lab.cloud.project_id}
        made = self.neutron.post("/security-groups", {"security_group": body})["security_group"]
        self.neutron.put(path, {"port": {"security_groups": [*kept, made["id"]]}})
        shown = [self.neutron.get(f"/security-groups/{one}")["security_group"] for one in kept]
        yield [one["name"] for one in shown]
        self.neutron.put(path, {"port": {"security_groups": groups}})
        self.neutron.delete(f"/security-groups/{made['id']}")


def owner_of(load_balancer):
    tags = [tag for tag in load_balancer["tags"] if tag.startswith(f"{SERVICE_TAG}:")]
    return tags[0].partition(":")[2]


def provisioning(node):
    """The provisioning statuses of a part of the status tree, and of all below it."""
    yield node["provisioning_status"]
    for kind in ("listeners", "pools", "members"):
        for below in node.get(kind, ()):
            yield from provisioning(below)


@pytest.fixture
def cluster(services):
    """A namespace of one's own; no load balancer and no address of a Service is left of it."""
    with fresh_cluster() as found:
        cluster = ServiceCluster(found.namespace)
        yield cluster
        cluster.delete("services", "--all")
        assert not cluster.load_balancers()
        assert not cluster.floating_ips()
        assert cluster.vip_ports() == []


def service(name, *ports, **spec):
    """A Service of the Pods with the label tier=web."""
    ports = ports or ({"port": 80, "targetPort": 8080},)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"tier": "web"}, "ports": list(ports), **spec},
    }


def web(name, node):
    one = pod(name, node=node)
    one["metadata"]["labels"]["tier"] = "web"
    return one


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


def test_pod_whose_groups_let_in_nobody_is_reached_by_its_load_balancer(cluster, services):
    """An amphora asks in its own name. With ovn it is the client who asks, and is kept out as
    without a Service; the Pod reaches itself, in the name of the ClusterIP."""
    cluster.apply(service("web"), web("a", "node1"), pod("asks", node="node2"))
    cluster.wait_ready("a", "asks")
    cluster.until_active("web")
    open_to, by_service = (f"http://{cluster.address('a')}:8080/", cluster.url_of("web"))
    assert cluster.answering("asks", open_to, 1) == {"a"}
    with cluster.kept_from_all_but_load_balancers("a") as names:
        assert names == [f"kuryr {CLUSTER_TAG}: from load balancers"]
        cluster.wait_for("it is closed", lambda: cluster.fetch("asks", open_to) is None)
        asks = {"ovn": "a", "amphora": "asks"}[services]
        assert cluster.answering(asks, by_service, 1) == {"a"}
        if services == "ovn":
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


@ANY_PROVIDER
def test_service_that_becomes_anothers_is_let_go(cluster):
    cluster.apply(service("web"))
    cluster.until_active("web")
    cluster.kubectl("label", "service", "web", f"{PROXY_NAME}=another")
    cluster.wait_for("its load balancer goes", lambda: not cluster.load_balancers())
    cluster.until_untouched("web")


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


@ANY_PROVIDER
def test_service_is_reached_by_its_name(cluster):
    asks = pod("asks", node="node2", container={"image": images.CURL})
    cluster.apply(service("web"), web("a", "node1"), asks)
    cluster.wait_ready("a", "asks")
    cluster.until_active("web")
    ask = ("curl", "-sS", "-m", "10", "http://web/")
    cluster.wait_for("it answers", lambda: cluster.tries("asks", *ask) == "a")


@ANY_PROVIDER
def test_node_port_is_answered_at_every_node_to_pods_hosts_and_others(cluster):
    """Without kube-proxy, at all addresses of the nodes, of both families."""
    dual = {"type": "NodePort", "ipFamilyPolicy": "RequireDualStack"}
    cluster.apply(service("web", **dual), web("a", "node1"), pod("asks", node="node2"))
    cluster.wait_ready("a", "asks")
    for balancer in cluster.until_all_active("web"):
        print(balancer["vip_address"], balancer["provider"])
    [port] = cluster.get("service", "web")["spec"]["ports"]
    lab, number = cluster.lab, port["nodePort"]
    nodes = [(node.port_v4, node.port_v6) for node in lab.nodes.values()]
    nodes += [(machine(lab).v4, machine(lab).v6)]
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

    # it outlives the daemon, and the next daemon finds out that the Service does not
    cluster.supervisor.kill(daemon("node1"))
    try:
        url = url_of(nodes[0][0], number)
        assert cluster.answering("asks", url, 1) == {"a"}
        cluster.delete("service", "web")
        assert str(number) in table_of_node_ports()
    finally:
        cluster.supervisor.start(daemon("node1"))
    cluster.wait_for("it is closed", lambda: str(number) not in table_of_node_ports())


def table_of_node_ports():
    """Of node1, as nft shows it."""
    return run(["nft", "list", "table", "inet", "kuryr-node-ports"])


def url_of(address, number):
    return f"http://[{address}]:{number}/" if ":" in address else f"http://{address}:{number}/"


def answered(url, *, netns=None):
    """What the machine, or who is in that namespace, is answered; empty where nobody answers."""
    return run(["curl", "-sf", "--max-time", "5", url], netns=netns, check=False).strip()
