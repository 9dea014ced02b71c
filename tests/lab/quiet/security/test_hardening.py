"""The programs run under the restrictions of their systemd units."""

import pathlib
import pwd

import pytest

from lab.kuryr.installation import CONTROLLER, daemon
from lab.kuryr.sandbox import capabilities
from lab.kuryr.sandbox.unit import Unit
from lab.process import CommandError, run, wait_until
from tests.kit.paths import ETC

pytestmark = pytest.mark.lab_only
COMPONENTS = {
    CONTROLLER: "kuryr-k8s-controller",
    daemon("node1"): "kuryr-k8s-daemon",
    daemon("node2"): "kuryr-k8s-daemon",
}


def running(cluster, component):
    """/proc/PID of a program that has begun: the launcher before it is not restricted yet."""

    proc = pathlib.Path(f"/proc/{cluster.supervisor.find(component).process.pid}")
    assert wait_until(lambda: b"\0-c\0" not in (proc / "cmdline").read_bytes(), 30)
    return proc


@pytest.fixture(params=COMPONENTS)
def process(request, cluster):
    """(the unit, /proc/PID of a program that runs by it)"""
    unit = Unit.read(ETC / "systemd" / f"{COMPONENTS[request.param]}.service")
    return unit, running(cluster, request.param)


def test_process_is_restricted_as_its_unit_says(process):
    unit, proc = process
    status = dict(line.split(":\t", 1) for line in (proc / "status").read_text().splitlines())
    account = pwd.getpwnam(unit.text("User", "root"))
    assert set(status["Uid"].split()) == {str(account.pw_uid)}
    assert set(status["Gid"].split()) == {str(account.pw_gid)}
    assert status["NoNewPrivs"] == "1" == str(int(unit.flag("NoNewPrivileges")))
    allowed = capabilities.mask(unit.capabilities())
    for name in ("CapBnd", "CapPrm", "CapEff"):
        assert int(status[name], 16) == allowed
    assert {int(status[name], 16) for name in ("CapInh", "CapAmb")} == {0}
    assert status["Seccomp"] == "2"
    assert status["Umask"] == unit.text("UMask", "")


def test_controller_writes_nowhere_but_in_its_directory(cluster):
    """Not even root could, in its mount namespace."""
    inside = ["nsenter", f"--mount={running(cluster, CONTROLLER)}/ns/mnt"]
    for directory in ("/", "/etc", "/usr", "/var/lib", cluster.lab.state):
        with pytest.raises(CommandError, match="Read-only file system"):
            run([*inside, "touch", f"{directory}/written"])
    own = f"{cluster.lab.state}/kuryr/run/kuryr-controller/written"
    run([*inside, "touch", own])
    pathlib.Path(own).unlink()


def test_controller_sees_no_homes_no_others_devices_and_no_others_temporary_files(cluster):
    root = running(cluster, CONTROLLER) / "root"
    mounts = (root.parent / "mountinfo").read_text().splitlines()
    # the last one at a place is what is seen there
    kinds = {line.split()[4]: line.split(" - ")[1].split()[0] for line in mounts}
    for path in ("/tmp", "/var/tmp", "/dev", "/root"):
        assert kinds[path] == "tmpfs"
    assert (root / "root").stat().st_mode & 0o777 == 0
    assert not (root / "dev/kmsg").exists()
