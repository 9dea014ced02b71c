"""Pools: Pods get ports that were made before them, and what comes back is given on."""


from tests.component.conftest import HOST, NODE, TAG

OPTIONS = {
    "ports_pool_min": "2",
    "ports_pool_batch": "3",
    "ports_pool_update_frequency": "1",
    "ports_pool_cooldown": "0",
    "ports_pool_fill_rate": "100",
    "ports_pool_cleanup_rate": "100",
    "port_names": "false",
    "park_ports": "false",
}


def pool(**options):
    return {"kubernetes": {"vif_pool_driver": "neutron"}, "vif_pool": OPTIONS | options}


async def run(stage, name):
    """Have a Pod run; the id of its port."""
    pod = await stage.cluster.add_pod(name, node=NODE)
    vif = await stage.until_plugged_in(name)
    await stage.activate(name)
    return pod, vif["id"]


async def end(stage, name, pod):
    await stage.cluster.delete_pod(pod)
    await stage.until_deleting(name)
    await stage.let_go(name)
    await stage.until_gone(name)


async def until_ports(stage, count):
    await stage.cloud.wait_for(lambda: len(stage.cloud.ports) == count)


async def test_first_pod_makes_the_pool_and_fills_it(stage):
    async with stage.controller(**pool()):
        _, port = await run(stage, "web")
        await until_ports(stage, 4)
    ports = stage.cloud.ports
    assert {tuple(sorted(p["tags"])) for p in ports.values()} == {("kuryr-pool", TAG)}
    assert {p["binding:host_id"] for p in ports.values()} == {HOST}
    assert {p["name"] for p in ports.values()} == {"available-port"}
    assert port in ports


async def test_pod_takes_a_port_that_is_there_without_any_call(stage):
    async with stage.controller(**pool()):
        await run(stage, "one")
        await until_ports(stage, 4)
        before = set(stage.cloud.ports)
        calls = len(stage.cloud.calls)
        _, port = await run(stage, "two")
        assert port in before
        assert len(stage.cloud.calls) == calls


async def test_port_that_came_back_is_given_to_another_pod(stage):
    async with stage.controller(**pool(ports_pool_min="0")):
        pod, port = await run(stage, "one")
        await end(stage, "one", pod)
        _, again = await run(stage, "two")
        assert again == port
        assert list(stage.cloud.ports) == [port]


async def test_restarted_controller_finds_its_pools(stage):
    async with stage.controller(**pool()):
        _, port = await run(stage, "one")
        await until_ports(stage, 4)
    before = set(stage.cloud.ports)
    async with stage.controller(**pool()):
        writes = len(stage.cloud.faults.writes)
        _, other = await run(stage, "two")
        assert other in before - {port}
        assert len(stage.cloud.faults.writes) == writes
