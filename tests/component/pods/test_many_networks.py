"""Networks that users name: many of them cost hardly more calls than one."""

import asyncio

import pytest

from kuryr_k8s import errors
from kuryr_k8s.drivers.named.networks import NamedNetworks
from tests.kit.clock import ManualClock
from tests.kit.contexts import driver_context

MANY = 200


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def networks(load_conf, neutron, clock):
    return NamedNetworks(driver_context(load_conf(), neutron, clock=clock))


def reads(cloud):
    return sum(call.what in ("/v2.0/networks", "/v2.0/subnets") for call in cloud.calls)


async def ask(networks, cloud, named):
    """Every one of them is asked for at once, as by Pods of as many Namespaces."""
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(networks.granted("shop", cloud.project_id, each)) for each in named
        ]
    return [task.result() for task in tasks]


async def test_many_that_are_in_use_are_read_again_together(cloud, networks, clock):
    made = [cloud.add_network(f"n{n}", f"10.{100 + n // 250}.{n % 250}.0/24") for n in range(MANY)]
    named = [each["id"] if n % 2 else each["subnets"] for n, each in enumerate(made)]
    found = await ask(networks, cloud, named)
    assert [each.network.id for each in found] == [each["id"] for each in made]
    for _ in range(2):
        clock.seconds += 61.0
        before = reads(cloud)
        await ask(networks, cloud, named)
        assert reads(cloud) - before <= 10
        await ask(networks, cloud, named)
        assert reads(cloud) - before <= 10, "they count for a minute"


async def test_those_that_nobody_asks_for_are_not_read(cloud, networks, clock):
    first, second = (cloud.add_network(name, "10.70.0.0/24") for name in ("first", "second"))
    await ask(networks, cloud, [first["id"], second["id"]])
    cloud.calls.clear()
    clock.seconds += 130.0
    await ask(networks, cloud, [first["id"]])
    assert any(first["id"] in call.query for call in cloud.calls)
    assert not any(second["id"] in call.query for call in cloud.calls)


async def test_one_that_is_wrong_concerns_nobody_else(cloud, networks):
    right = cloud.add_network("right", "10.70.0.0/24")
    empty = cloud.add_network("empty")
    gone = "6f1c1d1e-0000-4000-8000-000000000001"
    wrong = [gone, [gone], empty["id"], [*right["subnets"], gone]]
    for named in wrong:
        with pytest.raises(errors.Refused):
            await networks.granted("shop", cloud.project_id, named)
    (found,) = await ask(networks, cloud, [right["id"]])
    assert found.network.name == "right"
