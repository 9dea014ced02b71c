"""Bindings by name: of two packages with the same name, neither is used."""

import pytest

from kuryr_k8s import errors
from kuryr_k8s.cni.bindings import base
from tests.kit.packages import describe_package

SHIPPED = "kuryr_k8s.cni.bindings.ovs:OpenVSwitchBinding"
OTHER = "kuryr_k8s.cni.bindings.vlan:VlanBinding"


def test_name_that_two_packages_use_is_answered_with_both(site_packages):
    """Before any binding is made: the first would have subscribed to caches already."""
    describe_package(site_packages, "other", base.ENTRY_POINTS, f"VIFOpenVSwitch = {OTHER}")
    with pytest.raises(
        errors.ConfigError, match="binding 'VIFOpenVSwitch' is not unique"
    ) as caught:
        base.load(None)
    assert f"{SHIPPED} of the package kuryr-k8s 0.1.0" in str(caught.value)
    assert f"{OTHER} of the package other 1.0" in str(caught.value)


def test_daemon_without_any_binding_does_not_start(monkeypatch):
    """Where a package's metadata is missing, it has no entry points."""
    monkeypatch.setattr(base, "ENTRY_POINTS", "kuryr_k8s.nonesuch")
    with pytest.raises(errors.ConfigError, match="metadata of the package kuryr-k8s is missing"):
        base.load(None)
