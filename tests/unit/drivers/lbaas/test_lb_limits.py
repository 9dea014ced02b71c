"""Since which version of its API Octavia can do what a load balancer is to have."""

import pytest

from kuryr_k8s import errors
from kuryr_k8s.drivers.lbaas.capabilities import check_groups, needed
from kuryr_k8s.model.load_balancer import Listener, LoadBalancer, Pool


def wanted(**values):
    place = {"vip_subnet_id": "s", "vip_address": None, "provider": None, "tags": ("one",)}
    return LoadBalancer(**{"name": "n", "project_id": "p"} | place | values)


def of_listener(**values):
    return {"listeners": (Listener(name="n", protocol="TCP", port=1, pool="one", **values),)}


def pool(protocol="TCP", algorithm="ROUND_ROBIN"):
    return Pool(name="one", protocol=protocol, lb_algorithm=algorithm)


@pytest.mark.parametrize(
    ("values", "feature", "version"),
    [
        ({}, "additive_only", (2, 11)),
        ({"availability_zone": "z"}, "availability_zone", (2, 14)),
        ({"additional_vips": ("s",)}, "additional_vips", (2, 26)),
        ({"vip_sg_ids": ("g",)}, "vip_sg_ids", (2, 29)),
        (of_listener(allowed_cidrs=("::/0",)), "allowed_cidrs", (2, 12)),
        (of_listener(tls_ciphers="AES"), "tls_ciphers", (2, 15)),
        (of_listener(tls_versions=("TLSv1.3",)), "tls_versions", (2, 17)),
        ({"pools": (pool(algorithm="SOURCE_IP_PORT"),)}, "lb_algorithm", (2, 13)),
        ({"pools": (pool("PROXYV2"),)}, "protocol", (2, 22)),
        ({"pools": (pool("SCTP"),)}, "protocol", (2, 23)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_feature_is_there_since_a_version(values, feature, version):
    assert dict(needed(wanted(**values)))[feature] == version


def test_what_every_octavia_has_needs_no_version_but_that_of_members_that_are_added():
    values = {"flavor_id": "f", "pools": (pool(), pool("PROXY"))}
    assert list(needed(wanted(**values))) == [("additive_only", (2, 11))]


@pytest.mark.parametrize("provider", ["ovn", "amphora", None])
def test_groups_of_a_vip_are_refused_where_the_provider_would_ignore_them(provider):
    check_groups(wanted(vip_sg_ids=()), provider)
    if provider != "ovn":
        check_groups(wanted(vip_sg_ids=("g",)), provider)
        return
    with pytest.raises(errors.Unsupported) as caught:
        check_groups(wanted(vip_sg_ids=("g",)), provider)
    assert caught.value.feature == "vip_sg_ids"
