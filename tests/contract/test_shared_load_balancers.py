"""What is attached to the load balancers of others, with either provider; by our driver's part."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from kuryr_k8s import errors
from kuryr_k8s.cloud.mark import ClusterMark
from kuryr_k8s.cloud.octavia.api import Octavia as Client
from kuryr_k8s.drivers.base import Owned, PortTaken
from kuryr_k8s.drivers.lbaas.attached import Attachments, Unusable
from kuryr_k8s.drivers.lbaas.ownership import tagged
from kuryr_k8s.drivers.lbaas.records import Records
from kuryr_k8s.drivers.lbaas.work import NotTaken, Work
from kuryr_k8s.model.load_balancer import Listener, LoadBalancer, Member, Pool
from kuryr_k8s.model.owner import Owner, Role
from tests.kit.contexts import driver_context

from .balancers import ALGORITHMS, LISTENERS, PAUSE, WITHIN, Octavia, bare, populated
from .sides import Side

Json = dict[str, Any]
T = TypeVar("T")
NOBODY = "1b0bf90d-8c51-4c3b-9ad1-4a3d5b7d9b5e"
FIRST, SECOND = Owner("first", Role.SHARED), Owner("second", Role.SHARED)


def wake(_owner: Owner) -> None:
    """Nobody waits."""


class Controller(Attachments):
    """What one has at its start."""

    def __init__(self, side: Side, client: Client) -> None:
        tags = [side.mark]
        context = driver_context(None, None, client)
        work = Work(context, tags, wake, limit=1, longest=WITHIN)
        self.pending = work.pending
        mark = ClusterMark(side.mark)
        records = Records(context, tags, mark, [side.kuryr.project_id], wake)
        super().__init__(context, work, records, tags, mark, wake)

    async def done(self, begin: Callable[[], Awaitable[T]]) -> T:
        """What it gives when Octavia is not at work any more."""
        async with asyncio.timeout(WITHIN):
            while True:
                try:
                    return await begin()
                except (errors.Wait, NotTaken):  # one that was refused is asked for again, too
                    await asyncio.sleep(PAUSE)
                    await self.pending.reconcile("")


def wanted(
    side: Side, subnet: str, provider: str, owner: Owner, *fronts: tuple[str, int]
) -> LoadBalancer:
    """A listener for each protocol and port, and a pool with one member."""
    member = Member(address="10.219.0.103", port=8080, name="pod", subnet_id=subnet)
    names = {front: f"{owner.uid}:{front[0]}:{front[1]}" for front in fronts}
    desired = LoadBalancer(
        name=owner.uid,
        project_id=side.kuryr.project_id,
        vip_subnet_id=None,
        vip_address=None,
        provider=None,
        namespace="default",
        listeners=tuple(
            Listener(name=name, protocol=protocol, port=port, pool=name)
            for (protocol, port), name in names.items()
        ),
        pools=tuple(
            Pool(
                name=name,
                protocol=protocol,
                lb_algorithm=ALGORITHMS[provider],
                members=(member,),
            )
            for (protocol, _port), name in names.items()
        ),
    )
    return tagged(desired, owner, [side.mark], shared=True)


def tree(found: Any) -> set[tuple[str, int, str, int]]:
    """(protocol, port, pool, number of members) of each listener."""
    members = {pool.id: len(pool.pool.members) for pool in found.pools}
    return {
        (
            listener.listener.protocol,
            listener.listener.port,
            listener.listener.pool,
            members[listener.pool_id],
        )
        for listener in found.listeners
    }


async def test_owners_come_and_go_on_an_operators_load_balancer(
    side: Side, octavia: Octavia, subnet: str, client: Client, provider: str
) -> None:
    shared = (await octavia.make(populated(subnet, provider)))["id"]
    own = {("TCP", 80, "web", 2)}
    driver = Controller(side, client)
    await driver.list_all()

    def attach(
        to: Controller, owner: Owner, *fronts: tuple[str, int]
    ) -> Callable[[], Awaitable[Any]]:
        desired = wanted(side, subnet, provider, owner, *fronts)
        return lambda: to.ensure(owner, shared, desired)

    found = await driver.done(attach(driver, FIRST, ("UDP", 80), ("TCP", 81)))
    first = {("UDP", 80, f"{FIRST.uid}:UDP:80", 1), ("TCP", 81, f"{FIRST.uid}:TCP:81", 1)}
    assert tree(found) == first
    with pytest.raises(PortTaken) as taken:
        await driver.done(attach(driver, SECOND, ("TCP", 80), ("TCP", 81), ("UDP", 82)))
    assert set(taken.value.ports) == {("TCP", 80), ("TCP", 81)}
    second = {("UDP", 82, f"{SECOND.uid}:UDP:82", 1)}
    assert tree(await client.read(shared)) == own | first | second
    # another controller finds them again, and asks for nothing that is there
    again = Controller(side, client)
    owned = [Owned(owner, "default", shared) for owner in (FIRST, SECOND)]
    assert await again.list_all() == owned
    await again.ensure(SECOND, shared, wanted(side, subnet, provider, SECOND, ("UDP", 82)))
    await again.done(lambda: again.leave(FIRST))
    assert tree(await client.read(shared)) == own | second
    await again.done(lambda: again.leave(SECOND))
    left = await client.read(shared)
    assert tree(left) == own
    assert len(left.pools) == 1
    assert await Controller(side, client).list_all() == []


async def test_load_balancer_of_another_project_or_of_nobody_is_not_to_be_had(
    side: Side, subnet: str, client: Client, stranger: Octavia
) -> None:
    network = await side.network("10.220.0.0/24", owner=side.stranger)
    desired = wanted(side, subnet, "ovn", FIRST, ("TCP", 80))
    driver = Controller(side, client)
    await driver.list_all()
    try:
        theirs = (await stranger.make(bare(network["subnets"][0], "ovn")))["id"]
        for balancer_id in (theirs, NOBODY):
            with pytest.raises(Unusable, match=balancer_id):
                await driver.ensure(FIRST, balancer_id, desired)
        assert (await stranger.get(LISTENERS, loadbalancer_id=theirs)).body["listeners"] == []
    finally:
        await stranger.clean()
