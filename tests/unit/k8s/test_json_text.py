"""JSON that is nested more deeply than Python's parser can read."""

import json

import pytest

from kuryr_k8s.k8s.json_text import LONGEST_NUMBER, MOST, parse, parse_now

DEEP = 100_000  # more than the parser of any Python reads


def nested(levels, inner="1"):
    return f"{'[' * levels}{inner}{']' * levels}"


def depth_of(value):
    depth = 0
    while isinstance(value, list):
        depth, value = depth + 1, value[0]
    return depth, value


def test_what_is_too_deep_is_null():
    assert depth_of(parse_now(nested(DEEP).encode())) == (MOST, None)


@pytest.mark.parametrize("levels", [MOST, MOST + 1, 500])
def test_what_the_parser_can_read_is_as_it_is(levels):
    assert depth_of(parse_now(nested(levels).encode())) == (levels, 1)


async def test_callers_that_await_get_the_same():
    assert await parse(b"[1]") == [1]
    assert depth_of(await parse(nested(DEEP).encode())) == (MOST, None)


def test_number_that_python_does_not_read_is_0():
    longest = "9" * LONGEST_NUMBER
    text = f'{{"a": {longest}, "b": {longest}9, "c": -1}}'
    assert parse_now(text.encode()) == {"a": int(longest), "b": 0, "c": -1}
    assert depth_of(parse_now(nested(DEEP, f"{longest}9").encode())) == (MOST, None)


def test_objects_are_pruned_as_well():
    value = parse_now(('{"f:a":' * DEEP + "{}" + "}" * DEEP).encode())
    for _ in range(MOST):
        value = value["f:a"]
    assert value is None


def test_whatever_is_beside_it_stays():
    other = {"name": "b", "tail": [[1], {"x": {}}]}
    items = [{"name": "a"}, {"deep": ["@"]} | other, {"name": "c"}]
    text = json.dumps({"items": items, "metadata": {"continue": ""}})
    found = parse_now(text.replace('"@"', f"1, {nested(DEEP)}, 2, {nested(DEEP)}, 3").encode())
    one, deep, two, deeper, three = found["items"][1].pop("deep")
    assert (one, two, three) == (1, 2, 3)
    # the list is at the fourth level, and what is in it at the fifth
    assert depth_of(deep) == depth_of(deeper) == (MOST - 4, None)
    assert found["items"] == [{"name": "a"}, other, {"name": "c"}]
    assert found["metadata"] == {"continue": ""}


@pytest.mark.parametrize(
    "text",
    ["[[{{", "]}]}", '"', '\\"[', "[\\\\", "\\", 'é"[{\u2028', '{"a": "]"}', "\n[\t{"],
)
def test_brackets_in_strings_are_not_counted(text):
    value = [{text: [text] * 300}, text]
    for each in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        found = parse_now(f"[{nested(DEEP, each)}, {each}]".encode())
        assert found[1] == value
        assert depth_of(found[0]) == (MOST - 1, None)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"\xff",
        b"[" * DEEP,
        b"]" * DEEP,
        b"[" * DEEP + b"]" * 2 * DEEP + b"[" * 2 * DEEP,
        b"[" * DEEP + b'"' + rb"\"" * DEEP,
        b"[" * DEEP + b'"' + b"\\",
    ],
)
def test_what_is_no_json_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"Expecting|Extra|Invalid|Unterminated|decode"):
        parse_now(text)
