"""What others do to a pool's ports, quota or node: it ends up right, and tells of it once."""

import time

import pytest

from tests.component.pools.pods import (
    OTHER,
    add,
    add_other_node,
    available,
    end,
    pool,
    run,
    until_ports,
)
from tests.kit.confs import NODE
from tests.kit.fakes.faults import Hang, answer, from_proxy, hide, make_some
from tests.kit.ledger import counts_of, named, settle

JSON = "application/json"
LONG = 150.0  # seconds for what is tried every half a minute, and then may need another try


async def tidied(stage, app):
    await settle(stage, lambda: app)


# -- quota


async def test_waiting_pods_get_ports_as_soon_as_there_is_room_and_one_event_tells(stage):
    stage.cloud.set_quota(stage.cloud.project_id, port=2)
    async with stage.controller(**pool(ports_pool_min="0")):
        pod, port = await run(stage, "first")
        await run(stage, "second")
        for number in range(30):
            await add(stage, f"waiting-{number}")
        assert await stage.until(stage.node_events)
        await end(stage, "first", pod)

        async def recorded():
            return len(await named(stage)) == 2 and port in await named(stage)

        await stage.until(recorded)
        stage.cloud.set_quota(stage.cloud.project_id, port=40)

        async def all_served():
            return len(await named(stage)) == 31

        await stage.until(all_served, within=LONG)
        (event,) = await stage.node_events()
        assert event[0] == "OpenStackQuotaExceeded"
        assert stage.cloud.project_id in event[1]
        assert not await stage.events()


async def test_refusal_for_want_of_quota_is_no_reason_to_list_ports(stage):
    stage.cloud.set_quota(stage.cloud.project_id, port=2)
    often = {"first_pool_retry": 0.2}
    async with stage.controller(**pool(sweep="600", patience=often, ports_pool_min="0")):
        await run(stage, "first")
        await run(stage, "second")
        lists = stage.cloud.calls.count("GET", "/v2.0/ports")
        await add(stage, "third")
        refused = stage.cloud.calls.count("POST", "/v2.0/ports") + 5
        await stage.cloud.wait_for(
            lambda: stage.cloud.calls.count("POST", "/v2.0/ports") >= refused
        )
        assert stage.cloud.calls.count("GET", "/v2.0/ports") == lists


async def test_pools_give_up_spare_ports_for_pods_of_their_project(stage):
    stage.cloud.set_quota(stage.cloud.project_id, port=5)
    await add_other_node(stage)
    async with stage.controller(**pool(ports_pool_min="4", ports_pool_batch="4")):
        _, one = await run(stage, "one")
        await until_ports(stage, 5)
        _, two = await run(stage, "two", OTHER)
        assert {one, two} <= set(stage.cloud.ports)


async def test_port_that_comes_back_to_one_pool_makes_room_for_a_pod_of_another(stage):
    stage.cloud.set_quota(stage.cloud.project_id, port=2)
    await add_other_node(stage)
    never = {"first_pool_retry": 600.0, "sweep_retry": 600.0}  # nobody tries it unasked
    async with stage.controller(**pool(patience=never, ports_pool_min="0")):
        pod, _ = await run(stage, "one")
        await run(stage, "two")
        await add(stage, "three", OTHER)
        await stage.until(lambda: stage.node_events(OTHER))
        await end(stage, "one", pod)
        await stage.until_plugged_in("three")
        assert len(stage.cloud.ports) == 2


def _more_posts(stage):
    known = stage.cloud.calls.count("POST", "/v2.0/ports")
    return lambda: stage.cloud.calls.count("POST", "/v2.0/ports") > known


async def test_pools_leave_the_reserve_to_pods(stage):
    stage.cloud.set_quota(stage.cloud.project_id, port=6)
    limits = {"ports_pool_min": "5", "ports_pool_batch": "5", "ports_quota_reserve": "2"}
    async with stage.controller(**pool(**limits)):
        await run(stage, "web-0")
        await stage.until(stage.node_events)
        assert len(stage.cloud.ports) == 4
        for number in range(1, 6):
            await run(stage, f"web-{number}")
        assert len(stage.cloud.ports) == 6
        assert len(await stage.node_events()) == 1


# -- creations


@pytest.mark.parametrize("half_made", [0, 1])
async def test_bulk_creation_that_breaks_off_leaves_ports_that_are_used(stage, half_made):
    def bulk(_request):
        return len(stage.cloud.ports) > 0

    action = make_some(3, half_made=half_made)
    broken = stage.cloud.faults.add(method="POST", path=r"/ports$", action=action, when=bulk)
    limits = {"ports_pool_min": "19"}
    async with stage.controller(**pool(sweep="600", **limits)) as app:
        _, port = await run(stage, "web")
        await tidied(stage, app)
        assert broken.hits == 1
        assert len(stage.cloud.ports) == 20
        assert {p["binding:vif_type"] for p in stage.cloud.ports.values()} == {"ovs"}
        assert stage.cloud.calls.count("DELETE") == half_made
        assert port in stage.cloud.ports


async def test_node_without_an_agent_makes_no_storm_and_is_told_of_once(stage):
    await add_other_node(stage, host="nowhere")
    again = 1.5  # seconds
    patience = {"first_refused": again, "refused": again}
    async with stage.controller(**pool(patience=patience)) as app:
        for number in range(10):
            await add(stage, f"web-{number}", OTHER)

        async def at_rest():  # the cloud knows of a deletion before the controller does
            counts = counts_of(app)
            return not (stage.cloud.ports or counts["creating"] or counts["leaving"])

        await stage.until(lambda: stage.node_events(OTHER))
        await stage.until(at_rest)
        deleted, since = stage.cloud.calls.count("DELETE"), time.monotonic()
        assert deleted <= 10
        await stage.cloud.wait_for(lambda: stage.cloud.calls.count("DELETE") > deleted)
        await stage.until(at_rest)
        tries = 1 + (time.monotonic() - since) // again  # each of them with one port
        assert stage.cloud.calls.count("DELETE") <= deleted + tries
        assert len(await stage.node_events(OTHER)) == 1


# -- by hand: while nobody has it


async def test_available_port_deleted_by_hand_is_replaced(stage, neutron):
    async with stage.controller(**pool(ports_pool_min="3")) as app:
        _, port = await run(stage, "web")
        await tidied(stage, app)
        lost = available(stage, port)[0]
        await neutron.delete_port(lost)
        await tidied(stage, app)
        assert len(stage.cloud.ports) == 4
        assert not await stage.events()


BY_HAND = {
    "security groups": lambda cloud: {
        "security_groups": [cloud.add_security_group("theirs")["id"]]
    },
    "addresses": lambda cloud: {"fixed_ips": [{"subnet_id": cloud.pods["subnets"][0]}]},
    "address pairs": lambda _cloud: {"allowed_address_pairs": [{"ip_address": "10.62.9.9"}]},
    "switched off": lambda _cloud: {"admin_state_up": False},
    "port security": lambda _cloud: {"port_security_enabled": False, "security_groups": []},
}


async def test_available_port_changed_by_hand_is_given_to_nobody(stage, neutron):
    async with stage.controller(**pool(ports_pool_min="5")) as app:
        _, port = await run(stage, "web")
        await tidied(stage, app)
        free = available(stage, port)
        for port_id, change in zip(free, BY_HAND.values(), strict=True):
            await neutron.update_port(port_id, change(stage.cloud))
        await stage.cloud.wait_for(lambda: not set(free[1:]) & set(stage.cloud.ports))
        await tidied(stage, app)
        assert port in stage.cloud.ports
        assert _groups(stage) == {(stage.cloud.group["id"],)}


@pytest.mark.parametrize("what", ["deleted", "changed"])
async def test_pool_that_loses_its_last_ports_fills_itself_again(stage, neutron, what):
    """No Pod is there, nor comes, that would ask for one."""
    async with stage.controller(**pool(ports_pool_min="1", ports_pool_batch="1")) as app:
        pod, _ = await run(stage, "web")
        await end(stage, "web", pod)
        await tidied(stage, app)
        lost = set(stage.cloud.ports)
        for port_id in lost:
            if what == "deleted":
                await neutron.delete_port(port_id)
            else:
                await neutron.update_port(port_id, {"admin_state_up": False})
        await stage.cloud.wait_for(lambda: not lost & set(stage.cloud.ports))
        await until_ports(stage, 1)


def _groups(stage):
    return {tuple(port["security_groups"]) for port in stage.cloud.ports.values()}


async def test_port_changed_by_hand_while_in_use_is_mended_or_deleted_when_it_comes_back(
    stage, neutron
):
    async with stage.controller(**pool(ports_pool_min="0")) as app:
        pods = {}
        for number, (what, change) in enumerate(BY_HAND.items()):
            pods[what] = *await run(stage, f"web-{number}"), f"web-{number}"
            await neutron.update_port(pods[what][1], change(stage.cloud))
        assert set(stage.cloud.ports) == {port for _, port, _ in pods.values()}
        for pod, _, name in pods.values():
            await end(stage, name, pod)
        await tidied(stage, app)
        (kept,) = stage.cloud.ports
        assert kept == pods["security groups"][1]
        assert stage.cloud.ports[kept]["security_groups"] == [stage.cloud.group["id"]]


async def test_parked_port_deleted_by_hand_leaves_the_nodes_map(stage, neutron):
    async with stage.controller(**pool(park_ports="true")) as app:
        _, port = await run(stage, "web")
        await tidied(stage, app)
        path = f"/apis/openstack.org/v1/kuryrportpools/{NODE}"

        async def follows():
            recorded = await stage.client.find(path)
            return recorded and set(recorded["spec"]["ports"]) == set(stage.cloud.ports)

        await stage.until(follows)
        ports = {port: {} for port in stage.cloud.ports}
        await stage.client.patch(f"{path}/status", {"status": {"parked": ports}})
        lost = available(stage, port)[0]
        await neutron.delete_port(lost)
        await stage.cloud.wait_for(lambda: len(stage.cloud.ports) == 2)  # another one is made
        await stage.until(follows)
        assert lost not in stage.cloud.ports


async def test_restarted_controller_leaves_the_nodes_map_as_it_is(stage):
    path = f"/apis/openstack.org/v1/kuryrportpools/{NODE}"
    async with stage.controller(**pool(park_ports="true")) as app:
        await run(stage, "web")
        await tidied(stage, app)

        async def follows():
            recorded = await stage.client.find(path)
            return recorded and set(recorded["spec"]["ports"]) == set(stage.cloud.ports)

        await stage.until(follows)
    writes = len(stage.proxy.faults.writes)
    async with stage.controller(**pool(park_ports="true")) as app:
        await tidied(stage, app)

        async def counted():
            return [w.path for w in stage.proxy.faults.writes[writes:] if NODE in w.path]

        assert await stage.until(counted) == [f"{path}/status"]


# -- by hand: a Pod has it


@pytest.mark.parametrize("finder", ["survey", "name"])
async def test_pod_that_was_given_a_deleted_port_gets_another(stage, finder):
    at_once = {"patience": {"pooled_port_name": 0.0}}
    how = {"survey": {"sweep": "3"}, "name": {"sweep": "600", "port_names": "true"}}
    async with stage.controller(**pool(**how[finder]) | at_once) as app:
        await run(stage, "one")
        await tidied(stage, app)
        (lost,) = available(stage, *await named(stage))
        searches = Hang()  # none is to find out before the Pod has the port
        stage.cloud.faults.add(method="GET", path=r"/ports$", times=None, action=searches)
        try:
            stage.cloud.remove_port(lost)
            await add(stage, "two")
            assert (await stage.until_plugged_in("two"))["id"] == lost
        finally:
            searches.release()
        recorded = await stage.kuryrport("two")
        await stage.until_deleting("two")
        await stage.let_go("two")
        await stage.until_replaced(recorded)
        assert (await stage.until_plugged_in("two"))["id"] in stage.cloud.ports
        ((reason, note),) = await stage.until(stage.events)
        assert (reason, lost in note) == ("KuryrPortLost", True)
        await tidied(stage, app)


async def test_running_pod_whose_port_was_deleted_is_told_to_be_deleted(stage, neutron):
    async with stage.controller(**pool()) as app:
        pod, port = await run(stage, "web")
        # its KuryrPort, the same with its interfaces, and that they work
        told = stage.proxy.events.told
        await stage.proxy.wait_for(lambda: told["kuryrports", "web"] >= 3)
        await neutron.delete_port(port)
        assert "delete the Pod" in await stage.until_event("KuryrPortLost")
        surveys = stage.cloud.calls.count("GET", "/v2.0/ports")
        await stage.cloud.wait_for(
            lambda: stage.cloud.calls.count("GET", "/v2.0/ports") > surveys + 3
        )
        assert "deletionTimestamp" not in (await stage.kuryrport("web"))["metadata"]
        assert len(await stage.events()) == 1
        await end(stage, "web", pod)
        await tidied(stage, app)


async def test_pod_that_ran_is_told_so_though_its_interface_was_taken_down(stage, neutron):
    """OVN takes a deleted port off the node, which says that it does not work any more."""
    async with stage.controller(**pool()) as app:
        pod, port = await run(stage, "web")
        told = stage.proxy.events.told
        before = told["pods", "web"]
        address = stage.cloud.ports[port]["fixed_ips"][0]["ip_address"]
        await stage.cluster.set_phase(pod, "Running", podIP=address, podIPs=[{"ip": address}])
        down = {"eth0": {"vif": {"versioned_object.data": {"active": False}}}}
        await stage.client.patch(f"{stage.path('web')}/status", {"status": {"vifs": down}})
        # its KuryrPort, with its interfaces, that they work, and that they do not
        await stage.proxy.wait_for(
            lambda: told["pods", "web"] > before and told["kuryrports", "web"] >= 4
        )
        await neutron.delete_port(port)
        assert "delete the Pod" in await stage.until_event("KuryrPortLost")
        assert "deletionTimestamp" not in (await stage.kuryrport("web"))["metadata"]
        await end(stage, "web", pod)
        await tidied(stage, app)


# -- lists that do not show everything


async def test_pools_and_pods_keep_their_ports_where_neutron_gives_short_pages(stage):
    stage.cloud.limit_pages(3)
    async with stage.controller(**pool(ports_pool_min="10", ports_pool_batch="10")) as app:
        pods = {await _port_of(stage, f"web-{number}") for number in range(8)}
        await _surveyed(stage, times=3)
        await tidied(stage, app)
        before = set(stage.cloud.ports)
    async with stage.controller(**pool(ports_pool_min="10", ports_pool_batch="10")) as app:
        await _surveyed(stage, times=3)
        await tidied(stage, app)
        assert set(stage.cloud.ports) == before
        assert set(await named(stage)) == pods
        assert not await stage.events()


async def _port_of(stage, name):
    _, port = await run(stage, name)
    return port


async def _surveyed(stage, times):
    """Wait until so many searches have begun."""

    def searches():
        return sum("device_owner" in call.query and "marker" not in call.query
                   for call in stage.cloud.calls)  # fmt: skip

    begun = searches()
    await stage.cloud.wait_for(lambda: searches() >= begun + times)


async def test_port_that_a_list_does_not_show_is_asked_for_before_it_counts_as_gone(stage):
    async with stage.controller(**pool(ports_pool_min="4")) as app:
        pod, port = await run(stage, "web")
        await add(stage, "starting")
        starting = (await stage.until_plugged_in("starting"))["id"]
        await tidied(stage, app)
        before = set(stage.cloud.ports)
        stage.cloud.faults.add(
            method="GET",
            path=r"/ports$",
            times=None,
            when=lambda request: "id" not in request.query,
            action=hide(),
        )
        await _surveyed(stage, times=3)
        stage.cloud.faults.clear()
        await tidied(stage, app)
        assert set(stage.cloud.ports) == before
        assert {port, starting} == set(await named(stage))
        assert not await stage.events()
        await end(stage, "web", pod)
        await tidied(stage, app)


async def test_searches_ask_for_no_port_by_its_id_while_lists_show_all(stage):
    async with stage.controller(**pool(ports_pool_min="4")) as app:
        await run(stage, "web")
        await tidied(stage, app)
        known = len(stage.cloud.calls)
        await _surveyed(stage, times=3)
        asked = [call for call in stage.cloud.calls[known:] if call.query.startswith("id=")]
        assert asked == []


# -- nodes and networks


async def test_node_that_goes_takes_its_pools_along_and_ports_in_use_when_pods_go(stage):
    await add_other_node(stage)
    async with stage.controller(**pool()) as app:
        await run(stage, "stays")
        pod, port = await run(stage, "goes", OTHER)
        await tidied(stage, app)
        others = [p for p in stage.cloud.ports.values() if p["binding:host_id"] == "chassis2"]
        await stage.client.delete(f"/api/v1/nodes/{OTHER}")
        await until_ports(stage, 3)
        assert len(others) == 2
        assert port in stage.cloud.ports
        await stage.cluster.delete_pod(pod)
        await stage.until_gone("goes")
        await until_ports(stage, 2)
        assert {p["binding:host_id"] for p in stage.cloud.ports.values()} == {"chassis1"}
        await tidied(stage, app)


async def test_node_that_goes_while_no_controller_works_takes_its_pools_along(stage):
    await add_other_node(stage)
    async with stage.controller(**pool()) as app:
        await run(stage, "stays")
        pod, _ = await run(stage, "goes", OTHER)
        await end(stage, "goes", pod)
        await tidied(stage, app)
    assert len(stage.cloud.ports) == 4
    await stage.client.delete(f"/api/v1/nodes/{OTHER}")
    async with stage.controller(**pool()) as app:
        await until_ports(stage, 2)
        await tidied(stage, app)


async def test_network_that_is_gone_is_told_and_tried_seldom(stage):
    async with stage.controller(**pool()) as app:
        await run(stage, "one")
        await tidied(stage, app)
        lost = stage.cloud.networks.pop(stage.cloud.pods["id"])
        await run(stage, "two")  # has a port that is there
        await add(stage, "three")
        await stage.until_event("OpenStackObjectNotFound")
        begun = stage.cloud.calls.count("POST", "/v2.0/ports")
        await stage.cloud.wait_for(_more_posts(stage))
        assert stage.cloud.calls.count("POST", "/v2.0/ports") <= begun + 2
        assert len(await stage.node_events()) == 1
        stage.cloud.networks[lost["id"]] = lost
        await stage.until_plugged_in("three", within=LONG)


PROXIES = {
    "HTML": from_proxy(404),
    "JSON": from_proxy(404, '{"message": "no Route matched with those values"}', JSON),
}


@pytest.mark.parametrize("words", PROXIES)
async def test_proxy_that_answers_404_to_a_creation_costs_a_pool_none_of_its_ports(stage, words):
    async with stage.controller(**pool(ports_pool_min="4")) as app:
        await run(stage, "one")
        await tidied(stage, app)
        before = set(stage.cloud.ports)
        lost = stage.cloud.faults.add(method="POST", path=r"/ports$", action=PROXIES[words])
        await run(stage, "two")
        await stage.cloud.wait_for(lambda: lost.hits)
        await tidied(stage, app)
        assert before < set(stage.cloud.ports)
        assert stage.cloud.calls.count("DELETE") == 0


@pytest.mark.parametrize("words", PROXIES)
async def test_proxy_that_answers_404_to_every_change_costs_a_pool_none_of_its_ports(stage, words):
    at_once = {"pooled_port_name": 0.0}
    async with stage.controller(**pool(patience=at_once, port_names="true")) as app:
        pod, port = await run(stage, "one")
        uid = pod["metadata"]["uid"]
        await stage.cloud.wait_for(lambda: stage.cloud.ports[port]["device_id"] == uid)
        await tidied(stage, app)
        before = set(stage.cloud.ports)
        lost = stage.cloud.faults.add(
            method="PUT", path=r"/ports/", times=None, action=PROXIES[words]
        )
        await end(stage, "one", pod)
        await stage.cloud.wait_for(lambda: lost.hits)
        lost.remove()
        await tidied(stage, app)
        assert before == set(stage.cloud.ports)


@pytest.mark.parametrize("kind", ["NetworkNotFound", "SubnetNotFound", "SecurityGroupNotFound"])
async def test_pool_keeps_its_ports_while_neutron_shows_the_network_that_it_did_not_find(
    stage, kind
):
    async with stage.controller(**pool(ports_pool_min="4")) as app:
        await run(stage, "one")
        await tidied(stage, app)
        before = set(stage.cloud.ports)
        refused = stage.cloud.faults.add(
            method="POST", path=r"/ports$", action=answer(404, kind=kind)
        )
        await run(stage, "two")
        await stage.cloud.wait_for(lambda: refused.hits)
        await tidied(stage, app)
        assert before < set(stage.cloud.ports)
        assert stage.cloud.calls.count("DELETE") == 0


# -- other pool drivers before and after


async def test_without_pools_what_they_left_goes_and_ports_in_use_stay(stage):
    async with stage.controller(**pool()) as app:
        pod, port = await run(stage, "web")
        await tidied(stage, app)
        assert len(stage.cloud.ports) == 2
    async with stage.controller(neutron_defaults={"sweep_interval": "1"}):
        await until_ports(stage, 1)
        assert port in stage.cloud.ports
        await end(stage, "web", pod)
        await until_ports(stage, 0)  # swept: nothing but the KuryrPort said whose it was


async def test_ports_made_for_pods_before_there_were_pools_go_with_them(stage):
    async with stage.controller():
        pod, port = await run(stage, "web")
    async with stage.controller(**pool()) as app:
        _, other = await run(stage, "other")
        await stage.cloud.wait_for(lambda: len(stage.cloud.ports) == 3)
        assert port in stage.cloud.ports
        await end(stage, "web", pod)
        assert port not in stage.cloud.ports
        assert other in stage.cloud.ports
        await tidied(stage, app)
