import json

import pytest

from kuryr_k8s.model.codec import DecodeError
from kuryr_k8s.model.lbaas import LBaaSServiceSpec, LBaaSState
from kuryr_k8s.model.vif import PodState, Subnet, VIFBase, VIFOpenVSwitch, VIFVlanNested
from tests.kit.paths import GOLDEN

SHAPES = [json.loads(line) for line in (GOLDEN / "vif-shapes.jsonl").read_text().splitlines()]


def golden(name):
    return json.loads((GOLDEN / name).read_text())


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (VIFBase, "vlan.json"),
        (VIFBase, "ovs.json"),
        (PodState, "podstate_up.json"),
        (PodState, "podstate.json"),
        (LBaaSServiceSpec, "lbaas_spec.json"),
        (LBaaSState, "lbaas_state.json"),
    ],
)
def test_object_written_by_upstream_survives_round_trip(kind, name):
    assert kind.from_json(golden(name)).to_json() == golden(name)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape["versioned_object.name"])
def test_every_kind_of_vif_written_by_upstream_survives_round_trip(shape):
    data = shape["versioned_object.data"]
    data["network"] = SHAPES[0]["versioned_object.data"]["network"]
    profile = data.get("port_profile")
    if profile and profile["versioned_object.name"] == "VIFPortProfileOpenVSwitch":
        assert profile["versioned_object.version"] == "1.3"  # read as such, written as 1.4
        again = VIFBase.from_json(shape)
        profile["versioned_object.version"] = "1.4"
        assert again.to_json() == shape
    else:
        assert VIFBase.from_json(shape).to_json() == shape


def test_pod_state_holds_vifs_of_mixed_kinds():
    state = PodState.from_json(golden("podstate.json"))
    assert isinstance(state.default_vif, VIFVlanNested)
    assert isinstance(state.additional_vifs["eth1"], VIFOpenVSwitch)
    assert state.default_vif.network.subnets[0].ips[0].address == "10.0.0.5"


def test_list_without_elements_is_still_a_list_object():
    data = Subnet(cidr="10.0.0.0/24").to_json()["versioned_object.data"]
    assert data["routes"]["versioned_object.name"] == "RouteList"
    assert data["routes"]["versioned_object.data"] == {"objects": []}
    assert data["dns"] == []


def test_unknown_field_of_newer_minor_version_is_dropped():
    data = golden("vlan.json")
    data["versioned_object.version"] = "1.9"
    data["versioned_object.data"]["colour"] = "blue"
    assert VIFBase.from_json(data) == VIFBase.from_json(golden("vlan.json"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"versioned_object.version": "2.0"}, "cannot read VIFVlanNested version 2.0"),
        ({"versioned_object.name": "Subnet"}, "expected VIFBase, found Subnet"),
        ({"versioned_object.data": {"id": "x"}}, "vif_name"),
    ],
)
def test_unreadable_vif_is_refused(change, message):
    with pytest.raises(DecodeError, match=message):
        VIFBase.from_json(golden("vlan.json") | change)
