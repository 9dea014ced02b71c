"""The annotation by which Pods select networks, as the standard says it."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kuryr_k8s.model.network_selection import MOST_INTERFACES, NetworkSelection, read_selections


def selected(*elements):
    return read_selections(json.dumps(elements), "mine")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a", [("mine", "a", None)]),
        ("a,b", [("mine", "a", None), ("mine", "b", None)]),
        ("a, other/b", [("mine", "a", None), ("other", "b", None)]),
        ("other/a,b", [("other", "a", None), ("mine", "b", None)]),
        ("other/a@net1", [("other", "a", "net1")]),
        ("a,a", [("mine", "a", None), ("mine", "a", None)]),
        ("[]", []),
        ('[{"name": "a"}]', [("mine", "a", None)]),
        (
            '[{"name": "a", "namespace": "other"}, {"name": "b"}]',
            [("other", "a", None), ("mine", "b", None)],
        ),
        ('[{"name": "a", "interface": "net1"}]', [("mine", "a", "net1")]),
        ('[{"name": "a", "example.org/own": [1]}]', [("mine", "a", None)]),
    ],
)
def test_both_forms_name_networks_and_interfaces(text, found):
    selections = read_selections(text, "mine")
    assert [(each.namespace, each.name, each.interface) for each in selections] == found


def test_addresses_mac_and_default_route_are_read():
    [selection] = selected(
        {
            "name": "a",
            "ips": ["10.1.0.5/24", "FD00::5"],
            "mac": "02-23-45-67-89-AB",
            "default-route": ["10.1.0.1"],
        }
    )
    assert selection == NetworkSelection(
        namespace="mine",
        name="a",
        ips=("10.1.0.5", "fd00::5"),
        mac="02:23:45:67:89:ab",
        gateways=("10.1.0.1",),
    )


def test_default_route_without_gateway_is_the_networks_own():
    [selection] = selected({"name": "a", "default-route": []})
    assert selection.gateways == ()
    [selection] = selected({"name": "a"})
    assert selection.gateways is None


@pytest.mark.parametrize(
    ("element", "words"),
    [
        ({}, "without a name"),
        ({"name": ""}, "without a name"),
        ({"name": 1}, "name that is no string"),
        ("a", "no object"),
        ({"name": "A"}, "cannot be a network"),
        ({"name": "a/b"}, "cannot be a network"),
        ({"name": "a", "namespace": "../b"}, "cannot be a network"),
        ({"name": "a", "namespace": 5}, "namespace that is no string"),
        ({"name": "a", "interface": "longer-than-fifteen"}, "cannot be the name of one"),
        ({"name": "a", "interface": "a b"}, "cannot be the name of one"),
        ({"name": "a", "interface": "a/b"}, "cannot be the name of one"),
        ({"name": "a", "interface": "a,b"}, "cannot be the name of one"),
        ({"name": "a", "interface": "net%d"}, "cannot be the name of one"),
        ({"name": "a", "interface": "lo"}, "cannot be the name of one"),
        ({"name": "a", "interface": "all"}, "cannot be the name of one"),
        ({"name": "a", "ips": "10.1.0.5"}, "no list of addresses"),
        ({"name": "a", "ips": ["10.1.0"]}, "no list of addresses"),
        ({"name": "a", "ips": ["10.1.0.5", "10.1.0.6"]}, "more than one address of a family"),
        ({"name": "a", "mac": "02:23"}, "no address of an interface"),
        ({"name": "a", "mac": "01:23:45:67:89:ab"}, "no address of an interface"),
        ({"name": "a", "default-route": "10.1.0.1"}, "no list of addresses"),
        ({"name": "a", "portMappings": [{"hostPort": 80}]}, "portMappings, which ports"),
        ({"name": "a", "bandwidth": {"ingressRate": 1}}, "bandwidth, which ports"),
        (
            {"name": "a", "ipam-claim-reference": "claim", "ips": ["10.0.0.7"]},
            "ips beside an ipam-claim-reference",
        ),
    ],
)
def test_one_element_that_is_wrong_makes_the_annotation_invalid(element, words):
    with pytest.raises(ValueError, match=words):
        selected({"name": "right"}, element)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,", "is not \\[namespace/\\]name"),
        ("a/b/c", "is not \\[namespace/\\]name"),
        ("a.b", "is not \\[namespace/\\]name"),
        ('{"name": "a"}', "is no list"),
        ("[" * 100_000, "is no JSON"),
        ('[{"name": "a", "interface": "x"}, {"name": "b", "interface": "x"}]', "twice"),
        ('[{"name": "a", "interfce": "x"}]', "the key interfce"),
        ('[{"name": "a", "default-route": []}, {"name": "b", "default-route": []}]', "more than"),
        (",".join(["a"] * (MOST_INTERFACES + 1)), f"has {MOST_INTERFACES + 1} elements"),
    ],
)
def test_what_is_wrong_as_a_whole_is_refused(text, words):
    with pytest.raises(ValueError, match=words):
        read_selections(text, "mine")


@pytest.mark.parametrize("text", ["", "  "])
def test_empty_annotation_selects_nothing(text):
    assert read_selections(text, "mine") == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
KEYS = ("name", "namespace", "interface", "ips", "mac", "default-route", "cni-args", "a.b/c")
ELEMENTS = st.lists(
    st.dictionaries(st.sampled_from(KEYS), JSON | st.sampled_from(["a", ["::1"]])).map(
        lambda element: {"name": "a", **element}
    )
)


@given(st.text() | JSON.map(json.dumps) | ELEMENTS.map(json.dumps))
def test_whatever_is_written_is_read_or_refused(text):
    with contextlib.suppress(ValueError):
        for each in read_selections(text, "mine"):
            assert each.name
            assert each.namespace
