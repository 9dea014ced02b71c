"""Many Services that come and go at once, before a provider that works off one after another."""

import asyncio

import pytest

from tests.component.services.web import HTTP

MANY = 60


@pytest.mark.parametrize("calm", [0, MANY // 2])
async def test_service_that_lives_is_served_before_the_last_of_a_burst_has_gone(services, calm):
    """What is deleted by the time its turn comes is never made.

    However many Services have come one by one before, nothing is known of how Octavia bears many.
    """
    cloud = services.cloud
    names = [f"burst{number}" for number in range(MANY)]
    async with services.controller():
        for number in range(calm):
            await services.add_service(f"calm{number}", HTTP, selector=None)
            await services.until(_are_active(services, number + 1))
        before = services.octavia_calls().count(("POST", "/loadbalancers"))
        cloud.octavia_pending = 0.4
        cloud.octavia.progress.one_by_one = True
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(services.add_service(name, HTTP, selector=None))
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(services.delete_service(name))
        await services.set_slice("a", "10.62.0.5", ports=[("http", 8080)])
        await services.add_service("web", HTTP)

        async def served():
            found = [tree for tree in services.trees() if tree["name"].endswith("/web")]
            balancers = [
                balancer
                for balancer in cloud.load_balancers.values()
                if balancer["name"].endswith("/web")
            ]
            return found and balancers[0]["provisioning_status"] == "ACTIVE"

        await services.until(served)
        posts = services.octavia_calls().count(("POST", "/loadbalancers"))
        assert posts - before < MANY / 2
        cloud.octavia_pending = 0

        async def alone():
            left = {tree["name"].rpartition("/")[2] for tree in services.trees()}
            return left == {"web", *(f"calm{number}" for number in range(calm))}

        await services.until(alone)
    assert not cloud.octavia.store.leaked


def _are_active(services, count):
    async def are_active():
        balancers = services.cloud.load_balancers.values()
        return [each["provisioning_status"] for each in balancers] == ["ACTIVE"] * count

    return are_active
