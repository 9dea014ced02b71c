"""Which NeutronPort a Pod gets, and that no Pod waits for one without need."""

import pytest

from tests.component.neutron_ports import ports
from tests.component.neutron_ports.ports import NAME, NETWORK, STICKY
from tests.component.pools.pods import end
from tests.kit.confs import NODE, VM, add_vm
from tests.kit.kube.objects import path_of


@pytest.fixture
def storage(stage):
    """A second network of the project."""
    return stage.cloud.add_network("storage", "10.70.0.0/24")


async def made_again(stage, name, pod, **annotations):
    """A Pod is deleted, and the next one of its name is there before its KuryrPort is gone."""
    await stage.cluster.delete_pod(pod)
    new = await stage.cluster.add_pod(name, node=NODE, annotations=annotations)
    await stage.until_deleting(name)
    await stage.let_go(name)

    async def has_vifs():
        recorded = await stage.kuryrport(name)
        is_new = recorded and recorded["spec"]["podUid"] == new["metadata"]["uid"]
        return is_new and (recorded.get("status") or {}).get("vifs")

    vifs = await stage.until(has_vifs)
    return new, vifs["eth0"]["vif"]["versioned_object.data"]["id"]


async def test_sticky_pod_keeps_its_port_though_others_are_free(stage, storage):
    annotations = {NAME: "for=web", STICKY: "true"}
    async with stage.controller(**ports.options(patience=ports.LATE)):
        for number in range(3):
            await ports.add(stage, f"p{number}", labels={"for": "web"}, network="storage")
            await ports.until(stage, f"p{number}", "Available")
        pod, port = await ports.run(stage, "web-0", **annotations)
        for _ in range(3):
            pod, again = await made_again(stage, "web-0", pod, **annotations)
            assert again == port["id"]
        reserved = [(await ports.status(stage, f"p{n}")).get("reservedFor") for n in range(3)]
        assert sorted(map(str, reserved)) == ["None", "None", "web-0"]


async def test_successor_of_a_name_gets_a_new_one_without_an_event(stage, storage):
    async with stage.controller(**ports.options("create", patience=ports.LATE)):
        pod, port = await ports.run(stage, "web-0", **{NETWORK: "storage"})
        _pod, again = await made_again(stage, "web-0", pod, **{NETWORK: "storage"})
        assert again != port["id"]
        assert "KuryrNoNeutronPort" not in {reason for reason, _ in await stage.events()}


async def test_one_that_is_made_for_a_sticky_pod_is_no_other_pods(stage, storage):
    """Its own Pod cannot run yet: its node has no daemon."""
    await stage.cluster.add_node("new")
    async with stage.controller(**ports.options("create")):
        annotations = {NETWORK: "storage", STICKY: "true"}
        await stage.cluster.add_pod("web-0", node="new", annotations=annotations)

        async def has_port():  # its Pod may have bound it by then
            return (await ports.status(stage, "web-0")).get("portId")

        port_id = await stage.until(has_port)
        _pod, port = await ports.run(stage, "other", **{NETWORK: "storage"})
        assert port["id"] != port_id
        assert (await ports.status(stage, "web-0"))["portId"] == port_id


async def test_each_of_several_that_wait_is_woken(stage, storage):
    async with stage.controller(**ports.options(patience=ports.LATE)):
        for number in range(4):
            await stage.cluster.add_pod(
                f"web-{number}", node=NODE, annotations={NETWORK: "storage"}
            )
        await stage.until_told("no NeutronPort that is Available")
        for number in range(4):
            await ports.add(stage, f"port-{number}", network="storage")
        for number in range(4):
            await stage.until_plugged_in(f"web-{number}")
        assert len(stage.cloud.ports) == 4


async def test_port_that_comes_to_suit_a_pod_is_the_pods(stage, storage):
    stage.cloud.add_security_group("web")
    annotations = {NETWORK: "storage", "openstack.org/security_group_ids": "web"}
    async with stage.controller(**ports.options(patience=ports.LATE)):
        await ports.add(stage, "db", network="storage")
        await ports.until(stage, "db", "Available")
        await stage.cluster.add_pod("web", node=NODE, annotations=annotations)
        await stage.until_told("no NeutronPort that is Available")
        await stage.client.patch(ports.path(stage, "db"), {"spec": {"securityGroups": ["web"]}})
        await stage.until_plugged_in("web")


async def test_sticky_pod_keeps_its_port_though_nodes_come_to_reach_pods(stage, storage):
    """The group by which they do is there from then on, and goes with the option."""
    web = stage.cloud.add_security_group("web")["id"]
    nodes = stage.cloud.add_network("nodes", "10.63.0.0/24")
    groups = {"openstack.org/security_group_ids": "web"}
    annotations = {NETWORK: "storage", STICKY: "true", **groups}
    async with stage.controller(**ports.options("create")):
        pod, port = await ports.run(stage, "web-0", **annotations)
        await end(stage, "web-0", pod)
        await ports.until(stage, "web-0", "Available")
    reached = ports.options("create", neutron_defaults={"node_subnet": nodes["subnets"][0]})
    reached["kubernetes"]["enabled_handlers"] += ",node"
    async with stage.controller(**reached):
        _pod, again = await ports.run(stage, "web-0", **annotations)
        assert again["id"] == port["id"]
        (member,) = ports.member_groups(stage)
        await stage.cloud.wait_for(lambda: set(port["security_groups"]) == {web, member})
    async with stage.controller(**ports.options("create")):
        await stage.cloud.wait_for(lambda: port["security_groups"] == [web])


async def test_address_of_a_pool_that_a_machine_has_is_passed_over(stage, storage):
    fixed = [{"subnet_id": storage["subnets"][0], "ip_address": "10.70.0.7"}]
    stage.cloud.add_port(storage["id"], fixed_ips=fixed)
    pool = {"openstack.org/ip_pool": "10.70.0.7,10.70.0.8,10.70.0.9"}
    async with stage.controller(**ports.options("create")):
        had = set()
        for name in ("first", "second"):
            _pod, port = await ports.run(stage, name, **{NETWORK: "storage", **pool})
            had |= ports.ips(port)
        assert had == {"10.70.0.8", "10.70.0.9"}


async def test_automatic_addresses_do_not_matter(stage):
    """Every port of the network has one, whether or not a Pod asks for that subnet."""
    network = stage.cloud.add_network("mixed", "10.70.0.0/24")
    modes = {"ipv6_ra_mode": "slaac", "ipv6_address_mode": "slaac"}
    stage.cloud.add_subnet(network["id"], "fd70::/64", **modes)
    annotations = {"openstack.org/subnet_id": network["subnets"][0], STICKY: "true"}
    async with stage.controller(**ports.options("create")):
        pod, port = await ports.run(stage, "web", **annotations)
        assert len(port["fixed_ips"]) == 2
        first = await ports.until(stage, "web", "Bound")
        assert all("cidr" in each for each in first["addresses"])
        await end(stage, "web", pod)
        await ports.until(stage, "web", "Available")
        stage.cloud.remove_port(port["id"])

        async def again():
            found = await ports.status(stage, "web")
            return found if found.get("portId") not in (None, port["id"]) else None

        assert (await stage.until(again))["addresses"] == first["addresses"]


async def test_pod_on_a_virtual_machine_has_it_as_a_subport(stage, storage):
    options = ports.options()
    for group, fields in add_vm(stage.cloud).items():
        options[group] = options.get(group, {}) | fields
    await stage.cluster.add_node("vm", addresses=(VM,))
    async with stage.controller(**options):
        await ports.add(stage, "db", network="storage")
        free = await ports.until(stage, "db", "Available")
        for name in ("first", "second"):
            pod, port = await ports.run(stage, name, node="vm", **{NAME: "db"})
            assert port["id"] == free["portId"]
            assert port["device_owner"] == "trunk:subport"
            await end(stage, name, pod)
            await ports.until(stage, "db", "Available")
        live = stage.cloud.ports[free["portId"]]
        assert live["device_owner"].startswith("compute:kuryr-neutron-port")
        assert not stage.cloud.trunk["sub_ports"]
        await stage.client.delete(ports.path(stage, "db"))
        await ports.until_gone(stage, "db")
        assert free["portId"] not in stage.cloud.ports


async def test_pod_is_not_the_owner_that_a_user_has_chosen(stage):
    """An ownerReference is for the garbage collector alone."""
    pod = await stage.cluster.add_pod("operator", node=NODE, host_network=True)
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "operator",
        "uid": pod["metadata"]["uid"],
    }
    async with stage.controller(**ports.options()):
        made = await ports.add(stage, "db")
        references = {"metadata": {"ownerReferences": [owner]}}
        await stage.client.patch(path_of(made), references)
        await ports.until(stage, "db", "Available")
        await ports.add(stage, "later")
        await ports.until(stage, "later", "Available")
        assert await stage.client.find(path_of(made))
