"""Services on the lab: until the first answer, and until a removed Pod gets no more requests.

A Pod on one node sends requests all the time; Pods of a Deployment answer. They keep serving for a
while when they are deleted, as Pods behind a load balancer should.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bench.lab.objects import IMAGE, deployment
from bench.lab.requests import INTERVAL, TIMEOUT, Requests
from bench.options import add_values
from bench.report import Report, Table, Target, percentile
from bench.waiting import wait_for
from lab import facts
from lab.kubernetes import dns
from lab.kubernetes.client import Json, Kube, is_ready
from lab.kuryr.installation import Installation, kubectl
from lab.kuryr.services import PROVIDERS
from lab.progress import Progress

NAMESPACE, CLIENT, APP = "kuryr-bench-services", "client", "web"
SERVE = "mkdir -p /www && hostname > /www/index.html && exec httpd -f -p 8080 -h /www"
DRAIN = 8  # seconds for which a Pod keeps serving after its deletion
QUIET = 2.5  # seconds without an answer of a Pod after which the last one was its last
PATIENCE = 120.0
REPLICAS = 3
PROXY_NAME = "service.kubernetes.io/service-proxy-name"
SERVICES = f"/api/v1/namespaces/{NAMESPACE}/services"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--runs", type=int, default=20, help="of each step (20)")
    add_values(parser, "--provider", str, tuple(PROVIDERS), "providers of the load balancers")


@dataclass
class Measurements:
    """The measurements with one provider; the lists hold the seconds of each run.

    They last from the Service's POST to the first answer, from the scale-down to the last answer
    of the Pod removed, and from the scale-up to the first answer of the new Pod. `failed` and
    `asked` count the requests during all scale events.
    """

    answered: list[float] = field(default_factory=list)
    drained: list[float] = field(default_factory=list)
    joined: list[float] = field(default_factory=list)
    failed: int = 0
    asked: int = 0


def measure(options: argparse.Namespace) -> Report:
    """Measure one provider after the other; return the report.

    Afterwards the controller makes no load balancers.
    """
    quiet = Progress(quiet=True)
    lab = facts.load()
    kube = Kube(lab)
    found: dict[str, Measurements] = {}
    for provider in options.provider:
        Installation(progress=quiet, with_services=True, provider=provider).up()
        measured = found[provider] = Measurements()
        with _no_other_services(lab, kube), _pods(lab, kube):
            for number in range(options.runs):
                measured.answered.append(_until_answered(lab, kube, number))
            _scale_events(lab, kube, options.runs, measured)
    Installation(progress=quiet).up()
    return _report(found)


def _until_answered(lab: facts.Lab, kube: Kube, number: int) -> float:
    """Create a Service at an address that none had before, and delete it.

    :returns: the seconds until the first answer.
    """
    name, address = f"web-{number}", f"10.96.200.{number + 1}"
    with Requests(lab, NAMESPACE, CLIENT, f"http://{address}/") as requests:
        _wait_for(lambda: requests.answers, "the Pod sends requests")
        begun = time.monotonic()
        kube.call("POST", SERVICES, _service(name, address))
        _wait_for(lambda: requests.first(since=begun), f"{name} is answered")
        answered = requests.first(since=begun)
    kube.call("DELETE", f"{SERVICES}/{name}")
    _wait_for(lambda: not _names(kube, SERVICES), f"{name} is gone")
    assert answered is not None
    return answered - begun


def _scale_events(lab: facts.Lab, kube: Kube, runs: int, measured: Measurements) -> None:
    address = "10.96.200.254"
    kube.call("POST", SERVICES, _service(APP, address))
    with Requests(lab, NAMESPACE, CLIENT, f"http://{address}/") as requests:
        _wait_for(lambda: _answering(requests, _ready(kube)), "all Pods answer")
        time.sleep(2 * TIMEOUT)  # until requests from before the load balancer are over
        begun = time.monotonic()
        for _ in range(runs):
            measured.drained.append(_until_drained(lab, kube, requests))
            measured.joined.append(_until_joined(lab, kube, requests))
        measured.failed = requests.failed(begun)
        measured.asked = sum(answered >= begun for answered, _ in requests.answers)


def _until_drained(lab: facts.Lab, kube: Kube, requests: Requests) -> float:
    before, begun = _ready(kube), time.monotonic()
    _scale(lab, REPLICAS - 1)
    _wait_for(lambda: len(_ready(kube)) < REPLICAS, "a Pod is deleted")
    (removed,) = before - _ready(kube)
    _wait_for(lambda: _is_quiet(requests, removed, begun), f"{removed} gets no more requests")
    return (requests.last(removed) or begun) - begun


def _until_joined(lab: facts.Lab, kube: Kube, requests: Requests) -> float:
    before, begun = _ready(kube), time.monotonic()
    _scale(lab, REPLICAS)
    _wait_for(lambda: len(_ready(kube)) == REPLICAS, "a Pod is Ready")
    (new,) = _ready(kube) - before
    _wait_for(lambda: requests.first(new), f"{new} answers")
    return (requests.first(new) or begun) - begun


def _is_quiet(requests: Requests, pod: str, begun: float) -> bool:
    return time.monotonic() - max(requests.last(pod) or begun, begun) > QUIET


def _answering(requests: Requests, pods: set[str]) -> bool:
    return len(pods) == REPLICAS and all(requests.first(pod) for pod in pods)


def _scale(lab: facts.Lab, replicas: int) -> None:
    kubectl(lab, "-n", NAMESPACE, "scale", "deployment", APP, f"--replicas={replicas}")


def _ready(kube: Kube) -> set[str]:
    """Return the names of the Pods that are Ready and not being deleted."""
    return {
        pod["metadata"]["name"]
        for pod in kube.items(PODS, labelSelector=f"app={APP}")
        if is_ready(pod) and "deletionTimestamp" not in pod["metadata"]
    }


def _names(kube: Kube, path: str) -> list[str]:
    return [item["metadata"]["name"] for item in kube.items(path)]


def _wait_for(condition: Callable[[], object], what: str) -> None:
    wait_for(condition, what, PATIENCE, pause=0.02)


@contextlib.contextmanager
def _no_other_services(lab: facts.Lab, kube: Kube) -> Iterator[None]:
    """Release the load balancers of the cluster's own Services at the end."""
    label = ("label", "service", "kubernetes", "--overwrite")
    try:
        yield
    finally:
        dns.down(lab)
        kubectl(lab, *label, f"{PROXY_NAME}=nobody")
        kubernetes = "/api/v1/namespaces/default/services/kubernetes"
        _wait_for(
            lambda: not kube.call("GET", kubernetes)["metadata"].get("finalizers"),
            "the API server's Service has no load balancer",
        )
        kubectl(lab, *label[:-1], f"{PROXY_NAME}-")


@contextlib.contextmanager
def _pods(lab: facts.Lab, kube: Kube) -> Iterator[None]:
    """Create the namespace with its Pods, and delete it at the end."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    kube.call("POST", "/api/v1/namespaces", namespace)
    try:
        kube.call("POST", PODS, _client(next(iter(lab.nodes))))
        kube.call("POST", DEPLOYMENTS, _web())
        kubectl(lab, "-n", NAMESPACE, "wait", "--for=condition=Ready", f"pod/{CLIENT}")
        _wait_for(lambda: len(_ready(kube)) == REPLICAS, "the Pods are Ready")
        yield
    finally:
        kubectl(lab, "-n", NAMESPACE, "delete", "services", "--all", "--timeout=90s")
        kubectl(lab, "delete", "namespace", NAMESPACE, "--timeout=120s")


def _service(name: str, address: str) -> Json:
    spec = {"selector": {"app": APP}, "clusterIP": address}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": spec | {"ports": [{"port": 80, "targetPort": 8080}]},
    }


def _client(node: str) -> Json:
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sleep", "86400"],
    }
    spec = {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": CLIENT}, "spec": spec}


def _web() -> Json:
    """Return the Deployment of the Pods that answer."""
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", SERVE],
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(DRAIN)]}}},
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
    }
    spec = {"terminationGracePeriodSeconds": DRAIN + 2, "containers": [container]}
    return deployment(APP, REPLICAS, {"app": APP}, spec)


def _report(found: dict[str, Measurements]) -> Report:
    rows, targets = [], []
    for provider, measured in found.items():
        times = {
            "Service's POST → first answer": measured.answered,
            "scale-down → last answer of the Pod removed": measured.drained,
            "scale-up → first answer of the new Pod": measured.joined,
        }
        for step, values in times.items():
            shares = [percentile(values, share) for share in (0.5, 0.99)]
            rows.append((f"{provider}: {step}", len(values), *shares))
        rows.append(
            (
                f"{provider}: requests in scale events, and failed",
                measured.asked,
                measured.failed,
                "",
            )
        )
        last = percentile(measured.drained, 0.99)
        targets += [
            Target(f"{provider}: last answer of a Pod removed, p99", last, DRAIN, "s"),
            Target(f"{provider}: requests failed while Pods came and went", measured.failed, 0),
        ]
    title = (
        f"Seconds; a request every {INTERVAL:g} s, each on a connection of its own; a Pod serves "
        f"{DRAIN} s more when it is deleted"
    )
    table = Table(title, ("", "COUNT", "P50", "P99"), rows)
    figures = {provider: vars(measured) for provider, measured in found.items()}
    return Report("lab_services", [table], targets, figures)
