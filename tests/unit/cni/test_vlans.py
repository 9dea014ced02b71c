"""VLANs as the kernel of any machine answers for them."""

import pytest

from kuryr_k8s.cni.netlink import Links, Vlan


@pytest.fixture
def vlans():
    links = Links()
    yield links.vlans
    links.close()


def test_no_vlan_exists_on_a_link_that_is_away(vlans):
    assert not vlans.exists(Vlan(link="away", vlan_id=1))
