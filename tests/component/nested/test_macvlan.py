"""The ports of Pods with a macvlan, and the address pairs of their node's port."""

import asyncio
import ipaddress

import pytest

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.address_pairs import AddressPair
from kuryr_k8s.cloud.neutron.api import Neutron
from kuryr_k8s.drivers.base import NodeNotReady
from kuryr_k8s.drivers.vif.nested_macvlan import NestedMacvlan
from kuryr_k8s.drivers.vif.parent_pairs import ParentPairs
from kuryr_k8s.model.vif import VIFMacvlanNested
from tests.kit import port_requests as requests
from tests.kit.confs import MACHINE, MARK, PAIR_OF_USERS, TAG, add_machine
from tests.kit.contexts import driver_context
from tests.kit.fakes.faults import Hang, answer, cut, lose_reply
from tests.kit.vms import UID, node_at, pod_ports, together

NODE = node_at(MACHINE)
FULL = answer(
    400,
    "AllowedAddressPairExhausted",
    "The number of allowed address pair exceeds the maximum 10.",
)
POST, PUT = r"/ports$", r"/ports/[^/]+$"


def pairs(cloud, machine=None):
    """(address, MAC) of the pairs of a virtual machine's port, but for that of its users."""
    found = cloud.ports[machine or cloud.machine]["allowed_address_pairs"]
    assert PAIR_OF_USERS in found
    return {(pair["ip_address"], pair["mac_address"]) for pair in found if pair != PAIR_OF_USERS}


def addresses(cloud, *vifs):
    """(address, MAC) of the ports of these VIFs."""
    return {
        (str(ipaddress.ip_network(ip["ip_address"])), cloud.ports[vif.id]["mac_address"])
        for vif in vifs
        for ip in cloud.ports[vif.id]["fixed_ips"]
    }


def limit_pairs(cloud, most):
    """Neutron allows the machine's port so many pairs."""

    async def limited(request, proceed):
        body = await request.json()
        if len(body["port"]["allowed_address_pairs"]) > most:
            return await FULL(request, proceed)
        return await proceed()

    cloud.faults.add(method="PUT", path=f"/ports/{cloud.machine}", times=None, action=limited)


@pytest.fixture
def options(cloud):
    cloud.machine = add_machine(cloud)
    cloud.elsewhere = cloud.add_network("elsewhere", "10.99.0.0/24")
    subnets = (cloud.pods["subnets"][0], cloud.elsewhere["subnets"][0])
    return {
        "kubernetes": {"pod_vif_driver": "nested-macvlan"},
        "pod_vif_nested": {"worker_nodes_subnets": ",".join(subnets)},
    }


@pytest.fixture
def context(load_conf, neutron, options):
    return driver_context(load_conf(**options), neutron)


@pytest.fixture
def driver(context):
    return NestedMacvlan(context)


@pytest.fixture
def request_port(context, cloud):
    return requests.for_pod(context, cloud, pod_uid=UID, node=NODE)


async def test_port_is_bound_to_no_host_and_the_machines_port_lets_it_through(
    driver, request_port, cloud
):
    vif = await driver.ensure(await request_port())
    port = cloud.ports[vif.id]
    assert isinstance(vif, VIFMacvlanNested)
    assert (port["binding:host_id"], port["device_id"]) == ("", "")
    assert (port["port_security_enabled"], port["security_groups"]) == (False, [])
    assert {TAG, MARK, "kuryr-ifname:eth0", f"kuryr-macvlan:{UID}"} <= set(port["tags"])
    assert vif.address == port["mac_address"]
    assert len(port["fixed_ips"]) == 2
    assert pairs(cloud) == addresses(cloud, vif)
    await driver.release(vif)
    assert not pod_ports(cloud)
    assert not pairs(cloud)


@pytest.mark.parametrize("path", [POST, PUT], ids=["port", "pairs"])
@pytest.mark.parametrize("fault", [lose_reply(), cut()], ids=["applied", "not applied"])
async def test_write_without_an_answer_never_makes_a_second_port(
    driver, context, request_port, cloud, path, fault
):
    cloud.faults.add(
        path=path, times=1, action=fault, when=lambda request: request.method != "GET"
    )
    with pytest.raises(errors.CloudError):
        await driver.ensure(await request_port())
    again = await NestedMacvlan(context).ensure(await request_port(may_exist=True))
    assert pod_ports(cloud) == {again.id}
    assert pairs(cloud) == addresses(cloud, again)


async def test_ports_that_are_made_together_change_the_machines_port_in_few_requests(
    driver, request_port, cloud
):
    made = [await request_port(pod_uid=f"u{number}") for number in range(8)]
    vifs = await together(*(driver.ensure(each) for each in made))
    assert pairs(cloud) == addresses(cloud, *vifs)
    changes = [write for write in cloud.faults.writes if write.path.endswith(cloud.machine)]
    assert len(changes) < len(made)
    await together(*(driver.release(vif) for vif in vifs))
    assert not pairs(cloud)
    assert not pod_ports(cloud)


async def test_change_by_others_at_the_same_time_is_kept(driver, request_port, cloud):
    theirs = {"ip_address": "10.62.0.251", "mac_address": "02:00:00:00:00:02"}
    machine = cloud.ports[cloud.machine]

    async def change(_request, proceed):
        machine["allowed_address_pairs"].append(theirs)
        machine["revision_number"] += 1
        return await proceed()

    cloud.faults.add(method="PUT", path=f"/ports/{cloud.machine}", times=1, action=change)
    vif = await driver.ensure(await request_port())
    assert pairs(cloud) == addresses(cloud, vif) | {tuple(theirs.values())}
    await driver.release(vif)
    assert pairs(cloud) == {tuple(theirs.values())}


async def test_port_that_the_machine_has_no_pairs_left_for_is_deleted(driver, request_port, cloud):
    cloud.faults.add(method="PUT", path=f"/ports/{cloud.machine}", times=None, action=FULL)
    with pytest.raises(errors.OverQuota, match="exceeds the maximum"):
        await driver.ensure(await request_port())
    assert not pod_ports(cloud)


async def test_pair_that_neutron_allows_nobody_leaves_no_port(driver, request_port, cloud):
    """ML2/OVN since 2026.1: the MAC has to be that of the machine's port."""
    other = answer(400, "InvalidVirtualMACAddress", "Invalid MAC address for a virtual port")
    cloud.faults.add(method="PUT", path=f"/ports/{cloud.machine}", times=None, action=other)
    with pytest.raises(errors.BadRequest, match="Invalid MAC address"):
        await driver.ensure(await request_port())
    assert not pod_ports(cloud)


async def test_one_that_is_refused_holds_up_no_other(driver, request_port, cloud):
    limit_pairs(cloud, 1 + 2)
    made = [await request_port(pod_uid=f"u{number}") for number in range(3)]

    async def outcome(asked):
        try:
            return await driver.ensure(asked)
        except errors.OverQuota as error:
            return error

    outcomes = await together(*map(outcome, made))
    vifs = [each for each in outcomes if isinstance(each, VIFMacvlanNested)]
    assert 0 < len(vifs) < len(made)
    assert pod_ports(cloud) == {vif.id for vif in vifs}
    assert pairs(cloud) == addresses(cloud, *vifs)


async def test_removal_that_is_refused_holds_up_no_release(driver, request_port, cloud, caplog):
    """The limit was lowered since: Neutron checks what stays, too."""
    vif = await driver.ensure(await request_port())
    cloud.faults.add(method="PUT", path=f"/ports/{cloud.machine}", times=None, action=FULL)
    await driver.release(vif)
    assert not pod_ports(cloud)
    assert "keeps the address pairs" in caplog.text


@pytest.mark.parametrize("status", [401, 403, 500])
async def test_removal_that_fails_for_a_while_keeps_the_port(driver, request_port, cloud, status):
    vif = await driver.ensure(await request_port())
    refused = cloud.faults.add(
        method="PUT", path=f"/ports/{cloud.machine}", times=None, action=answer(status, "", "no")
    )
    with pytest.raises(errors.CloudError):
        await driver.release(vif)
    refused.remove()
    assert pod_ports(cloud) == {vif.id}
    await driver.release(vif)
    assert not pairs(cloud)
    assert not pod_ports(cloud)


async def test_pairs_of_addresses_that_the_port_has_lost_go_with_it(driver, request_port, cloud):
    vif = await driver.ensure(await request_port())
    cloud.ports[vif.id]["fixed_ips"].pop()
    await driver.release(vif)
    assert not pairs(cloud)


async def test_removals_make_room_for_what_is_refused_beside_them(context, cloud):
    """The first change is sent alone; the others wait meanwhile, and go together."""
    machine = ParentPairs(context.neutron.address_pairs, attempts=3)
    limit_pairs(cloud, 1 + 2)
    first, leaving, fits, too_many = (
        AddressPair(ip_address=f"10.62.1.{number}", mac_address=f"02:00:00:00:01:0{number}")
        for number in range(4)
    )
    await machine.add(cloud.machine, [leaving])
    outcomes = await together(
        outcome(machine.add(cloud.machine, [first])),
        outcome(machine.add(cloud.machine, [fits])),
        outcome(machine.add(cloud.machine, [too_many])),
        outcome(machine.remove(cloud.machine, leaving.mac_address)),
    )
    assert outcomes == [None, None, errors.OverQuota, None]
    assert pairs(cloud) == {first, fits}


async def outcome(coroutine):
    """The kind of the error that it ends in."""
    try:
        await coroutine
    except errors.CloudError as error:
        return type(error)


async def test_request_whose_sender_was_cancelled_is_sent_by_another(driver, request_port, cloud):
    machine = {"method": "PUT", "path": f"/ports/{cloud.machine}", "times": 1}
    first, both = Hang(), Hang()
    made = [await request_port(pod_uid=f"u{number}") for number in range(3)]
    async with asyncio.TaskGroup() as group:
        cloud.faults.add(**machine, action=first)
        group.create_task(driver.ensure(made[0]))
        await first.reached.wait()
        cloud.faults.add(**machine, action=both)
        sender = group.create_task(driver.ensure(made[1]))
        await cloud.wait_for(lambda: len(pod_ports(cloud)) == 2)
        other = group.create_task(driver.ensure(made[2]))
        await cloud.wait_for(lambda: len(pod_ports(cloud)) == 3)
        first.release()
        await both.reached.wait()
        sender.cancel()
        both.release()
    assert sender.cancelled()
    assert addresses(cloud, other.result()) <= pairs(cloud)


async def test_machine_without_port_security_needs_no_pairs(driver, request_port, cloud):
    cloud.ports[cloud.machine]["port_security_enabled"] = False
    vif = await driver.ensure(await request_port())
    assert not pairs(cloud)
    await driver.release(vif)
    assert not pod_ports(cloud)


async def test_machine_that_was_replaced_lets_the_port_through_in_its_place(
    driver, context, request_port, cloud
):
    await driver.ensure(await request_port())
    first, other = cloud.machine, "10.62.0.10"
    cloud.machine = add_machine(cloud, other)
    again = await NestedMacvlan(context).ensure(
        await request_port(may_exist=True, node=node_at(other, name="vm2"))
    )
    assert not pairs(cloud, first)
    assert pod_ports(cloud) == {again.id}
    assert pairs(cloud) == addresses(cloud, again)


async def test_machine_that_is_gone_holds_up_no_release(driver, request_port, cloud):
    vif = await driver.ensure(await request_port())
    cloud.remove_port(cloud.machine)
    await driver.release(vif)
    assert not pod_ports(cloud)


async def test_node_without_a_port_waits(driver, request_port):
    with pytest.raises(NodeNotReady, match="has no port in Neutron"):
        await driver.ensure(await request_port(node=node_at("10.62.0.99")))


async def test_network_that_is_not_the_machines_is_refused(driver, request_port, cloud):
    fixed_ips = [{"subnet_id": cloud.elsewhere["subnets"][0], "ip_address": "10.99.0.9"}]
    cloud.add_port(cloud.elsewhere["id"], fixed_ips=fixed_ips)
    with pytest.raises(errors.Refused, match="in the network of its node's port"):
        await driver.ensure(await request_port(node=node_at("10.99.0.9")))
    assert not pod_ports(cloud)


async def test_groups_of_its_own_are_refused(driver, request_port, cloud):
    with pytest.raises(errors.Refused, match="security groups of its node's port"):
        await driver.ensure(await request_port(own_groups=True))
    assert not pod_ports(cloud)


async def test_machine_whose_port_was_made_anew_lets_the_port_through(driver, request_port, cloud):
    await driver.ensure(await request_port(pod_uid="other"))
    cloud.remove_port(cloud.machine)
    cloud.machine = add_machine(cloud)
    with pytest.raises(errors.NotFound):
        await driver.ensure(await request_port())
    vif = await driver.ensure(await request_port(may_exist=True))
    assert pairs(cloud) == addresses(cloud, vif)


async def test_account_that_sees_no_tags_of_others_removes_their_pairs(
    load_conf, options, transport, neutron, driver, request_port, cloud
):
    """The network and the ports are another project's: a service sees them without their tags."""
    vif = await driver.ensure(await request_port())
    tenant = cloud.add_project("tenant")
    for each in (cloud.networks[cloud.pods["id"]], *cloud.ports.values()):
        each["project_id"] = tenant
    started_anew = driver_context(load_conf(**options), Neutron(transport, neutron.mark))
    await NestedMacvlan(started_anew).release(vif)
    assert not pairs(cloud)
    assert not pod_ports(cloud)


async def test_what_no_kuryrport_names_is_removed(driver, context, request_port, cloud):
    await driver.ensure(await request_port())
    assert await NestedMacvlan(context).release_unrecorded(UID) == 1
    assert not pod_ports(cloud)
    assert not pairs(cloud)


@pytest.mark.parametrize("number", range(1, 3))
async def test_release_that_was_cut_off_leaves_no_pair(
    driver, context, request_port, cloud, number
):
    vif = await driver.ensure(await request_port())
    cloud.faults.at_write(number, cut())
    with pytest.raises(errors.CloudError):
        await driver.release(vif)
    await NestedMacvlan(context).release(vif)
    assert not pod_ports(cloud)
    assert not pairs(cloud)


STALE = {"ip_address": "10.62.0.77/32", "mac_address": "fa:16:3e:00:00:77"}


async def test_pairs_that_no_port_has_are_swept_and_all_others_stay(stage):
    """An addition that nobody had an answer to was carried out after its Pod was gone."""
    cloud = stage.cloud
    theirs = [
        {"ip_address": "10.62.0.78", "mac_address": "fa:16:3e:00:00:78"},
        {"ip_address": "10.62.0.79/32", "mac_address": "02:00:00:00:00:79"},
    ]
    cloud.machine, foreign = add_machine(cloud), add_machine(cloud, "10.62.0.11")
    await stage.cluster.add_node("vm", addresses=(MACHINE,))
    subnets = {"worker_nodes_subnets": cloud.pods["subnets"][0]}
    driver = {"pod_vif_driver": "nested-macvlan"}
    async with stage.controller(
        kubernetes=driver, pod_vif_nested=subnets, neutron_defaults={"sweep_interval": "1"}
    ):
        await stage.cluster.add_pod("web", node="vm")
        await stage.until_plugged_in("web")
        port_id = (await stage.port_ids("web"))["eth0"]
        for machine in (cloud.machine, foreign):
            cloud.ports[machine]["allowed_address_pairs"] += [STALE, *theirs]
        stale = tuple(STALE.values())
        await cloud.wait_for(lambda: stale not in pairs(cloud))
        kept = {tuple(each.values()) for each in theirs}
        assert pairs(cloud) == kept | {
            (str(ipaddress.ip_network(ip["ip_address"])), cloud.ports[port_id]["mac_address"])
            for ip in cloud.ports[port_id]["fixed_ips"]
        }
        assert pairs(cloud, foreign) == kept | {stale}


async def test_option_that_is_missing_ends_the_start(load_conf, neutron):
    conf = load_conf(kubernetes={"pod_vif_driver": "nested-macvlan"})
    with pytest.raises(errors.ConfigError, match="worker_nodes_subnets"):
        await NestedMacvlan(driver_context(conf, neutron)).start()
