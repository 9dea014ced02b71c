"""Fixtures of these tests, and the sample of them that ``make test`` runs."""

from pathlib import Path

import pytest

from tests.kit.fixtures import *  # noqa: F403

_HERE = Path(__file__).parent
_SAMPLE = 2  # one test in so many of each module


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sample each module, but for what is sampled by itself.

    Each test starts a controller, and there are more of them with each feature: all of them
    together take half of the time that ``make test`` has.
    """
    for item in items:
        if _HERE in item.path.parents and item.get_closest_marker("sampled") is None:
            item.add_marker(pytest.mark.sampled(_SAMPLE, group=item.nodeid.partition("::")[0]))
