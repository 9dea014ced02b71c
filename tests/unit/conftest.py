"""Profiles of Hypothesis: `quick` (the default), `full` and `long`, chosen by HYPOTHESIS_PROFILE.

The last one is for readers of what users write: `--hypothesis-show-statistics` counts the cases.
Properties hold on a busy machine too: how long a case takes is no part of them.
"""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from stevedore import ExtensionManager

ANY_MACHINE = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}

settings.register_profile("quick", max_examples=30, stateful_step_count=30, **ANY_MACHINE)
settings.register_profile("full", **ANY_MACHINE)
settings.register_profile("long", max_examples=5_000, **ANY_MACHINE)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or "quick")


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(1200))  # a state machine has many cases


@pytest.fixture
def site_packages(tmp_path, monkeypatch):
    """A directory whose packages are installed; ``tmp_path``."""
    monkeypatch.syspath_prepend(tmp_path)
    # this process may have looked for entry points before: stevedore remembers what it found
    monkeypatch.setattr(ExtensionManager, "ENTRY_POINT_CACHE", {})
    return tmp_path
