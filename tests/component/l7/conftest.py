"""The L7 router on the fake Octavia, with Services and Ingresses of a real API server."""

import pytest

from tests.kit.l7 import RouterStage, furnish_routers


@pytest.fixture
async def routers(services):
    stage = RouterStage(
        services.cluster,
        services.cloud,
        services.proxy,
        services.load_conf,
        options=furnish_routers(services.cloud, services.options),
    )
    await stage.add_class()
    yield stage
    await stage.delete_class()
