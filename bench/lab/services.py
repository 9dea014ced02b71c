"""Services on the lab: until one is answered, and until a Pod that goes is asked no more.

A Pod on one node asks all the time; the Pods that answer are a Deployment's, which keep serving
for a while when they are deleted, as Pods behind a load balancer should.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bench.lab.requests import EVERY, GIVEN_UP, Requests
from bench.options import add_values
from bench.report import Report, Table, Target, percentile
from lab import facts
from lab.kubernetes import dns
from lab.kubernetes.client import Json, Kube, is_ready
from lab.kuryr.installation import Installation, kubectl
from lab.kuryr.services import PROVIDERS
from lab.process import wait_until
from lab.progress import Progress

NAMESPACE, ASKER, APP = "kuryr-bench-services", "asker", "web"
IMAGE = "lab.local/busybox:1"
SERVE = "mkdir -p /www && hostname > /www/index.html && exec httpd -f -p 8080 -h /www"
DRAIN = 8  # seconds for which a Pod keeps serving after its deletion
QUIET = 2.5  # seconds without an answer of a Pod: there was its last one
PATIENCE = 120.0
REPLICAS = 3
PROXY_NAME = "service.kubernetes.io/service-proxy-name"
SERVICES = f"/api/v1/namespaces/{NAMESPACE}/services"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{APP}"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    parser.add_argument("--runs", type=int, default=20, help="of each step (20)")
    add_values(parser, "--provider", str, tuple(PROVIDERS), "providers of the load balancers")


@dataclass
class Found:
    """Seconds of each run: from the Service's POST to its first answer; from the scale-down to
    the last answer of the Pod removed; from the scale-up to the first one of the new Pod; and
    how many requests failed in all scale events."""

    answered: list[float] = field(default_factory=list)
    drained: list[float] = field(default_factory=list)
    joined: list[float] = field(default_factory=list)
    failed: int = 0
    asked: int = 0


def measure(options: argparse.Namespace) -> Report:
    """One provider after the other; afterwards the controller makes no load balancers."""
    quiet = Progress(quiet=True)
    lab = facts.load()
    kube = Kube(lab)
    found = {}
    for provider in options.provider:
        Installation(progress=quiet, with_services=True, provider=provider).up()
        found[provider] = Found()
        with _own_services(lab, kube), _scene(lab, kube):
            for number in range(options.runs):
                found[provider].answered.append(_until_answered(lab, kube, number))
            _scale_events(lab, kube, options.runs, found[provider])
    Installation(progress=quiet).up()
    return _report(found)


def _until_answered(lab: facts.Lab, kube: Kube, number: int) -> float:
    """A new Service, with an address that nobody had before; it goes again."""
    name, address = f"web-{number}", f"10.96.200.{number + 1}"
    with Requests(lab, NAMESPACE, ASKER, f"http://{address}/") as requests:
        _await(lambda: requests.heard, "the Pod asks")
        begun = time.monotonic()
        kube.call("POST", SERVICES, _service(name, address))
        _await(lambda: requests.first(since=begun), f"{name} is answered")
        at = requests.first(since=begun)
    kube.call("DELETE", f"{SERVICES}/{name}")
    _await(lambda: not _names(kube, SERVICES), f"{name} is gone")
    assert at is not None
    return at - begun


def _scale_events(lab: facts.Lab, kube: Kube, runs: int, found: Found) -> None:
    address = "10.96.200.254"
    kube.call("POST", SERVICES, _service(APP, address))
    with Requests(lab, NAMESPACE, ASKER, f"http://{address}/") as requests:
        _await(lambda: _answering(requests, _ready(kube)), "all Pods answer")
        time.sleep(2 * GIVEN_UP)  # what was asked before there was a load balancer is over
        began = time.monotonic()
        for _ in range(runs):
            found.drained.append(_until_drained(lab, kube, requests))
            found.joined.append(_until_joined(lab, kube, requests))
        found.failed = requests.failed(began)
        found.asked = sum(at >= began for at, _ in requests.heard)


def _until_drained(lab: facts.Lab, kube: Kube, requests: Requests) -> float:
    before, asked = _ready(kube), time.monotonic()
    _scale(lab, REPLICAS - 1)
    _await(lambda: len(_ready(kube)) < REPLICAS, "a Pod goes")
    (gone,) = before - _ready(kube)
    _await(lambda: _is_quiet(requests, gone, asked), f"{gone} is asked no more")
    return (requests.last(gone) or asked) - asked


def _until_joined(lab: facts.Lab, kube: Kube, requests: Requests) -> float:
    before, asked = _ready(kube), time.monotonic()
    _scale(lab, REPLICAS)
    _await(lambda: len(_ready(kube)) == REPLICAS, "a Pod comes")
    (new,) = _ready(kube) - before
    _await(lambda: requests.first(new), f"{new} answers")
    return (requests.first(new) or asked) - asked


def _is_quiet(requests: Requests, pod: str, asked: float) -> bool:
    return time.monotonic() - max(requests.last(pod) or asked, asked) > QUIET


def _answering(requests: Requests, pods: set[str]) -> bool:
    return len(pods) == REPLICAS and all(requests.first(pod) for pod in pods)


def _scale(lab: facts.Lab, replicas: int) -> None:
    kubectl(lab, "-n", NAMESPACE, "scale", "deployment", APP, f"--replicas={replicas}")


def _ready(kube: Kube) -> set[str]:
    """Names of the Pods that are Ready, and not going."""
    return {
        pod["metadata"]["name"]
        for pod in kube.items(PODS, labelSelector=f"app={APP}")
        if is_ready(pod) and "deletionTimestamp" not in pod["metadata"]
    }


def _names(kube: Kube, path: str) -> list[str]:
    return [item["metadata"]["name"] for item in kube.items(path)]


def _await(condition_holds: Callable[[], object], what: str) -> None:
    if not wait_until(lambda: bool(condition_holds()), PATIENCE, pause=0.02):
        raise TimeoutError(f"after {PATIENCE:.0f} s still not: {what}")


@contextlib.contextmanager
def _own_services(lab: facts.Lab, kube: Kube) -> Iterator[None]:
    """No Service but ours is left with a load balancer at the end."""
    label = ("label", "service", "kubernetes", "--overwrite")
    try:
        yield
    finally:
        dns.down(lab)
        kubectl(lab, *label, f"{PROXY_NAME}=nobody")
        kubernetes = "/api/v1/namespaces/default/services/kubernetes"
        _await(
            lambda: not kube.call("GET", kubernetes)["metadata"].get("finalizers"),
            "the API server's Service has no load balancer",
        )
        kubectl(lab, *label[:-1], f"{PROXY_NAME}-")


@contextlib.contextmanager
def _scene(lab: facts.Lab, kube: Kube) -> Iterator[None]:
    """The namespace with its Pods."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    kube.call("POST", "/api/v1/namespaces", namespace)
    try:
        kube.call("POST", PODS, _asker(next(iter(lab.nodes))))
        kube.call("POST", DEPLOYMENT.rpartition("/")[0], _deployment())
        kubectl(lab, "-n", NAMESPACE, "wait", "--for=condition=Ready", f"pod/{ASKER}")
        _await(lambda: len(_ready(kube)) == REPLICAS, "the Pods are Ready")
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


def _asker(node: str) -> Json:
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sleep", "86400"],
    }
    spec = {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": ASKER}, "spec": spec}


def _deployment() -> Json:
    labels = {"app": APP}
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", SERVE],
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(DRAIN)]}}},
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
    }
    spec = {"terminationGracePeriodSeconds": DRAIN + 2, "containers": [container]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": APP},
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def _report(found: dict[str, Found]) -> Report:
    rows, targets = [], []
    for provider, one in found.items():
        times = {
            "Service's POST → first answer": one.answered,
            "scale-down → last answer of the Pod removed": one.drained,
            "scale-up → first answer of the new Pod": one.joined,
        }
        for what, values in times.items():
            shares = [percentile(values, share) for share in (0.5, 0.99)]
            rows.append((f"{provider}: {what}", len(values), *shares))
        rows.append(
            (f"{provider}: requests in scale events, and failed", one.asked, one.failed, "")
        )
        last = percentile(one.drained, 0.99)
        targets += [
            Target(f"{provider}: last answer of a Pod removed, p99", last, DRAIN, "s"),
            Target(f"{provider}: requests failed while Pods came and went", one.failed, 0),
        ]
    title = (
        f"Seconds; a request every {EVERY:g} s, each a connection of its own; a Pod serves "
        f"{DRAIN} s more when it is deleted"
    )
    table = Table(title, ("", "COUNT", "P50", "P99"), rows)
    figures = {provider: vars(one) for provider, one in found.items()}
    return Report("lab_services", [table], targets, figures)
