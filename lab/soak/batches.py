"""Pods in batches that are created and deleted by chance, without end."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from lab.churn.lives import Life, Lives
from lab.churn.pods import pod
from lab.kubernetes.client import Json, Kube, KubeError, Unreachable
from lab.process import wait_until

IN_TIME = 60.0  # seconds in which a Pod must be Ready, and in which a deleted one must be gone
_MOST = 40  # Pods alive
_PAUSES = 1.0, 5.0  # seconds between two batches
_UNDER_WAY = 2  # batches that are not Ready or not gone: with more, no other begins
# What an API server says that is asked too much, or that has not taken the request.
_LATER = frozenset({429, 500, 503, 504})


class Batches(Lives):
    """Creates Pods and deletes them, `size` at a time."""

    def __init__(
        self, kube: Kube, namespace: str, nodes: Sequence[str], image: str, seed: int, size: int
    ) -> None:
        super().__init__(kube, namespace, nodes, image, thread="batches", patience=60)
        self._random, self._size = random.Random(f"pods {seed}"), size
        self._refused: KubeError | None = None

    def stop(self) -> None:
        """Let no more Pods come or go.

        :raises KubeError: a request was refused, and has ended the thread already.
        """
        self._end()
        if self._refused is not None:
            raise self._refused

    def delete_all(self) -> None:
        """Delete all Pods that are left after the end."""
        for life in self._alive():
            self._delete(life)

    def settle(self) -> bool:
        """Wait until every Pod is Ready, or gone if it was deleted.

        :returns: whether that came in time.
        """
        return wait_until(lambda: all(map(_settled, self.lives)), IN_TIME)

    def _run(self) -> None:
        try:
            while not self._closed.is_set():
                self._step()
                self._closed.wait(self._random.uniform(*_PAUSES))
        except KubeError as error:
            self._refused = error

    def _step(self) -> None:
        if sum(not _settled(life) for life in self.lives) > _UNDER_WAY * self._size:
            return
        alive = self._alive()
        if len(alive) >= self._size and self._random.random() < len(alive) / _MOST:
            for life in self._random.sample(alive, self._size):
                self._delete(life)
        else:
            for _ in range(self._size):
                self._create()

    def _alive(self) -> list[Life]:
        return [life for life in self.lives if life.deleted is None]

    def _create(self) -> None:
        number = len(self.lives)
        life = Life(f"soak-{number}", number, time.monotonic())
        with self._changed:
            self._lives[life.name] = life
        body = pod(life.name, self._nodes[number % len(self._nodes)], self._image)
        self._insist("POST", self._path, body)
        life.created = time.monotonic()

    def _delete(self, life: Life) -> None:
        life.deleted = time.monotonic()
        self._insist("DELETE", f"{self._path}/{life.name}", None)

    def _insist(self, method: str, path: str, body: Json | None) -> None:
        """Repeat a request until the API server has taken it; 409 and 404: an answer was lost."""
        while True:
            try:
                self._kube.call(method, path, body)
            except Unreachable:
                time.sleep(0.2)
            except KubeError as error:
                if error.status in (404, 409):
                    return
                if error.status not in _LATER:
                    raise
                time.sleep(0.2)
            else:
                return


def _settled(life: Life) -> bool:
    return (life.gone if life.deleted else life.ready) is not None


def failures(lives: Sequence[Life], now: float) -> list[str]:
    """List the Pods that were not Ready or not gone in time.

    A Pod that was deleted before may end without being Ready.

    :param now: what has not come until then, never came.
    """
    found = []
    for life in lives:
        waited = min(life.ready or now, life.deleted or now) - life.created
        if waited > IN_TIME:
            found.append(f"Pod {life.name} was not Ready after {waited:.0f} s")
        if life.deleted is not None and (went := (life.gone or now) - life.deleted) > IN_TIME:
            found.append(f"Pod {life.name} was not gone after {went:.0f} s")
    return found
