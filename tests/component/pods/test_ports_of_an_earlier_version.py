"""Ports that a version without marks made: they are this cluster's, and go on being used."""

import pytest

from tests.component.pools.pods import end as end_of
from tests.component.pools.pods import pool
from tests.kit import confs
from tests.kit.confs import CLUSTER, HOST, MARK, NODE, TAG, VM
from tests.kit.fakes.faults import answer
from tests.kit.ledger import settle

OFTEN = {"neutron_defaults": {"sweep_interval": "1"}}


@pytest.fixture(params=["hosts", "trunks"])
async def site(request, stage):
    """The options for nodes that are hosts or virtual machines, and the name of one."""
    if request.param == "hosts":
        return {}, "neutron", NODE
    await stage.cluster.add_node("vm", addresses=(VM,))
    return confs.add_vm(stage.cloud), "nested", "vm"


def with_options(options, *more):
    """All these groups of options together."""
    groups = {}
    for each in (options, *more):
        for group, values in each.items():
            groups[group] = groups.get(group, {}) | values
    return groups


def unmark(cloud):
    """Let the ports look as if that version had made them."""
    for port in cloud.ports.values():
        named = {
            name: value.replace(f"kuryr-pool:{CLUSTER}", f"kuryr-pool:{TAG}")
            for name, value in port.items()
            if name in ("device_id", "description")
        }
        tags = [tag for tag in port["tags"] if tag != MARK]
        cloud.store.change("port", port, {"tags": tags} | named)


def ours(cloud):
    return set(cloud.ports) - {trunk["port_id"] for trunk in cloud.trunks.values()}


async def interrupted(stage, options, node):
    """Have a Pod for which a port was made, and no KuryrPort names it; the Pod, and the port."""
    status = r"/kuryrports/web/status$"
    rule = stage.proxy.faults.add(method="PATCH", path=status, times=None, action=answer(500))
    async with stage.controller(**options):
        pod = await stage.cluster.add_pod("web", node=node)
        await stage.proxy.wait_for(lambda: rule.hits)
    rule.remove()
    unmark(stage.cloud)
    (port,) = ours(stage.cloud)
    return pod, port


async def test_port_that_no_kuryrport_names_yet_becomes_its_pods(stage, site):
    options, _, node = site
    _, port = await interrupted(stage, options, node)
    async with stage.controller(**options):
        assert (await stage.until_plugged_in("web"))["id"] == port
        assert ours(stage.cloud) == {port}
        assert MARK in stage.cloud.ports[port]["tags"]


async def test_port_that_no_kuryrport_ever_named_goes_with_its_pod(stage, site):
    options, _, node = site
    pod, _ = await interrupted(stage, options, node)
    await stage.cluster.delete_pod(pod)
    async with stage.controller(**options):
        await stage.until_gone("web")
        assert not ours(stage.cloud)


async def test_available_ports_of_pools_stay_available(stage, site):
    options, driver, node = site
    pools = with_options(pool(), options, {"kubernetes": {"vif_pool_driver": driver}})
    async with stage.controller(**pools) as app:
        await stage.cluster.add_pod("web", node=node)
        await stage.until_plugged_in("web")
        await settle(stage, lambda: app)
    unmark(stage.cloud)
    before = ours(stage.cloud)
    async with stage.controller(**pools) as app:
        await stage.cluster.add_pod("next", node=node)
        assert (await stage.until_plugged_in("next"))["id"] in before
        marked = lambda: all(  # noqa: E731
            MARK in stage.cloud.ports[port]["tags"] for port in ours(stage.cloud)
        )
        await stage.cloud.wait_for(marked)
        await settle(stage, lambda: app)
        assert before <= ours(stage.cloud)
        unmarked = {"kind": "ports"}
        assert app.registry.get_sample_value("kuryr_unmarked_objects", unmarked) == 0


async def test_available_ports_of_pools_go_where_there_are_none_any_more(stage, site):
    options, driver, node = site
    pools = with_options(pool(), options, {"kubernetes": {"vif_pool_driver": driver}})
    async with stage.controller(**pools) as app:
        await stage.cluster.add_pod("web", node=node)
        held = (await stage.until_plugged_in("web"))["id"]
        await settle(stage, lambda: app)
    unmark(stage.cloud)
    async with stage.controller(**with_options(options, OFTEN)):
        await stage.cloud.wait_for(lambda: ours(stage.cloud) == {held})


async def test_available_port_at_a_host_of_no_node_of_ours_is_left_alone(stage):
    async with stage.controller(**pool()) as app:
        pod = await stage.cluster.add_pod("web", node=NODE)
        await stage.until_plugged_in("web")
        await settle(stage, lambda: app)
        await end_of(stage, "web", pod)
    unmark(stage.cloud)
    theirs = stage.cloud.add_port(
        stage.cloud.pods["id"],
        device_owner="compute:kuryr",
        device_id=f"kuryr-pool:{TAG}",
        name="available-port",
        tags=[TAG, "kuryr-pool"],
        **{"binding:host_id": "chassis2"},
    )["id"]
    async with stage.controller(**with_options(OFTEN)) as app:
        await stage.cloud.wait_for(lambda: set(stage.cloud.ports) == {theirs})
        assert HOST not in {port["binding:host_id"] for port in stage.cloud.ports.values()}
        assert app.registry.get_sample_value("kuryr_unmarked_objects", {"kind": "ports"}) == 1
