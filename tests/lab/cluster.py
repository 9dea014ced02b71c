"""A namespace of the cluster and its cloud, as tests see them."""

import contextlib
import functools
import http.client
import json
import subprocess
import time
import urllib.error
import uuid

from kuryr_k8s.handlers.nodes.ports import NODE_DEVICE_OWNER
from lab import facts
from lab.churn.leftovers import POOL_TAG
from lab.install.images import BUSYBOX
from lab.kubernetes.client import KubeError, Unreachable
from lab.kuryr.installation import CONTROLLER, Installation
from lab.lifecycle.supervisor import Supervisor
from lab.openstack.rest import ApiError
from lab.process import CommandError, run, succeeds
from lab.suite import interrupted
from tests.lab import product
from tests.lab.site import site

PREFIXES = {
    **dict.fromkeys(("events", "nodes", "pods", "serviceaccounts", "services"), "/api/v1"),
    "ipamclaims": "/apis/k8s.cni.cncf.io/v1alpha1",
    **dict.fromkeys(
        ("kuryrports", "kuryrportpools", "neutronports", "neutronportpools"),
        "/apis/openstack.org/v1",
    ),
}
NO_ANSWER = (
    Unreachable,
    urllib.error.URLError,
    http.client.HTTPException,
    ConnectionError,
    TimeoutError,
)
PATIENCE = 240  # seconds: for a machine with much else to do
CLUSTER_WIDE = ("nodes", "kuryrportpools")
AVAILABLE = "available-port"  # the name of a pool's port that no Pod has
# It ends when it is told to: a first process that does not listen is waited for and killed.
SERVE = (
    "trap 'exit 0' TERM; mkdir -p /www && hostname > /www/index.html && "
    "httpd -f -p 8080 -h /www & wait"
)


class Cluster:
    """One namespace of the cluster, what its Pods have in the cloud, and the nodes.

    `lab` and what uses it are only for tests with the marker `lab_only`.
    """

    def __init__(self, namespace):
        self.site = site()
        self.kube = self.site.kube
        self.neutron = self.site.neutron
        self.namespace = namespace

    @functools.cached_property
    def lab(self):
        """The facts of the lab."""
        return facts.load()

    @functools.cached_property
    def supervisor(self):
        """The processes of the lab."""
        return Supervisor()

    # Kubernetes.

    def kubectl(self, *arguments, stdin=None, timeout=300):
        """Run kubectl in the namespace; return what it printed."""
        return self.site.kubectl(
            "--namespace", self.namespace, *arguments, stdin=stdin, timeout=timeout
        )

    def apply(self, *objects):
        """Apply objects, with the site's names of nodes and images."""
        found = [localized(self.site, item) for item in objects]
        items = {"apiVersion": "v1", "kind": "List", "items": found}
        self.kubectl("apply", "--filename=-", stdin=json.dumps(items))

    def get(self, kind, name="", *, namespace="", **query):
        """Return the object of that name, or all objects of a kind.

        Not by kubectl, each run of which costs a processor a tenth of a second: tests look again
        and again.
        """
        plural = f"{kind.removesuffix('s')}s"
        place = "" if plural in CLUSTER_WIDE else f"/namespaces/{namespace or self.namespace}"
        path = f"{PREFIXES[plural]}{place}/{plural}"
        return self.kube.call("GET", f"{path}/{name}") if name else self.kube.items(path, **query)

    def find(self, kind, name):
        """Return the object, or None."""
        try:
            return self.get(kind, name)
        except KubeError as error:
            if error.status != 404:
                raise
            return None

    def wait_ready(self, *pods, seconds=PATIENCE):
        """Wait until the Pods' containers run.

        They have no probes: what they serve, and what other nodes know of them, may come a moment
        later.
        """
        wait = ("wait", "--for=condition=Ready", *(f"pod/{pod}" for pod in pods))
        self.kubectl(*wait, f"--timeout={seconds}s", timeout=seconds + 30)

    def exec(self, pod, *command):
        """Run a command in a Pod; return what it printed."""
        return self.kubectl("exec", pod, "--", *command)

    def delete(self, *what):
        """Delete objects; return when they are gone."""
        self.kubectl("delete", *what, f"--timeout={PATIENCE}s", timeout=PATIENCE + 30)

    def tries(self, pod, *command):
        """Return what the command prints in the Pod; None where it fails."""
        try:
            return self.exec(pod, *command).strip()
        except CommandError:
            return None

    def uid(self, pod):
        """Return the uid of the Pod of that name; None if there is none."""
        live = self.find("pod", pod)
        return live["metadata"]["uid"] if live else None

    def events(self, pod):
        """Return (reason, message) of the Events about the Pod."""
        found = self.get("events", fieldSelector=f"involvedObject.name={pod}")
        return [(event["reason"], event["message"]) for event in found]

    def create_namespace(self):
        """Make the namespace, with a label that says which run of the tests did."""
        metadata = {"name": self.namespace, "labels": {interrupted.RUN: interrupted.this_run()}}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        self.site.kubectl("create", "--filename=-", stdin=json.dumps(body))
        self.wait_for(
            "the namespace has its ServiceAccount",
            lambda: self.find("serviceaccount", "default"),
        )

    # What is recorded, what is in the cloud, what is on the nodes.

    def vif(self, pod):
        """Return the data of the Pod's default interface in its KuryrPort."""
        entry = self.get("kuryrport", pod)["status"]["vifs"]["eth0"]
        return entry["vif"]["versioned_object.data"]

    def ports(self):
        """Return the cluster's ports in Neutron by id, without those of the nodes."""
        found = self.neutron.get("/ports", tags=self.site.cluster_tag)["ports"]
        return {port["id"]: port for port in found if port["device_owner"] != NODE_DEVICE_OWNER}

    def taps(self):
        """Return the Pods' interfaces in the integration bridges: {(node, tap name)}."""
        found = set()
        for node in self.lab.nodes.values():
            database = f"--db=unix:{node.ovs_socket}"
            listed = run([f"{self.lab.bin}/ovs-vsctl", database, "list-ports", "br-int"])
            found |= {(node.name, name) for name in listed.split() if name.startswith("tap")}
        return found

    def kuryrports(self):
        """Return the KuryrPorts of all namespaces."""
        return self.kube.items(f"{PREFIXES['kuryrports']}/kuryrports")

    def recorded_ports(self):
        """Return the ids of the ports that all KuryrPorts of the cluster name."""
        return set().union(*map(ports_of, self.kuryrports()))

    def is_released(self, port):
        """Return whether no Pod of the namespace has the port any more: it is gone, or back in its
        pool, from which a Pod of another test may have taken it."""
        found = self.ports().get(port)
        own = set().union(*map(ports_of, self.get("kuryrports")))
        return found is None or (POOL_TAG in found["tags"] and port not in own)

    def wait_for(self, what, condition, seconds=PATIENCE):
        """Ask until the condition holds; return its value."""
        end = time.monotonic() + seconds
        while True:
            trouble = ""
            try:
                if value := condition():
                    return value
            except Exception as error:
                if not may_pass(error):
                    raise
                trouble = f" ({error})"
            assert time.monotonic() < end, f"after {seconds} s still not: {what}{trouble}"
            time.sleep(0.2)

    def assert_nothing_leaks(self):
        """Check that no port is without an owner, and that no record names a port that is gone.

        Others make and release ports meanwhile: what is as it should be at one look is not looked
        at again. What was without an owner before the first test is not ours.
        """
        suspects = None

        def nothing():
            nonlocal suspects
            found = self.differences() - strangers()
            suspects = found if suspects is None else suspects & found
            return not suspects

        self.wait_for("every port is a Pod's or a pool's, and every Pod's port exists", nothing)

    def differences(self):
        """Return the ids of ports that neither a KuryrPort names nor a pool keeps available, and
        of those that KuryrPorts of this namespace name and Neutron does not have."""
        ports = self.ports()
        records = self.kuryrports()
        recorded = set().union(*map(ports_of, records))
        mine = [item for item in records if item["metadata"]["namespace"] == self.namespace]
        available = {
            identity
            for identity, port in ports.items()
            if POOL_TAG in port["tags"] and port["name"] == AVAILABLE
        }
        missing = set().union(*map(ports_of, mine))
        return (set(ports) - recorded - available) | (missing - set(self.ports()))

    def kuryr_k8s(self, *command, controller=CONTROLLER):
        """Run `kuryr-k8s` with the settings of that controller.

        :returns: (exit code, what it says as JSON).
        """
        root = Installation().root
        names = ("kuryr.conf", f"{controller}.conf")
        done = subprocess.run(
            [
                root / "venv" / "bin" / "kuryr-k8s",
                *command,
                "--json",
                *(f"--config-file={root / name}" for name in names),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, json.loads(done.stdout)

    # Traffic.

    def ping(self, pod, address):
        """Check that the address answers now: after `until_pings`, and after what is not to
        disturb it."""
        family = "-6" if ":" in address else "-4"
        self.exec(pod, "ping", family, "-c", "2", "-i", "0.2", "-W", "10", address)

    def pings(self, pod, address):
        """Return whether the address answers now."""
        try:
            self.ping(pod, address)
        except CommandError:
            return False
        return True

    def until_pings(self, pod, *addresses):
        """Wait until each of the addresses answers the Pod.

        A Pod is Ready when its own node has its flows: other nodes have them a moment later.
        """
        for address in addresses:
            self.wait_for(f"{pod} reaches {address}", lambda to=address: self.pings(pod, to))

    def until_vm_pings(self, *addresses):
        """Wait until each of the addresses answers the lab's VM, which is in another network."""
        ping, netns = ("ping", "-c", "2", "-i", "0.2", "-W", "10"), self.lab.vm1.netns
        for address in addresses:
            self.wait_for(
                f"the VM reaches {address}",
                lambda to=address: succeeds([*ping, to], netns=netns),
            )

    def fetch(self, pod, url):
        """Return what the URL answers to the Pod; None where nobody does."""
        return self.tries(pod, "timeout", "10", "wget", "-q", "-O-", url)

    def answering(self, pod, url, count):
        """Ask until so many different Pods have answered; return their names."""
        seen = set()

        def enough():
            seen.add(self.fetch(pod, url))
            return len(seen - {None}) >= count

        self.wait_for(f"{count} Pods answer at {url}", enough)
        return seen - {None}


def may_pass(error):
    """Return whether a server only says, or shows, that it is on its way back, or is busy."""
    if isinstance(error, KubeError | ApiError):
        return error.status == 429 or error.status >= 500
    return isinstance(error, NO_ANSWER)


def ports_of(kuryrport):
    """Return the ids of the ports that the KuryrPort names."""
    entries = (kuryrport.get("status", {}).get("vifs") or {}).values()
    return {entry["vif"]["versioned_object.data"]["id"] for entry in entries}


@functools.cache
def strangers():
    """Return what was without an owner when this process began to test."""
    return Cluster("default").differences()


def localized(site, item):
    """Return the object with the site's names of nodes and images."""
    spec = item.get("spec", {}).get("template", item).get("spec", {})
    if not site.images or "containers" not in spec:
        return item
    copy = json.loads(json.dumps(item))
    spec = copy["spec"].get("template", copy)["spec"]
    if "nodeName" in spec:
        spec["nodeName"] = site.nodes[spec["nodeName"]].name
    for container in spec["containers"]:
        container["image"] = site.images[container["image"]]
        container["imagePullPolicy"] = "IfNotPresent"
    return copy


@contextlib.contextmanager
def fresh_cluster():
    """Make a namespace of one's own; afterwards nothing is in it any more."""
    product.prepared()
    strangers()
    cluster = Cluster(f"test-{uuid.uuid4().hex[:8]}")
    cluster.create_namespace()
    yield cluster
    # Pods first: a namespace with something in it is looked at again only after a while
    for kind in ("deployments", "statefulsets", "pods"):
        cluster.delete(kind, "--all")
    cluster.wait_for("the KuryrPorts are gone", lambda: not cluster.get("kuryrports"))
    cluster.kubectl("delete", "namespace", cluster.namespace, "--wait=false")


def machine(lab):
    """Return the node that is a virtual machine."""
    assert lab.workers, "no node is a virtual machine: lab up --vm 1"
    return next(iter(lab.workers.values()))


def pod(name, *, node=None, command=None, **spec):
    """Return a Pod with one container; keyword arguments are fields of its spec."""
    container = {
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": command or ["sh", "-c", SERVE],
        **spec.pop("container", {}),
    }
    if node:
        spec["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container], **spec},
    }


def addresses(live):
    """Return the addresses in the status of a Pod."""
    return [entry["ip"] for entry in live["status"]["podIPs"]]
