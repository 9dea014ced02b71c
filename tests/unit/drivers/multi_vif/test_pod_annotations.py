"""What Pods and Namespaces write of the default interface."""

import contextlib
import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kuryr_k8s import errors
from kuryr_k8s.drivers.multi_vif import pod_annotations
from kuryr_k8s.drivers.multi_vif.annotations import SHOWN
from kuryr_k8s.drivers.multi_vif.pod_annotations import (
    ADDRESS,
    ALIASES,
    GROUPS,
    MAC,
    NETWORK,
    OF_NAMESPACES,
    OF_PODS,
    PAIRS,
    POOL,
    PORT_SECURITY,
    QOS,
    SUBNET,
    Asked,
)

ID = "5e2e6f4e-4a55-4b0f-8a0e-0d2c8c0f4b1a"
PLAUSIBLE = st.sampled_from(
    [
        *("", " ", "a", "a,b", "a,,b", "a,a", "a," * 30, "true", "False", "no"),
        *("10.0.0.7", "10.0.0.7,fd00::7", "10.0.0.7,10.0.0.8"),
        *("fa:16:3e:00:00:07", "01:00:5e:00:00:01"),
    ]
)


def read(of_pod, of_namespace=None, selected=None):
    return pod_annotations.read(of_pod.get, (of_namespace or {}).get, selected)


def test_pod_that_says_nothing_asks_for_nothing():
    assert read({}) is None


def test_each_annotation_is_read():
    asked = read(
        {
            NETWORK: " tenant ",
            SUBNET: "v4, v6",
            GROUPS: "web,db",
            ADDRESS: "10.0.0.7, FD00::0007",
            MAC: "FA:16:3E:00:00:07",
            PORT_SECURITY: "True",
        }
    )
    assert asked == Asked(
        network="tenant",
        subnets=("v4", "v6"),
        groups=("web", "db"),
        addresses=("10.0.0.7", "fd00::7"),
        mac="fa:16:3e:00:00:07",
        port_security=True,
    )


@pytest.mark.parametrize("alias", ALIASES)
def test_alias_means_what_it_stands_for_and_not_twice(alias):
    values = {GROUPS: "web", ADDRESS: "10.0.0.7", POOL: "10.0.0.7", MAC: "fa:16:3e:00:00:07"}
    value = values[ALIASES[alias]]
    assert read({alias: value}) == read({ALIASES[alias]: value})
    with pytest.raises(errors.Refused, match="is there, too"):
        read({alias: value, ALIASES[alias]: value})


@pytest.mark.parametrize("own", [{NETWORK: "own"}, {SUBNET: "own"}])
def test_pod_that_names_its_network_inherits_none_but_inherits_the_rest(own):
    asked = read(own, {NETWORK: "theirs", SUBNET: "theirs", GROUPS: "web"})
    assert asked is not None
    assert {asked.network, *asked.subnets} - {None} == {"own"}
    assert asked.groups == ("web",)


def test_what_one_pod_alone_can_have_is_no_default():
    assert read({}, {ADDRESS: "10.0.0.7", MAC: "fa:16:3e:00:00:07"}) is None


def test_selected_network_counts_less_than_the_pod_and_more_than_its_namespace():
    selected = {SUBNET: "selected", GROUPS: "selected", ADDRESS: "10.0.0.7"}
    namespace = {NETWORK: "namespace", GROUPS: "namespace", QOS: "namespace"}
    assert read({}, namespace, selected) == Asked(
        subnets=("selected",), groups=("selected",), addresses=("10.0.0.7",), qos="namespace"
    )
    own = read({NETWORK: "own", GROUPS: "own"}, namespace, selected)
    assert (own.network, own.subnets, own.groups) == ("own", (), ("own",))


def test_selected_network_says_nothing_twice():
    with pytest.raises(errors.Refused, match="default-network says it, too"):
        read({ADDRESS: "10.0.0.8"}, {}, {ADDRESS: "10.0.0.7"})


def test_groups_of_a_selected_network_need_port_security():
    with pytest.raises(errors.Refused, match="has no groups"):
        read({}, {PORT_SECURITY: "false"}, {GROUPS: "selected"})


@pytest.mark.parametrize(
    ("value", "asked"),
    [
        *[(" true ", ""), ("True", ""), ("false", None)],
        *[("172.24.4.9", "172.24.4.9"), (ID.upper(), ID)],
    ],
)
def test_floating_ip_is_any_or_one_that_exists(value, asked):
    assert pod_annotations.read_floating_ip(value) == asked


@given(st.text() | PLAUSIBLE | st.ip_addresses().map(str))
def test_floating_ip_is_read_or_refused_in_short(value):
    asked, said = None, ""
    try:
        asked = pod_annotations.read_floating_ip(value)
    except errors.Refused as error:
        said = str(error)
    assert len(said) < SHOWN + 120
    if asked:
        assert ipaddress.ip_address(asked).version == 4


@pytest.mark.parametrize(
    ("value", "pool"),
    [
        ("10.0.0.7", (("10.0.0.7",),)),
        ("10.0.0.7, 10.0.0.8", (("10.0.0.7",), ("10.0.0.8",))),
        ("10.0.0.7,fd00::7", (("10.0.0.7", "fd00::7"),)),
        ("10.0.0.7,FD00::7; fd00::8,10.0.0.8", (("10.0.0.7", "fd00::7"), ("fd00::8", "10.0.0.8"))),
    ],
)
def test_pool_has_an_entry_for_each_pod(value, pool):
    asked = read({POOL: value})
    assert asked is not None
    assert asked.pool == pool


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        ({POOL: "10.0.0.7,10.0.0.8,fd00::7"}, "no semicolon between the Pods"),
        ({POOL: "10.0.0.7,10.0.0.8;10.0.0.9"}, "more than one address of a family"),
        ({POOL: "10.0.0.7,10.0.0.7"}, "is there twice"),
        ({POOL: "10.0.0.7,fd00::7;10.0.0.8,fd00::7"}, "is there twice"),
        ({POOL: ",".join(f"10.0.{n // 250}.{n % 250}" for n in range(257))}, "more than 256"),
        ({POOL: ""}, "is no IP address"),
        ({POOL: "10.0.0.7", ADDRESS: "10.0.0.8"}, "is there, too"),
        ({POOL: "10.0.0.7", MAC: "fa:16:3e:00:00:07"}, "only one of the Pods"),
    ],
)
def test_pool_that_cannot_be_is_refused(annotations, words):
    with pytest.raises(errors.Refused, match=words):
        read(annotations)


def test_address_pairs_are_read_in_the_form_of_neutron():
    asked = read(
        {
            PAIRS: '[{"ip_address": "10.0.0.9"}, {"ip_address": "FD00::/64", '
            '"mac_address": "FA:16:3E:00:00:09"}]'
        }
    )
    assert asked is not None
    assert asked.pairs == (("10.0.0.9", ""), ("fd00::/64", "fa:16:3e:00:00:09"))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("10.0.0.9", "is no JSON"),
        ('"10.0.0.9"', "is no list of objects"),
        ('["10.0.0.9"]', "is no list of objects"),
        ("[{}]", "without ip_address"),
        ('[{"ip_address": 1}]', "without ip_address"),
        ('[{"ip_address": "10.0.0.1/24"}]', "neither an address nor a network"),
        ('[{"ip_address": "10.0.0.1", "mac_address": "x"}]', "is no address of an interface"),
        ('[{"ip_address": "10.0.0.1", "port": 1}]', "keys other than"),
        ('[{"ip_address": "10.0.0.1"}, {"ip_address": "10.0.0.1"}]', "is there twice"),
        (f"[{', '.join(['{}'] * 11)}]", "more than 10"),
    ],
)
def test_address_pairs_that_cannot_be_are_refused(value, words):
    with pytest.raises(errors.Refused, match=words):
        read({PAIRS: value})


@given(
    st.dictionaries(st.sampled_from(OF_PODS), PLAUSIBLE | st.text()),
    st.dictionaries(st.sampled_from(OF_NAMESPACES), PLAUSIBLE | st.text()),
)
def test_whatever_is_written_is_read_or_refused_in_short(of_pod, of_namespace):
    asked = None
    with contextlib.suppress(errors.Refused):
        asked = read(of_pod, of_namespace)
    if asked is None:
        return
    versions = [ipaddress.ip_address(each).version for each in asked.addresses]
    assert len(set(versions)) == len(versions)
    assert len(asked.subnets) <= 2
    assert all(each.strip() for each in (*asked.subnets, *(asked.groups or ())))


@given(st.sampled_from(OF_PODS), st.text(max_size=4096))
def test_refusal_names_the_annotation_and_is_short(name, value):
    said = ""
    try:
        read({name: value})
    except errors.Refused as error:
        said = str(error)
    assert len(said) < SHOWN + 120
    assert not said or ALIASES.get(name, name) in said
