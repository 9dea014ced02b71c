"""Networks with subnets whose addresses Neutron gives to every port, asked for or not."""

import pytest

from tests.component.pools.pods import end, pool, run
from tests.kit.ledger import settle

pytestmark = pytest.mark.parametrize("mode", ["slaac", "dhcpv6-stateless"])
ENOUGH = 3  # of a pool, besides the Pods'
LIMITS = {"ports_pool_min": str(ENOUGH), "ports_pool_batch": "1"}


def add_automatic_subnet(stage, mode):
    """A subnet of the Pods' network that no option names."""
    network = stage.cloud.pods["id"]
    return stage.cloud.add_subnet(
        network, "fd00:77::/64", ipv6_address_mode=mode, ipv6_ra_mode=mode
    )


async def test_pool_has_enough_ports_and_pods_the_addresses_that_they_asked_for(stage, mode):
    asked = set(stage.cloud.pods["subnets"])
    async with stage.controller(**pool(**LIMITS)) as app:
        added = add_automatic_subnet(stage, mode)
        _, port = await run(stage, "one")
        await settle(stage, lambda: app)
        assert len(stage.cloud.ports) == 1 + ENOUGH
        _, other = await run(stage, "two")
        await settle(stage, lambda: app)
        assert len(stage.cloud.ports) == 2 + ENOUGH
    for known in (port, other):
        subnets = {ip["subnet_id"] for ip in stage.cloud.ports[known]["fixed_ips"]}
        assert subnets == asked | {added["id"]}


async def test_restarted_controller_finds_its_pools_after_such_a_subnet_was_added(stage, mode):
    options = pool(**LIMITS)
    options["neutron_defaults"]["pod_subnet"] = ",".join(stage.cloud.pods["subnets"])
    async with stage.controller(**options) as app:
        pod, _ = await run(stage, "one")
        await settle(stage, lambda: app)
    before = set(stage.cloud.ports)
    add_automatic_subnet(stage, mode)
    async with stage.controller(**options) as app:
        _, other = await run(stage, "two")
        assert other in before
        await end(stage, "one", pod)
        await settle(stage, lambda: app)
    assert before - {other} <= set(stage.cloud.ports)
    assert len(stage.cloud.ports) <= 1 + len(before)


async def test_subnet_that_is_added_later_costs_no_port(stage, mode):
    options = pool(**LIMITS)
    async with stage.controller(**options) as app:
        pod, _ = await run(stage, "one")
        await settle(stage, lambda: app)
        before = set(stage.cloud.ports)
        add_automatic_subnet(stage, mode)
        await end(stage, "one", pod)
        await settle(stage, lambda: app)
        assert set(stage.cloud.ports) == before
