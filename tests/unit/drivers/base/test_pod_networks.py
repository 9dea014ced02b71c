"""Which subnets of a network a Pod's interface gets."""

from kuryr_k8s.cloud.neutron.api import Network, Subnet
from kuryr_k8s.drivers.base import PodNetwork

NETWORK = Network(id="n", name="n", mtu=1500, project_id="p", shared=False)


def subnet(name):
    return Subnet(
        id=name,
        network_id="n",
        cidr="fd00::/64" if name.startswith("v6") else "10.0.0.0/24",
        ip_version=6 if name.startswith("v6") else 4,
        gateway_ip=None,
        dns_nameservers=(),
        host_routes=(),
    )


def network(*first, further=()):
    return PodNetwork(
        network=NETWORK,
        subnets=tuple(map(subnet, first)),
        further=tuple(map(subnet, further)),
    )


DUAL = network("v6a", "v4a", further=("v4b", "v6b"))


def names(subnets):
    return [found.id for found in subnets]


def test_network_without_further_subnets_has_one_choice():
    single = network("v4a", "v6a")
    assert single.choices == (single,)


def test_ipv4_changes_before_ipv6():
    assert [names(choice.subnets) for choice in DUAL.choices] == [
        ["v6a", "v4a"],
        ["v6a", "v4b"],
        ["v6b", "v4a"],
        ["v6b", "v4b"],
    ]


def test_each_choice_knows_all_subnets():
    for choice in DUAL.choices:
        assert sorted(names(choice.all_subnets)) == ["v4a", "v4b", "v6a", "v6b"]
        assert DUAL.may_have(choice.asked_subnet_ids)
    assert not DUAL.may_have(("v4a", "v4b"))


def test_first_choice_with_room_is_used():
    chosen = DUAL.first_with_room(lambda subnet_ids: "v6a" not in subnet_ids)
    assert names(chosen.subnets) == ["v6b", "v4a"]


def test_without_any_room_the_first_is_used():
    assert DUAL.first_with_room(lambda _: False) == DUAL.choices[0]
