"""Fixtures of these tests, and the sample of them that ``make test`` runs."""

from pathlib import Path

from tests.kit.fixtures import *  # noqa: F403
from tests.samples import sample_modules

_HERE = Path(__file__).parent
_SAMPLE = 2  # one test in so many: each starts a controller


def pytest_collection_modifyitems(items):
    sample_modules([item for item in items if _HERE in item.path.parents], _SAMPLE)
