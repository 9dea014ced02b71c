"""Load balancers in Octavia's JSON."""

import dataclasses

from kuryr_k8s.cloud.octavia import bodies as octavia_bodies
from kuryr_k8s.model.load_balancer import HealthMonitor, Listener, LoadBalancer, Member, Pool

MEMBER = Member(address="10.0.0.5", port=8080, name="default/web", subnet_id="s", weight=0)
POOL = Pool(name="web", protocol="TCP", lb_algorithm="ROUND_ROBIN", members=(MEMBER,))
UDP_POOL = Pool(
    name="dns",
    protocol="UDP",
    lb_algorithm="ROUND_ROBIN",
    persistence="SOURCE_IP",
    persistence_timeout=60,
)
LISTENER = Listener(
    name="web",
    protocol="TCP",
    port=80,
    pool="web",
    timeout_client_data=1000,
    allowed_cidrs=("10.0.0.0/8",),
)
BALANCER = LoadBalancer(
    name="default/web",
    project_id="p",
    vip_subnet_id="v",
    vip_address="10.2.0.9",
    provider="ovn",
    tags=("one", "two"),
    listeners=(LISTENER, Listener(name="dns", protocol="UDP", port=80, pool="dns")),
    pools=(POOL, UDP_POOL),
)


def test_everything_is_made_by_one_body_with_named_pools_in_their_listeners():
    assert octavia_bodies.create_body(BALANCER) == {
        "name": "default/web",
        "project_id": "p",
        "vip_subnet_id": "v",
        "vip_address": "10.2.0.9",
        "provider": "ovn",
        "tags": ["one", "two"],
        "listeners": [
            {
                "name": "web",
                "protocol": "TCP",
                "protocol_port": 80,
                "timeout_client_data": 1000,
                "allowed_cidrs": ["10.0.0.0/8"],
                "default_pool": {
                    "name": "web",
                    "protocol": "TCP",
                    "lb_algorithm": "ROUND_ROBIN",
                    "members": [
                        {
                            "name": "default/web",
                            "address": "10.0.0.5",
                            "protocol_port": 8080,
                            "weight": 0,
                            "subnet_id": "s",
                        }
                    ],
                },
            },
            {
                "name": "dns",
                "protocol": "UDP",
                "protocol_port": 80,
                "default_pool": {
                    "name": "dns",
                    "protocol": "UDP",
                    "lb_algorithm": "ROUND_ROBIN",
                    "session_persistence": {"type": "SOURCE_IP", "persistence_timeout": 60},
                    "members": [],
                },
            },
        ],
    }


def test_what_octavia_may_choose_is_not_in_the_body():
    body = octavia_bodies.create_body(
        LoadBalancer(
            name="n", project_id="p", vip_subnet_id="v", vip_address=None, provider=None, tags=()
        )
    )
    assert body.keys() == {"name", "project_id", "vip_subnet_id", "tags", "listeners"}
    assert "subnet_id" not in octavia_bodies.member_body(Member(address="10.0.0.5", port=1))


def test_a_pool_that_no_listener_has_is_made_beside_them():
    body = octavia_bodies.create_body(
        LoadBalancer(
            name="n",
            project_id="p",
            vip_subnet_id="v",
            vip_address=None,
            provider=None,
            tags=(),
            pools=(POOL,),
        )
    )
    assert [pool["name"] for pool in body["pools"]] == ["web"]


def test_a_listener_names_its_load_balancer_and_a_pool_that_is_there():
    body = octavia_bodies.listener_body(LISTENER, "lb")
    assert body["loadbalancer_id"] == "lb"
    assert "default_pool_id" not in body
    assert "default_pool" not in body
    assert octavia_bodies.listener_body(LISTENER, "lb", "pool")["default_pool_id"] == "pool"


def test_changes_have_nothing_that_is_given_once_and_take_away_what_is_not_wanted():
    bare = Listener(name="web", protocol="TCP", port=80, pool="web")
    defaults = dict.fromkeys(octavia_bodies.TIMEOUTS)  # null: Octavia's own
    assert octavia_bodies.listener_changes(bare) == defaults | {
        "name": "web",
        "allowed_cidrs": [],
        "insert_headers": {},
    }
    assert octavia_bodies.listener_changes(LISTENER, "pool") == defaults | {
        "name": "web",
        "timeout_client_data": 1000,
        "allowed_cidrs": ["10.0.0.0/8"],
        "insert_headers": {},
        "default_pool_id": "pool",
    }
    assert octavia_bodies.pool_changes(POOL) == {
        "name": "web",
        "lb_algorithm": "ROUND_ROBIN",
        "session_persistence": None,
        "admin_state_up": True,
    }
    assert octavia_bodies.pool_changes(UDP_POOL)["session_persistence"]["type"] == "SOURCE_IP"


def test_pool_over_tls_says_so_and_one_that_may_be_takes_it_away_by_empty_values():
    plain = dataclasses.replace(POOL, protocol="HTTP")
    secure = dataclasses.replace(plain, tls_enabled=True, ca_tls_container_ref="ca")
    tls = {"tls_enabled": True, "ca_tls_container_ref": "ca"}
    for body in (
        octavia_bodies.pool_body(secure, load_balancer_id="lb"),
        octavia_bodies.pool_changes(secure),
        octavia_bodies.create_body(dataclasses.replace(BALANCER, listeners=(), pools=(secure,)))[
            "pools"
        ][0],
    ):
        assert body.items() >= tls.items()
    other = dataclasses.replace(plain, name="other")
    within = dataclasses.replace(BALANCER, listeners=(), pools=(secure, other))
    chosen = dict.fromkeys(octavia_bodies.POOL_CHOICES)
    first, second = octavia_bodies.create_body(within)["pools"]
    assert first.items() >= chosen.items()
    assert not chosen.keys() & second.keys()
    [first, _] = octavia_bodies.create_body(within, ["tls_ciphers"])["pools"]
    assert chosen.keys() & first.keys() == {"tls_ciphers"}
    unverified = dataclasses.replace(secure, ca_tls_container_ref=None)
    made = octavia_bodies.pool_body(unverified, load_balancer_id="lb")
    assert made["tls_enabled"] is True
    assert "ca_tls_container_ref" not in made
    none = {"tls_enabled": False, "ca_tls_container_ref": None}
    assert octavia_bodies.pool_changes(plain).items() >= none.items()
    assert not tls.keys() & octavia_bodies.pool_body(plain, load_balancer_id="lb").keys()


def test_a_pool_is_a_listeners_or_a_load_balancers_and_has_no_members_yet():
    assert octavia_bodies.pool_body(POOL, listener_id="l") == {
        "name": "web",
        "protocol": "TCP",
        "lb_algorithm": "ROUND_ROBIN",
        "listener_id": "l",
    }
    assert octavia_bodies.pool_body(POOL, load_balancer_id="lb")["loadbalancer_id"] == "lb"


def test_a_listener_has_all_its_limits_headers_and_tags_whether_it_is_made_or_changed():
    rich = Listener(
        name="web",
        protocol="TERMINATED_HTTPS",
        port=443,
        pool="web",
        timeout_member_connect=1,
        timeout_tcp_inspect=0,
        connection_limit=-1,
        insert_headers=("X-Forwarded-For", "X-Forwarded-Port"),
        default_tls_container_ref="secret",
        tags=("one", "two"),
    )
    values = {
        "timeout_member_connect": 1,
        "timeout_tcp_inspect": 0,
        "connection_limit": -1,
        "insert_headers": {"X-Forwarded-For": "true", "X-Forwarded-Port": "true"},
        "default_tls_container_ref": "secret",
        "tags": ["one", "two"],
    }
    for body in (
        octavia_bodies.listener_body(rich, "lb"),
        octavia_bodies.listener_changes(rich),
        octavia_bodies.create_body(dataclasses.replace(BALANCER, listeners=(rich,)))["listeners"][
            0
        ],
    ):
        assert body.items() >= values.items()


def test_a_monitor_is_within_its_pool_or_names_it_and_its_type_is_not_changed():
    monitor = HealthMonitor(type="TCP", delay=5, timeout=3, max_retries=1, max_retries_down=2)
    values = {"delay": 5, "timeout": 3, "max_retries": 1, "max_retries_down": 2}
    pool = dataclasses.replace(POOL, health_monitor=monitor, tags=("one",))
    body = octavia_bodies.create_body(dataclasses.replace(BALANCER, listeners=(), pools=(pool,)))
    assert body["pools"][0]["healthmonitor"] == {"type": "TCP"} | values
    assert body["pools"][0]["tags"] == ["one"]
    monitor_body = octavia_bodies.monitor_body(monitor, "pool")
    assert monitor_body == {"type": "TCP", "pool_id": "pool"} | values
    assert octavia_bodies.monitor_changes(monitor) == values
    requests = {"http_method": "GET", "url_path": "/", "expected_codes": "200"}
    http = dataclasses.replace(monitor, type="HTTP", **requests)
    assert octavia_bodies.monitor_changes(http) == values | requests
    assert "healthmonitor" not in octavia_bodies.pool_body(pool, load_balancer_id="lb")


def test_a_vip_is_where_is_asked_for_and_nothing_else_is_said_of_it():
    where = {"vip_network_id": "n", "flavor_id": "f", "availability_zone": "z"}
    body = octavia_bodies.create_body(
        dataclasses.replace(BALANCER, vip_subnet_id=None, vip_address=None, **where)
    )
    assert body.items() >= where.items()
    assert not {"vip_subnet_id", "vip_port_id", "vip_address"} & body.keys()


def test_additional_vips_are_at_any_address_of_their_subnets():
    wanted = dataclasses.replace(BALANCER, additional_vips=("one", "two"))
    assert octavia_bodies.create_body(wanted)["additional_vips"] == [
        {"subnet_id": "one"},
        {"subnet_id": "two"},
    ]
    assert "additional_vips" not in octavia_bodies.create_body(BALANCER)


def test_tls_is_taken_away_by_empty_values_and_versions_and_ciphers_once_they_are_forgotten():
    """Octavia fails where versions are null, and it has a minimum."""
    plain = dataclasses.replace(
        LISTENER, protocol="TERMINATED_HTTPS", default_tls_container_ref="secret"
    )
    clients = {
        "client_authentication": "OPTIONAL",
        "client_ca_tls_container_ref": "ca",
        "client_crl_container_ref": "crl",
    }
    rich = dataclasses.replace(
        plain,
        sni_container_refs=("a", "b"),
        tls_versions=("TLSv1.3",),
        tls_ciphers="AES",
        **clients,
    )
    said = clients | {
        "sni_container_refs": ["a", "b"],
        "tls_versions": ["TLSv1.3"],
        "tls_ciphers": "AES",
    }
    assert octavia_bodies.listener_changes(rich).items() >= said.items()
    assert octavia_bodies.listener_body(rich, "lb").items() >= said.items()
    assert not octavia_bodies.listener_body(plain, "lb").keys() & said.keys()
    changes = octavia_bodies.listener_changes(plain)
    nothing = dict.fromkeys(clients) | {"client_authentication": "NONE", "sni_container_refs": []}
    assert {name: changes[name] for name in said if name in changes} == nothing
    own = octavia_bodies.listener_changes(plain, forgotten={"tls_versions", "tls_ciphers"})
    assert own == changes | {"tls_versions": ["TLSv1.2", "TLSv1.3"], "tls_ciphers": None}
