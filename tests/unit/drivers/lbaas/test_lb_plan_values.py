"""Plans for load balancers: which values are differences, and what each costs."""

from dataclasses import replace

import pytest

from kuryr_k8s.drivers.lbaas.plan import steps
from tests.kit.lbaas.octavia_model import made
from tests.kit.lbaas.plans import MONITOR, carry_out, kinds, listener, next_step, pool, wanted


@pytest.mark.parametrize(
    "change",
    [
        {"provider": "ovn"},
        {"vip_address": "10.3.0.2"},
        {"vip_subnet_id": "services2"},
        {"project_id": "other"},
        {"vip_network_id": "elsewhere"},
        {"vip_port_id": "another"},
        {"additional_vips": ("one", "two")},
        {"flavor_id": "large"},
        {"availability_zone": "there"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_a_load_balancer_is_given_once_makes_it_anew(change):
    desired = wanted(listener(), pool(), provider="amphora")
    steps = carry_out(replace(desired, **change), made(desired))
    assert kinds(steps) == ["DeleteLoadBalancer", "CreateLoadBalancer"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (wanted(vip_address="fd03::1"), wanted(vip_address="FD03:0:0::1")),
        (wanted(pool(members=["fd02::1"])), wanted(pool(members=["fd02:0::0:1"]))),
        (
            wanted(pool(), listener(allowed_cidrs=("fd00:0::/8", "10.0.0.0/8"))),
            wanted(pool(), listener(allowed_cidrs=("10.0.0.0/8", "fd00::/8"))),
        ),
        (
            wanted(pool(members=["10.2.0.1", "10.2.0.2"])),
            wanted(pool(members=["10.2.0.2", "10.2.0.1"])),
        ),
    ],
    ids=["vip", "member", "cidrs", "order"],
)
def test_another_spelling_or_order_is_no_difference(old, new):
    assert next_step(new, made(old)) is None


def test_what_octavia_fills_in_is_no_difference():
    desired = wanted(
        listener("dns", 53, "UDP"), pool("dns", "UDP", persistence="SOURCE_IP"), vip_address=None
    )
    found = made(desired)
    assert found.listeners[0].listener.timeout_client_data
    assert found.pools[0].pool.persistence_timeout
    assert next_step(desired, found) is None


def test_what_was_chosen_at_the_making_stays_where_nothing_is_asked_for():
    desired = wanted(listener(), pool())
    found = made(replace(desired, flavor_id="large", availability_zone="there", vip_port_id="p"))
    nowhere = replace(desired, vip_subnet_id=None, vip_network_id="network", vip_address=None)
    assert next_step(desired, found) is None
    assert next_step(nowhere, found) is None
    assert next_step(replace(nowhere, vip_port_id="p"), found) is None


def test_groups_of_a_vip_are_changed_by_one_call_and_not_at_all_where_they_may_be_any():
    old = wanted(listener(), pool())
    one, both, none = (replace(old, vip_sg_ids=ids) for ids in (("a",), ("a", "b"), ()))
    assert kinds(carry_out(one, made(old))) == ["SetSecurityGroups"]
    assert kinds(carry_out(both, made(one))) == ["SetSecurityGroups"]
    assert kinds(carry_out(none, made(both))) == ["SetSecurityGroups"]
    assert next_step(replace(both, vip_sg_ids=("b", "a")), made(both)) is None
    assert next_step(old, made(both)) is None


@pytest.mark.parametrize("forward", [True, False])
def test_groups_of_a_vip_change_before_the_source_ranges_that_octavia_refuses_beside_them(forward):
    open_vip = wanted(listener(), pool())
    ranged = wanted(listener(allowed_cidrs=("10.0.0.0/8",)), pool())
    states = [replace(open_vip, vip_sg_ids=("a",)), replace(ranged, vip_sg_ids=())]
    new, old = states if forward else reversed(states)
    assert kinds(carry_out(new, made(old))) == ["SetSecurityGroups", "UpdateListener"]


def test_additional_vips_stay_where_nobody_asks_for_any():
    old = wanted(listener(), pool())
    found = made(replace(old, additional_vips=("b", "a")))
    assert next_step(old, found) is None
    assert next_step(replace(old, additional_vips=("a", "b")), found) is None


def test_nothing_but_members_changes_before_the_groups_of_a_vip_are_there():
    """If they are refused, the source ranges that there are must not be gone."""
    ranged = wanted(listener(allowed_cidrs=("10.0.0.0/8",)), pool())
    grouped = replace(wanted(listener(), pool(members=("10.2.0.2",))), vip_sg_ids=("a",))
    assert kinds(steps(grouped, made(ranged))) == ["SetSecurityGroups", "SetMembers"]


def test_what_of_tls_is_not_asked_for_any_more_is_octavias_own_again_by_one_call():
    plain = listener(default_tls_container_ref="ref")
    asked = replace(plain, tls_ciphers="AES", tags=("kuryr-set:tls_ciphers",))
    step = next_step(wanted(plain, pool()), made(wanted(asked, pool())))
    assert step.forgotten == {"tls_ciphers"}
    assert step.listener.tags == ()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"tls_enabled": True}),
        ({"tls_enabled": True}, {"tls_enabled": True, "ca_tls_container_ref": "one"}),
        ({"tls_enabled": True, "ca_tls_container_ref": "one"},
         {"tls_enabled": True, "ca_tls_container_ref": "two"}),
    ],
)  # fmt: skip
def test_tls_of_a_pool_changes_by_one_call_and_so_does_its_way_back(before, after):
    front = listener(protocol="HTTP")
    old, new = (wanted(front, pool(protocol="HTTP", **each)) for each in (before, after))
    assert kinds(carry_out(new, made(old))) == ["UpdatePool"]
    assert kinds(carry_out(old, made(new))) == ["UpdatePool"]


def test_names_for_people_are_no_difference_but_are_written_along():
    old = wanted(listener(), pool())
    [only] = old.pools
    renamed = replace(only, members=(replace(only.members[0], name="default/other"),))
    new = replace(
        old, name="x", listeners=(replace(old.listeners[0], name="y"),), pools=(renamed,)
    )
    assert next_step(new, made(old)) is None
    heavier = (replace(renamed.members[0], weight=2),)
    [step] = carry_out(replace(new, pools=(replace(renamed, members=heavier),)), made(old))
    assert step.members[0].name == "default/other"


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("listener", {"timeout_client_data": 2000}),
        ("listener", {"timeout_member_data": 2000}),
        ("listener", {"allowed_cidrs": ("10.0.0.0/8",)}),
        ("listener", {"allowed_cidrs": ()}),
        ("listener", {"timeout_member_connect": 2000}),
        ("listener", {"timeout_tcp_inspect": 2000}),
        ("listener", {"connection_limit": 7}),
        ("listener", {"insert_headers": ("X-Forwarded-For", "X-Forwarded-Port")}),
        ("listener", {"insert_headers": ()}),
        ("listener", {"default_tls_container_ref": "two"}),
        ("listener", {"sni_container_refs": ("sni",)}),
        ("listener", {"sni_container_refs": ("sni", "more")}),
        ("listener", {"tls_versions": ("TLSv1.2", "TLSv1.3")}),
        ("listener", {"tls_ciphers": "AES"}),
        ("listener", {"client_authentication": "OPTIONAL"}),
        ("listener", {"client_ca_tls_container_ref": "ca2"}),
        ("listener", {"client_crl_container_ref": None}),
        ("monitor", {"delay": 9}),
        ("monitor", {"timeout": 2}),
        ("monitor", {"max_retries": 2}),
        ("monitor", {"max_retries_down": 2}),
        ("monitor", {"http_method": "HEAD"}),
        ("monitor", {"url_path": "/ready"}),
        ("monitor", {"expected_codes": "200-204"}),
        ("pool", {"lb_algorithm": "SOURCE_IP"}),
        ("pool", {"persistence": None, "persistence_timeout": None}),
        ("pool", {"persistence_timeout": 60}),
        ("member", {"weight": 0}),
        ("member", {"weight": 2}),
        ("member", {"subnet_id": "nodes"}),
        ("member", {"address": "10.2.0.9"}),
        ("member", {"port": 8081}),
    ],
    ids=str,
)
def test_each_single_change_is_one_call_and_so_is_its_way_back(part, change):
    cidrs = ("fd00::/8",)
    times = ("timeout_client_data", "timeout_member_data", "timeout_member_connect")
    front = listener("sip", 5060, "SCTP", allowed_cidrs=cidrs, **dict.fromkeys(times, 1000))
    front = replace(front, timeout_tcp_inspect=1000, connection_limit=5)
    front = replace(front, insert_headers=("X-Forwarded-For",), default_tls_container_ref="one")
    front = replace(front, tls_versions=("TLSv1.3",), tls_ciphers="ECDHE")
    front = replace(
        front,
        client_authentication="MANDATORY",
        client_ca_tls_container_ref="ca",
        client_crl_container_ref="crl",
    )
    backs = pool("sip", "SCTP", persistence="SOURCE_IP", persistence_timeout=10800)
    member = replace(backs.members[0], subnet_id="pods")
    requests = {"http_method": "GET", "url_path": "/", "expected_codes": "200"}
    monitor = replace(MONITOR, type="HTTP", **requests)
    backs = replace(backs, members=(member,), health_monitor=monitor)
    changed = {
        "listener": lambda: (replace(front, **change), backs),
        "pool": lambda: (front, replace(backs, **change)),
        "member": lambda: (front, replace(backs, members=(replace(member, **change),))),
        "monitor": lambda: (front, replace(backs, health_monitor=replace(monitor, **change))),
    }[part]()
    kind = {
        "listener": "UpdateListener",
        "pool": "UpdatePool",
        "member": "SetMembers",
        "monitor": "UpdateHealthMonitor",
    }[part]
    assert kinds(carry_out(wanted(*changed), made(wanted(front, backs)))) == [kind]
    assert kinds(carry_out(wanted(front, backs), made(wanted(*changed)))) == [kind]
