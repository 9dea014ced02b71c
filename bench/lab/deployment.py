"""A Deployment that is created and deleted on the lab, and the times of each of its Pods."""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import dataclass, field

from bench.lab.objects import IMAGE, deployment
from bench.waiting import wait_for
from lab.churn.pods import pod
from lab.kubernetes.client import Follower, Json, Kube, condition, is_ready
from lab.process import wait_until

NAMESPACE = "default"
PATIENCE = 180.0


@dataclass
class PodTimes:
    """The times of time.monotonic() when watch events first showed each state of a Pod."""

    name: str
    times: dict[str, float] = field(default_factory=dict)

    def note(self, state: str, now: float) -> None:
        """Note when a state was seen, unless it was seen before."""
        self.times.setdefault(state, now)

    @property
    def ready(self) -> float:
        """Seconds from the Pod's creation, as seen, to Ready."""
        return self.times["ready"] - self.times["created"]

    @property
    def gone(self) -> float:
        """Seconds from the Deployment's deletion until the Pod was gone."""
        return self.times["gone"] - self.times["deleted"]

    @property
    def phases(self) -> dict[str, float]:
        """Seconds of each phase until Ready, by the part of the system that works in it.

        ADD ends with `active` in the KuryrPort; if there is none, with the Pod's condition
        PodReadyToStartContainers, which often comes together with Ready.
        """
        states = ["created", "scheduled", "vifs", "sandbox", "ready"]
        seen = [(state, self.times[state]) for state in states if state in self.times]
        phases = {"scheduled": "schedule", "vifs": "VIF", "sandbox": "ADD", "ready": "ready"}
        return {
            phases[state]: max(0.0, end - begin)
            for (_, begin), (state, end) in itertools.pairwise(seen)
        }


@dataclass(frozen=True)
class Round:
    """The times of one Deployment: of its Pods, and the seconds until all were Ready, and gone."""

    pods: list[PodTimes]
    all_ready: float
    all_gone: float


class _Watched:
    """The times of all Pods whose names have a prefix, from two watches."""

    def __init__(self, prefix: str) -> None:
        self.pods: dict[str, PodTimes] = {}
        self._prefix = prefix
        self._lock = threading.Lock()

    def take_pod(self, name: str, item: Json | None, now: float) -> None:
        """Note the states that a Pod shows; `item` is None if it is gone."""
        with self._lock:
            if (times := self._times_of(name)) is None:
                return
            if item is None:
                times.note("gone", now)
                return
            times.note("created", now)
            if condition(item, "PodScheduled"):
                times.note("scheduled", now)
            if condition(item, "PodReadyToStartContainers"):
                times.note("sandbox", now)
            if is_ready(item):
                times.note("ready", now)

    def take_kuryrport(self, name: str, item: Json | None, now: float) -> None:
        """Note the states that a Pod's KuryrPort shows; `item` is None if it is gone."""
        with self._lock:
            vifs = ((item or {}).get("status", {}).get("vifs") or {}).values()
            if not vifs or (times := self._times_of(name)) is None:
                return
            times.note("vifs", now)
            if all(entry["vif"]["versioned_object.data"]["active"] for entry in vifs):
                times.note("sandbox", now)

    def count(self, state: str) -> int:
        """Count the Pods that were seen in a state."""
        with self._lock:
            return sum(state in times.times for times in self.pods.values())

    def _times_of(self, name: str) -> PodTimes | None:
        if not name.startswith(f"{self._prefix}-"):
            return None
        return self.pods.setdefault(name, PodTimes(name))


def deploy(kube: Kube, name: str, count: int, *, with_vifs: bool = False) -> Round:
    """Create a Deployment, wait until all Pods are Ready, delete it, wait until all are gone.

    :param with_vifs: check that each Pod has a KuryrPort with VIFs.
    :raises TimeoutError: a step took longer than PATIENCE.
    """
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
    watched = _Watched(name)
    pods = Follower(kube, f"/api/v1/namespaces/{NAMESPACE}/pods", watched.take_pod)
    kuryrports = f"/apis/openstack.org/v1/namespaces/{NAMESPACE}/kuryrports"
    with pods, Follower(kube, kuryrports, watched.take_kuryrport):
        begin = time.monotonic()
        kube.call("POST", path, _spread_deployment(name, count))
        try:
            all_ready = f"{count} Pods of {name} are Ready"
            wait_for(lambda: watched.count("ready") == count, all_ready, PATIENCE)
            last = max(times.times["ready"] for times in watched.pods.values())
            if with_vifs and watched.count("vifs") != count:
                raise TimeoutError(f"Pods of {name} are Ready without VIFs in their KuryrPorts")
        finally:
            deleted = time.monotonic()
            kube.call("DELETE", f"{path}/{name}", {"propagationPolicy": "Background"})
        for times in watched.pods.values():
            times.note("deleted", deleted)
        all_gone = f"Pods of {name} are gone"
        wait_for(lambda: watched.count("gone") == len(watched.pods), all_gone, PATIENCE)
        end = max(times.times["gone"] for times in watched.pods.values())
    wait_until(lambda: not _left(kube, kuryrports, name), PATIENCE, pause=0.2)
    return Round(list(watched.pods.values()), last - begin, end - deleted)


def _left(kube: Kube, path: str, name: str) -> bool:
    return any(item["metadata"]["name"].startswith(f"{name}-") for item in kube.items(path))


def _spread_deployment(name: str, count: int) -> Json:
    """Return a Deployment of Pods that do nothing, spread over the nodes by the scheduler."""
    labels = {"app": name}
    spec = pod(name, "", IMAGE)["spec"]
    del spec["nodeName"]
    spec["topologySpreadConstraints"] = [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": labels},
        }
    ]
    return deployment(name, count, labels, spec)
