"""One soak: faults at random times while Pods come and go; then a look at what is left."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lab import facts
from lab.churn.faults import Fault, restarts
from lab.churn.leftovers import Inspection, Owners
from lab.churn.lives import Life
from lab.kubernetes.client import Kube, KubeError, Unreachable
from lab.kuryr.installation import CONTROLLER, daemon
from lab.lifecycle.lab import Lab
from lab.lifecycle.supervisor import ComponentError
from lab.openstack.rest import ApiError
from lab.process import CommandError, wait_until
from lab.soak.batches import Batches, failures
from lab.soak.memory import Size, size_of

STRUCK = ("controller", "daemon", "neutron", "ovn-controller")
_GAPS = 5.0, 40.0  # seconds between two faults
_SAMPLE = 300.0  # seconds between two looks at the memory
_PATIENCE = 120.0  # seconds for all to be as it should be
_TROUBLES = (KubeError, Unreachable, ApiError, CommandError, OSError)


@dataclass
class Outcome:
    """The outcome of a soak. `with_pods`, `without_pods`: the owners of the ports at the end."""

    lives: list[Life] = field(default_factory=list)
    struck: dict[tuple[str, str], int] = field(default_factory=dict)
    with_pods: Owners | None = None
    without_pods: Owners | None = None
    complaints: list[str] = field(default_factory=list)


class Soak:
    """A soak of the lab.

    :param size: of a batch of Pods.
    """

    def __init__(self, lab: Lab, namespace: str, seed: int, size: int) -> None:
        self._lab = lab
        known = facts.load(lab.paths.facts)
        kube = Kube(known)
        self.programs = (CONTROLLER, *map(daemon, known.nodes))
        image = next(image for image in known.images if "busybox" in image)
        self._inspection = Inspection(known, kube)
        self._batches = Batches(kube, namespace, tuple(known.nodes), image, seed, size)
        self._random = random.Random(f"faults {seed}")
        self._over = threading.Event()
        self._faults = [
            fault
            for kill in (False, True)
            for fault in restarts(lab, kill=kill)
            if fault.what in STRUCK
        ]

    def sizes(self) -> Sequence[Size | None]:
        """Measure the product's programs."""
        return [size_of(self._lab.supervisor, name) for name in self.programs]

    def end(self) -> None:
        """Let no more faults strike: the look at what is left comes now."""
        self._over.set()

    def run(
        self,
        seconds: float,
        told: Callable[[float, Fault, float], None],
        measured: Callable[[float, Sequence[Size | None]], None],
    ) -> Outcome:
        """Let faults strike for so many seconds.

        Times are seconds since the beginning.

        :param told: gets the time of each fault, the fault, and how long it lasted.
        :param measured: gets the time of each look at the memory, and the sizes.
        """
        outcome = Outcome()
        begin = time.monotonic()
        measured(0.0, self.sizes())
        with self._batches:
            looks = 1
            while (now := time.monotonic() - begin) < seconds and not self._over.is_set():
                if now >= looks * _SAMPLE:
                    measured(now, self.sizes())
                    looks += 1
                # nothing else is waited for: the Pods are to come and go for a while
                if self._over.wait(min(self._random.uniform(*_GAPS), seconds - now)):
                    break
                self._strike(self._random.choice(self._faults), begin, outcome, told)
            self._batches.stop()
            self._look(outcome)
            measured(time.monotonic() - begin, self.sizes())
        return outcome

    def _strike(
        self,
        fault: Fault,
        begin: float,
        outcome: Outcome,
        told: Callable[[float, Fault, float], None],
    ) -> None:
        struck = time.monotonic()
        try:
            fault.strike()
        except ComponentError as error:
            outcome.complaints.append(f"{fault.what} ({fault.how}): {error}")
        key = (fault.what, fault.how)
        outcome.struck[key] = outcome.struck.get(key, 0) + 1
        told(struck - begin, fault, time.monotonic() - struck)

    def _look(self, outcome: Outcome) -> None:
        """Wait until all that lives is well, then delete all and wait until nothing is left."""
        self._batches.settle()
        outcome.with_pods = self._owners("with Pods", outcome)
        self._batches.delete_all()
        self._batches.settle()
        outcome.without_pods = self._owners("without Pods", outcome)
        outcome.lives = self._batches.lives
        outcome.complaints += failures(outcome.lives, time.monotonic())

    def _owners(self, when: str, outcome: Outcome) -> Owners | None:
        """Count the owners of the ports once all agree; note what does not when the time is up."""
        found: list[str] = []
        owners: Owners | None = None

        def well() -> bool:
            nonlocal owners
            try:
                owners = self._inspection.owners()
                found[:] = self._inspection.differences()
            except _TROUBLES as error:
                found[:] = [f"it cannot be told: {error}"]
                return False
            if owners.lost:
                found.append(f"{owners.lost} ports marked as a pool's are in none")
            return not found

        wait_until(well, _PATIENCE, pause=0.5)
        outcome.complaints += [f"{when}: {said}" for said in found]
        return owners
