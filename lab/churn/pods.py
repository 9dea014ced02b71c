"""Pods that are created and deleted without pause, each with the times of its life."""

from __future__ import annotations

import threading
import time

from lab.churn.lives import Life, Lives
from lab.kubernetes.client import Json, Kube, KubeError, Unreachable
from lab.process import wait_until

# One Pod in so many is deleted at once, in the middle of its start.
_HASTY = 4


class Churn(Lives):
    """Keeps about `count` Pods alive, spread over the nodes, and replaces one after another.

    Each request is repeated until the API server has taken it.
    """

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        nodes: tuple[str, ...],
        image: str,
        *,
        count: int = 20,
        interval: float = 0.5,
    ) -> None:
        super().__init__(kube, namespace, nodes, image, thread="churn", patience=30)
        self._count, self._interval = count, interval
        self._owed: tuple[str, Life] | None = None
        self._paused = threading.Event()
        self._idle = threading.Event()

    def pause(self) -> None:
        """Let no more Pods come or go, and return when no request is under way."""
        self._paused.set()
        self._idle.wait(60)

    def resume(self) -> None:
        self._idle.clear()
        self._paused.clear()

    def stuck(self, seconds: float) -> list[str]:
        """Wait until all Pods that are wanted are Ready, and all that were deleted are gone.

        :returns: what is not so when the time is up.
        """
        wait_until(lambda: not self._unsettled(), seconds, pause=0.1)
        return self._unsettled()

    def _unsettled(self) -> list[str]:
        def what(life: Life) -> str | None:
            if life.deleted is None:
                return None if life.well else f"Pod {life.name} is not Ready"
            return None if life.gone else f"Pod {life.name} is deleted, and not gone"

        return [said for life in self.lives if (said := what(life))]

    def _run(self) -> None:
        while not self._closed.is_set():
            if self._paused.is_set() and self._owed is None:
                self._idle.set()
            else:
                self._step()
            self._closed.wait(self._interval)

    def _step(self) -> None:
        """Create or delete one Pod, or repeat the request that the API server has not answered."""
        if self._owed is None:
            self._owed = self._choose()
        if self._owed is not None:
            try:
                self._ask(*self._owed)
            except Unreachable:
                return
            self._owed = None

    def _choose(self) -> tuple[str, Life] | None:
        lives = self.lives
        alive = [life for life in lives if life.deleted is None]
        if len(alive) < self._count:
            life = Life(f"churn-{len(lives)}", len(lives), time.monotonic())
            with self._changed:
                self._lives[life.name] = life
            return ("POST", life)
        hasty = [life for life in alive if not life.ready and not life.number % _HASTY]
        oldest = [life for life in alive if life.ready]
        return ("DELETE", (hasty or oldest)[0]) if hasty or oldest else None

    def _ask(self, method: str, life: Life) -> None:
        """Send a request; the Pod's times count from the try that succeeds."""
        now = time.monotonic()
        try:
            if method == "POST":
                node = self._nodes[life.number % len(self._nodes)]
                self._kube.call("POST", self._path, pod(life.name, node, self._image))
            else:
                self._kube.call("DELETE", f"{self._path}/{life.name}")
        except KubeError as error:
            # 409, 404: the answer to an earlier try was lost
            if error.status not in (404, 409, 429, 500, 503, 504):
                raise
            if error.status >= 429:
                raise Unreachable(str(error)) from error
        with self._changed:
            if method == "POST":
                life.created = now
            else:
                life.deleted = now


def pod(name: str, node: str, image: str) -> Json:
    """Describe a Pod on a node that ends as soon as it is asked to."""
    script = "trap 'exit 0' TERM; while :; do sleep 1000 & wait; done"
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", script],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "churn"}},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        },
    }
