"""Two Nodes that have published one host: it shows, and the first has the pools of the host."""

import pytest

from kuryr_k8s.model.annotations import HOST_ID
from tests.component.pools.pods import OTHER, add_other_node, pool, run
from tests.kit.confs import HOST, NODE
from tests.kit.ledger import settle

KURYRPORTPOOL = "/apis/openstack.org/v1/kuryrportpools/{}"
REASON = "KuryrHostShared"


async def told(stage, node):
    """Return what an Event of the Node says of another one with its host."""
    notes = [note for reason, note in await stage.node_events(node) if reason == REASON]
    assert len(notes) <= 1
    return notes


async def parked_by(stage, node):
    """Return the ports that the node is to keep plugged."""
    found = await stage.client.find(KURYRPORTPOOL.format(node))
    return set((found or {}).get("spec", {}).get("ports") or ())


async def until_parked(stage, node):
    """Wait until the node is to keep all ports plugged; return them."""

    async def follows():
        return stage.cloud.ports and await parked_by(stage, node) == set(stage.cloud.ports)

    await stage.until(follows)
    return set(stage.cloud.ports)


@pytest.mark.parametrize("groups", [{}, pool()], ids=["noop", "pool"])
async def test_node_with_the_host_of_another_is_told_so_until_that_is_mended(
    stage, capsys, groups
):
    patience = groups.get("patience", {}) | {"first_refused": 0.1, "refused": 0.1}
    async with stage.controller(**groups | {"patience": patience}) as app:

        async def shared():
            return app.registry.get_sample_value("kuryr_shared_hosts")

        await run(stage, "web")
        assert await shared() == 0
        await add_other_node(stage, HOST)
        await stage.until(lambda: told(stage, OTHER))
        (note,) = await told(stage, OTHER)
        assert NODE in note
        assert HOST in note
        assert not await told(stage, NODE)
        assert await shared() == 1
        await run(stage, "other", OTHER)  # it may be the same machine, under a new name
        path = f"/api/v1/nodes/{OTHER}"
        await stage.client.patch(path, {"metadata": {"annotations": {HOST_ID: "chassis2"}}})

        async def mended():
            return await shared() == 0

        await stage.until(mended)
        lines = [line for line in capsys.readouterr().out.splitlines() if note in line]
        assert len(lines) == 1


async def test_pools_of_a_host_stay_those_of_the_node_that_published_it_first(stage):
    async with stage.controller(**pool(park_ports="true")) as app:
        await run(stage, "one")
        before = await until_parked(stage, NODE)
        await add_other_node(stage, HOST)
        for name in ("two", "three"):
            await run(stage, name, OTHER)
        await settle(stage, lambda: app)
        assert before < await until_parked(stage, NODE)
        assert not await parked_by(stage, OTHER)


async def test_pools_of_a_host_pass_to_the_second_node_when_the_first_goes(stage):
    async with stage.controller(**pool(park_ports="true")) as app:
        await run(stage, "one")
        await add_other_node(stage, HOST)
        await run(stage, "two", OTHER)
        await settle(stage, lambda: app)
        before = await until_parked(stage, NODE)
        await stage.client.delete(f"/api/v1/nodes/{NODE}")
        assert await until_parked(stage, OTHER) == before


async def test_second_node_of_a_host_keeps_no_list_of_ports_when_pools_are_given_up(stage):
    async with stage.controller(**pool(park_ports="true")) as app:
        await add_other_node(stage, "chassis2")
        await run(stage, "web", OTHER)
        await stage.until(lambda: parked_by(stage, OTHER))
        await stage.client.patch(
            f"/api/v1/nodes/{OTHER}", {"metadata": {"annotations": {HOST_ID: HOST}}}
        )
        await stage.until(lambda: told(stage, OTHER))
        await settle(stage, lambda: app)
    async with stage.controller():

        async def is_gone():
            return await stage.client.find(KURYRPORTPOOL.format(OTHER)) is None

        await stage.until(is_gone)
