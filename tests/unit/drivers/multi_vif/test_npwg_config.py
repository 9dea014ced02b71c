"""What NetworkAttachmentDefinitions say about Neutron."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kuryr_k8s import errors
from kuryr_k8s.drivers.multi_vif.npwg_config import Config, delegates, read_config

A = "5e2e6f4e-4a55-4b0f-8a0e-0d2c8c0f4b1a"
B = "c9b2a7e0-7d3d-4d0e-9d53-5f4a7c8f9e10"


@pytest.mark.parametrize(
    ("fields", "config"),
    [
        ({"subnetId": A}, Config(subnets=(A,))),
        ({"subnetId": f"{A},{B}"}, Config(subnets=(A, B))),
        (
            {"subnetId": A, "driverType": "neutron-vif"},  # as kuryr-kubernetes' users write it
            Config(subnets=(A,)),
        ),
        (
            {"subnetId": A, "driverType": "nested-macvlan"},
            Config(subnets=(A,), vif_driver="nested-macvlan"),
        ),
        ({"subnetId": A, "driverType": "sriov"}, Config(subnets=(A,), is_device=True)),
        ({"subnetId": A, "securityGroupIds": []}, Config(subnets=(A,), security_groups=())),
        ({"subnetId": A, "securityGroupIds": [B]}, Config(subnets=(A,), security_groups=(B,))),
        ({"subnetId": A, "portSecurity": False}, Config(subnets=(A,), port_security=False)),
    ],
)
def test_configuration_is_read(fields, config):
    assert read_config(json.dumps(fields)) == config


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is no JSON"),
        ("[]", "is no object"),
        ("{}", "has no subnetId"),
        ('{"subnetId": 1}', "has no subnetId"),
        ('{"subnetId": "../ports"}', "subnetId that is no id"),
        (f'{{"subnetId": "{A}", "driverType": 1}}', "driverType that is none of"),
        (f'{{"subnetId": "{A}", "securityGroupIds": "{B}"}}', "no list of ids"),
        (f'{{"subnetId": "{A}", "securityGroupIds": ["x"]}}', "securityGroupIds that is no id"),
        (f'{{"subnetId": "{A}", "portSecurity": "no"}}', "neither true nor false"),
        (f'{{"subnetId": "{A},{B},{A}"}}', "more than two ids in subnetId"),
        (json.dumps({"subnetId": A, "securityGroupIds": [B] * 11}), "11 securityGroupIds"),
        (
            json.dumps({"subnetId": A, "securityGroupIds": [B], "portSecurity": False}),
            "securityGroupIds, and portSecurity is false",
        ),
        (
            json.dumps({"subnetId": A, "driverType": "sriov", "securityGroupIds": [B]}),
            "no card has filters for sriov",
        ),
        (
            json.dumps({"subnetId": A, "driverType": "nested-macvlan", "portSecurity": True}),
            "nested-macvlan has those of the node",
        ),
        (
            json.dumps({"subnetId": A, "driverType": "nested-macvlan", "securityGroupIds": [B]}),
            "nested-macvlan has those of the node",
        ),
        (f'{{"subnetId": "{A}", "subnetID": "{B}"}}', "the key subnetID"),
    ],
)
def test_what_is_wrong_is_said(text, words):
    with pytest.raises(ValueError, match=words):
        read_config(text)


OURS = {"type": "kuryr-cni", "netAttachDefName": "n/storage"}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (OURS, True),
        ({"plugins": [{"type": "tuning"}, OURS]}, True),
        ({"type": "bridge"}, False),
        ({"plugins": [{"type": "bridge"}]}, False),
        ({"plugins": 7}, False),
        ([], False),
    ],
)
def test_definition_delegates_if_its_configuration_calls_the_plugin(config, expected):
    assert delegates({"spec": {"config": json.dumps(config)}}, "n/storage") is expected


@pytest.mark.parametrize("nad", [{}, {"spec": {}}, {"spec": {"config": "{"}}])
def test_definition_without_a_configuration_does_not_delegate(nad):
    assert delegates(nad, "n/storage") is False


@pytest.mark.parametrize("passed_on", [None, "storage", "other/storage"])
def test_definition_that_does_not_pass_its_name_on_is_refused(passed_on):
    config = OURS | {"netAttachDefName": passed_on}
    with pytest.raises(errors.Refused, match="n/storage"):
        delegates({"spec": {"config": json.dumps(config)}}, "n/storage")


@given(st.text())
def test_configuration_of_others_may_be_anything(text):
    assert delegates({"spec": {"config": text}}, "n/storage") is False


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.just(A),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
KEYS = ("subnetId", "driverType", "securityGroupIds", "portSecurity")


@given(st.text() | st.dictionaries(st.sampled_from(KEYS), JSON).map(json.dumps))
def test_whatever_is_written_is_read_or_refused(text):
    with contextlib.suppress(ValueError):
        assert read_config(text).subnets
