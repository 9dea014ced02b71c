"""A Deployment that comes and goes on the lab, and when what was seen of each of its Pods."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from lab.churn.pods import pod
from lab.kubernetes.client import Follower, Json, Kube, condition, is_ready
from lab.process import wait_until

NAMESPACE = "default"
PATIENCE = 180.0


@dataclass
class Seen:
    """When watch events told something of a Pod first, on the program's clock."""

    name: str
    times: dict[str, float] = field(default_factory=dict)

    def first(self, what: str, now: float) -> None:
        self.times.setdefault(what, now)

    @property
    def ready(self) -> float:
        """Seconds from its creation, as seen, to Ready."""
        return self.times["ready"] - self.times["created"]

    @property
    def gone(self) -> float:
        """Seconds from the Deployment's deletion."""
        return self.times["gone"] - self.times["asked to go"]

    @property
    def phases(self) -> dict[str, float]:
        """Its way to Ready, cut where another one has the next move.

        ADD ends with the KuryrPort's `active`; where there is none, with the Pod's condition
        PodReadyToStartContainers, which often comes together with Ready.
        """
        marks = ["created", "scheduled", "vifs", "sandbox", "ready"]
        found = [(mark, self.times[mark]) for mark in marks if mark in self.times]
        names = {"scheduled": "schedule", "vifs": "VIF", "sandbox": "ADD", "ready": "ready"}
        return {
            names[mark]: max(0.0, at - before)
            for (_, before), (mark, at) in itertools.pairwise(found)
        }


@dataclass(frozen=True)
class Round:
    """One Deployment: its Pods, and the seconds until all were Ready, and gone."""

    pods: list[Seen]
    all_ready: float
    all_gone: float


class _Watched:
    def __init__(self, prefix: str) -> None:
        self.pods: dict[str, Seen] = {}
        self._prefix = prefix
        self._lock = threading.Lock()

    def _seen(self, name: str) -> Seen | None:
        if not name.startswith(f"{self._prefix}-"):
            return None
        return self.pods.setdefault(name, Seen(name))

    def pod(self, name: str, item: Json | None, now: float) -> None:
        with self._lock:
            if (seen := self._seen(name)) is None:
                return
            if item is None:
                seen.first("gone", now)
                return
            seen.first("created", now)
            if condition(item, "PodScheduled"):
                seen.first("scheduled", now)
            if condition(item, "PodReadyToStartContainers"):
                seen.first("sandbox", now)
            if is_ready(item):
                seen.first("ready", now)

    def kuryrport(self, name: str, item: Json | None, now: float) -> None:
        with self._lock:
            vifs = ((item or {}).get("status", {}).get("vifs") or {}).values()
            if not vifs or (seen := self._seen(name)) is None:
                return
            seen.first("vifs", now)
            if all(entry["vif"]["versioned_object.data"]["active"] for entry in vifs):
                seen.first("sandbox", now)

    def count(self, mark: str) -> int:
        with self._lock:
            return sum(1 for seen in self.pods.values() if mark in seen.times)


def deploy(kube: Kube, name: str, count: int, *, with_vifs: bool = False) -> Round:
    """Create the Deployment, wait until all is Ready, delete it, wait until all is gone.

    :raises TimeoutError: not all of it within PATIENCE.
    """
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
    watched = _Watched(name)
    pods = Follower(kube, f"/api/v1/namespaces/{NAMESPACE}/pods", watched.pod)
    records = f"/apis/openstack.org/v1/namespaces/{NAMESPACE}/kuryrports"
    with pods, Follower(kube, records, watched.kuryrport):
        begin = time.monotonic()
        kube.call("POST", path, deployment(name, count))
        try:
            _await(lambda: watched.count("ready") == count, f"{count} Pods of {name} are Ready")
            last = max(seen.times["ready"] for seen in watched.pods.values())
            if with_vifs and watched.count("vifs") != count:
                raise TimeoutError(f"Pods of {name} are Ready without interfaces of ours")
        finally:
            asked = time.monotonic()
            kube.call("DELETE", f"{path}/{name}", {"propagationPolicy": "Background"})
        for seen in watched.pods.values():
            seen.first("asked to go", asked)
        _await(lambda: watched.count("gone") == len(watched.pods), f"Pods of {name} are gone")
        end = max(seen.times["gone"] for seen in watched.pods.values())
    wait_until(lambda: not _left(kube, records, name), PATIENCE, pause=0.2)
    return Round(list(watched.pods.values()), last - begin, end - asked)


def _left(kube: Kube, path: str, name: str) -> bool:
    return any(item["metadata"]["name"].startswith(f"{name}-") for item in kube.items(path))


def _await(condition_holds: Callable[[], bool], what: str) -> None:
    if not wait_until(condition_holds, PATIENCE):
        raise TimeoutError(f"after {PATIENCE:.0f} s still not: {what}")


def deployment(name: str, count: int) -> Json:
    """Pods that do nothing, spread over the nodes by the scheduler."""
    labels = {"app": name}
    template = pod(name, "", "lab.local/busybox:1")
    spec = template["spec"]
    del spec["nodeName"]
    spec["topologySpreadConstraints"] = [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": labels},
        }
    ]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": count,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
