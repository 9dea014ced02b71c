"""The commands of the lab: up, down, status, restart."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from lab import topology
from lab.install import openstack as python_services
from lab.lifecycle import cleanup, graph
from lab.lifecycle.graph import Step
from lab.lifecycle.names import resolve
from lab.lifecycle.plan import Plan
from lab.lifecycle.supervisor import Component, Supervisor
from lab.machine import plan as worker_plan
from lab.paths import SOURCE, Paths, locked, write_atomic
from lab.process import COMPONENT_MARK, LAB_MARK, kill_all, marked
from lab.progress import Progress

_COMMAND = "command"  # the component that a command of ours counts as
# The packages that decide what the lab is made of, besides the modules beside them.
_PARTS = ("host", "install", "kubernetes", "lifecycle", "machine", "openstack", "ovn")
# What `up --only` understands besides names of steps.
GROUPS = {
    "control-plane": ("kube-apiserver", "kube-controller-manager", "kube-scheduler"),
    "openstack": ("keystone", "neutron", "barbican", "octavia"),
}


class Lab:
    """One lab, found by its directories."""

    def __init__(self, paths: Paths | None = None, progress: Progress | None = None) -> None:
        self.paths = paths or Paths.from_environment()
        self.progress = progress or Progress()
        self.supervisor = Supervisor(self.paths)

    @property
    def count(self) -> int:
        """The number of nodes that `up` was last asked for."""
        return self._setting("nodes", 2)

    @property
    def vms(self) -> int:
        """The number of nodes that are virtual machines, in addition to `count`."""
        return self._setting("vms", 0)

    def _setting(self, name: str, default: int) -> int:
        try:
            return int(json.loads(self._settings.read_text())[name])
        except (OSError, ValueError, KeyError):
            return default

    @property
    def _settings(self) -> Path:
        return self.paths.state / "settings.json"

    @property
    def _complete(self) -> Path:
        """The file that says that an `up` came to its end, and of which version."""
        return self.paths.state / "complete"

    @property
    def _cloud(self) -> Path:
        """The file that names the services of which the databases are."""
        return self.paths.state / "cloud"

    @property
    def nodes(self) -> tuple[topology.Node, ...]:
        return topology.nodes(self.count)

    def up(
        self, count: int | None = None, only: tuple[str, ...] = (), vms: int | None = None
    ) -> None:
        """Install what is missing, start what does not run, return when all of it is ready."""
        self.paths.create()
        with self.locked():
            self._forget_other_cloud()
            before, count = self.count, count or self.count
            vms_before, vms = self.vms, self.vms if vms is None else vms
            plan = Plan(self.paths, self.supervisor, count, vms)
            components = plan.components()
            if not only and self._is_up(components):
                self.progress.note("already up")
                return
            self._complete.unlink(missing_ok=True)
            for node in topology.nodes(before)[count:]:
                cleanup.remove_node(self.paths, self.supervisor, node)
            for worker in topology.workers(vms_before)[vms:]:
                worker_plan.remove(self.paths, self.supervisor, worker)
            # after the removals, so that those that were cut short are made again
            write_atomic(self._settings, json.dumps({"nodes": count, "vms": vms}))
            self._adopt(components)
            steps = [*plan.steps(), *self._extra_steps({step.name for step in plan.steps()})]
            wanted = [name for entry in only for name in GROUPS.get(entry, (entry,))]
            graph.execute(graph.closure(steps, wanted) if wanted else steps, self.progress)
            if not wanted:
                write_atomic(self._complete, _source_digest())
            self.progress.note("up")

    def down(self, *, purge: bool = False) -> None:
        """Stop everything and leave nothing behind; the databases stay unless purge."""
        with self.locked():
            self._complete.unlink(missing_ok=True)
            cleanup.stop_components(self.supervisor, self.progress)
            cleanup.remove_traces(self.paths, self.nodes)
            if purge:
                cleanup.purge(self.paths)
            self.progress.note("down")

    def forget_other_cloud(self) -> None:
        """Stop and forget a lab that an earlier version made, with other services.

        `up` does so, too; this is for whoever is to have nothing killed later.
        """
        with self.locked():
            self._forget_other_cloud()

    def restart(self, names: list[str], *, kill: bool = False) -> None:
        """Restart components one after another; short names stand for those of all nodes.

        :param kill: with SIGKILL instead of an orderly end.
        :raises UnknownName: there is no such component; nothing was restarted.
        """
        with self.locked():
            plan = Plan(self.paths, self.supervisor, self.count, self.vms)
            for name in resolve(names, list(self.supervisor.records())):
                (self.supervisor.kill if kill else self.supervisor.stop)(name)
                self.supervisor.start(name)
                plan.after_restart(name)
                self.progress.note(f"{name} is ready again")

    def status(self) -> dict[str, str]:
        """Return the state of every component: ready, not ready or stopped."""
        records = self.supervisor.records()

        def state(name: str) -> str:
            if not records[name].alive:
                return "stopped"
            return "ready" if self.supervisor.ready(name) else "not ready"

        with ThreadPoolExecutor(16) as pool:
            return dict(zip(records, pool.map(state, records), strict=True))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of this lab, and end what a killed holder left running.

        A migration or a build would go on as an orphan; the commands that this process runs are
        marked, so that the next one finds them.
        """
        with locked(
            self.paths.state / "lock",
            lambda: self.progress.note("another command works on this lab; waiting for it"),
        ):
            kill_all(marked(self.paths.state, _COMMAND))
            os.environ.update({LAB_MARK: str(self.paths.state), COMPONENT_MARK: _COMMAND})
            try:
                yield
            finally:  # what a test starts afterwards is no command of ours
                for mark in (LAB_MARK, COMPONENT_MARK):
                    os.environ.pop(mark, None)

    def _forget_other_cloud(self) -> None:
        services = python_services.location(self.paths).name
        if self._cloud.exists() and self._cloud.read_text() == services:
            return
        # The schemas would be made anew for these services; OVN, the cluster and the product
        # would go on with objects that are gone.
        if any(self.paths.data.iterdir()):
            self.progress.note("the lab is of another version, with other services: it goes")
            self._complete.unlink(missing_ok=True)
            cleanup.stop_components(self.supervisor, self.progress)
            cleanup.remove_traces(self.paths, self.nodes)
            cleanup.forget_cloud(self.paths)
        write_atomic(self._cloud, services)

    def _is_up(self, components: list[Component]) -> bool:
        """Return whether all that is wanted runs already, as it is wanted, and answers."""
        if not self._complete.exists() or self._complete.read_text() != _source_digest():
            return False
        present = {
            name: record.component
            for name, record in self.supervisor.records().items()
            if record.component.builtin
        }
        if present != {component.name: component for component in components}:
            return False
        return all(state == "ready" for state in self.status().values())

    def _adopt(self, components: list[Component]) -> None:
        """Register the lab's own components; one whose description changed is stopped first."""
        records = self.supervisor.records()
        for component in components:
            record = records.pop(component.name, None)
            if record is not None and record.alive and record.component != component:
                self.supervisor.stop(component.name)
            self.supervisor.register(component)
        for name, record in records.items():
            if record.component.builtin:
                self.supervisor.forget(name)

    def _extra_steps(self, known: set[str]) -> list[Step]:
        """List steps for the components that other programs registered."""
        extra = [
            record.component
            for record in self.supervisor.records().values()
            if not record.component.builtin
        ]
        known = known | {component.name for component in extra}
        return [
            Step(
                component.name,
                partial(self.supervisor.start, component.name),
                tuple(need for need in component.needs if need in known),
            )
            for component in extra
        ]


def _source_digest() -> str:
    """Hash this program: another version may want other files, not only other arguments."""
    digest = hashlib.sha256()
    files = [path for name in _PARTS for path in (SOURCE / name).rglob("*.py")]
    for path in sorted([*SOURCE.glob("*.py"), *files]):
        digest.update(path.read_bytes())
    return digest.hexdigest()
