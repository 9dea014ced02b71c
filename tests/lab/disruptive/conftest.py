"""The sample of these tests that ``make test`` runs."""

from pathlib import Path

from tests.samples import sample_modules

_HERE = Path(__file__).parent
_SAMPLE = 2  # one test in so many: they run one after another


def pytest_collection_modifyitems(items):
    sample_modules([item for item in items if _HERE in item.path.parents], _SAMPLE)
