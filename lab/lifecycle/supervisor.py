"""Daemons: started detached, recorded, asked whether they are ready, and stopped for certain.

There is no resident supervisor process. Each component has a record in <state>/components: its
description, and the identity (pid and start time) of its process. Any later run of the lab, or of
another program that imports this module, can therefore stop, restart and check it:

    from lab.lifecycle import probes
    from lab.lifecycle.supervisor import Component, Supervisor

    supervisor = Supervisor()
    supervisor.register(Component("kuryr-controller", ("/usr/bin/python3", "-m", "..."),
                                  ready=(probes.http("http://127.0.0.1:8082/readyz"),),
                                  needs=("kube-apiserver", "neutron")))
    supervisor.start("kuryr-controller")

A registered component belongs to the lab from then on: `up` starts it, `down` stops it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from lab.lifecycle import probes
from lab.lifecycle.probes import Probe
from lab.paths import Paths, write_atomic
from lab.process import (
    COMPONENT_MARK,
    LAB_MARK,
    SYSTEM_PATH,
    Identity,
    arguments,
    in_namespace,
    kill_all,
    marked,
    send,
    session,
    start_time,
    wait_until,
)

_LOG_LIMIT = 64 * 1024 * 1024
_DEATH = 60.0  # seconds after SIGKILL: on a machine with much to do threads end late
# Popen objects of children, kept so that they are reaped while this program lives.
_children: list[subprocess.Popen[bytes]] = []
_children_lock = threading.Lock()


class ComponentError(Exception):
    """A component did not become ready, or is not known."""


@dataclass(frozen=True)
class Component:
    """A daemon. All its fields survive JSON, so that another program can restart it."""

    name: str
    argv: tuple[str, ...]
    ready: tuple[Probe, ...] = ()
    needs: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    netns: str | None = None
    # The hostname that the daemon and its children see; None: the machine's.
    hostname: str | None = None
    cwd: str | None = None
    # Seconds until it must be ready, and seconds between SIGTERM and SIGKILL.
    timeout: float = 90
    grace: float = 8
    stop_signal: str = "SIGTERM"
    # What it reads when it starts: `start` restarts it if one of them has changed since.
    files: tuple[str, ...] = ()
    # True for a daemon whose children outlive it on purpose (containerd and its shims).
    keeps_children: bool = False
    # False for what another program registered.
    builtin: bool = False


@dataclass(frozen=True)
class Record:
    """A component and the process that was started for it, if any."""

    component: Component
    process: Identity | None = None
    # The hash of component.files when the process started.
    digest: str = ""

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive


class Supervisor:
    """The components of one lab."""

    def __init__(self, paths: Paths | None = None) -> None:
        self.paths = paths or Paths.from_environment()

    def register(self, component: Component) -> None:
        """Add or change a component; a running process stays as it is until it is restarted."""
        record = self.find(component.name)
        self._save(replace(record, component=component) if record else Record(component))

    def forget(self, name: str) -> None:
        """Stop the component and remove it from the lab."""
        self.stop(name)
        self._file(name).unlink(missing_ok=True)

    def find(self, name: str) -> Record | None:
        """Read the record of a component, or None."""
        try:
            return _record_from_json(json.loads(self._file(name).read_text()))
        except (OSError, ValueError, KeyError, TypeError):
            # None, or one of another version of this program.
            return None

    def records(self) -> dict[str, Record]:
        """Read the record of every known component by name."""
        found = (self.find(path.stem) for path in sorted(self.paths.components.glob("*.json")))
        return {record.component.name: record for record in found if record is not None}

    def start(self, name: str) -> None:
        """Start the component unless it runs as it should, and return when it is ready."""
        record = self._known(name)
        if record.alive and record.digest != _digest(record.component.files):
            self.stop(name)
            record = self._known(name)
        if not record.alive:
            self._clear_strays(record)
            record = self._spawn(record.component)
        self._await_ready(record)

    def stop(self, name: str) -> None:
        """Ask the component to end, then force it; return when it is gone.

        :raises ComponentError: it hangs in the kernel.
        """
        record = self.find(name)
        if record is None:
            return
        component, process = record.component, record.process
        if process is not None and process.alive:
            send(process, signal.Signals[component.stop_signal])
            if not wait_until(lambda: self._reaped(process), component.grace):
                send(process, signal.SIGKILL, group=True)
        self._clear_strays(record)
        self._save(Record(component))

    def kill(self, name: str) -> None:
        """Send SIGKILL to all processes of the component; return when they are gone.

        :raises ComponentError: one hangs in the kernel.
        """
        record = self._known(name)
        if record.process is not None:
            send(record.process, signal.SIGKILL, group=True)
        self._clear_strays(record)
        self._save(Record(record.component))

    def restart(self, name: str) -> None:
        """Stop and start the component; return when it is ready again."""
        self._known(name)
        self.stop(name)
        self.start(name)

    def ready(self, name: str) -> bool:
        """Return whether the component's process lives and answers every probe now."""
        record = self.find(name)
        return record is not None and record.alive and self._answers(record.component)

    def log(self, name: str) -> Path:
        """Return the path of the component's log, which has everything that it printed."""
        return self.paths.logs / f"{name}.log"

    def tail(self, name: str, lines: int = 25) -> str:
        """Read the end of the component's log."""
        try:
            with self.log(name).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 64 * 1024))
                text = file.read().decode(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def environment(self, component: Component) -> dict[str, str]:
        """Build the process's environment: a clean one, the marks, and the component's own."""
        return {
            "PATH": f"{self.paths.bin}:{SYSTEM_PATH}",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            # Else Python daemons that change their title overwrite the marks.
            "SPT_NOENV": "1",
            "TMPDIR": str(self._temporary(component.name)),
            **component.env,
            LAB_MARK: str(self.paths.state),
            COMPONENT_MARK: component.name,
        }

    def _known(self, name: str) -> Record:
        record = self.find(name)
        if record is None:
            raise ComponentError(f"there is no component {name}")
        return record

    def _file(self, name: str) -> Path:
        return self.paths.components / f"{name}.json"

    def _temporary(self, name: str) -> Path:
        return self.paths.run / "tmp" / name

    def _save(self, record: Record) -> None:
        write_atomic(self._file(record.component.name), json.dumps(asdict(record), indent=1))

    def _spawn(self, component: Component) -> Record:
        temporary = self._temporary(component.name)
        # Some services read files of a former life with the same pid from there: always empty.
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        temporary.chmod(0o1777)
        log = self.log(component.name)
        log.parent.mkdir(parents=True, exist_ok=True)
        if log.exists() and log.stat().st_size > _LOG_LIMIT:
            log.replace(log.with_suffix(".log.old"))
        with log.open("ab") as output:
            child = subprocess.Popen(
                in_namespace(_named(component), component.netns),
                cwd=component.cwd or "/",
                env=self.environment(component),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        with _children_lock:
            _children.append(child)
        process = Identity(child.pid, start_time(child.pid) or 0)
        record = Record(component, process, _digest(component.files))
        self._save(record)
        return record

    def _await_ready(self, record: Record) -> None:
        component, process = record.component, record.process
        end = time.monotonic() + component.timeout
        pause = 0.05
        while True:
            asked = time.monotonic()
            if self._answers(component):
                break
            now = time.monotonic()
            if process is None or self._reaped(process):
                raise ComponentError(self._complaint(component, "ended"))
            if now > end:
                waited = f"is not ready after {component.timeout:.0f} s"
                raise ComponentError(self._complaint(component, waited))
            # a question that takes long keeps what is asked from its work: in a machine emulated
            time.sleep(max(pause, now - asked))
            pause = min(pause * 1.5, 0.5)
        # Without a probe, not having ended at once has to do.
        patience = 0.0 if component.ready else 0.5
        if process is None or wait_until(lambda: self._reaped(process), patience):
            what = "ended, and another process answers for it" if component.ready else "ended"
            raise ComponentError(self._complaint(component, what))

    def _complaint(self, component: Component, what: str) -> str:
        log = self.log(component.name)
        return f"{component.name} {what}; the end of {log}:\n{self.tail(component.name)}"

    def _answers(self, component: Component) -> bool:
        environment = self.environment(component)
        return all(probe.answer(environment) for probe in component.ready)

    def _clear_strays(self, record: Record) -> None:
        """Kill what lives of a former process: itself, its session, its mark.

        A successor that met one of them would be refused what it holds (a pidfile's lock, a port).
        """
        component, process = record.component, record.process
        strays = marked(self.paths.state, component.name)
        if process is not None:
            strays += session(process)
        if component.keeps_children:
            strays = [stray for stray in strays if arguments(stray.pid) == component.argv]
        strays += [process] if process is not None else []
        if not kill_all(strays, _DEATH):
            left = ", ".join(str(stray.pid) for stray in strays if not self._reaped(stray))
            raise ComponentError(f"{component.name} does not die: {left}")

    @staticmethod
    def _reaped(process: Identity) -> bool:
        with _children_lock:
            for child in _children[:]:
                if child.poll() is not None:
                    _children.remove(child)
        return not process.alive


def _named(component: Component) -> Sequence[str]:
    """Return the command line; a component with a hostname runs in a UTS namespace of its own."""
    if component.hostname is None:
        return component.argv
    script = 'echo "$0" > /proc/sys/kernel/hostname && exec "$@"'
    return ("unshare", "--uts", "sh", "-c", script, component.hostname, *component.argv)


def _record_from_json(data: Mapping[str, Any]) -> Record:
    description = dict(data["component"])
    description["argv"] = tuple(description["argv"])
    description["needs"] = tuple(description["needs"])
    description["files"] = tuple(description["files"])
    description["ready"] = tuple(probes.from_json(probe) for probe in description["ready"])
    process = data.get("process")
    return Record(
        Component(**description), Identity(**process) if process else None, data["digest"]
    )


def _digest(files: tuple[str, ...]) -> str:
    """Hash the files' content; a missing file counts as an empty one."""
    paths = (Path(file) for file in files)
    content = b"\0".join(path.read_bytes() if path.is_file() else b"" for path in paths)
    return hashlib.sha256(content).hexdigest()


def builtin(component: Component) -> Component:
    """Mark a component as the lab's own."""
    return replace(component, builtin=True)
