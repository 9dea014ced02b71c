"""What the product must never load."""

import pkgutil
import subprocess
import sys

import kuryr_k8s

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
