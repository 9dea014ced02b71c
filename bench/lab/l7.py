"""Ingresses on the lab: until the first answer of one more host, beside those that are there.

Each host has an Ingress of its own. All lead to one Service; the last ones, which are measured,
lead to a Service each, so that their pools are made as well. As a reference, the same objects are
made in the same load balancer by Octavia's API alone, each as soon as the one before is ACTIVE.
"""

from __future__ import annotations

import argparse
import functools
import http.client
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench.lab.web import (
    APP,
    NAMESPACE,
    SERVICES,
    deployed,
    no_other_services,
    wait_for,
    with_client,
)
from bench.options import add_values
from bench.report import Report, Table, Target, percentile
from lab.kubernetes.client import Json, Kube
from lab.kuryr import router
from lab.kuryr.installation import CONTROLLER, HEALTH, Installation
from lab.openstack import cloud
from lab.openstack.rest import Api

INGRESSES = f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/ingresses"
PATIENCE = 1800.0  # seconds: Octavia makes a thousand policies one after the other
RATIO = 1.5  # of the reference


@dataclass
class Measurements:
    """The measurements beside so many hosts.

    `filled` are the seconds from the start of the controller until all of these were served, by a
    router that it had to make; `added` those from the POST of one more
    Ingress to its first answer, `calls` Octavia's calls for it that change something, and
    `reference` the seconds of the same calls alone.
    """

    filled: float
    added: list[float] = field(default_factory=list)
    calls: list[float] = field(default_factory=list)
    reference: list[float] = field(default_factory=list)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_values(parser, "--hosts", int, (10, 100), "how many hosts are there already")
    parser.add_argument("--runs", type=int, default=10, help="hosts that are added (10)")


def measure(options: argparse.Namespace) -> Report:
    """Measure beside each number of hosts; return the report."""
    found: dict[int, Measurements] = {}
    installation = Installation(with_services=True, with_router=True)
    installation.up()
    lab = installation.lab
    kube = Kube(lab)
    with no_other_services(lab, kube), with_client(lab, kube), deployed(lab, kube, 2):
        kube.call("POST", SERVICES, _service(APP))
        for count in sorted(options.hosts):
            router.down(lab, installation.admin_socket)
            with _ingresses(kube, range(count)):
                found[count] = _beside(installation, kube, count, options.runs)
    router.down(lab, installation.admin_socket)
    Installation().up()
    return _report(found)


def _beside(installation: Installation, kube: Kube, count: int, runs: int) -> Measurements:
    """Measure beside the hosts that the Ingresses name; the router is made for them anew."""
    lab = installation.lab
    begun = time.monotonic()
    installation.supervisor.stop(CONTROLLER)
    installation.supervisor.start(CONTROLLER)
    address = router.up(lab, PATIENCE)
    wait_for(lambda: _answers(address, count - 1), f"{count} hosts are served", PATIENCE)
    measured = Measurements(time.monotonic() - begun)
    octavia = Api(f"{lab.cloud.octavia_url}/v2/lbaas", cloud.admin_token())
    for number in range(count, count + runs):
        served = functools.partial(_answers, address, number)
        service = f"one-more-{number}"
        kube.call("POST", SERVICES, _service(service))
        before, begun = _calls(), time.monotonic()
        with _ingresses(kube, [number], service):
            wait_for(served, "it is served", PATIENCE)
            measured.added.append(time.monotonic() - begun)
            measured.calls.append(_calls() - before)
        _until_gone(served)
        kube.call("DELETE", f"{SERVICES}/{service}")
        _until_idle(octavia)
        measured.reference.append(_reference(octavia))
    return measured


def _until_gone(served: Callable[[], bool]) -> None:
    wait_for(lambda: not served(), "it is served no more", PATIENCE)


def _reference(octavia: Api) -> float:
    """Make a pool with a member, and a policy with a rule; return the seconds; remove them."""
    [found] = octavia.get("/loadbalancers", name=router.NAME)["loadbalancers"]
    [listener] = octavia.get("/listeners", loadbalancer_id=found["id"])["listeners"]
    begun = time.monotonic()
    pool = octavia.post(
        "/pools",
        {
            "pool": {
                "loadbalancer_id": found["id"],
                "protocol": "HTTP",
                "lb_algorithm": "ROUND_ROBIN",
                "name": "reference",
            }
        },
    )["pool"]
    _until_idle(octavia)
    members = {"members": [{"address": "10.62.0.9", "protocol_port": 8080}]}
    octavia.call("PUT", f"/pools/{pool['id']}/members", members)
    _until_idle(octavia)
    policy = octavia.post(
        "/l7policies",
        {
            "l7policy": {
                "listener_id": listener["id"],
                "action": "REDIRECT_TO_POOL",
                "redirect_pool_id": pool["id"],
            }
        },
    )["l7policy"]
    _until_idle(octavia)
    rule = {"type": "HOST_NAME", "compare_type": "EQUAL_TO", "value": "reference.demo"}
    octavia.post(f"/l7policies/{policy['id']}/rules", {"rule": rule})
    _until_idle(octavia)
    seconds = time.monotonic() - begun
    for path in (f"/l7policies/{policy['id']}", f"/pools/{pool['id']}"):
        octavia.call("DELETE", path)
        _until_idle(octavia)
    return seconds


def _until_idle(octavia: Api) -> None:
    def is_idle() -> bool:
        [found] = octavia.get("/loadbalancers", name=router.NAME)["loadbalancers"]
        return bool(found["provisioning_status"] == "ACTIVE")

    wait_for(is_idle, "nothing is PENDING", PATIENCE)


@contextmanager
def _ingresses(kube: Kube, numbers: Iterable[int], service: str = APP) -> Iterator[None]:
    """Keep an Ingress for each host, all leading to the Service."""
    made = [_ingress(number, service) for number in numbers]
    for each in made:
        kube.call("POST", INGRESSES, each)
    try:
        yield
    finally:
        for each in made:
            kube.call("DELETE", f"{INGRESSES}/{each['metadata']['name']}")


def _ingress(number: int, service: str) -> Json:
    backend = {"service": {"name": service, "port": {"number": 80}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": f"host-{number}", "namespace": NAMESPACE},
        "spec": {
            "ingressClassName": router.CLASS,
            "rules": [{"host": _host(number), "http": {"paths": [path]}}],
        },
    }


def _host(number: int) -> str:
    return f"host-{number}.bench.demo"


def _service(name: str) -> Json:
    """Return a headless Service of the Pods: only the router is measured."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "clusterIP": "None",
            "selector": {"app": APP},
            "ports": [{"port": 80, "targetPort": 8080}],
        },
    }


def _answers(address: str, number: int) -> bool:
    """Return whether the router answers for a host with 200."""
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        connection.request("GET", "/", headers={"Host": _host(number)})
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _calls() -> float:
    """Count Octavia's calls that change something, by the controller's metrics."""
    connection = http.client.HTTPConnection("127.0.0.1", HEALTH, timeout=10)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    counts = [
        float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith("kuryr_octavia_call_seconds_count") and 'method="GET"' not in line
    ]
    return sum(counts)


def _report(found: dict[int, Measurements]) -> Report:
    rows, targets = [], []
    for count, measured in found.items():
        alone = statistics.median(measured.reference)
        added = [percentile(measured.added, share) for share in (0.5, 0.99)]
        ratio = added[0] / alone
        calls = statistics.median(measured.calls)
        rows.append((count, measured.filled, *added, alone, ratio, calls))
        targets.append(Target(f"{count} hosts: one more, p50, of Octavia alone", ratio, RATIO))
        targets.append(Target(f"{count} hosts: Octavia's calls for one more", calls, 4))
    title = (
        "Seconds from the POST of an Ingress for one more host, with a Service of its own, to its "
        "first answer; and of the same calls of Octavia alone"
    )
    columns = ("HOSTS", "ALL SERVED", "p50", "p99", "OCTAVIA ALONE", "RATIO", "CALLS")
    figures = {str(count): vars(measured) for count, measured in found.items()}
    return Report("lab_l7", [Table(title, columns, rows)], targets, figures)
