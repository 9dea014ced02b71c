"""The lab's cluster and cloud, as tests see them: kubectl, Neutron, the nodes' Open vSwitch."""

import contextlib
import functools
import http.client
import json
import subprocess
import time
import urllib.error
import uuid
from pathlib import Path

import yaml

from lab import facts
from lab.kubernetes.client import Kube, KubeError, Unreachable
from lab.kuryr.installation import CLUSTER_TAG, CONTROLLER, Installation, kubectl
from lab.lifecycle.supervisor import Supervisor
from lab.openstack.rest import Api, ApiError, token
from lab.process import CommandError, run, succeeds

IMAGE = "lab.local/busybox:1"
PREFIXES = {
    **dict.fromkeys(("events", "nodes", "pods", "serviceaccounts", "services"), "/api/v1"),
    **dict.fromkeys(("kuryrports", "kuryrportpools"), "/apis/openstack.org/v1"),
}
NO_ANSWER = (
    Unreachable,
    urllib.error.URLError,
    http.client.HTTPException,
    ConnectionError,
    TimeoutError,
)
OURS = "test-"  # how the names of namespaces of tests begin
PATIENCE = 240  # seconds: for a machine with much else to do
CLUSTER_WIDE = ("nodes", "kuryrportpools")
# It ends when it is told to: a first process that does not listen is waited for and killed.
SERVE = (
    "trap 'exit 0' TERM; mkdir -p /www && hostname > /www/index.html && "
    "httpd -f -p 8080 -h /www & wait"
)


class Cluster:
    """One namespace of the lab's cluster, and all of its cloud."""

    def __init__(self, namespace):
        self.lab = facts.load()
        self.kube = Kube(self.lab)
        self.namespace = namespace
        self.supervisor = Supervisor()

    # Kubernetes.

    def kubectl(self, *arguments, stdin=None, timeout=300):
        return kubectl(
            self.lab, "--namespace", self.namespace, *arguments, stdin=stdin, timeout=timeout
        )

    def apply(self, *objects):
        items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "--filename=-", stdin=json.dumps(items))

    def get(self, kind, name="", *, namespace="", **query):
        """The object of that name, or all objects of a kind.

        Without kubectl, each run of which costs a processor a tenth of a second: tests look again
        and again.
        """
        plural = f"{kind.removesuffix('s')}s"
        place = "" if plural in CLUSTER_WIDE else f"/namespaces/{namespace or self.namespace}"
        path = f"{PREFIXES[plural]}{place}/{plural}"
        return self.kube.call("GET", f"{path}/{name}") if name else self.kube.items(path, **query)

    def find(self, kind, name):
        """The object, or None."""
        try:
            return self.get(kind, name)
        except KubeError as error:
            if error.status != 404:
                raise
            return None

    def wait_ready(self, *pods, seconds=PATIENCE):
        """Wait until their containers run. What they serve may come a moment later: they have no
        probes; and so may what other nodes know of them."""
        wait = ("wait", "--for=condition=Ready", *(f"pod/{pod}" for pod in pods))
        self.kubectl(*wait, f"--timeout={seconds}s", timeout=seconds + 30)

    def exec(self, pod, *command):
        return self.kubectl("exec", pod, "--", *command)

    def delete(self, *what):
        """Return when they are gone."""
        self.kubectl("delete", *what, f"--timeout={PATIENCE}s", timeout=PATIENCE + 30)

    def tries(self, pod, *command):
        """What the command prints in the Pod; None where it fails."""
        try:
            return self.exec(pod, *command).strip()
        except CommandError:
            return None

    def events(self, pod):
        """(reason, message) of the Events about the Pod."""
        found = self.get("events", fieldSelector=f"involvedObject.name={pod}")
        return [(event["reason"], event["message"]) for event in found]

    # What is recorded, what is in the cloud, what is on the nodes.

    def vif(self, pod):
        """The data of the Pod's default interface in its KuryrPort."""
        entry = self.get("kuryrport", pod)["status"]["vifs"]["eth0"]
        return entry["vif"]["versioned_object.data"]

    @functools.cached_property
    def secret(self):
        """A token of the cloud's administrator."""
        clouds = yaml.safe_load(Path(self.lab.cloud.clouds_yaml).read_text())["clouds"]
        auth = clouds["lab"]["auth"]
        return token(auth["auth_url"], auth["username"], auth["password"], auth["project_name"])

    @functools.cached_property
    def neutron(self):
        """Neutron, as its administrator sees it."""
        return Api(f"{self.lab.cloud.neutron_url}/v2.0", self.secret)

    def ports(self):
        """The cluster's ports in Neutron by id."""
        found = self.neutron.get("/ports", tags=CLUSTER_TAG)["ports"]
        return {port["id"]: port for port in found}

    def taps(self):
        """The Pods' interfaces in the integration bridges: {(node, tap name)}."""
        found = set()
        for node in self.lab.nodes.values():
            database = f"--db=unix:{node.ovs_socket}"
            listed = run([f"{self.lab.bin}/ovs-vsctl", database, "list-ports", "br-int"])
            found |= {(node.name, name) for name in listed.split() if name.startswith("tap")}
        return found

    def recorded_ports(self):
        """Ids of the ports that all KuryrPorts of the cluster name."""
        return {
            entry["vif"]["versioned_object.data"]["id"]
            for item in self.kube.items(f"{PREFIXES['kuryrports']}/kuryrports")
            for entry in (item.get("status", {}).get("vifs") or {}).values()
        }

    def wait_for(self, what, condition, seconds=PATIENCE):
        """Ask until the condition holds; its value."""
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
        """In the end Neutron's ports are exactly those that the KuryrPorts name."""
        self.wait_for(
            "the ports in Neutron are those in the KuryrPorts",
            lambda: set(self.ports()) == self.recorded_ports(),
        )

    def kuryr_k8s(self, *command, controller=CONTROLLER):
        """(exit code, what it says as JSON) of `kuryr-k8s`, told where that controller is."""
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
        """It must answer now: `until_pings` before what is not to disturb it."""
        family = "-6" if ":" in address else "-4"
        self.exec(pod, "ping", family, "-c", "2", "-i", "0.2", "-W", "10", address)

    def pings(self, pod, address):
        """Whether the address answers now."""
        try:
            self.ping(pod, address)
        except CommandError:
            return False
        return True

    def until_pings(self, pod, *addresses):
        """Wait until each of them answers the Pod. A Pod is Ready when its own node has its flows:
        other nodes have them a moment later."""
        for address in addresses:
            self.wait_for(f"{pod} reaches {address}", lambda to=address: self.pings(pod, to))

    def until_vm_pings(self, *addresses):
        """Wait until each of them answers the VM."""
        ping, netns = ("ping", "-c", "2", "-i", "0.2", "-W", "10"), self.lab.vm1.netns
        for address in addresses:
            self.wait_for(
                f"the VM reaches {address}",
                lambda to=address: succeeds([*ping, to], netns=netns),
            )

    def fetch(self, pod, url):
        """What the URL answers to the Pod; None where nobody does."""
        return self.tries(pod, "timeout", "10", "wget", "-q", "-O-", url)

    def answering(self, pod, url, count):
        """Who answers: asked until so many different ones have."""
        seen = set()

        def enough():
            seen.add(self.fetch(pod, url))
            return len(seen - {None}) >= count

        self.wait_for(f"{count} Pods answer at {url}", enough)
        return seen - {None}


def may_pass(error):
    """Whether a server only says, or shows, that it is on its way back, or has much to do."""
    if isinstance(error, KubeError | ApiError):
        return error.status == 429 or error.status >= 500
    return isinstance(error, NO_ANSWER)


@functools.cache
def remove_leftovers():
    """What tests have left that were killed: once, before the first one of this run."""
    lab = facts.load()
    names = [one["metadata"]["name"] for one in Kube(lab).items("/api/v1/namespaces")]
    if left := [name for name in names if name.startswith(OURS)]:
        kubectl(lab, "delete", "namespace", *left, "--timeout=170s")


@contextlib.contextmanager
def fresh_cluster():
    """The cluster with a namespace of one's own; afterwards nothing is in it any more."""
    remove_leftovers()
    namespace = f"{OURS}{uuid.uuid4().hex[:8]}"
    cluster = Cluster(namespace)
    kubectl(cluster.lab, "create", "namespace", namespace)
    cluster.wait_for(
        "the namespace has its ServiceAccount",
        lambda: cluster.find("serviceaccount", "default"),
    )
    yield cluster
    # Pods first: a namespace with something in it is looked at again only after a while
    for kind in ("deployments", "statefulsets", "pods"):
        cluster.delete(kind, "--all")
    cluster.wait_for("the KuryrPorts are gone", lambda: not cluster.get("kuryrports"))
    kubectl(cluster.lab, "delete", "namespace", namespace, "--wait=false")


def machine(lab):
    """The node that is a virtual machine."""
    assert lab.workers, "no node is a virtual machine: lab up --vm 1"
    return next(iter(lab.workers.values()))


def pod(name, *, node=None, command=None, **spec):
    """A Pod with one container; keyword arguments are fields of its spec."""
    container = {
        "name": "main",
        "image": IMAGE,
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
    return [entry["ip"] for entry in live["status"]["podIPs"]]
