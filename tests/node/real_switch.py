"""A private Open vSwitch, ovs-vswitchd included, with one bridge that forwards by MAC."""

import os
import shutil
import subprocess
import time
from pathlib import Path

from tests.node.workbench import PATIENCE

PROGRAMS = ("ovsdb-server", "ovsdb-tool", "ovs-vswitchd", "ovs-vsctl")


class RealSwitch:
    """It runs in the network namespace of whoever starts it, and needs no kernel module."""

    def __init__(self, directory: Path):
        self._directory = directory
        self.socket = directory / "db.sock"
        self._environ = os.environ | {"OVS_RUNDIR": str(directory), "OVS_DBDIR": str(directory)}
        self._server = self._vswitchd = None

    @property
    def remote(self):
        return f"unix:{self.socket}"

    def start(self):
        conf = self._directory / "conf.db"
        self._run("ovsdb-tool", "create", conf, _schema())
        self._server = self._begin("ovsdb-server", conf, f"--remote=punix:{self.socket}")
        end = time.monotonic() + PATIENCE
        while not self.socket.exists():
            assert time.monotonic() < end, "ovsdb-server did not start"
            time.sleep(0.02)
        self.vsctl("--no-wait", "init")
        ids = "external_ids:hostname=chassis1 external_ids:ovn-encap-ip=198.18.0.1"
        self.vsctl("--no-wait", "set", "Open_vSwitch", ".", *ids.split())
        self.start_vswitchd()
        self.vsctl("add-br", "br-int", "--", "set", "Bridge", "br-int", "datapath_type=netdev")

    def stop(self):
        for process in (self._vswitchd, self._server):
            if process is not None:
                process.kill()
                process.wait()

    def start_vswitchd(self):
        self._vswitchd = self._begin("ovs-vswitchd", self.remote)

    def kill_vswitchd(self):
        """Interfaces that it had made are gone then."""
        self._vswitchd.kill()
        self._vswitchd.wait()

    def vsctl(self, *words):
        """What ovs-vsctl prints; ovs-vswitchd has done what is asked."""
        return self._run("ovs-vsctl", f"--db={self.remote}", "--timeout=60", *words).strip()

    def ids(self, name):
        """The external ids of an interface; None without such a row."""
        table = "--bare", "--columns=external_ids", "find", "Interface", f"name={name}"
        found = self.vsctl(*table)
        return dict(item.split("=", 1) for item in found.split()) if found else None

    def install(self, name):
        """As ovn-controller does."""
        words = "--no-wait", "set", "Interface", name, "external_ids:ovn-installed=true"
        self.vsctl(*words)

    def _begin(self, program, *words):
        control = f"--unixctl={self._directory}/{program}.ctl"
        quiet = "-vconsole:off", "-vsyslog:off", "-vfile:off"
        return subprocess.Popen([program, *map(str, words), control, *quiet], env=self._environ)

    def _run(self, *words):
        done = subprocess.run(
            [*map(str, words)], check=True, capture_output=True, text=True, env=self._environ
        )
        return done.stdout


def _schema():
    program = shutil.which("ovs-vswitchd")
    assert program, "these tests need ovs-vswitchd"
    for above in Path(program).resolve().parents:
        for share in ("usr/share", "share"):
            schema = above / share / "openvswitch/vswitch.ovsschema"
            if schema.exists():
                return schema
    raise AssertionError("there is no schema of Open vSwitch beside ovs-vswitchd")
