"""The lists of tests/lanes.toml are complete, and what they name is there."""

import tomllib

import pytest

from tests.kit.paths import REPOSITORY

LANES = tomllib.loads((REPOSITORY / "tests" / "lanes.toml").read_text())
TESTS = ("unit", "component", "lab")


def named(*kinds):
    return [REPOSITORY / path for lane in LANES.values() for kind in kinds for path in lane[kind]]


def without_lane(files, paths):
    return [
        str(file.relative_to(REPOSITORY))
        for file in files
        if not any(file.is_relative_to(path) for path in paths)
    ]


def test_every_module_of_the_product_is_in_a_lane():
    modules = (REPOSITORY / "kuryr_k8s").rglob("*.py")
    assert without_lane(modules, named("packages")) == []


def test_every_test_is_in_a_lane():
    files = (REPOSITORY / "tests").rglob("test_*.py")
    top = REPOSITORY / "tests" / "unit"  # these are about the repository as a whole
    assert without_lane([file for file in files if file.parent != top], named(*TESTS)) == []


def test_every_life_is_in_a_lane():
    lives = {path.stem for path in (REPOSITORY / "tests" / "lives").glob("[a-z]*.py")}
    assert {life for lane in LANES.values() for life in lane["lives"]} == lives


@pytest.mark.parametrize("kind", ["packages", *TESTS, "smoke"])
def test_what_a_lane_names_is_there(kind):
    assert [path for path in named(kind) if not path.exists()] == []
