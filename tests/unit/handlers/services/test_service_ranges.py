"""Ranges of ClusterIPs, held against the subnets of Services."""

import pytest

from kuryr_k8s.handlers.services.ranges import fault_of
from tests.kit.service_objects import subnet

UPPER = (("10.97.0.2", "10.97.255.254"),)
V4 = subnet("10.96.0.0/15", gateway_ip="10.97.0.1", allocation_pools=UPPER)
V6 = subnet("fd96::/64", gateway_ip="fd96::1:1", allocation_pools=(("fd96::1:2", "fd96::1:ff"),))


@pytest.mark.parametrize("cidr", ["10.96.0.0/16", "10.96.0.1", "fd96::/112", "fd96::1"])
def test_range_beside_gateway_and_allocation_pools_is_fit(cidr):
    assert fault_of(cidr, [V4, V6]) is None


def test_gateway_is_not_asked_for():
    assert fault_of("10.96.0.0/16", [subnet("10.96.0.0/15", allocation_pools=UPPER)]) is None


@pytest.mark.parametrize("cidr", ["10.98.0.0/16", "10.96.0.0/14", "fd97::/112"])
def test_range_that_is_not_part_of_a_subnet_is_named_with_the_subnets(cidr):
    fault = fault_of(cidr, [V4, V6])
    assert cidr in fault
    assert "10.96.0.0/15, fd96::/64" in fault


def test_family_without_a_subnet_is_a_fault():
    assert "part of none" in fault_of("fd96::/112", [V4])


@pytest.mark.parametrize("cidr", ["10.96.0.0/16", "10.96.0.1"])
def test_gateway_among_the_clusterips_is_a_fault(cidr):
    near = subnet("10.96.0.0/15", gateway_ip="10.96.0.1", allocation_pools=UPPER)
    assert "the gateway 10.96.0.1 of subnet pods-4" in fault_of(cidr, [near])


@pytest.mark.parametrize(
    "pool",
    [
        ("10.96.0.2", "10.97.255.254"),
        ("10.96.255.255", "10.97.0.9"),
        ("10.95.0.1", "10.96.0.0"),
        ("10.96.7.1", "10.96.7.9"),
    ],
)
def test_allocation_pool_among_the_clusterips_is_a_fault(pool):
    near = subnet("10.96.0.0/15", gateway_ip="10.97.0.1", allocation_pools=(*UPPER, pool))
    fault = fault_of("10.96.0.0/16", [near])
    assert f"addresses of {pool[0]} to {pool[1]}" in fault
    assert "set its allocation pools outside" in fault
