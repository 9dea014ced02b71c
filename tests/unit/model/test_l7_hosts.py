"""Hosts as rules: what is written can be read."""

import pytest

from kuryr_k8s.model.l7_hosts import host_of, host_rules, includes
from kuryr_k8s.model.load_balancer import HOST_NAME, PATH, L7Rule
from kuryr_k8s.model.routes import Host


@pytest.mark.parametrize("name", ["a", "a.com", "*.a.com", "x-1.a.com", "*.xn--a.b", "a_b.c"])
def test_host_is_read_from_its_rules(name):
    assert host_of(host_rules(Host(name))) == Host(name)


@pytest.mark.parametrize(
    "rule",
    [
        L7Rule(HOST_NAME, "REGEX", "^a(:[0-9]+)?$", invert=True),
        L7Rule(HOST_NAME, "REGEX", "^(a|b)(:[0-9]+)?$"),
        L7Rule(HOST_NAME, "REGEX", "a"),
        L7Rule(HOST_NAME, "EQUAL_TO", "a"),
        L7Rule(PATH, "REGEX", "^a(:[0-9]+)?$"),
    ],
)
def test_other_rules_name_no_host(rule):
    assert host_of([rule]) is None


@pytest.mark.parametrize(
    ("more", "fewer", "result"),
    [
        ("(a|b)", "a", True),
        ("a", "(a|b)", False),
        ("[^.]+", "(a|b)", True),
        ("a", "[^.]+", False),
        ("(a|c)", "(a|b)", False),
        ("a", "a", True),
    ],
)
def test_rule_for_more_hosts_includes_another_one(more, fewer, result):
    rules = [
        L7Rule(HOST_NAME, "REGEX", rf"^{names}\.com(:[0-9]+)?$", invert=True)
        for names in (more, fewer)
    ]
    assert includes(*rules) is result


def test_several_rules_and_none_name_no_host():
    rules = host_rules(Host("a.com"))
    assert host_of([*rules, *rules]) is None
    assert host_of(host_rules(Host(""))) is None
