"""What users ask by annotations, and what is said where it cannot be read."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kuryr_k8s.model import subnet_patterns
from kuryr_k8s.model.annotation_values import networks
from kuryr_k8s.model.service_annotations import (
    ADDRESS,
    FIELDS,
    INTERNAL,
    LOAD_BALANCER_ADDRESS,
    LOAD_BALANCER_ID,
    NAMES,
    PREFIX,
    SHARED_WITH,
    SOURCE_RANGES,
    WITHOUT_MEANING,
    WRITTEN_ID,
    Settings,
    is_shared_with,
    no_guests,
    read_settings,
    read_timeouts,
)
from tests.kit.paths import REPOSITORY

ID = "6f1c9a52-1111-4222-8333-444455556666"
# (annotation, a value, the setting and what it becomes, a value that cannot be read)
VOCABULARY = [
    (INTERNAL, "true", "internal", True, "yes"),
    (f"{PREFIX}floating-network-id", ID, "floating_network_id", ID, "public"),
    (f"{PREFIX}floating-subnet", "pub*", "floating_subnet", "pub*", ""),
    (f"{PREFIX}floating-subnet-id", ID, "floating_subnet_id", ID, "1"),
    (f"{PREFIX}floating-subnet-tags", "a,b", "floating_subnet_tags", "a,b", ""),
    (f"{PREFIX}class", "gold", "class_name", "gold", ""),
    (f"{PREFIX}subnet-id", ID, "subnet_id", ID, "x"),
    (f"{PREFIX}network-id", ID, "network_id", ID, "x"),
    (f"{PREFIX}port-id", ID, "port_id", ID, "x"),
    (f"{PREFIX}connection-limit", "-1", "connection_limit", -1, "-2"),
    (f"{PREFIX}keep-floatingip", "True", "keep_floating_ip", True, "1"),
    (f"{PREFIX}proxy-protocol", "v2", "proxy_protocol", "PROXYV2", "v3"),
    (f"{PREFIX}x-forwarded-for", "true", "x_forwarded_for", True, "on"),
    (f"{PREFIX}lb-method", "SOURCE_IP", "lb_method", "SOURCE_IP", "RANDOM"),
    (f"{PREFIX}timeout-client-data", "50000", "timeout_client_data", 50000, "50s"),
    (f"{PREFIX}timeout-member-connect", "5", "timeout_member_connect", 5, "-5"),
    (f"{PREFIX}timeout-member-data", "0", "timeout_member_data", 0, ""),
    (f"{PREFIX}timeout-tcp-inspect", "1", "timeout_tcp_inspect", 1, "99999999999"),
    (f"{PREFIX}enable-health-monitor", "false", "enable_health_monitor", False, "maybe"),
    (f"{PREFIX}health-monitor-delay", "9", "health_monitor_delay", 9, "0"),
    (f"{PREFIX}health-monitor-timeout", "3", "health_monitor_timeout", 3, "3.5"),
    (f"{PREFIX}health-monitor-max-retries", "10", "health_monitor_max_retries", 10, "11"),
    (
        f"{PREFIX}health-monitor-max-retries-down",
        "1",
        "health_monitor_max_retries_down",
        1,
        "0",
    ),
    (f"{PREFIX}flavor-id", ID, "flavor_id", ID, "big"),
    (f"{PREFIX}availability-zone", "nova", "availability_zone", "nova", ""),
    (f"{PREFIX}default-tls-container-ref", "ref", "default_tls_container_ref", "ref", ""),
    (f"{PREFIX}load-balancer-id", ID, "load_balancer_id", ID, "lb"),
    (f"{PREFIX}hostname", "a.example.org", "hostname", "a.example.org", "A_b"),
    (ADDRESS, "192.0.2.7", "address", "192.0.2.7", "192.0.2"),
    (SOURCE_RANGES, "10.1.2.3/8", "source_ranges", ("10.0.0.0/8",), "10.0.0.0/33"),
]
# our own, in the same form; before the bad value, what each needs beside it
HTTP = {f"{PREFIX}health-monitor-type": "HTTP"}
TLS = {f"{PREFIX}default-tls-container-ref": "ref"}
CA = TLS | {f"{PREFIX}client-ca-tls-container-ref": "ca"}
OURS = [
    (f"{PREFIX}sni-container-refs", "b, a", "sni_container_refs", ("a", "b"), TLS, "a,,b"),
    (
        f"{PREFIX}tls-versions",
        "TLSv1.3,TLSv1.2",
        "tls_versions",
        ("TLSv1.2", "TLSv1.3"),
        TLS,
        "TLSv1.2,1.3",
    ),
    (
        f"{PREFIX}tls-ciphers",
        "ECDHE+AESGCM:!aNULL",
        "tls_ciphers",
        "ECDHE+AESGCM:!aNULL",
        TLS,
        "a b",
    ),
    (f"{PREFIX}client-authentication", "OPTIONAL", "client_authentication", "OPTIONAL", CA, "yes"),
    (
        f"{PREFIX}additional-vip-subnet-ids",
        f"{ID}",
        "additional_vip_subnet_ids",
        (ID,),
        {},
        "web",
    ),
    (f"{PREFIX}vip-sg-ids", f"{ID}", "vip_sg_ids", (ID,), {}, "web"),
    (f"{PREFIX}client-ca-tls-container-ref", "ca", "client_ca_tls_container_ref", "ca", TLS, ""),
    (f"{PREFIX}client-crl-container-ref", "crl", "client_crl_container_ref", "crl", CA, "a b"),
    (f"{PREFIX}health-monitor-type", "HTTPS", "health_monitor_type", "HTTPS", {}, "PING"),
    (
        f"{PREFIX}health-monitor-http-method",
        "HEAD",
        "health_monitor_http_method",
        "HEAD",
        HTTP,
        "a",
    ),
    (
        f"{PREFIX}health-monitor-url-path",
        "/a?b=%20",
        "health_monitor_url_path",
        "/a?b=%20",
        HTTP,
        "a",
    ),
    (
        f"{PREFIX}health-monitor-expected-codes",
        "200, 202",
        "health_monitor_expected_codes",
        "200,202",
        HTTP,
        "20",
    ),
]
FIELD_OF = {name: field for name, _text, field, _value, _bad in VOCABULARY}


@pytest.mark.parametrize(("name", "text", "field", "value", "_bad"), VOCABULARY)
def test_annotation_becomes_a_setting(name, text, field, value, _bad):
    assert read_settings({name: text}, None, ()) == (Settings(**{field: value}), ())


@pytest.mark.parametrize(("name", "_text", "field", "_value", "bad"), VOCABULARY)
def test_value_that_cannot_be_read_is_told_with_its_annotation(name, _text, field, _value, bad):
    other = f"{PREFIX}port-id" if field == "flavor_id" else f"{PREFIX}flavor-id"
    settings, (problem,) = read_settings({name: bad, other: ID}, None, ())
    others = {FIELD_OF[other]: ID}
    assert settings == Settings(**others)  # they are read all the same
    assert problem.startswith(f"annotation {name}: {bad!r} ")


@pytest.mark.parametrize(("name", "text", "field", "value", "beside", "bad"), OURS)
def test_annotation_of_our_own_becomes_a_setting_or_a_problem(
    name, text, field, value, beside, bad
):
    settings, problems = read_settings(beside | {name: text}, None, ())
    assert (getattr(settings, field), problems) == (value, ())
    settings, (problem,) = read_settings(beside | {name: bad}, None, ())
    assert not getattr(settings, field)
    assert problem.startswith(f"annotation {name}: {bad!r} ")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("url-path", "healthz"),
        ("url-path", "//host/healthz"),
        ("url-path", "/a b"),
        ("url-path", "/a%2"),
        ("url-path", "/a\r\nX: y"),
        ("url-path", "/" * 256),
        ("expected-codes", "200-"),
        ("expected-codes", "204-200"),
        ("expected-codes", "200,"),
        ("expected-codes", "200,202-204"),
        ("expected-codes", "700"),
        ("expected-codes", ",".join(["200"] * 17)),
    ],
)
def test_request_of_a_monitor_that_octavia_would_refuse_is_told(name, text):
    """Some of it would break the configuration of the load balancer's own program."""
    marks = HTTP | {f"{PREFIX}health-monitor-{name}": text}
    settings, (problem,) = read_settings(marks, None, ())
    assert (settings.health_monitor_url_path, settings.health_monitor_expected_codes) == (
        None,
        None,
    )
    assert f"health-monitor-{name}" in problem


@pytest.mark.parametrize("kind", [None, "TCP", "TLS-HELLO"])
def test_monitor_that_sends_no_requests_has_nothing_of_them(kind):
    typed = {f"{PREFIX}health-monitor-type": kind} if kind else {}
    marks = typed | {f"{PREFIX}health-monitor-url-path": "/healthz"}
    _settings, (problem,) = read_settings(marks, None, ())
    assert "health-monitor-url-path" in problem
    assert "HTTP or HTTPS" in problem


@pytest.mark.parametrize(
    ("marks", "needed"),
    [
        ({"sni-container-refs": "a"}, "default-tls-container-ref"),
        ({"tls-versions": "TLSv1.3"}, "default-tls-container-ref"),
        ({"client-ca-tls-container-ref": "ca"}, "default-tls-container-ref"),
        (
            {"default-tls-container-ref": "a", "client-authentication": "MANDATORY"},
            "client-ca-tls-container-ref",
        ),
        (
            {"default-tls-container-ref": "a", "client-crl-container-ref": "b"},
            "client-ca-tls-container-ref",
        ),
    ],
    ids=str,
)
def test_part_of_tls_that_is_of_no_use_without_another_is_told(marks, needed):
    found = {f"{PREFIX}{name}": text for name, text in marks.items()}
    _settings, (problem,) = read_settings(found, None, ())
    assert needed in problem


def test_clients_need_no_certificate_where_that_is_said():
    marks = TLS | {f"{PREFIX}client-authentication": "NONE"}
    assert read_settings(marks, None, ())[1] == ()


def test_vocabulary_is_that_of_the_cloud_provider_and_our_own():
    """31 names; two of them are without a meaning here, one is written only."""
    names = {name for name, *_ in VOCABULARY} | {*WITHOUT_MEANING, LOAD_BALANCER_ADDRESS}
    theirs = {name for name in names if name.startswith(PREFIX)} | {INTERNAL}
    assert len(theirs) == 31
    assert names <= NAMES
    every = {name for name, *_ in (*VOCABULARY, *OURS)}
    assert {name for name, _parse in FIELDS.values()} == every
    assert every <= NAMES


def test_what_stands_in_the_spec_goes_before_the_annotations():
    marks = {ADDRESS: "192.0.2.7", SOURCE_RANGES: "10.0.0.0/8"}
    settings, problems = read_settings(marks, "192.0.2.8", ("203.0.113.0/24",))
    assert (settings.address, settings.source_ranges) == ("192.0.2.8", ("203.0.113.0/24",))
    assert not problems


@pytest.mark.parametrize(
    ("ranges", "kept"),
    [
        ("0.0.0.0/0", ()),
        ("10.0.0.0/8,0.0.0.0/0", ()),
        ("0.0.0.0/0,::/0", ()),
        ("192.0.2.0/24,::/0", ("192.0.2.0/24", "::/0")),
        ("2001:db8::/32,0.0.0.0/0", ("0.0.0.0/0", "2001:db8::/32")),
    ],
)
def test_everybody_is_no_source_range_and_opens_nothing_of_the_other_family(ranges, kept):
    assert networks(ranges) == kept


def test_list_of_too_many_networks_is_refused():
    most = [f"10.{number // 250}.{number % 250}.0/24" for number in range(1000)]
    assert len(networks(",".join(most))) == 1000
    with pytest.raises(ValueError, match="more than 1000 networks"):
        networks(",".join([*most, "192.0.2.0/24"]))


@pytest.mark.parametrize("text", ["192.0.2.1", "192.000.002.001"])
def test_address_is_no_hostname_as_the_api_server_would_refuse_the_status(text):
    settings, (problem,) = read_settings({f"{PREFIX}hostname": text}, None, ())
    assert (settings, "is no DNS name" in problem) == (Settings(), True)


def test_load_balancer_id_of_our_own_writing_is_no_wish():
    written = {LOAD_BALANCER_ID: ID, WRITTEN_ID: ID}
    assert read_settings(written, None, ())[0].load_balancer_id is None
    other = written | {LOAD_BALANCER_ID: ID.replace("6", "7")}
    assert read_settings(other, None, ())[0].load_balancer_id == other[LOAD_BALANCER_ID]


@pytest.mark.parametrize(
    ("marks", "words"),
    [
        ({"proxy-protocol": "v1", "x-forwarded-for": "true"}, "exclude each other"),
        ({"health-monitor-delay": "3", "health-monitor-timeout": "4"}, "is more than"),
        ({"vip-sg-ids": ID, "/source-ranges": "192.0.2.0/24"}, "exclude each other"),
    ],
)
def test_what_contradicts_itself_is_told(marks, words):
    found = {
        SOURCE_RANGES if name == "/source-ranges" else f"{PREFIX}{name}": text
        for name, text in marks.items()
    }
    _settings, (problem,) = read_settings(found, None, ())
    assert words in problem


def test_timeouts_have_our_own_names_with_every_type_and_the_cloud_providers_go_before():
    own = {"openstack.org/kuryr-timeout-client-data": "9000"}
    assert read_timeouts(own) == (Settings(timeout_client_data=9000), ())
    both = own | {f"{PREFIX}timeout-client-data": "8000"}
    assert read_timeouts(both)[0].timeout_client_data == 9000
    assert read_settings(both, None, ())[0].timeout_client_data == 8000
    _settings, (problem,) = read_timeouts({"openstack.org/kuryr-timeout-member-data": "soon"})
    assert "kuryr-timeout-member-data: 'soon'" in problem


@given(st.sampled_from(sorted(NAMES)), st.text(max_size=20))
def test_no_text_whatever_breaks_the_reading(name, text):
    settings, problems = read_settings({name: text}, None, ())
    needs_others = any(name == own and beside for own, *_, beside, _bad in OURS)
    assert settings == Settings() or not problems or needs_others


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("public", "public", True),
        ("public", "public-1", False),
        ("public*", "public-1", True),
        ("!public*", "public-1", False),
        ("!public*", "other", True),
        ("~^pub.*[0-9]$", "public-1", True),
        ("~lic", "public-1", True),
        ("!~lic", "public-1", False),
    ],
)
def test_names_of_subnets_are_matched_as_by_the_cloud_provider(pattern, name, matches):
    assert subnet_patterns.by_name(pattern)(name) == matches


@pytest.mark.parametrize("pattern", ["~^(([a-z-]+)+)+[0-9]{3}$", "!~lic", "*a" * 128])
def test_pattern_that_may_take_for_ever_is_not_had_of_users(pattern):
    settings, (problem,) = read_settings({f"{PREFIX}floating-subnet": pattern}, None, ())
    assert settings == Settings()
    assert "[load_balancer_class:NAME]" in problem or "is longer than" in problem


@pytest.mark.parametrize(
    ("pattern", "tags", "matches"),
    [
        ("a", {"a", "x"}, True),
        ("a,b", {"b"}, True),
        ("a,b", {"c"}, False),
        ("&a,b", {"b"}, False),
        ("a&b", {"a", "b"}, True),
        ("!a,b", {"b"}, False),
        ("!a,b", {"c"}, True),
        ("!&a,b", {"b"}, True),
    ],
)
def test_tags_of_subnets_are_matched_as_by_the_cloud_provider(pattern, tags, matches):
    assert subnet_patterns.by_tags(pattern)(tags) == matches


@pytest.mark.parametrize("parse", [subnet_patterns.by_name, subnet_patterns.by_tags])
def test_pattern_that_is_none_is_told(parse):
    with pytest.raises(ValueError, match=r"is not a regular expression|names no tag"):
        parse("~(" if parse is subnet_patterns.by_name else "!,")


def test_table_in_the_documents_has_every_annotation_and_names_tests_that_there_are():
    root = REPOSITORY / "tests"
    table = (root.parent / "docs" / "service-annotations.md").read_text()
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| ")]
    words = " ".join(row[1] for row in rows)
    names = {name.rpartition("/")[2] for name in NAMES if name.startswith(PREFIX)}
    missing = {name for name in names if name not in words}
    assert missing == {f"health-monitor-{setting}" for setting in ("timeout", "max-retries")} | {
        "health-monitor-max-retries-down"
    }  # told together with health-monitor-delay
    tests = (root / "component" / "services" / "test_service_annotations.py").read_text()
    for named in re.findall(r"`(test_\w+)", table):
        assert f"def {named}(" in tests


@pytest.mark.parametrize(
    ("names", "shared"),
    [
        (None, False),
        ("", False),
        ("team-b", False),
        ("team-ab,b", False),
        ("team-a", True),
        ("team-b, team-a", True),
        ("*", True),
        ("Team B,team-a", True),
    ],
)
def test_load_balancer_is_shared_with_namespaces_that_its_owner_names(names, shared):
    assert is_shared_with({} if names is None else {SHARED_WITH: names}, "team-a") == shared


@pytest.mark.parametrize(
    ("names", "strange"),
    [
        ("", ()),
        ("team-a,", ()),
        (" , *,", ()),
        ("Team B", ("Team B",)),
        ("team-a;team-b", ("team-a;team-b",)),
        ("team-*,team-a", ("team-*",)),
    ],
)
def test_name_of_no_namespace_is_told_and_makes_nothing_unreadable(names, strange):
    assert no_guests({SHARED_WITH: names}) == strange
    assert read_settings({SHARED_WITH: names}, None, ()) == (Settings(), ())
