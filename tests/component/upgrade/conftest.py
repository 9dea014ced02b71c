"""Controllers of the earlier version, as processes."""

import contextlib

import pytest

from tests.kit import earlier_version
from tests.kit.load_balancer_services import furnish_outside
from tests.kit.processes import STARTING, Process

LEASE = 60.0  # seconds; nobody waits for its end: both versions have one lock, as on one host
OPTIONS = {
    "kubernetes": {
        "enabled_handlers": "vif,kuryrport,kuryrportpool,lbaas_spec,loadbalancer",
        "vif_pool_driver": "neutron",
    },
    "neutron_defaults": {"sweep_interval": "1"},
    "vif_pool": {
        "ports_pool_min": "3",
        "ports_pool_batch": "3",
        "ports_pool_update_frequency": "1",
        "ports_pool_cooldown": "0",
        "ports_pool_fill_rate": "100",
        "ports_pool_cleanup_rate": "100",
    },
}


@pytest.fixture(scope="session")
def tree(tmp_path_factory):
    return earlier_version.unpack(tmp_path_factory.mktemp("earlier-version"))


@pytest.fixture
def site(services):
    """A stage with pools and an external network."""
    furnish_outside(services.cloud, services.options)
    for group, values in OPTIONS.items():
        services.options[group] = services.options.get(group, {}) | values
    return services


@pytest.fixture
def earlier(site, tree, tmp_path):
    """Run a controller of the earlier version on the same host, until it leads."""

    @contextlib.asynccontextmanager
    async def running():
        process = Process(
            site,
            "earlier",
            lock=tmp_path / "controller.lock",
            lease=LEASE,
            tree=tree,
            **{group: dict(values) for group, values in site.options.items()},
        )
        try:
            await process.start()
            await site.until(process.leads, within=STARTING)
            yield process
        finally:
            await process.stop()

    return running
