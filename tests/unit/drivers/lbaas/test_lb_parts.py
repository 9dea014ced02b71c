"""Whose the parts of a load balancer are."""

import pytest

from kuryr_k8s.drivers.base import tags as owner_tags
from kuryr_k8s.drivers.lbaas import ownership
from kuryr_k8s.model.load_balancer import (
    FoundListener,
    FoundLoadBalancer,
    FoundPool,
    Listener,
    LoadBalancer,
    Pool,
)
from kuryr_k8s.model.owner import Owner


def listener(name, protocol="TCP", port=80, tags=()):
    return Listener(name=name, protocol=protocol, port=port, pool=name, tags=tags)


def found_listener(name, protocol="TCP", port=80, tags=()):
    part = listener(name, protocol, port, tags)
    return FoundListener(id=name, provisioning_status="ACTIVE", listener=part, pool_id=name)


def found_pool(name, tags=()):
    pool = Pool(name=name, protocol="TCP", lb_algorithm="ROUND_ROBIN", tags=tags)
    return FoundPool(id=name, provisioning_status="ACTIVE", pool=pool)


def of(owner):
    return owner_tags.tags_of(["cluster"], "default", Owner(owner))


def whole(tags):
    owners = {"bare": (), "a": of("a"), "b": of("b")}
    return FoundLoadBalancer(
        id="x",
        name="x",
        project_id="p",
        provider="ovn",
        vip_address="10.0.0.1",
        vip_subnet_id="s",
        vip_port_id="v",
        provisioning_status="ACTIVE",
        operating_status="ONLINE",
        tags=tags,
        listeners=tuple(found_listener(name, tags=own_tags) for name, own_tags in owners.items()),
        pools=tuple(found_pool(name, own_tags) for name, own_tags in owners.items()),
    )


@pytest.mark.parametrize(
    ("tags", "owner", "mine"),
    [
        (of("a"), "a", {"a", "bare"}),  # its own, and what has no owner
        (of("a"), "b", {"b"}),
        ((), "a", {"a"}),  # an operator's
        ((), "c", set()),
    ],
)
def test_each_owner_has_its_part_and_the_rest_is_others(tags, owner, mine):
    part, rest = ownership.divide(whole(tags), Owner(owner))
    for balancer in (part, rest):
        assert {each.id for each in balancer.listeners} == {each.id for each in balancer.pools}
    assert {each.id for each in part.listeners} == mine
    assert {each.id for each in rest.listeners} == {"bare", "a", "b"} - mine


@pytest.mark.parametrize(
    ("there", "wanted", "taken"),
    [
        (("TCP", 80), ("TCP", 80), True),
        (("TCP", 80), ("TCP", 81), False),
        (("TCP", 80), ("UDP", 80), False),
        (("UDP", 80), ("SCTP", 80), False),
        (("UDP", 80), ("UDP", 80), True),
        (("HTTP", 80), ("TCP", 80), True),
        (("TERMINATED_HTTPS", 443), ("HTTPS", 443), True),
    ],
)
def test_port_is_taken_by_what_is_carried_the_same_way(there, wanted, taken):
    others = [found_listener("other", *there)]
    found = ownership.find_taken([listener("wanted", *wanted)], others)
    assert [(clash.wanted.name, clash.by.id) for clash in found] == [("wanted", "other")] * taken


def test_what_is_not_taken_is_wanted_still():
    http, dns = listener("http"), listener("dns", "UDP", 53)
    pools = tuple(found_pool(name).pool for name in ("http", "dns"))
    desired = LoadBalancer(
        name="web",
        project_id="p",
        vip_subnet_id=None,
        vip_address=None,
        provider=None,
        listeners=(http, dns),
        pools=pools,
    )
    taken = ownership.find_taken(desired.listeners, [found_listener("other")])
    left = ownership.without(desired, taken)
    assert left.listeners == (dns,)
    assert [pool.name for pool in left.pools] == ["dns"]
    assert ownership.without(desired, []) == desired
