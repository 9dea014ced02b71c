"""One fault after another while Pods come and go; a row of figures for each."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from lab import facts
from lab.churn.faults import Fault
from lab.churn.leftovers import NETNS, Inspection
from lab.churn.lives import Life
from lab.churn.pings import Pinger
from lab.churn.pods import Churn, pod
from lab.kubernetes.client import Json, Kube, KubeError, Unreachable, is_ready
from lab.lifecycle.lab import Lab
from lab.openstack.rest import ApiError
from lab.process import CommandError, wait_until

PATIENCE = 240.0  # seconds for all to be as it should be
_TROUBLES = (KubeError, Unreachable, ApiError, CommandError, OSError)


@dataclass
class Row:
    """The outcome of one fault. Times are in seconds; pings are by address family.

    `quiet`: no Pods came or went. While they do, some pings are lost without any fault.
    """

    fault: Fault
    down: float
    quiet: bool
    created: int = 0
    deleted: int = 0
    slowest_ready: float = 0.0
    slowest_gone: float = 0.0
    lost: dict[str, int | None] = field(default_factory=dict)
    settled: float | None = None
    leftovers: list[str] = field(default_factory=list)

    def complaints(self) -> list[str]:
        """List what must not be: leftovers, connections not back, a ping lost without need."""
        name = f"{self.fault.what} ({self.fault.how})"
        found = [f"{name}: {said}" for said in self.leftovers]
        for family, lost in self.lost.items():
            if lost is None:
                found.append(f"{name}: {family} between two Pods did not come back")
            elif lost and self.fault.harmless and self.quiet:
                found.append(f"{name}: {lost} {family} pings between two Pods were lost")
        return found


class Campaign:
    """A series of faults while Pods come and go.

    :param count: of Pods that live at a time, besides the two that stay all along.
    :param interval: seconds between two changes.
    :param calm: seconds that the churn goes on after what was struck runs again.
    """

    def __init__(
        self,
        lab: Lab,
        namespace: str,
        *,
        count: int = 20,
        interval: float = 0.3,
        calm: float = 2.0,
    ) -> None:
        self._calm = calm
        self._facts = facts.load(lab.paths.facts)
        self._kube = Kube(self._facts)
        self._inspection = Inspection(self._facts, self._kube)
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._namespace = namespace
        self._nodes = ("node1", "node2")
        image = next(image for image in self._facts.images if "busybox" in image)
        self._image = image
        self._churn = Churn(
            self._kube, namespace, self._nodes, image, count=count, interval=interval
        )
        self._count = count

    def run(self, groups: Iterable[Sequence[Fault]], told: Callable[[Row], None]) -> list[Row]:
        """Let the faults of each group strike one after another, then wait until all has settled.

        :param told: takes the row of each fault as soon as its group has settled.
        """
        rows: list[Row] = []
        with self._steady() as pingers, self._churn:
            wait_until(lambda: len(self._churn.lives) >= self._count, PATIENCE)
            for group in groups:
                begun = [self._strike(fault, pingers) for fault in group]
                self._churn.pause()
                began = time.monotonic()
                left = self._settle()
                for row, begin, end in begun:
                    _count(row, self._churn.lives, begin, end)
                last = begun[-1][0]
                last.settled, last.leftovers = time.monotonic() - began, left
                for row, _, _ in begun:
                    rows.append(row)
                    told(row)
                self._churn.resume()
            self._churn.pause()
        return rows

    def _strike(self, fault: Fault, pingers: dict[str, Pinger]) -> tuple[Row, float, float]:
        before = {family: pinger.mark(PATIENCE) for family, pinger in pingers.items()}
        begin = time.monotonic()
        fault.strike()
        row = Row(fault, time.monotonic() - begin, quiet=not self._count)
        time.sleep(self._calm)  # nothing is waited for: the churn is to go on for a while
        for family, pinger in pingers.items():
            first, last = before[family], pinger.mark(PATIENCE)
            known = first is not None and last is not None
            row.lost[family] = pinger.lost(first or 0, last or 0) if known else None
        return row, begin, time.monotonic()

    @contextlib.contextmanager
    def _steady(self) -> Iterator[dict[str, Pinger]]:
        """Run two Pods that stay, one on each node, and ping the second one from the first.

        :returns: the pings by address family.
        """
        names = [f"steady-{node}" for node in self._nodes]
        for name, node in zip(names, self._nodes, strict=True):
            self._kube.call("POST", self._path, pod(name, node, self._image))
        if not wait_until(lambda: all(is_ready(self._get(name)) for name in names), PATIENCE):
            raise CommandError(f"{' and '.join(names)} do not become Ready")
        source, target = names
        rows = self._inspection.on_node(self._facts.nodes[self._nodes[0]]).rows.values()
        (netns,) = (
            row.ids[NETNS]
            for row in rows
            if (row.ids["kuryr-namespace"], row.ids["kuryr-pod"]) == (self._namespace, source)
        )
        v4, v6 = (each["ip"] for each in self._get(target)["status"]["podIPs"])
        with Pinger(netns, v4) as over_v4, Pinger(netns, v6) as over_v6:
            pingers = {"IPv4": over_v4, "IPv6": over_v6}
            for family, pinger in pingers.items():
                if pinger.mark(PATIENCE) is None:
                    raise CommandError(f"{source} does not reach {target} over {family}")
            yield pingers

    def _get(self, name: str) -> Json:
        return self._kube.call("GET", f"{self._path}/{name}")

    def _settle(self) -> list[str]:
        """Wait until nothing is stuck and nothing is left over.

        :returns: what still is when the time is up.
        """
        found: list[str] = []

        def well() -> bool:
            found[:] = self._seen()
            return not found

        stuck = self._churn.stuck(PATIENCE)
        wait_until(well, PATIENCE if not stuck else 1.0, pause=0.5)
        return [*stuck, *found]

    def _seen(self) -> list[str]:
        try:
            return self._inspection.differences()
        except _TROUBLES as error:
            return [f"it cannot be told: {error}"]


def _count(row: Row, lives: list[Life], begin: float, end: float) -> None:
    """Fill in the figures of the Pods that started or ended at least in part within this time."""
    row.created = sum(1 for life in lives if begin <= life.created < end)
    row.deleted = sum(1 for life in lives if life.deleted and begin <= life.deleted < end)
    starts = [(life.created, life.ready) for life in lives if life.ready]
    ends = [(life.deleted, life.gone) for life in lives if life.deleted and life.gone]
    row.slowest_ready = _longest(starts, begin, end)
    row.slowest_gone = _longest(ends, begin, end)


def _longest(spans: Sequence[tuple[float, float]], begin: float, end: float) -> float:
    return max(
        (last - first for first, last in spans if first < end and last > begin), default=0.0
    )
