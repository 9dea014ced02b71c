"""Which of several drivers has made a port, and which of them is asked first to release it."""

import itertools

import pytest

from kuryr_k8s.drivers.base import PodVIFDriver, maker_of, releaser_of
from kuryr_k8s.handlers.pods.interfaces import Interfaces
from kuryr_k8s.model.vif import VIFOpenVSwitch, VIFVlanNested
from tests.kit.node.fakes import vlan_vif
from tests.kit.vif_drivers import AsksNothingOfNeutron


class VIFDriver(AsksNothingOfNeutron, PodVIFDriver):
    """Notes what it is asked."""

    def __init__(self, name, released):
        super().__init__(None)
        self.name, self._released = name, released

    def made(self, port):
        return self.name in port["tags"] or self.claims_unmarked

    async def release_unrecorded(self, pod_uid):
        self._released.append(self.name)
        return 0


class Claiming(VIFDriver):
    """Claims ports of others, too."""

    claims_unmarked = True


class Releasing(VIFDriver):
    """Releases VIFs of all kinds."""

    kind = VIFOpenVSwitch

    def releases(self, vif):
        return True


class OfVlans(VIFDriver):
    kind = VIFVlanNested


class Nothing:
    """Stands for drivers of other slots; for a pool, it stands before no driver."""

    def vif_drivers(self):
        return ()

    async def release_unrecorded(self, _pod_uid):
        return 0


class InUse:
    """Stands for the drivers in use."""

    def __init__(self, drivers):
        self._drivers = drivers

    def __getitem__(self, _slot):
        return Nothing()

    def several(self, _slot):
        return ()

    def of_slot(self, _slot):
        return self._drivers


in_any_order = pytest.mark.parametrize(
    "names", list(itertools.permutations(["one", "two", "claiming"])), ids=" ".join
)


def drivers_of(names, released):
    return [(Claiming if name == "claiming" else VIFDriver)(name, released) for name in names]


@in_any_order
def test_port_with_a_mark_is_its_drivers_and_others_are_the_claiming_ones(names):
    drivers = drivers_of(names, [])
    assert maker_of({"tags": ["one"]}, drivers).name == "one"
    assert maker_of({"tags": ["two"]}, drivers).name == "two"
    assert maker_of({"tags": []}, drivers).name == "claiming"


def test_port_that_no_driver_claims_is_nobodys():
    assert maker_of({"tags": []}, drivers_of(["one", "two"], [])) is None


@in_any_order
async def test_driver_that_claims_ports_of_others_releases_after_them(names):
    released = []
    await Interfaces(InUse(drivers_of(names, released))).release_unrecorded("u1")
    assert sorted(released) == ["claiming", "one", "two"]
    assert released[-1] == "claiming"


@pytest.mark.parametrize("kinds", list(itertools.permutations([Releasing, OfVlans])))
def test_vif_is_released_by_the_driver_of_exactly_its_kind(kinds):
    drivers = [kind(kind.__name__, []) for kind in kinds]
    assert releaser_of(vlan_vif(), drivers).name == "OfVlans"
    assert releaser_of(vlan_vif(), [Releasing("one", [])]).name == "one"
    assert releaser_of(vlan_vif(), []) is None
