"""NeutronPorts as the API server shows them."""

import pytest

from kuryr_k8s.model.condition import Condition
from kuryr_k8s.model.neutronport import NeutronPort


def item(annotations=None, **spec):
    return {
        "metadata": {
            "namespace": "shop",
            "name": "db",
            "uid": "uid",
            "resourceVersion": "7",
            "generation": 1,
            "annotations": annotations or {},
        },
        "spec": spec,
    }


def test_values_are_spelled_as_neutron_spells_them():
    pairs = [
        {"ipAddress": "FD00::0:1", "macAddress": "FA:16:3E:00:00:01"},
        {"ipAddress": "10.0.0.0/8"},
    ]
    spec = NeutronPort.read(
        item(
            fixedIPs=["FD00:0::7"],
            macAddress="FA:16:3E:00:00:07",
            allowedAddressPairs=pairs,
        )
    ).spec
    assert (spec.fixed_ips, spec.mac) == (("fd00::7",), "fa:16:3e:00:00:07")
    assert spec.pairs == (("fd00::1", "fa:16:3e:00:00:01"), ("10.0.0.0/8", ""))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("web-0/0d8c", ("web-0", "0d8c")),
        ("../../secrets/0d8c", ("", "")),
        ("web-0", ("", "")),
        ("web-0/", ("", "")),
    ],
)
def test_pod_that_it_was_made_for_is_read_from_its_own_annotation(text, found):
    port = NeutronPort.read(item({"openstack.org/made-for": text}))
    assert (port.pod_name, port.pod_uid) == found


def test_condition_keeps_its_time_as_long_as_it_says_the_same():
    before = Condition(is_true=False, reason="One", message="", since="2026-01-01T00:00:00Z")
    later = Condition(is_true=False, reason="Other", message="", since="2026-01-02T00:00:00Z")
    well = Condition(is_true=True, reason="PortReady", message="", since="2026-01-03T00:00:00Z")
    assert later.follows(before).since == before.since
    assert well.follows(before).since == well.since
    assert well.follows(None).since == well.since
