"""What is asked of a Service's load balancers, and which of them are to have it."""

import dataclasses

import pytest

from kuryr_k8s import errors
from kuryr_k8s.config import read
from kuryr_k8s.drivers.base.granted import NotGranted
from kuryr_k8s.drivers.lbaas.compare import same_listener, united
from kuryr_k8s.handlers.services.desired import external_of, needs_external
from kuryr_k8s.handlers.services.protocols import monitor_of, wire_of
from kuryr_k8s.handlers.services.reconcile import Given, Options, Place
from kuryr_k8s.handlers.services.settings import (
    check_containers,
    keeps_address,
    settings_of,
    unkept,
)
from kuryr_k8s.model.lbaas import LBaaSPortSpec, LBaaSServiceSpec
from kuryr_k8s.model.load_balancer import Listener
from kuryr_k8s.model.service_annotations import PREFIX, SHARED_WITH, Settings
from tests.kit.service_objects import endpoint, service, slice_of

HTTP = ("http", 80)
OWN, SUBNETS = ("10.96.0.10",), ("services",)
ID = "6f1c9a52-1111-4222-8333-444455556666"


@pytest.fixture
def conf(tmp_path):
    path = tmp_path / "kuryr.conf"
    path.write_text("[load_balancer_class:Gold]\nfloating_subnet = gold*\nsubnet_id = s\n")
    return read(["--config-file", str(path)], "test")


def settings(conf, *ports, **annotations):
    named = {f"{PREFIX}{name.replace('_', '-')}": text for name, text in annotations.items()}
    of = service(*(ports or (HTTP,)), type="LoadBalancer", annotations=named)
    return settings_of(of, conf, exposed=True)


@pytest.mark.parametrize(
    ("asked", "needed"),
    [
        ({}, False),
        ({"lb_method": "SOURCE_IP", "timeout_client_data": 1, "connection_limit": 1}, False),
        ({"enable_health_monitor": True, "internal": True, "hostname": "a"}, False),
        ({"address": "192.0.2.7"}, False),
        ({"internal": True, "address": "10.96.0.10"}, False),
        ({"internal": True, "address": "10.97.0.10"}, True),
        ({"subnet_id": "services"}, False),
        ({"subnet_id": "other"}, True),
        ({"network_id": "n"}, True),
        ({"port_id": "p"}, True),
        ({"source_ranges": ("192.0.2.0/24",)}, True),
        ({"flavor_id": "f"}, True),
        ({"availability_zone": "z"}, True),
        ({"proxy_protocol": "PROXY"}, True),
        ({"x_forwarded_for": True}, True),
        ({"default_tls_container_ref": "c"}, True),
    ],
    ids=str,
)
def test_another_load_balancer_is_needed_for_what_a_cluster_ips_cannot_be(asked, needed):
    assert needs_external(Settings(**asked), OWN, SUBNETS) == needed


@pytest.mark.parametrize(
    ("protocol", "asked", "wire"),
    [
        ("TCP", {}, ("TCP", "TCP", ())),
        ("TCP", {"proxy_protocol": "PROXYV2"}, ("TCP", "PROXYV2", ())),
        ("TCP", {"x_forwarded_for": True}, ("HTTP", "HTTP", ("X-Forwarded-For",))),
        ("TCP", {"default_tls_container_ref": "c"}, ("TERMINATED_HTTPS", "HTTP", ())),
        (
            "TCP",
            {"default_tls_container_ref": "c", "x_forwarded_for": True},
            ("TERMINATED_HTTPS", "HTTP", ("X-Forwarded-For",)),
        ),
        (
            "TCP",
            {"default_tls_container_ref": "c", "proxy_protocol": "PROXY"},
            ("TERMINATED_HTTPS", "PROXY", ()),
        ),
        ("UDP", {"proxy_protocol": "PROXY"}, ("UDP", "UDP", ())),
        ("SCTP", {"x_forwarded_for": True}, ("SCTP", "SCTP", ())),
    ],
    ids=str,
)
def test_what_is_spoken_with_clients_and_members(protocol, asked, wire):
    found = wire_of(protocol, Settings(**asked))
    assert (found.listener, found.pool, found.insert_headers) == wire


@pytest.mark.parametrize(
    ("asked", "delay", "timeout"),
    [
        ({}, 5, 3),
        ({"delay": 2}, 2, 2),
        ({"timeout": 9}, 9, 9),
        ({"delay": 20, "timeout": 4}, 20, 4),
    ],
    ids=str,
)
def test_health_monitors_timeout_is_never_longer_than_its_delay(asked, delay, timeout):
    values = {f"health_monitor_{name}": value for name, value in asked.items()}
    found = monitor_of("TCP", Settings(enable_health_monitor=True, **values))
    assert (found.delay, found.timeout) == (delay, timeout)


def test_health_monitor_sends_the_requests_that_are_asked_for_to_tcp_ports_alone():
    asked = Settings(
        enable_health_monitor=True,
        health_monitor_type="HTTP",
        health_monitor_url_path="/healthz",
        health_monitor_expected_codes="200-204",
    )
    http, udp = monitor_of("TCP", asked), monitor_of("UDP", asked)
    assert (http.type, http.http_method) == ("HTTP", "GET")
    assert (http.url_path, http.expected_codes) == ("/healthz", "200-204")
    assert (udp.type, udp.http_method, udp.url_path) == ("UDP-CONNECT", None, None)
    hello = monitor_of(
        "TCP", Settings(enable_health_monitor=True, health_monitor_type="TLS-HELLO")
    )
    assert (hello.type, hello.url_path, hello.expected_codes) == ("TLS-HELLO", None, None)


def test_allowed_ranges_are_those_of_the_vips_family_and_members_too():
    asked = Settings(source_ranges=("192.0.2.0/24", "2001:db8::/32"))
    port = LBaaSPortSpec(name="http", protocol="TCP", port=80, targetPort="80")
    spec = LBaaSServiceSpec(ip="10.96.0.10", ports=(port,), project_id="p", subnet_id="services")
    slices = (
        slice_of([endpoint("10.1.0.5")], HTTP),
        slice_of([endpoint("fd01::5")], HTTP, family="IPv6", name="six"),
    )
    given = Given(
        service=service(HTTP), specs=(spec,), slices=slices, options=Options(), settings=asked
    )
    for family, cidr, member in (
        ("IPv4", "192.0.2.0/24", "10.1.0.5"),
        ("IPv6", "2001:db8::/32", "fd01::5"),
    ):
        place = Place(family=family, subnet_id="s")
        found = external_of(given, place)
        assert [listener.allowed_cidrs for listener in found.listeners] == [(cidr,)]
        assert [found_member.address for found_member in found.pools[0].members] == [member]


def test_timeout_that_is_not_asked_for_any_more_is_a_difference():
    asked, not_asked = (
        Listener(name="web", protocol="TCP", port=80, pool="web", tags=("people's", *tags))
        for tags in (("kuryr-set:timeout_client_data",), ())
    )
    assert not same_listener(not_asked, asked)
    assert not same_listener(asked, not_asked)
    assert united(not_asked.tags, asked.tags) == ("people's",)


def test_class_goes_before_annotations_of_the_same_thing_whatever_its_case(conf):
    asked = {"floating_subnet_id": ID, "network_id": ID, "floating_network_id": ID}
    found, problems = settings(conf, **asked, **{"class": "GOLD"})
    assert not problems
    assert (found.floating_subnet, found.floating_subnet_id) == ("gold*", None)
    assert (found.subnet_id, found.network_id) == ("s", None)
    assert found.floating_network_id == ID
    assert found.of_class == {"floating_subnet", "subnet_id"}


@pytest.mark.parametrize("field", ["sni_container_refs", "client_ca_tls_container_ref"])
def test_every_container_that_is_named_has_to_be_granted(tmp_path, field):
    path = tmp_path / "kuryr.conf"
    path.write_text(
        "[neutron_defaults]\nproject = ours\n"
        "[policy]\ntls_containers = team-a:first,team-a:second,team-b:*\n"
    )
    conf = read(["--config-file", str(path)], "test")

    def check(named, namespace, project_id):
        value = (named,) if field == "sni_container_refs" else named
        asked = Settings(default_tls_container_ref="first", **{field: value})
        check_containers(asked, namespace, project_id, conf)

    check("second", "team-a", "theirs")
    check("third", "team-b", "ours")
    with pytest.raises(NotGranted, match="third"):
        check("third", "team-a", "ours")
    with pytest.raises(errors.Refused, match="kuryr's own project"):
        check("third", "team-b", "theirs")


def test_class_that_is_not_there_is_a_problem(conf):
    _found, (problem,) = settings(conf, **{"class": "lead"})
    assert "[load_balancer_class:lead]" in problem


def test_tls_without_a_port_of_tcp_is_a_problem(conf):
    _found, (problem,) = settings(conf, ("dns", 53, "UDP"), default_tls_container_ref="c")
    assert "no port of TCP" in problem


def test_annotations_have_a_meaning_with_type_load_balancer_alone(conf):
    of = service(HTTP, annotations={f"{PREFIX}flavor-id": "nonsense"})
    assert settings_of(of, conf, exposed=False) == (Settings(), ())


@pytest.mark.parametrize(
    ("text", "kept"), [(None, False), ("false", False), ("true", True), ("yes please", True)]
)
def test_address_is_kept_where_it_cannot_be_read_whether_to(text, kept):
    named = {f"{PREFIX}keep-floatingip": text} if text else None
    assert keeps_address(service(HTTP, annotations=named)) == kept


def test_each_thing_that_cannot_be_done_is_told_by_itself():
    asked = {"internalTrafficPolicy": "Local", "trafficDistribution": "PreferClose"}
    of = service(HTTP, **asked, externalIPs=["192.0.2.9"])
    assert len(unkept(of, exposed=False, providers={"amphora"})) == 3
    named = dataclasses.replace(of, annotations=((f"{PREFIX}node-selector", "a=b"),))
    assert len(unkept(named, exposed=True, providers={"amphora"})) == 4


@pytest.mark.parametrize("exposed", [False, True])
def test_consent_to_what_is_no_namespace_is_told_for_every_type_of_service(conf, exposed):
    of = service(HTTP, annotations={SHARED_WITH: "team-a,Team B,"})
    notes = unkept(of, exposed=exposed, providers={"ovn"})
    assert notes == {
        "KuryrAnnotationIgnored": f"annotation {SHARED_WITH}: no names of namespaces: 'Team B'"
    }
    _settings, problems = settings_of(of, conf, exposed=exposed)
    assert not problems
