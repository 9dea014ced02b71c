"""Pools: Pods get ports that were made before them, and what comes back is given on."""

import json

import pytest
from aiohttp import web

from kuryr_k8s.cli.local import ControllerError, LocalController
from kuryr_k8s.patience import PATIENCE
from tests.component.pools.pods import OPTIONS, end, run, until_ports
from tests.kit.confs import HOST, MARK, NODE, TAG
from tests.kit.ledger import settle


def pool(**options):
    return {"kubernetes": {"vif_pool_driver": "neutron"}, "vif_pool": OPTIONS | options}


async def test_first_pod_makes_the_pool_and_fills_it(stage):
    async with stage.controller(**pool()):
        _, port = await run(stage, "web")
        await until_ports(stage, 4)
    ports = stage.cloud.ports
    assert {tuple(sorted(p["tags"])) for p in ports.values()} == {(MARK, "kuryr-pool", TAG)}
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


async def test_group_that_is_named_twice_counts_once(stage):
    groups = {"pod_security_groups": ",".join([stage.cloud.group["id"]] * 2)}
    options = pool(ports_pool_batch="1") | {"neutron_defaults": groups}
    async with stage.controller(**options) as app:
        await run(stage, "web")
        await settle(stage, lambda: app)
        assert len(stage.cloud.ports) == 3


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


async def until_available(stage, local, pool_id, count):
    async def there():
        return (await local.get(f"/pools/{pool_id}"))["available"] == count

    await stage.until(there)


async def test_operator_lists_shows_fills_and_frees_pools(stage, controller_socket):
    options, path = controller_socket
    async with stage.controller(**pool(), **options), LocalController(path) as local:
        _, port = await run(stage, "web")

        async def filled():  # Neutron has the ports before the controller knows of them
            (found,) = (await local.get("/pools"))["pools"]
            return found if (found["available"], found["in_use"]) == (3, 1) else None

        found = await stage.until(filled)
        assert found["place"] == HOST
        shown = await local.get(f"/pools/{found['id']}")
        assert {p["id"] for p in shown["ports"]} == set(stage.cloud.ports)
        assert [p["id"] for p in shown["ports"] if p["state"] == "in_use"] == [port]
        assert await local.post(f"/pools/{found['id']}/populate", {"count": 5}) == {"ports": 5}
        await until_available(stage, local, found["id"], 8)
        assert await local.post(f"/pools/{found['id']}/free", {"count": None}) == {"ports": 8}
        await stage.cloud.wait_for(lambda: set(stage.cloud.ports) == {port})


async def test_operator_fills_the_pool_of_a_node_before_it_has_a_pod(stage, controller_socket):
    options, path = controller_socket
    async with stage.controller(**pool(), **options), LocalController(path) as local:
        wanted = {"node": NODE, "namespace": stage.cluster.namespace, "count": 4}
        made = await local.post("/pools", wanted)
        await until_available(stage, local, made["id"], 4)
        calls = len(stage.cloud.calls)
        await run(stage, "web")
        assert len(stage.cloud.calls) == calls
        shown = await local.get(f"/pools/{made['id']}")
        assert (shown["available"], shown["in_use"]) == (3, 1)


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/pools/none/free", {"count": 1}, "there is no pool none"),
        ("/pools", {"node": "nowhere", "count": 1}, "there is no node nowhere"),
        ("/pools", {"node": NODE, "count": 0}, "count must be"),
        ("/pools", {"node": NODE, "namespace": "nope", "count": 1}, "no namespace nope"),
    ],
)
async def test_operator_is_told_what_makes_no_sense(stage, controller_socket, path, body, said):
    options, socket = controller_socket
    async with stage.controller(**pool(), **options), LocalController(socket) as local:
        with pytest.raises(ControllerError, match=said):
            await local.post(path, body)


async def test_pools_are_read_over_http_and_changed_over_the_socket_alone(stage, controller_url):
    options, url = controller_url
    wanted = {"node": NODE, "namespace": stage.cluster.namespace, "count": 4}
    async with stage.controller(**pool(), **options), LocalController(url) as local:
        await run(stage, "web")
        await until_ports(stage, 4)
        (found,) = (await local.get("/pools"))["pools"]
        assert (await local.get(f"/pools/{found['id']}"))["id"] == found["id"]
        for path, body in (
            ("/pools", wanted),
            (f"/pools/{found['id']}/populate", {"count": 4}),
            (f"/pools/{found['id']}/free", {"count": 1}),
        ):
            with pytest.raises(ControllerError):
                await local.post(path, body)
        await until_available(stage, local, found["id"], 3)


async def test_neutron_that_hides_where_ports_are_bound_takes_none_from_a_pool(
    stage, controller_socket
):
    """It does so for a moment right after its start, while its policy is not loaded."""

    async def hide(_request, proceed):
        body = json.loads((await proceed()).body)
        for port in body["ports"]:
            port.pop("binding:host_id", None)
        return web.json_response(body)

    options, path = controller_socket
    options["neutron_defaults"] = {"sweep_interval": "1"}
    async with stage.controller(**pool(), **options), LocalController(path) as local:
        await run(stage, "web")
        (found,) = (await local.get("/pools"))["pools"]
        await until_available(stage, local, found["id"], 3)
        rule = stage.cloud.faults.add(method="GET", path=r"/ports$", times=3, action=hide)
        await stage.cloud.wait_for(lambda: rule.hits == 3)
        seen = stage.cloud.calls.count("GET", "/v2.0/ports")
        await stage.cloud.wait_for(
            lambda: stage.cloud.calls.count("GET", "/v2.0/ports") > seen + 1
        )
        shown = await local.get(f"/pools/{found['id']}")
        assert (shown["available"], shown["in_use"]) == (3, 1)
        assert len(stage.cloud.ports) == 4


async def test_without_pools_nodes_have_no_kuryrportpools_and_neutron_none_of_their_ports(stage):
    path = f"/apis/openstack.org/v1/kuryrportpools/{NODE}"

    async def parked():
        found = await stage.client.find(path)
        return found and set(found["spec"]["ports"]) == set(stage.cloud.ports)

    async def deleted():
        return await stage.client.find(path) is None

    async with stage.controller(**pool(park_ports="true")) as app:
        pod, port = await run(stage, "web")
        await settle(stage, lambda: app)
        await stage.until(parked)
    async with stage.controller(neutron_defaults={"sweep_interval": "1"}):
        await stage.until(deleted)
        await stage.cloud.wait_for(lambda: set(stage.cloud.ports) == {port})
        await end(stage, "web", pod)
        assert not stage.cloud.ports


async def test_new_pods_follow_their_networks_mtu_and_dns_servers(stage):
    """Also on ports that were there before; without a Pod that asks, and without a restart."""
    cloud = stage.cloud
    async with stage.controller(**pool(), patience={"pod_network": 0.05}):
        await run(stage, "one")
        await until_ports(stage, 4)
        before = set(cloud.ports)
        [network_id] = {port["network_id"] for port in cloud.ports.values()}
        subnets = {ip["subnet_id"] for port in cloud.ports.values() for ip in port["fixed_ips"]}
        cloud.networks[network_id]["mtu"] = 1234
        for subnet_id in subnets:
            cloud.subnets[subnet_id]["dns_nameservers"] = ["10.9.9.9"]
        reads = len(reads_of(cloud, network_id))
        # the first may have been on its way; the second begins after the first is over
        await cloud.wait_for(lambda: len(reads_of(cloud, network_id)) > reads + 2)
        await stage.cluster.add_pod("two", node=NODE)
        vif = await stage.until_plugged_in("two")
    assert vif["id"] in before
    network = vif["network"]["versioned_object.data"]
    assert network["mtu"] == 1234
    served = [s["versioned_object.data"] for s in subnets_of(network)]
    assert served
    assert all(subnet["dns"] == ["10.9.9.9"] for subnet in served)


def reads_of(cloud, network_id):
    return [call for call in cloud.calls if call.path.endswith(f"/networks/{network_id}")]


def subnets_of(network):
    return network["subnets"]["versioned_object.data"]["objects"]


def test_networks_are_read_often_enough_for_pods_to_follow_within_two_minutes():
    assert PATIENCE.pod_network <= 60
