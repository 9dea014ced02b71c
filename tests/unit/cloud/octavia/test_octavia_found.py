"""Load balancers from Octavia's JSON."""

from kuryr_k8s.cloud.octavia import found as octavia_found
from kuryr_k8s.model.load_balancer import Address, HealthMonitor, Member


def shown(**changes):
    """What Octavia shows of a load balancer with one listener, its pool and one member.

    A health monitor is there where its changes are given.
    """
    status = {"provisioning_status": "ACTIVE", "operating_status": "ONLINE"}
    balancer = {
        "id": "lb",
        "name": "n",
        "project_id": "p",
        "provider": "ovn",
        "vip_address": "10.2.0.9",
        "vip_subnet_id": "v",
        "vip_port_id": "port",
        "tags": ["one"],
        "vip_network_id": "n",
        "flavor_id": None,
        "availability_zone": "here",
    }
    listener = {
        "id": "l",
        "name": "web",
        "protocol": "TCP",
        "protocol_port": 80,
        "default_pool_id": "pool",
        "timeout_client_data": 50000,
        "timeout_member_data": 50000,
        "timeout_member_connect": 5000,
        "timeout_tcp_inspect": 0,
        "connection_limit": -1,
        "insert_headers": {"X-Forwarded-Port": "true", "X-Client-IP": "False"},
        "default_tls_container_ref": None,
        "sni_container_refs": ["two", "one"],
        "client_authentication": "NONE",
        "client_ca_tls_container_ref": None,
        "client_crl_container_ref": None,
        "tags": ["one"],
        "allowed_cidrs": ["192.0.2.0/24", "10.0.0.0/8"],
    }
    pool = {
        "id": "pool",
        "name": "web",
        "protocol": "TCP",
        "lb_algorithm": "SOURCE_IP_PORT",
        "session_persistence": {"type": "SOURCE_IP", "persistence_timeout": None},
        "tls_enabled": True,
        "ca_tls_container_ref": "ca",
        "tags": ["one", "two"],
    }
    monitor = {
        "id": "h",
        "type": "TCP",
        "delay": 5,
        "timeout": 3,
        "max_retries": 1,
        "max_retries_down": 2,
        "http_method": None,
        "url_path": None,
        "expected_codes": None,
    }
    member = {
        "id": "m",
        "name": "default/web",
        "address": "10.0.0.5",
        "protocol_port": 8080,
        "subnet_id": None,
        "weight": 1,
    }
    parts = {
        "balancer": balancer,
        "listener": listener,
        "pool": pool,
        "member": member,
        "monitor": monitor,
    }
    parts = {name: part | status | (changes.get(name) or {}) for name, part in parts.items()}
    lists = octavia_found.Parts(
        parts["balancer"],
        [parts["listener"]],
        [parts["pool"]],
        {"pool": parts["monitor"]} if "monitor" in changes else {},
    )
    return octavia_found.found(lists, {"pool": [parts["member"]]}, {})


def test_what_is_found_has_the_names_of_pools_and_the_statuses_of_all():
    found = shown(member={"provisioning_status": "PENDING_UPDATE"})
    assert found.listeners[0].listener.pool == "web"
    assert found.pools[0].member_statuses == {Address("10.0.0.5", 8080): "PENDING_UPDATE"}
    assert found.pools[0].member_ids == {Address("10.0.0.5", 8080): "m"}
    assert found.pools[0].pool.persistence == "SOURCE_IP"
    assert found.pools[0].pool.persistence_timeout is None
    assert found.is_pending()
    assert not shown().is_pending()


def test_cidrs_have_an_order_though_octavia_gives_them_none():
    assert shown().listeners[0].listener.allowed_cidrs == ("10.0.0.0/8", "192.0.2.0/24")
    assert shown(listener={"allowed_cidrs": None}).listeners[0].listener.allowed_cidrs == ()


def test_a_listener_without_a_pool_is_found_so():
    listener = shown(listener={"default_pool_id": None}).listeners[0]
    assert (listener.listener.pool, listener.pool_id) == ("", None)


def test_what_octavia_leaves_out_of_members_is_empty():
    members = shown(member={"name": None}).pools[0].pool.members
    assert members == (Member(address="10.0.0.5", port=8080),)


def test_a_pool_without_a_monitor_has_none_and_a_monitor_counts_among_the_statuses():
    pool = shown().pools[0]
    assert (pool.pool.health_monitor, pool.health_monitor_id) == (None, None)
    assert pool.health_monitor_status is None
    found = shown(monitor={"provisioning_status": "PENDING_UPDATE"})
    [pool] = found.pools
    assert pool.health_monitor_id == "h"
    assert pool.pool.health_monitor == HealthMonitor(
        type="TCP", delay=5, timeout=3, max_retries=1, max_retries_down=2
    )
    assert found.is_pending()


def test_limits_tags_and_what_was_chosen_are_found():
    found = shown()
    [listener] = found.listeners
    limits = (listener.listener.timeout_member_connect, listener.listener.timeout_tcp_inspect)
    assert (*limits, listener.listener.connection_limit) == (5000, 0, -1)
    assert (listener.listener.tags, found.pools[0].pool.tags) == (("one",), ("one", "two"))
    assert (found.vip_network_id, found.flavor_id, found.availability_zone) == ("n", None, "here")


def test_headers_are_those_that_are_added():
    assert shown().listeners[0].listener.insert_headers == ("X-Forwarded-Port",)
    assert shown().listeners[0].listener.sni_container_refs == ("one", "two")
    assert shown(listener={"insert_headers": None}).listeners[0].listener.insert_headers == ()


def test_vips_are_the_first_one_and_those_that_a_new_octavia_has_beside_it():
    assert shown().vips() == ("10.2.0.9",)
    more = [{"subnet_id": "w", "ip_address": "10.3.0.9", "port_id": "q"}]
    assert shown(balancer={"additional_vips": more}).vips() == ("10.2.0.9", "10.3.0.9")
