"""lab.kuryr.sandbox understands the shipped units, and nothing that it cannot carry out."""

import pytest

from lab.kuryr.sandbox import capabilities
from lab.kuryr.sandbox.unit import Unit, UnitError
from tests.kit.paths import ETC

UNITS = sorted((ETC / "systemd").glob("*.service"))


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_shipped_unit_is_understood(path):
    unit = Unit.read(path)
    assert unit.flag("NoNewPrivileges")
    assert unit.words("SystemCallFilter") == ("@system-service",)


@pytest.mark.parametrize(
    "line",
    [
        "DynamicUser=yes",
        "ProtectSystem=full",
        "CapabilityBoundingSet=~CAP_SYS_ADMIN",
        "AmbientCapabilities=CAP_NET_ADMIN",
    ],
)
def test_what_cannot_be_carried_out_is_an_error(tmp_path, line):
    path = tmp_path / "some.service"
    path.write_text(f"[Unit]\nAfter=network.target\n\n[Service]\n{line}\n")
    with pytest.raises(UnitError, match=line.split("=")[0]):
        Unit.read(path)


def test_empty_bounding_set_is_none_of_the_capabilities_and_a_missing_one_all(tmp_path):
    path = tmp_path / "some.service"
    path.write_text("[Service]\nCapabilityBoundingSet=CAP_KILL\nCapabilityBoundingSet=\n")
    assert Unit.read(path).capabilities() == frozenset()
    path.write_text("[Service]\n")
    assert Unit.read(path).capabilities() is None


def test_capabilities_have_the_kernels_numbers():
    assert capabilities.mask(["CAP_NET_ADMIN", "CAP_SYS_ADMIN"]) == 0x201000
    assert capabilities.NAMES.index("CAP_CHECKPOINT_RESTORE") == 40
