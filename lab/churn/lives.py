"""Pods that a thread creates and deletes, each with the times of its life."""

from __future__ import annotations

import abc
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from lab.kubernetes.client import Follower, Json, Kube, is_ready


@dataclass
class Life:
    """A Pod's life in times of time.monotonic(); None: not yet. `well`: it is Ready now."""

    name: str
    number: int
    created: float
    ready: float | None = None
    deleted: float | None = None
    gone: float | None = None
    well: bool = False


class Lives(abc.ABC):
    """A thread's Pods in a namespace, followed by a watch.

    :param patience: seconds that the thread gets to end.
    """

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        nodes: Sequence[str],
        image: str,
        *,
        thread: str,
        patience: float,
    ) -> None:
        self._kube, self._nodes, self._image = kube, nodes, image
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._patience = patience
        self._changed = threading.Lock()
        self._lives: dict[str, Life] = {}
        self._closed = threading.Event()
        self._follower = Follower(kube, self._path, self._heard)
        self._thread = threading.Thread(target=self._run, name=thread, daemon=True)

    def __enter__(self) -> Self:
        self._follower.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._follower.__exit__()

    def _end(self) -> None:
        self._closed.set()
        self._thread.join(self._patience)

    @property
    def lives(self) -> list[Life]:
        """Every Pod so far."""
        with self._changed:
            return list(self._lives.values())

    @abc.abstractmethod
    def _run(self) -> None:
        """Create and delete Pods in the thread, until `_closed` is set."""

    def _heard(self, name: str, item: Json | None, now: float) -> None:
        with self._changed:
            life = self._lives.get(name)
            if life is None:
                return
            if item is None:
                life.gone = life.gone or now
            else:
                life.well = is_ready(item)
                life.ready = life.ready or (now if life.well else None)
