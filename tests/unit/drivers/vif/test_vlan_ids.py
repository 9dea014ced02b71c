"""VLAN ids of a trunk."""

from hypothesis import given
from hypothesis import strategies as st

from kuryr_k8s.drivers.vif.vlan_ids import VLAN_IDS, free

TAKEN = st.one_of(
    st.sets(st.integers(-1, 4096), max_size=50),
    st.sets(st.integers(1, 4094), max_size=5).map(lambda holes: set(VLAN_IDS) - holes),
)


@given(TAKEN, st.integers(0, 20))
def test_ids_are_free_distinct_and_as_many_as_asked_for_if_there_are(taken, count):
    found = free(taken, count)
    assert len(set(found)) == len(found) == min(count, len(set(VLAN_IDS) - taken))
    assert not set(found) & taken
    assert all(1 <= vlan_id <= 4094 for vlan_id in found)


@given(TAKEN, st.integers(1, 20))
def test_ids_are_the_lowest(taken, count):
    found = free(taken, count)
    assert found == sorted(found)
    assert set(range(1, max(found, default=0) + 1)) - taken == set(found)
