"""Fixtures of the tables: places for lives, by environment, and what is chosen of the product."""

import pytest

from tests.kit.fixtures import *  # noqa: F403
from tests.kit.fixtures import OutsideLanes, ServiceLanes
from tests.kit.stages import Lanes, NestedLanes, permit
from tests.tables import report
from tests.tables.faults import Choice

ENVIRONMENTS = {
    "pods": Lanes,
    "nested": NestedLanes,
    "services": ServiceLanes,
    "outside": OutsideLanes,
}


@pytest.fixture
async def lanes_for(shipped_permissions, kube_server, tmp_path):
    """Open stages for a life, each with everything of its own."""
    await permit(shipped_permissions.client, kube_server)

    def make(life):
        return ENVIRONMENTS[life.environment](kube_server, shipped_permissions.client, tmp_path)

    return make


@pytest.fixture
def choice(request):
    """What the session runs of the product."""
    config = request.config
    return Choice(config.stash[report.SEED], everything=config.getoption("--all-faults"))
