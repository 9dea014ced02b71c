"""`python -m lab.kuryr up --pool KIND`: which pool drivers the controller gets."""

import pytest

from lab.kuryr.pools import KINDS, settings


@pytest.mark.parametrize("kind", KINDS)
def test_where_no_node_is_a_machine_the_driver_is_the_kind(kind):
    assert settings(kind, {}, machines=False)["kubernetes"] == {"vif_pool_driver": kind}


@pytest.mark.parametrize(
    ("kind", "mapping"),
    [
        ("noop", "nested-vlan:noop,neutron-vif:noop"),
        ("neutron", "nested-vlan:nested,neutron-vif:neutron"),
    ],
)
def test_machines_have_pools_of_subports_where_the_others_have_pools(kind, mapping):
    made = settings(kind, {"ports_pool_min": "2"}, machines=True)
    assert made["kubernetes"] == {"vif_pool_driver": "multi_pool"}
    assert made["vif_pool"] == {"vif_pool_mapping": mapping, "ports_pool_min": "2"}
