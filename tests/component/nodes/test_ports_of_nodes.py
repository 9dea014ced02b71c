"""Ports of Nodes: made, found again, followed and removed, on the fake cloud."""

import json

import pytest

from kuryr_k8s.handlers.nodes.ports import NODE_DEVICE_OWNER
from kuryr_k8s.model.annotations import HOST_ID, NODE_INTERFACE
from tests.kit.confs import HOST, MARK, NODE, TAG

PATIENCE = {"first_refused": 0.1, "refused": 0.1}
OTHER_HOST = "chassis2"


@pytest.fixture
def nodes(stage):
    """Give the cloud a dual-stack network for the nodes' ports."""
    stage.cloud.add_host(OTHER_HOST)
    return stage.cloud.add_network("nodes", "10.63.0.0/24", "fd63::/64", mtu=1442)


def options(*subnets, **changes):
    named = {"node_subnet": ",".join(subnets), "sweep_interval": "1"}
    return {"neutron_defaults": named | changes, "patience": PATIENCE}


def ports(stage):
    found = stage.cloud.ports.values()
    return [port for port in found if port["device_owner"] == NODE_DEVICE_OWNER]


async def described(stage, node=NODE):
    found = await stage.client.find(f"/api/v1/nodes/{node}")
    text = (found["metadata"].get("annotations") or {}).get(NODE_INTERFACE)
    return json.loads(text) if text else None


async def until_described(stage, node=NODE, **fields):
    """Wait until the annotation names a port that exists, and has these fields."""

    async def follows():
        found = await described(stage, node)
        known = [port["id"] for port in ports(stage)]
        if found and found["portId"] in known and found | fields == found:
            return found
        return None

    return await stage.until(follows)


async def until_no_ports(stage):
    await stage.cloud.wait_for(lambda: not ports(stage))


async def annotate(stage, **annotations):
    patch = {"metadata": {"annotations": annotations}}
    await stage.client.patch(f"/api/v1/nodes/{NODE}", patch)


async def test_node_gets_a_port_and_its_daemon_learns_addresses_and_routes(stage, nodes):
    async with stage.controller(**options(*nodes["subnets"])):
        found = await until_described(stage)
        (port,) = ports(stage)
        node = await stage.client.find(f"/api/v1/nodes/{NODE}")
        assert port["device_id"] == node["metadata"]["uid"]
        assert port["binding:host_id"] == HOST
        assert {TAG, MARK} <= set(port["tags"])
        addresses = {ip["ip_address"] for ip in port["fixed_ips"]}
        assert {address.partition("/")[0] for address in found["addresses"]} == addresses
        assert (found["mtu"], found["macAddress"]) == (1442, port["mac_address"])
        gateways = [stage.cloud.subnets[known]["gateway_ip"] for known in nodes["subnets"]]
        assert found["routes"] == [
            {"destination": "10.62.0.0/16", "gateway": gateways[0]},
            {"destination": "fd62::/64", "gateway": gateways[1]},
        ]


async def test_without_the_option_no_node_gets_a_port(stage):
    async with stage.controller():
        await stage.cluster.add_pod("web", node=NODE)
        await stage.until_plugged_in("web")
        assert not ports(stage)
        assert await described(stage) is None


async def test_emptied_option_takes_ports_and_annotations_away(stage, nodes):
    async with stage.controller(**options(*nodes["subnets"])):
        await until_described(stage)
    await annotate(stage, **{NODE_INTERFACE: None})  # a Node that lost it keeps no port either
    async with stage.controller(**options()):
        await until_no_ports(stage)
        assert await described(stage) is None


async def test_restarted_controller_makes_no_second_port(stage, nodes):
    async with stage.controller(**options(*nodes["subnets"])):
        first = await until_described(stage)
    await annotate(stage, **{NODE_INTERFACE: None})  # as if it had died between the two writes
    async with stage.controller(**options(*nodes["subnets"])):
        assert await until_described(stage) == first
        assert len(ports(stage)) == 1


async def test_neutron_is_asked_for_all_ports_of_nodes_and_not_for_one_that_is_right(stage, nodes):
    """Neither after a start nor later, however many Nodes there are."""
    async with stage.controller(**options(*nodes["subnets"])):
        await until_described(stage)
        await swept(stage)
        assert len(asked_of_nodes(stage)) == 1  # when it was made
    async with stage.controller(**options(*nodes["subnets"])):
        await swept(stage)
        assert len(asked_of_nodes(stage)) == 1


def listed(stage):
    """The lists of Nodes' ports that Neutron was asked for."""
    return [
        call
        for call in stage.cloud.calls
        if call.what == "/v2.0/ports" and NODE_DEVICE_OWNER in call.query
    ]


def asked_of_nodes(stage):
    """Those of one Node's ports."""
    return [call for call in listed(stage) if "device_id=" in call.query]


async def swept(stage, times=3):
    """Wait until so many lists of all Nodes' ports have begun after now."""
    count = lambda: len(listed(stage)) - len(asked_of_nodes(stage))  # noqa: E731
    before = count()
    await stage.cloud.wait_for(lambda: count() > before + times)


async def test_port_follows_the_nodes_host(stage, nodes):
    async with stage.controller(**options(*nodes["subnets"])):
        first = await until_described(stage)
        await annotate(stage, **{HOST_ID: OTHER_HOST})
        await stage.cloud.wait_for(
            lambda: [port["binding:host_id"] for port in ports(stage)] == [OTHER_HOST]
        )
        assert [port["id"] for port in ports(stage)] == [first["portId"]]


async def test_port_that_somebody_deletes_is_made_again(stage, nodes):
    async with stage.controller(**options(*nodes["subnets"])):
        first = await until_described(stage)
        stage.cloud.remove_port(first["portId"])
        again = await until_described(stage)
        assert again["portId"] != first["portId"]


async def test_annotation_that_others_change_is_restored(stage, nodes):
    async with stage.controller(**options(*nodes["subnets"])):
        first = await until_described(stage)
        await annotate(stage, **{NODE_INTERFACE: "nonsense"})

        async def restored():
            found = await stage.client.find(f"/api/v1/nodes/{NODE}")
            return found["metadata"]["annotations"][NODE_INTERFACE] != "nonsense"

        await stage.until(restored)
        assert await described(stage) == first


async def test_port_goes_with_its_node(stage, nodes):
    async with stage.controller(**options(*nodes["subnets"])):
        await until_described(stage)
        await stage.cluster.add_node("second", annotations={HOST_ID: OTHER_HOST})
        await until_described(stage, "second")
        await stage.client.delete("/api/v1/nodes/second")
        await stage.cloud.wait_for(lambda: len(ports(stage)) == 1)
        assert ports(stage)[0]["name"] == f"kuryr-node {NODE}"


async def test_wrong_subnet_is_told_on_the_node_and_pods_are_served(stage, nodes):
    other = stage.cloud.add_network("other", "10.99.0.0/24")
    wrong = (nodes["subnets"][0], other["subnets"][0])
    async with stage.controller(**options(*wrong)):
        await stage.cluster.add_pod("web", node=NODE)
        await stage.until_plugged_in("web")

        async def told():
            return [note for _, note in await stage.node_events() if "one network" in note]

        assert len(await stage.until(told)) == 1
        assert not ports(stage)


async def test_unknown_subnet_is_told_by_the_name_of_its_option(stage, nodes):
    unknown = "00000000-0000-4000-8000-00000000dead"
    async with stage.controller(**options(*nodes["subnets"], service_subnet=unknown)):

        async def told():
            return [note for _, note in await stage.node_events() if unknown in note]

        (note,) = await stage.until(told)
        assert "service_subnet" in note
        assert "node_subnet" not in note


async def test_host_without_an_agent_is_told_on_the_node_and_leaves_no_port(stage, nodes):
    await annotate(stage, **{HOST_ID: "unknown-host"})
    async with stage.controller(**options(*nodes["subnets"])):

        async def told():
            return [note for _, note in await stage.node_events() if "unknown-host" in note]

        await stage.until(told)
        assert await described(stage) is None
        await annotate(stage, **{HOST_ID: HOST})
        await until_described(stage)
        assert len(ports(stage)) == 1


async def test_virtual_machine_and_foreign_nodes_get_no_port(stage, nodes):
    await stage.cluster.add_node("vm")
    labels = {"pod_vif": "none"}
    await stage.cluster.add_node("foreign", annotations={HOST_ID: OTHER_HOST}, labels=labels)
    async with stage.controller(**options(*nodes["subnets"])):
        await until_described(stage)
        assert len(ports(stage)) == 1


async def let_in(stage):
    """Start a Pod; the subnets from which its port lets everything in."""
    pod = await stage.cluster.add_pod("web", node=NODE)
    await stage.until_plugged_in("web")
    (port,) = stage.ports_of(pod)
    rules = stage.cloud.store.security_group_rules.values()
    return {
        rule["remote_ip_prefix"]
        for rule in rules
        if rule["security_group_id"] in port["security_groups"]
    }


async def test_pods_let_in_what_comes_from_nodes(stage, nodes):
    async with stage.controller(**options(*nodes["subnets"])):
        assert {"10.63.0.0/24", "fd63::/64"} <= await let_in(stage)


async def test_subnet_of_pods_is_no_subnet_of_nodes_since_pods_would_let_in_all_pods(stage):
    shared = stage.cloud.pods["subnets"][0]
    async with stage.controller(**options(shared)):
        assert stage.cloud.subnets[shared]["cidr"] not in await let_in(stage)

        async def told():
            return [note for _, note in await stage.node_events() if shared in note]

        await stage.until(told)
        assert not ports(stage)


async def test_pods_are_served_though_a_subnet_of_services_that_nobody_serves_is_unknown(
    stage, nodes
):
    unknown = "00000000-0000-4000-8000-00000000dead"
    async with stage.controller(**options(*nodes["subnets"], service_subnet=unknown)):
        assert {"10.63.0.0/24", "fd63::/64"} <= await let_in(stage)


async def test_removed_second_family_leaves_the_port_with_the_first(stage, nodes):
    async with stage.controller(**options(*nodes["subnets"])):
        first = await until_described(stage)
    async with stage.controller(**options(nodes["subnets"][0])):
        await stage.cloud.wait_for(lambda: len(ports(stage)[0]["fixed_ips"]) == 1)
        again = await until_described(stage, addresses=first["addresses"][:1])
        assert again["portId"] == first["portId"]


async def test_route_to_virtual_machines_is_kept_and_one_to_servers_is_left_out(stage, nodes):
    nested = {"pod_vif": "nested-vlan"}
    for number in (1, 2):
        address = f"10.68.0.{number}"
        await stage.cluster.add_node(f"vm{number}", addresses=(address,), labels=nested)
        # a server whose daemon has published no host yet is no virtual machine
        await stage.cluster.add_node(f"server{number}", addresses=(f"198.18.0.{number}",))
    further = "10.68.0.0/24,198.18.0.0/24"
    async with stage.controller(**options(nodes["subnets"][0], node_routes=further)):
        found = await until_described(stage)
        destinations = [route["destination"] for route in found["routes"]]
        assert destinations == ["10.62.0.0/16", "10.68.0.0/24"]
        assert "KuryrNodeRouteLeftOut" in [reason for reason, _ in await stage.node_events()]
