"""The demonstration's Services, a ClusterIP and a LoadBalancer, and an Ingress with TLS.

All are asked without a pause, from a Pod and from the machine through floating IPs, while the
Deployment behind them grows and shrinks.
"""

from __future__ import annotations

import functools
import json
import shlex
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lab import facts
from lab.demo import certificate
from lab.install.images import CURL
from lab.kubernetes.client import kubectl
from lab.kuryr import router
from lab.process import CommandError, run, wait_until
from lab.progress import Progress

NAME = "kuryr-demo"
PUBLIC, CLIENT = f"{NAME}-public", f"{NAME}-client"
HOST = "shop.demo"  # of the Ingress
FEW, MANY = 2, 6
PATIENCE = 240  # seconds
Json = dict[str, Any]
# One line an answer: what the Pod says of itself, the HTTP status, seconds.
_ASK = "curl -s {0} --max-time 15 -w ' %{{http_code}} %{{time_total}}\\n' | tr '\\n' ' '; echo"
_LOOP = "while {0}; do sleep 0.1; done"  # it ends when nobody reads it any more
_REDIRECT = f"308 https://{HOST}/"


@dataclass
class Answers:
    """The answers that a client has got until now. ``by``: their number from each Pod."""

    by: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    slowest: float = 0.0

    def note(self, line: str) -> None:
        """Count one answer.

        :param line: ``<name of the Pod> <HTTP status> <seconds>``.
        """
        name, _, rest = line.strip().partition(" ")
        status, _, seconds = rest.strip().partition(" ")
        if status != "200":
            self.failed.append(line.strip())
            return
        self.by[name] += 1
        self.slowest = max(self.slowest, float(seconds))


class Client:
    """Asks a URL again and again until it is stopped.

    :param command: prints a line for each answer, until it is killed.
    """

    def __init__(self, command: list[str]) -> None:
        self.answers = Answers()
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            if line.strip():
                self.answers.note(line)

    def stop(self) -> Answers:
        self._process.terminate()
        self._process.wait()
        self._reader.join()
        return self.answers


def objects(lab: facts.Lab) -> list[Json]:
    """Describe the two Services, the Ingress, and the Pod that asks one of the Services."""
    ports = [{"name": "http", "port": 80, "targetPort": 8080}]
    families = {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv4", "IPv6"]}
    spec = {"selector": {"app": NAME}, "ports": ports}
    sleep = {"name": "curl", "image": CURL, "command": ["sleep", "infinity"]}
    client = {
        "terminationGracePeriodSeconds": 0,
        "containers": [sleep | {"imagePullPolicy": "Never"}],
    }
    backend = {"service": {"name": NAME, "port": {"name": "http"}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    routes = {
        "ingressClassName": router.CLASS,
        "rules": [{"host": HOST, "http": {"paths": [path]}}],
        "tls": [{"hosts": [HOST], "secretName": NAME}],
    }
    return [
        certificate.secret(lab, NAME, HOST),
        _object("Ingress", NAME, routes) | {"apiVersion": "networking.k8s.io/v1"},
        _object("Service", NAME, spec | families),
        _object("Service", PUBLIC, spec | {"type": "LoadBalancer"}),
        _object("Pod", CLIENT, client),
    ]


def _object(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


@dataclass(frozen=True)
class Public:
    """The addresses outside: of the LoadBalancer Service, and of the L7 router."""

    service: str
    router: str


def create(lab: facts.Lab, progress: Progress) -> Public:
    """Create the Services, the Ingress and the client's Pod, and wait until all of them answer."""
    items = {"apiVersion": "v1", "kind": "List", "items": objects(lab)}
    kubectl(lab, "create", "--filename=-", stdin=json.dumps(items))
    address = "{.status.loadBalancer.ingress[0].ip}"
    wait = ("wait", f"--for=jsonpath={address}", f"service/{PUBLIC}", f"--timeout={PATIENCE}s")
    kubectl(lab, *wait)
    found = kubectl(lab, "get", "service", PUBLIC, "-o", f"jsonpath={address}")
    public = Public(found, router.up(lab, PATIENCE))
    kubectl(lab, "wait", "--for=condition=Ready", f"pod/{CLIENT}", f"--timeout={PATIENCE}s")
    for command in _commands(lab, public, "{0}").values():
        answered = functools.partial(_is_answered, command)
        _until(f"{command[-1]} is answered", answered)
    _until(f"http://{HOST} leads to TLS", lambda: _plain(public) == _REDIRECT)
    progress.note(f"Service {NAME} answers by its name, Service {PUBLIC} at {public.service}")
    progress.note(f"Ingress {NAME} answers as https://{HOST} at {public.router}")
    return public


def _commands(lab: facts.Lab, public: Public, script: str) -> dict[str, list[str]]:
    """Return the command by which each client asks.

    :param script: has a place for what asks once.
    """
    by_address = f"http://{public.service}"
    return {
        f"a Pod, http://{NAME}": _from_pod(lab, script.format(_ASK.format(f"http://{NAME}/"))),
        f"this machine, {by_address}": _from_here(script.format(_ASK.format(f"{by_address}/"))),
        f"this machine, https://{HOST}": _from_here(
            script.format(_ASK.format(shlex.join(_securely(lab, public))))
        ),
    }


def _securely(lab: facts.Lab, public: Public) -> list[str]:
    """Return curl's arguments that ask the Ingress over TLS, and verify its certificate."""
    resolve = ["--resolve", f"{HOST}:443:{public.router}"]
    return ["--cacert", str(certificate.authority(lab)), *resolve, f"https://{HOST}/"]


def _plainly(public: Public) -> list[str]:
    """Return curl's arguments that ask the Ingress in plain HTTP."""
    return ["--resolve", f"{HOST}:80:{public.router}", f"http://{HOST}/"]


def _plain(public: Public) -> str:
    """Return what is answered in plain HTTP: the status, and where it leads."""
    shown = ["-s", "-o", "/dev/null", "-w", "%{http_code} %{redirect_url}", "--max-time", "15"]
    return run(["curl", *shown, *_plainly(public)], check=False)


def remove(lab: facts.Lab) -> None:
    """Delete the Services, and with them their load balancers and the floating IP; return then."""
    kinds = (
        ("ingress", (NAME,)),
        ("secret", (NAME,)),
        ("service", (NAME, PUBLIC)),
        ("pod", (CLIENT,)),
    )
    for kind, names in kinds:
        kubectl(lab, "delete", kind, *names, "--ignore-not-found", f"--timeout={PATIENCE}s")


def grow_and_shrink(lab: facts.Lab, public: Public, progress: Progress) -> dict[str, Answers]:
    """Scale the Deployment from 2 Pods to 6 and back, with all clients at work.

    The Deployment has grown for them when all 6 Pods have answered, and has shrunk when the Pods
    that go are gone.

    :returns: the answers of each client.
    """
    _scale(lab, FEW)
    clients = {who: Client(command) for who, command in _commands(lab, public, _LOOP).items()}
    try:
        for count in (MANY, FEW):
            _scale(lab, count)
            before = {who: Counter(client.answers.by) for who, client in clients.items()}
            answer = functools.partial(_answering, clients, before, count)
            _until(f"{count} Pods answer", answer)
            progress.note(f"{count} Pods answer")
    finally:
        answers = {who: client.stop() for who, client in clients.items()}
    return answers


def show(lab: facts.Lab, public: Public, answers: dict[str, Answers]) -> int:
    """Print the load balancers, the answers of each client, and one over TLS.

    :returns: how many requests failed.
    """
    print("\nServices and an Ingress (kubectl get), and their load balancers in Octavia")
    print(kubectl(lab, "get", "services", NAME, PUBLIC, "-o", "wide").rstrip())
    print(kubectl(lab, "get", "ingress", NAME).rstrip())
    env = {"OS_CLIENT_CONFIG_FILE": lab.cloud.clouds_yaml, "OS_CLOUD": "kuryr"}
    columns = [
        part
        for column in ("name", "vip_address", "provider", "provisioning_status")
        for part in ("-c", column)
    ]
    listed = run(
        [f"{lab.openstack_venv}/bin/openstack", "loadbalancer", "list", *columns], env=env
    )
    print(listed.rstrip())
    print(f"\nRequests while the Deployment went from {FEW} Pods to {MANY} and back")
    print(f"  {'FROM':<40}{'ANSWERED':>10}{'BY PODS':>9}{'SLOWEST':>10}{'FAILED':>8}")
    for who, got in answers.items():
        slowest = f"{got.slowest * 1000:.0f} ms"
        print(f"  {who:<40}{got.by.total():>10}{len(got.by):>9}{slowest:>10}{len(got.failed):>8}")
        for line in got.failed[:5]:
            print(f"    failed: {line}")
    return sum(len(got.failed) for got in answers.values()) + _show_tls(lab, public)


def _show_tls(lab: facts.Lab, public: Public) -> int:
    """Ask the Ingress over TLS and in plain HTTP, and print the commands and the answers.

    :returns: how many requests failed.
    """
    print(f"\nTLS: the certificate of Secret {NAME}, by way of Barbican and Octavia")
    securely, failed = _securely(lab, public), 0
    print(f"  curl {shlex.join(securely)}")
    verified = "%{http_code}, certificate verified (%{ssl_verify_result})"
    try:
        printed = run(["curl", "-sS", "--max-time", "15", "-w", verified, *securely])
    except CommandError as error:
        failed += 1
        printed = f"FAILED: {str(error).splitlines()[-1]}"
    print(f"    {' '.join(printed.split())}")
    plain = _plain(public)
    failed += plain != _REDIRECT
    print(f"  curl {shlex.join(_plainly(public))}\n    {plain}")
    return failed


def _scale(lab: facts.Lab, count: int) -> None:
    """Scale the Deployment, and return when so many Pods are Ready and no others are left."""
    kubectl(lab, "scale", f"deployment/{NAME}", f"--replicas={count}")
    kubectl(lab, "rollout", "status", f"deployment/{NAME}", f"--timeout={PATIENCE}s")
    pods = ("get", "pods", "-l", f"app={NAME}", "-o", "name")
    _until(f"there are {count} Pods", lambda: len(kubectl(lab, *pods).split()) == count)


def _is_answered(command: list[str]) -> bool:
    return " 200 " in run(command, check=False)


def _answering(clients: dict[str, Client], before: dict[str, Counter[str]], count: int) -> bool:
    """Return whether every client has since had an answer from so many Pods."""
    return all(len(client.answers.by - before[who]) >= count for who, client in clients.items())


def _from_pod(lab: facts.Lab, script: str) -> list[str]:
    config = f"--kubeconfig={lab.kubernetes.admin_kubeconfig}"
    return [f"{lab.bin}/kubectl", config, "exec", CLIENT, "--", "sh", "-c", script]


def _from_here(script: str) -> list[str]:
    return ["sh", "-c", script]


def _until(what: str, holds: Callable[[], bool]) -> None:
    if not wait_until(holds, PATIENCE, pause=0.3):
        raise CommandError(f"not after {PATIENCE} s: {what}")
