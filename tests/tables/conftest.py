"""Fixtures of the tables: places for lives, by environment, and what is chosen of the product."""

import pytest

from tests import samples
from tests.kit.fixtures import *  # noqa: F403
from tests.kit.fixtures import OutsideLanes, RouterLanes, ServiceLanes
from tests.kit.stages import CrowdedLanes, Lanes, MacvlanLanes, NestedLanes
from tests.tables.faults import Choice

ENVIRONMENTS = {
    "pods": Lanes,
    "nested": NestedLanes,
    "macvlan": MacvlanLanes,
    "crowded": CrowdedLanes,
    "services": ServiceLanes,
    "outside": OutsideLanes,
    "routers": RouterLanes,
}


@pytest.fixture
def lanes_for(lanes_of):
    """Make stages for a life, each with everything of its own."""
    return lambda life: lanes_of(ENVIRONMENTS[life.environment])


@pytest.fixture
def choice(request):
    """What the session runs of the product."""
    config = request.config
    return Choice(config.stash[samples.SEED], everything=config.getoption("--all-faults"))
