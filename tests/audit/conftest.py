"""What a whole run of the tests left behind is looked at: the last stage of `make test`.

By hand, after functional tests, it speaks of everything since the lab was set up.
"""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lab import facts


@pytest.fixture(scope="session")
def lab():
    return facts.load()


@pytest.fixture(scope="session")
def began():
    """When the run began; what is older is somebody else's."""
    told = os.environ.get("KURYR_LAB_SUITE_BEGAN")
    return datetime.fromisoformat(told) if told else datetime.fromtimestamp(0, UTC)


@pytest.fixture(scope="session")
def reports():
    """Where other stages left something for this one; None outside of `make test`."""
    told = os.environ.get("KURYR_LAB_REPORTS")
    return Path(told) if told else None


@pytest.fixture
def show(capsys):
    """Print past pytest: the lists are wanted, whatever comes of the tests."""

    def show(title, lines):
        with capsys.disabled():
            print(f"\n{title}")
            for line in lines or ["(none)"]:
                print(f"  {line}")

    return show
