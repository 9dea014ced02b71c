"""A project's grants are checked once when they are there, and again while they are not."""

import asyncio

import pytest

from kuryr_k8s import errors
from kuryr_k8s.drivers.base.granted import Grants


class Policy:
    """Says to which projects something is granted, and who has asked."""

    def __init__(self, *granted):
        self.granted = set(granted)
        self.asked = []
        self.open = asyncio.Event()
        self.open.set()

    async def check(self, project_id):
        self.asked.append(project_id)
        await self.open.wait()
        if project_id not in self.granted:
            raise errors.Refused(f"nothing is granted to {project_id}")


async def test_project_that_was_refused_is_refused_until_it_is_granted():
    policy = Policy()
    grants = Grants(policy.check)
    for _ in range(2):
        with pytest.raises(errors.Refused):
            await grants.require("tenant")
    policy.granted.add("tenant")
    await grants.require("tenant")


async def test_project_is_checked_once_however_many_ask_until_it_is_forgotten():
    policy = Policy("tenant")
    grants = Grants(policy.check)
    policy.open.clear()
    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(grants.require("tenant"))
        await asyncio.sleep(0)  # they ask
        policy.open.set()
    await grants.require("tenant")
    assert policy.asked == ["tenant"]
    policy.granted.clear()
    grants.forget()
    with pytest.raises(errors.Refused):
        await grants.require("tenant")


async def test_nobody_passes_while_the_first_check_is_under_way():
    policy = Policy()
    grants = Grants(policy.check)
    policy.open.clear()
    refused = []

    async def ask():
        try:
            await grants.require("tenant")
        except errors.Refused:
            refused.append("tenant")

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(ask())
        await asyncio.sleep(0)  # they ask
        policy.open.set()
    assert len(refused) == 3
