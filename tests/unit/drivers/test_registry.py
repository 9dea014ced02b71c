"""Drivers by name: the installed ones, a stranger's package, and helpful errors."""

import os
import subprocess
import sys

import pytest

from kuryr_k8s import errors
from kuryr_k8s.config import read
from kuryr_k8s.drivers import registry
from kuryr_k8s.drivers.base import (
    Drivers,
    PodProjectDriver,
    PodVIFDriver,
    ServiceProjectDriver,
)
from kuryr_k8s.drivers.policy.project import DefaultProject
from tests.kit.packages import describe_package

POD_PROJECT = "kuryr_k8s.controller.drivers.pod_project"
SHIPPED = "kuryr_k8s.drivers.policy.project"
STRANGER = """
from kuryr_k8s.drivers.base import PodProjectDriver


class ByTheMoon(PodProjectDriver):
    async def project(self, pod):
        return "moon"
"""


USE = """
import asyncio
from kuryr_k8s.config import read
from kuryr_k8s.drivers.base import Drivers, PodProjectDriver
drivers = Drivers(read([], "test"), lambda _drivers: None)
print(asyncio.run(drivers.named(PodProjectDriver, "moon").project(None)))
"""


@pytest.fixture
def strangers_package(tmp_path):
    """What a third party installs: a module, and metadata with an entry point."""
    (tmp_path / "stranger.py").write_text(STRANGER)
    describe_package(tmp_path, "stranger", POD_PROJECT, "moon = stranger:ByTheMoon")
    return tmp_path


@pytest.fixture
def drivers():
    """Of no program in particular: those that need nothing can be made."""
    return Drivers(read([], "test"), lambda _drivers: None)


def test_shipped_driver_is_found_by_its_name_and_made_once(drivers):
    assert type(drivers[PodProjectDriver]) is DefaultProject
    assert drivers.named(PodProjectDriver, "default") is drivers[PodProjectDriver]
    assert drivers.seal() == (drivers[PodProjectDriver],)


def test_class_that_serves_two_slots_is_found_by_each(drivers):
    """Its attribute ``slot`` can name one of them only."""
    project = drivers[ServiceProjectDriver]
    assert drivers.of_slot(ServiceProjectDriver) == (project,)
    assert drivers.of_slot(PodProjectDriver) == ()
    of_pods = drivers[PodProjectDriver]
    assert drivers.of_slot(PodProjectDriver) == (of_pods,)


def test_nothing_is_made_once_the_program_has_started(drivers):
    """Nobody would start it."""
    drivers.seal()
    with pytest.raises(LookupError, match="before the start"):
        drivers.named(PodProjectDriver, "annotation")


def test_strangers_driver_is_found_by_its_name(strangers_package):
    path = os.pathsep.join([str(strangers_package), *sys.path])
    run = subprocess.run(
        [sys.executable, "-c", USE], env={"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert (run.stdout.strip(), run.returncode) == ("moon", 0), run.stderr


def test_name_that_two_packages_use_is_answered_with_both(site_packages):
    describe_package(site_packages, "first", POD_PROJECT, f"moon = {SHIPPED}:DefaultProject")
    describe_package(site_packages, "second", POD_PROJECT, f"moon = {SHIPPED}:AnnotationProject")
    with pytest.raises(errors.ConfigError) as caught:
        registry.load_class(POD_PROJECT, "moon", PodProjectDriver, "[kubernetes] x")
    assert str(caught.value) == (
        f"[kubernetes] x: 'moon' is not unique: {SHIPPED}:AnnotationProject of the package second "
        f"1.0 and {SHIPPED}:DefaultProject of the package first 1.0; "
        "remove all but one of these packages"
    )


def test_unknown_name_is_answered_with_those_installed(drivers):
    with pytest.raises(errors.ConfigError) as caught:
        drivers.named(PodVIFDriver, "neutron_vif")
    assert str(caught.value) == (
        "[kubernetes] pod_vif_driver: there is no 'neutron_vif' "
        "(installed: nested-macvlan, nested-vlan, neutron-vif, sriov)"
    )


def test_driver_of_another_slot_is_refused():
    namespace = "kuryr_k8s.controller.drivers.vif_pool"
    with pytest.raises(errors.ConfigError, match="is not a PodProjectDriver"):
        registry.load_class(namespace, "noop", PodProjectDriver, "x")
