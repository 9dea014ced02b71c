"""A Pod that asks all the time, and the Pods of a Deployment that answer, on the lab.

They keep serving for a while when they are deleted, as Pods behind a load balancer should.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from bench import waiting
from bench.lab.objects import IMAGE, deployment
from bench.lab.requests import Requests
from lab import facts
from lab.kubernetes import dns
from lab.kubernetes.client import Json, Kube, is_ready
from lab.kuryr.installation import Installation, kubectl
from lab.progress import Progress

NAMESPACE, CLIENT, FIRST, APP = "kuryr-bench-services", "client", "first", "web"
SERVE = "mkdir -p /www && hostname > /www/index.html && exec httpd -f -p 8080 -h /www"
DRAIN = 8  # seconds for which a Pod usually keeps serving after its deletion
PATIENCE = 120.0
PROXY_NAME = "service.kubernetes.io/service-proxy-name"
SERVICES = f"/api/v1/namespaces/{NAMESPACE}/services"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
Result = TypeVar("Result")


def with_each(
    providers: Iterable[str], measure: Callable[[facts.Lab, Kube, str], Result]
) -> dict[str, Result]:
    """Measure with one provider of load balancers after the other, with the Pod that asks.

    Afterwards the controller makes no load balancers.
    """
    quiet = Progress(quiet=True)
    lab = facts.load()
    kube = Kube(lab)
    found: dict[str, Result] = {}
    for provider in providers:
        Installation(progress=quiet, with_services=True, provider=provider).up()
        with no_other_services(lab, kube), with_client(lab, kube):
            found[provider] = measure(lab, kube, provider)
    Installation(progress=quiet).up()
    return found


def until_answered(lab: facts.Lab, kube: Kube, name: str, address: str) -> float:
    """Create a Service at an address that none had before, and delete it.

    :returns: the seconds until the first answer.
    """
    with Requests(lab, NAMESPACE, CLIENT, f"http://{address}/") as requests:
        wait_for(lambda: requests.answers, "the Pod sends requests")
        begun = time.monotonic()
        kube.call("POST", SERVICES, service(name, address))
        wait_for(lambda: requests.first(since=begun), f"{name} is answered")
        answered = requests.first(since=begun)
    kube.call("DELETE", f"{SERVICES}/{name}")
    wait_for(lambda: name not in names(kube), f"{name} is gone")
    assert answered is not None
    return answered - begun


@contextlib.contextmanager
def requests_to(lab: facts.Lab, kube: Kube, address: str) -> Iterator[Requests]:
    """Send requests to a Service as soon as all its Pods answer those of another Pod.

    In OVN, a connection to a load balancer that is still being made may stay half open, and takes
    a later one from the same port with it.
    """
    url = f"http://{address}/"
    with Requests(lab, NAMESPACE, FIRST, url) as requests:
        wait_for(lambda: all(requests.first(pod) for pod in ready(kube)), "all Pods answer")
    with Requests(lab, NAMESPACE, CLIENT, url) as requests:
        wait_for(lambda: requests.answers, "the Pod sends requests")
        yield requests


def names(kube: Kube) -> set[str]:
    """Return the names of the Services in the namespace."""
    return {item["metadata"]["name"] for item in kube.items(SERVICES)}


def ready(kube: Kube) -> set[str]:
    """Return the names of the Pods that are Ready and not being deleted."""
    return {
        pod["metadata"]["name"]
        for pod in kube.items(PODS, labelSelector=f"app={APP}")
        if is_ready(pod) and "deletionTimestamp" not in pod["metadata"]
    }


def wait_for(condition: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    """Wait until the condition holds.

    :param patience: seconds.
    :raises TimeoutError: it does not hold within that time.
    """
    waiting.wait_for(condition, what, patience, pause=0.02)


@contextlib.contextmanager
def no_other_services(lab: facts.Lab, kube: Kube) -> Iterator[None]:
    """Release the load balancers of the cluster's own Services at the end."""
    label = ("label", "service", "kubernetes", "--overwrite")
    try:
        yield
    finally:
        dns.down(lab)
        kubectl(lab, *label, f"{PROXY_NAME}=nobody")
        kubernetes = "/api/v1/namespaces/default/services/kubernetes"
        wait_for(
            lambda: not kube.call("GET", kubernetes)["metadata"].get("finalizers"),
            "the API server's Service has no load balancer",
        )
        kubectl(lab, *label[:-1], f"{PROXY_NAME}-")


@contextlib.contextmanager
def with_client(lab: facts.Lab, kube: Kube) -> Iterator[None]:
    """Create the namespace with the Pods that ask, and delete it at the end with all in it."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    kube.call("POST", "/api/v1/namespaces", namespace)
    try:
        for name in (FIRST, CLIENT):
            kube.call("POST", PODS, _client(name, next(iter(lab.nodes))))
        kubectl(lab, "-n", NAMESPACE, "wait", "--for=condition=Ready", "pods", "--all")
        yield
    finally:
        kubectl(lab, "-n", NAMESPACE, "delete", "services", "--all", "--timeout=90s")
        kubectl(lab, "delete", "namespace", NAMESPACE, "--timeout=120s")


@contextlib.contextmanager
def deployed(
    lab: facts.Lab, kube: Kube, replicas: int, *, drain: int = DRAIN, gates: Sequence[str] = ()
) -> Iterator[None]:
    """Create the Deployment of the Pods that answer, and delete it at the end.

    :param drain: seconds for which a Pod keeps serving after its deletion.
    :param gates: readiness gates of the Pods.
    """
    kube.call("POST", DEPLOYMENTS, _web(replicas, drain, gates))
    try:
        wait_for(lambda: len(ready(kube)) == replicas, "the Pods are Ready")
        yield
    finally:
        kubectl(lab, "-n", NAMESPACE, "delete", "deployment", APP, "--timeout=90s")
        wait_for(lambda: not kube.items(PODS, labelSelector=f"app={APP}"), "the Pods are gone")


def service(name: str, address: str | None = None) -> Json:
    """Return a Service of the Deployment's Pods.

    :param address: its ClusterIP; None: Kubernetes chooses one.
    """
    spec = {"selector": {"app": APP}} | ({"clusterIP": address} if address else {})
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": spec | {"ports": [{"port": 80, "targetPort": 8080}]},
    }


def _client(name: str, node: str) -> Json:
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sleep", "86400"],
    }
    spec = {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _web(replicas: int, drain: int, gates: Sequence[str]) -> Json:
    """Return the Deployment of the Pods that answer: one more at a time in a rollout."""
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", SERVE],
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(drain)]}}},
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
    }
    spec = {
        "terminationGracePeriodSeconds": drain + 2,
        "readinessGates": [{"conditionType": gate} for gate in gates],
        "containers": [container],
    }
    made = deployment(APP, replicas, {"app": APP}, spec)
    rolling = {"maxSurge": 1, "maxUnavailable": 0}
    made["spec"]["strategy"] = {"type": "RollingUpdate", "rollingUpdate": rolling}
    return made
