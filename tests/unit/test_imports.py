"""What the product must never load, and whom the import contracts concern."""

import configparser
import pkgutil
import subprocess
import sys

import pytest

import kuryr_k8s
import kuryr_k8s.cni
from tests.kit.paths import REPOSITORY

MODULES = [
    module.name for module in pkgutil.walk_packages(kuryr_k8s.__path__, prefix="kuryr_k8s.")
]


def loaded_by(*modules):
    """The names in sys.modules of a fresh interpreter that imported them."""
    script = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(run.stdout.split())


def test_nothing_brings_in_green_threads_or_the_heavy_oslo():
    forbidden = {"eventlet", "greenlet", "oslo_service", "oslo_messaging", "os_vif"}
    assert not loaded_by(*MODULES) & (forbidden | {"oslo_versionedobjects"})


# Contracts, and the packages that they do not concern.
BORDERS = {
    "openstack": {"cloud"},
    "kubernetes": {"k8s"},
    "netlink": {"cni.netlink"},
    "open-vswitch": {"cni.ovs"},
    "controller": {"cni"},
}


def parts_of(package):
    """The names of its packages and modules."""
    return {module.name for module in pkgutil.iter_modules(package.__path__)}


@pytest.mark.parametrize("contract", BORDERS)
def test_contract_of_a_border_concerns_every_package_but_one(contract):
    parser = configparser.ConfigParser()
    parser.read(REPOSITORY / "setup.cfg")
    sources = parser[f"importlinter:contract:{contract}"]["source_modules"].split()
    named = {name.removeprefix("kuryr_k8s.") for name in sources} | BORDERS[contract]
    parts = parts_of(kuryr_k8s)
    if "cni" not in named:
        parts = (parts - {"cni"}) | {f"cni.{name}" for name in parts_of(kuryr_k8s.cni)}
    assert named == parts
