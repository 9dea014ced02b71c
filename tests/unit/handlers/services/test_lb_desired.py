"""The load balancer that a Service is to have, from its slices."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kuryr_k8s import errors
from kuryr_k8s.handlers.services.desired import desired_of, owners_of
from kuryr_k8s.handlers.services.reconcile import Given, Options
from kuryr_k8s.handlers.services.settings import unkept
from kuryr_k8s.handlers.services.spec import subnet_of
from kuryr_k8s.model.lbaas import LBaaSPortSpec, LBaaSServiceSpec
from kuryr_k8s.model.service_annotations import read_timeouts
from tests.kit.paths import GOLDEN
from tests.kit.service_objects import UID, endpoint, service, slice_of, subnet

HTTP, DNS = ("http", 80), ("dns", 53, "UDP")


def desired(of, *slices, ip="10.96.0.10", options=None):
    ports = [
        LBaaSPortSpec(
            name=port.name or None,
            protocol=port.protocol,
            port=port.port,
            targetPort=port.target_port,
        )
        for port in of.ports
    ]
    spec = LBaaSServiceSpec(ip=ip, ports=tuple(ports), project_id="p", subnet_id="services")
    settings, _problems = read_timeouts(dict(of.annotations))
    given = Given(
        service=of, specs=(spec,), slices=slices, options=options or Options(), settings=settings
    )
    return desired_of(given, spec)


def members(balancer, pool=0):
    return {
        (member.address, member.port): (member.weight, member.name)
        for member in balancer.pools[pool].members
    }


def test_names_are_those_of_the_ancestor():
    pods = slice_of([endpoint("10.1.0.5", pod="web-0")], ("http", 8080))
    balancer = desired(service(HTTP), pods)
    golden = json.loads((GOLDEN / "lbaas_state.json").read_text())["versioned_object.data"]
    listener = golden["listeners"][0]["versioned_object.data"]["name"]
    assert balancer.name == golden["loadbalancer"]["versioned_object.data"]["name"]
    assert balancer.listeners[0].name == balancer.pools[0].name == listener
    assert members(balancer) == {("10.1.0.5", 8080): (1, "default/web-0:8080")}


def test_load_balancer_is_where_the_spec_says_with_a_listener_and_a_pool_for_each_port():
    options = Options(provider="ovn", lb_algorithm="SOURCE_IP_PORT", timeout_client_data=5000)
    balancer = desired(service(HTTP, DNS, ("dns-tcp", 53)), options=options)
    where = (balancer.project_id, balancer.vip_subnet_id, balancer.vip_address, balancer.provider)
    assert where == ("p", "services", "10.96.0.10", "ovn")
    fronts = [
        (listener.protocol, listener.port, listener.timeout_client_data)
        for listener in balancer.listeners
    ]
    assert fronts == [("TCP", 80, 5000), ("UDP", 53, 5000), ("TCP", 53, 5000)]
    assert [listener.pool for listener in balancer.listeners] == [
        pool.name for pool in balancer.pools
    ]
    assert {pool.lb_algorithm for pool in balancer.pools} == {"SOURCE_IP_PORT"}


def test_names_are_cut_where_octavia_takes_no_more():
    pods = slice_of([endpoint("10.1.0.5", pod="p" * 253)], ("http", 65535))
    ((_weight, name),) = members(desired(service(HTTP), pods)).values()
    assert len(name) == 255
    assert name.endswith(":65535")


def test_target_port_is_the_slices_own_and_may_differ_from_pod_to_pod():
    old = slice_of([endpoint("10.1.0.5")], ("http", 8080), name="old")
    new = slice_of([endpoint("10.1.0.6")], ("http", 9090), name="new")
    assert members(desired(service(HTTP), old, new)).keys() == {
        ("10.1.0.5", 8080),
        ("10.1.0.6", 9090),
    }


def test_members_beyond_the_limit_are_refused():
    """Their list would take seconds, in which the controller does nothing else."""
    ports = [(f"p{number}", number) for number in range(1, 21)]
    many = [endpoint(f"10.1.{number // 250}.{number % 250}") for number in range(1000)]
    slices = slice_of(many, *ports)
    assert len(members(desired(service(*ports), slices), 19)) == 1000
    more = slice_of([endpoint("10.2.0.1")], *ports, name="more")
    with pytest.raises(errors.Refused, match="20020 members of a load balancer"):
        desired(service(*ports), slices, more)


def test_port_of_another_name_or_protocol_is_another_port():
    slices = slice_of([endpoint("10.1.0.5")], ("http", 8080), ("dns", 5353), ("dns", 5354, "UDP"))
    balancer = desired(service(HTTP, DNS), slices)
    assert members(balancer, 0).keys() == {("10.1.0.5", 8080)}
    assert members(balancer, 1).keys() == {("10.1.0.5", 5354)}


def test_service_without_names_of_ports_meets_its_own_slices():
    slices = slice_of([endpoint("192.0.2.1")], (None, 6443))
    assert members(desired(service((None, 443)), slices)) == {
        ("192.0.2.1", 6443): (1, "192.0.2.1:6443")
    }


@pytest.mark.parametrize(
    ("conditions", "publishes", "weight"),
    [
        ({"ready": True}, False, 1),
        ({"ready": False, "serving": False}, False, None),
        ({"ready": False, "serving": True, "terminating": True}, False, 0),
        ({"ready": False, "serving": False, "terminating": True}, False, None),
        ({"ready": False, "serving": True, "terminating": False}, False, None),
        ({"ready": False, "serving": False}, True, 1),
    ],
)
def test_weight_follows_the_conditions(conditions, publishes, weight):
    of = service(HTTP, publishNotReadyAddresses=publishes)
    slices = slice_of([endpoint("10.1.0.5", **conditions), endpoint("10.1.0.9")], ("http", 80))
    found = members(desired(of, slices))
    assert found.pop(("10.1.0.9", 80))[0] == 1
    assert [found_weight for found_weight, _name in found.values()] == (
        [] if weight is None else [weight]
    )


def test_where_nobody_is_ready_those_that_terminate_serve_on():
    ending = endpoint("10.1.0.5", ready=False, serving=True, terminating=True)
    ended = endpoint("10.1.0.6", ready=False, serving=False, terminating=True)
    found = members(desired(service(HTTP), slice_of([ending, ended], ("http", 80))))
    assert {key: weight for key, (weight, _name) in found.items()} == {("10.1.0.5", 80): 1}


def test_endpoint_on_its_way_from_slice_to_slice_is_one_member_as_good_as_it_gets():
    ending = endpoint("10.1.0.5", pod="a", ready=False, serving=True, terminating=True)
    one, other = (
        slice_of([ending], ("http", 80), name="a"),
        slice_of([endpoint("10.1.0.5", pod="b")], ("http", 80), name="b"),
    )
    assert members(desired(service(HTTP), one, other)) == {("10.1.0.5", 80): (1, "default/b:80")}
    assert desired(service(HTTP), one, other) == desired(service(HTTP), other, one)


def test_dual_stack_service_has_a_load_balancer_of_each_family():
    of = service(HTTP, addresses=("10.96.0.10", "fd96::10"))
    slices = (
        slice_of([endpoint("10.1.0.5")], ("http", 80), name="a"),
        slice_of([endpoint("FD01:0:0::5")], ("http", 80), family="IPv6", name="b"),
    )
    first, second = desired(of, *slices), desired(of, *slices, ip="fd96::10")
    assert members(first).keys() == {("10.1.0.5", 80)}
    assert members(second).keys() == {("fd01::5", 80)}
    assert (first.name, second.name) == ("default/web", "default/web/IPv6")
    owners = owners_of(of)
    assert len(set(owners)) == 2
    assert {owner.uid for owner in owners} == {UID}


def test_members_are_reached_in_the_pods_subnet_else_in_the_vips():
    pods = (subnet("10.1.0.0/16"), subnet("fd01::/64", "pods-6"))
    slices = slice_of([endpoint("10.1.0.5"), endpoint("192.0.2.1")], ("http", 80))
    balancer = desired(service(HTTP), slices, options=Options(member_subnets=pods))
    assert [member.subnet_id for member in balancer.pools[0].members] == ["pods-4", "services"]


def test_members_are_reached_through_the_router_if_the_operator_says_so():
    balancer = desired(service(HTTP), slice_of([endpoint("10.1.0.5")], ("http", 80)))
    assert [member.subnet_id for member in balancer.pools[0].members] == [None]


@pytest.mark.parametrize(
    ("port", "persistence"),
    [(HTTP, ("SOURCE_IP", None)), (DNS, ("SOURCE_IP", 60)), (("s", 9, "SCTP"), ("SOURCE_IP", 60))],
)
def test_affinity_is_persistence_with_its_timeout_where_octavia_has_one(port, persistence):
    timeout = {"clientIP": {"timeoutSeconds": 60}}
    of = service(port, sessionAffinity="ClientIP", sessionAffinityConfig=timeout)
    (pool,) = desired(of).pools
    assert (pool.persistence, pool.persistence_timeout) == persistence
    assert bool(unkept(of, exposed=False, providers={"amphora"})) == (port is HTTP)
    assert unkept(of, exposed=False, providers={"ovn"})  # it keeps a client by a hash, for ever


def test_timeout_that_nobody_asked_for_is_nothing_to_tell():
    default = {"clientIP": {"timeoutSeconds": 10800}}
    of = service(HTTP, sessionAffinity="ClientIP", sessionAffinityConfig=default)
    assert not unkept(of, exposed=False, providers={"ovn"})
    assert not unkept(service(HTTP), exposed=True, providers={"ovn"})


def test_timeouts_of_the_service_go_before_those_of_the_operator():
    marks = {"openstack.org/kuryr-timeout-client-data": "9000"}
    options = Options(timeout_client_data=1, timeout_member_data=2)
    (listener,) = desired(service(HTTP, annotations=marks), options=options).listeners
    assert (listener.timeout_client_data, listener.timeout_member_data) == (9000, 2)


def test_address_outside_of_the_services_subnets_is_refused():
    subnets = [subnet("10.96.0.0/16", "v4"), subnet("fd96::/112", "v6")]
    assert subnet_of("10.96.3.4", subnets) == "v4"
    assert subnet_of("fd96::4", subnets) == "v6"
    with pytest.raises(errors.Refused, match=r"10\.97\.0\.1 is in none .*10\.96\.0\.0/16"):
        subnet_of("10.97.0.1", subnets)


CONDITION = st.sampled_from([None, True, False])
ENDPOINTS = st.builds(
    endpoint,
    st.integers(1, 6).map(lambda number: f"10.1.0.{number}"),
    pod=st.sampled_from([None, "a", "b"]),
    ready=CONDITION,
    serving=CONDITION,
    terminating=CONDITION,
)
PORTS = st.sampled_from(
    [("http", 8080), ("http", 9090), ("http", 80, "UDP"), ("dns", 5353, "UDP"), ("x", 1)]
)
SLICES = st.lists(
    st.builds(
        lambda endpoints, ports, family: slice_of(endpoints, *ports, family=family),
        st.lists(ENDPOINTS, max_size=6),
        st.lists(PORTS, max_size=3),
        st.sampled_from(["IPv4", "IPv4", "FQDN"]),
    ),
    max_size=5,
)


@given(SLICES, st.booleans())
def test_members_are_the_endpoints_exactly(slices, publishes):
    of = service(HTTP, DNS, publishNotReadyAddresses=publishes)
    balancer = desired(of, *slices)
    for port, pool in zip(of.ports, balancer.pools, strict=True):
        expected = {}
        for endpoint_slice in slices:
            for number in [
                other.port
                for other in endpoint_slice.ports
                if other.name == port.name and other.protocol == port.protocol
            ]:
                for found in endpoint_slice.endpoints:
                    draining = found.serving and found.terminating
                    if found.ready or publishes:
                        expected[found.address, number] = 1
                    elif draining:
                        expected.setdefault((found.address, number), 0)
        if 1 not in expected.values():  # nobody is ready
            expected = dict.fromkeys(expected, 1)
        assert {tuple(member.key): member.weight for member in pool.members} == expected
        assert len(pool.members) == len(expected)


@given(SLICES.flatmap(lambda slices: st.tuples(st.just(slices), st.permutations(slices))))
def test_order_of_slices_does_not_matter(both):
    of = service(HTTP, DNS)
    slices, shuffled = both
    assert desired(of, *slices) == desired(of, *shuffled)
