"""The programs run under the restrictions of their systemd units."""

import pathlib
import pwd

import pytest

from lab.kuryr import CONTROLLER, daemon
from lab.sandbox import capabilities
from lab.sandbox.unit import Unit

ETC = pathlib.Path(__file__).parent.parent.parent / "etc"
COMPONENTS = {
    CONTROLLER: "kuryr-k8s-controller",
    daemon("node1"): "kuryr-k8s-daemon",
    daemon("node2"): "kuryr-k8s-daemon",
}


@pytest.fixture(params=COMPONENTS)
def process(request, cluster):
    """(the unit, /proc/PID of a program that runs by it)"""
    record = cluster.supervisor.find(request.param)
    unit = Unit.read(ETC / "systemd" / f"{COMPONENTS[request.param]}.service")
    return unit, pathlib.Path(f"/proc/{record.process.pid}")


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


def test_controller_sees_a_file_system_of_its_own_and_writes_only_its_directory(cluster):
    proc = pathlib.Path(f"/proc/{cluster.supervisor.find(CONTROLLER).process.pid}")
    # mount point → options, the topmost one last
    mounts = {
        fields[4]: (fields[5].split(","), fields[fields.index("-") + 1])
        for fields in map(str.split, (proc / "mountinfo").read_text().splitlines())
    }
    writable = {
        path
        for path, (options, kind) in mounts.items()
        if "rw" in options and kind not in ("proc", "sysfs", "devpts", "tmpfs", "devtmpfs")
    }
    own = f"{cluster.lab.state}/kuryr/run/kuryr-controller"
    assert {path for path in writable if not path.startswith(("/dev/", "/proc/"))} == {own}
    for path in ("/tmp", "/var/tmp", "/dev", "/root"):
        assert mounts[path][1] == "tmpfs"
    readers = (proc / "root/root").stat().st_mode & 0o777
    assert readers == 0
