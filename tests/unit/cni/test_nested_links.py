"""VLANs as the kernel of any machine answers for them."""

import pytest

from kuryr_k8s.cni.netlink import Links, Vlan


@pytest.fixture
def nested():
    links = Links()
    yield links.nested
    links.close()


def test_no_vlan_exists_on_a_link_that_is_away(nested):
    assert not nested.exists(Vlan(link="away", vlan_id=1), 0)
