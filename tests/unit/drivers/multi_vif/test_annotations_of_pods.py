"""What Pods write to ask for further interfaces."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kuryr_k8s.drivers.multi_vif.annotations import (
    SHOWN,
    read_ids,
    read_pairs,
    read_pairs_by_name,
    shown,
)
from kuryr_k8s.model.annotation_values import identifier
from kuryr_k8s.model.network_selection import MOST_INTERFACES

A = "5e2e6f4e-4a55-4b0f-8a0e-0d2c8c0f4b1a"
B = "c9b2a7e0-7d3d-4d0e-9d53-5f4a7c8f9e10"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from([A, B]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("[]", []),
        (f'["{A}"]', [(A,)]),
        (f'["{A}", "{A}"]', [(A,), (A,)]),
        (f'["{A},{B}", "{B}"]', [(A, B), (B,)]),
        (f'[" {A} , {B} "]', [(A, B)]),
        (f'["{A.upper()}"]', [(A,)]),
    ],
)
def test_each_entry_is_an_interface(text, entries):
    assert read_pairs(text) == entries


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is no JSON"),
        (A, "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        (f'"{A}"', "is no list"),
        (f'{{"{A}": 1}}', "is no list"),
        ("[1]", "no string"),
        ("[null]", "no string"),
        (f'[["{A}"]]', "no string"),
        ('[""]', "is no id"),
        ('["../ports"]', "is no id"),
        (f'["{A},"]', "is no id"),
        (f'["{A},{B},{A}"]', "more than two ids"),
        (json.dumps([A] * (MOST_INTERFACES + 1)), f"has {MOST_INTERFACES + 1} entries"),
        (json.dumps([A] * 10_000), "has 10000 entries"),
    ],
)
def test_what_is_wrong_is_said_in_short(text, words):
    with pytest.raises(ValueError, match=words) as caught:
        read_pairs(text)
    assert len(str(caught.value)) < SHOWN + 60
    assert len(shown(text)) <= SHOWN + 1


@given(st.text() | JSON.map(json.dumps))
def test_whatever_is_written_is_read_or_refused(text):
    entries = []
    with contextlib.suppress(ValueError):
        entries = read_pairs(text)
    assert all(entry == tuple(map(identifier, entry)) for entry in entries)
    assert all(1 <= len(entry) <= 2 for entry in entries)


@given(st.text() | JSON.map(json.dumps))
def test_lists_of_ids_are_read_or_refused(text):
    ids = []
    with contextlib.suppress(ValueError):
        ids = read_ids(text)
    assert ids == [identifier(each) for each in ids]
    assert len(ids) <= MOST_INTERFACES


def test_entries_of_each_physical_network_are_read():
    text = json.dumps({"physnet1": [A, f"{A},{B}"], "physnet2": []})
    assert read_pairs_by_name(text) == {"physnet1": [(A,), (A, B)], "physnet2": []}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "is no object"),
        ("{", "is no JSON"),
        (f'{{"p": "{A}"}}', "no list where one belongs"),
        (f'{{"p": {{"{A}": 1}}}}', "no list where one belongs"),
        ('{"p": [1]}', "no string"),
        ('{"p": ["x"]}', "is no id"),
    ],
)
def test_what_is_wrong_with_physical_networks_is_said(text, words):
    with pytest.raises(ValueError, match=words):
        read_pairs_by_name(text)


@given(st.text() | JSON.map(json.dumps))
def test_objects_with_entries_are_read_or_refused(text):
    found = {}
    with contextlib.suppress(ValueError):
        found = read_pairs_by_name(text)
    for entries in found.values():
        assert all(entry == tuple(map(identifier, entry)) for entry in entries)
