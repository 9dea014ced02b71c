"""What load balancers have beside listeners, pools and members: made, read, changed and refused.

Through our client and our plans: what Octavia makes of a body is read back as nothing to do.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from kuryr_k8s import errors
from kuryr_k8s.cloud.octavia import bodies as octavia_bodies
from kuryr_k8s.cloud.octavia.api import Octavia as Client
from kuryr_k8s.drivers.lbaas import steps as lb_steps
from kuryr_k8s.drivers.lbaas.steps import take
from kuryr_k8s.model.load_balancer import HealthMonitor, Listener, LoadBalancer, Member, Pool
from tests.kit.lbaas.plans import next_step

from .balancers import (
    ALGORITHMS,
    ANY_PROVIDER,
    BALANCERS,
    LISTENERS,
    MONITORS,
    PAUSE,
    POOLS,
    WITHIN,
    Octavia,
    bare,
    make,
    statuses,
)
from .sides import Side

Json = dict[str, Any]
MONITOR = HealthMonitor(type="TCP", delay=5, timeout=3, max_retries=2, max_retries_down=3)

HTTP = dataclasses.replace(
    MONITOR, type="HTTP", http_method="GET", url_path="/", expected_codes="200"
)


def wanted(side: Side, subnet_id: str, provider: str, *ports: str) -> LoadBalancer:
    """With all that both of the providers can do; ports are like «TCP:80»."""
    listeners, pools = [], []
    for port in ports:
        protocol, _, number = port.partition(":")
        kind = "UDP-CONNECT" if protocol == "UDP" else "TCP"
        listeners.append(
            Listener(
                name=port,
                protocol=protocol,
                port=int(number),
                pool=port,
                timeout_client_data=20000,
                timeout_member_data=30000,
                timeout_member_connect=1000,
                timeout_tcp_inspect=10,
                connection_limit=7,
                tags=(side.mark, "listener"),
            )
        )
        pools.append(
            Pool(
                name=port,
                protocol=protocol,
                lb_algorithm=ALGORITHMS[provider],
                members=(Member(address="10.219.0.101", port=8080, subnet_id=subnet_id),),
                health_monitor=dataclasses.replace(MONITOR, type=kind),
                tags=(side.mark, "pool"),
            )
        )
    return LoadBalancer(
        name=side.mark,
        project_id=side.kuryr.project_id,
        vip_subnet_id=subnet_id,
        vip_address=None,
        provider=provider,
        tags=(side.mark,),
        listeners=tuple(listeners),
        pools=tuple(pools),
    )


async def carry_out(
    octavia: Octavia, client: Client, balancer_id: str, desired: LoadBalancer
) -> list[str]:
    """Bring it to what is wanted, as the driver does; which steps that took."""
    taken: list[str] = []
    while step := next_step(desired, found := await client.read(balancer_id)):
        assert not isinstance(step, lb_steps.CreateLoadBalancer)
        assert len(taken) < 20, taken
        if isinstance(step, lb_steps.Pending):  # ovn has all ACTIVE between two parts of a change
            assert statuses(await octavia.settled(balancer_id)) == {"ACTIVE"}
            continue
        await take(client, step)
        taken.append(type(step).__name__)
        if isinstance(step, lb_steps.SetMembers | lb_steps.AddMembers):
            members = list(step.members)
            if isinstance(step, lb_steps.AddMembers):
                [pool] = [each.pool for each in found.pools if each.id == step.pool_id]
                members += pool.members
            await octavia.until_members(step.pool_id, *(member.address for member in members))
        if isinstance(step, lb_steps.DeletePool):
            await octavia.until_gone(f"{POOLS}/{step.id}")
        assert statuses(await octavia.settled(balancer_id)) == {"ACTIVE"}
    return taken


def with_parts(desired: LoadBalancer, listener: Json, pool: Json) -> LoadBalancer:
    """The same with changes of every listener and every pool."""
    return dataclasses.replace(
        desired,
        listeners=tuple(dataclasses.replace(part, **listener) for part in desired.listeners),
        pools=tuple(dataclasses.replace(part, **pool) for part in desired.pools),
    )


async def test_all_of_it_is_made_by_one_call_and_nothing_is_left_to_do(
    side: Side, octavia: Octavia, subnet: str, client: Client, provider: str
) -> None:
    desired = wanted(side, subnet, provider, "TCP:80", "UDP:80")
    balancer_id = await make(octavia, client, desired)
    assert next_step(desired, await client.read(balancer_id)) is None
    for path, tag in ((LISTENERS, "listener"), (POOLS, "pool")):
        found = (await octavia.get(path, tags=f"{side.mark},{tag}")).body[path.rpartition("/")[2]]
        assert len(found) == 2
    [tree] = [
        listener["pools"][0] for listener in (await octavia.settled(balancer_id))["listeners"]
    ][:1]
    assert tree["health_monitor"].keys() >= {"id", "type", "provisioning_status"}
    await client.delete_load_balancer(balancer_id)
    await octavia.gone(balancer_id)
    assert (await octavia.get(f"{MONITORS}/{tree['health_monitor']['id']}")).status == 404


async def test_each_change_is_one_call_that_comes_to_its_end(
    side: Side, octavia: Octavia, subnet: str, client: Client, provider: str
) -> None:
    first = wanted(side, subnet, provider, "TCP:80")
    balancer_id = await make(octavia, client, first)
    other_monitor = dataclasses.replace(MONITOR, delay=9, max_retries=4)
    anew = ["DeleteHealthMonitor", "CreateHealthMonitor"]
    for change, steps in (
        (({"connection_limit": 9, "timeout_tcp_inspect": 20}, {}), ["UpdateListener"]),
        (
            ({}, {"health_monitor": other_monitor}),
            ["UpdateHealthMonitor"] if provider == "amphora" else anew,
        ),
        (({}, {"health_monitor": None}), ["DeleteHealthMonitor"]),
        (({}, {"health_monitor": MONITOR}), ["CreateHealthMonitor"]),
        (({"tags": ("new",)}, {"tags": ("new",)}), ["UpdatePool", "UpdateListener"]),
    ):
        desired = with_parts(first, *change)
        now = with_parts(first, {}, {})
        assert await carry_out(octavia, client, balancer_id, desired) == steps
        if steps == ["DeleteHealthMonitor"]:
            continue
        await carry_out(octavia, client, balancer_id, now)
    found = await client.read(balancer_id)
    assert sorted(found.listeners[0].listener.tags) == sorted((side.mark, "listener", "new"))
    assert sorted(found.pools[0].pool.tags) == sorted((side.mark, "pool", "new"))


async def test_ovn_never_ends_the_update_of_a_monitor_for_its_listeners(
    side: Side, octavia: Octavia, subnet: str, client: Client
) -> None:
    """So there is none: a monitor is made anew. Any other change ends it."""
    balancer_id = await make(octavia, client, wanted(side, subnet, "ovn", "TCP:80"))
    [pool] = (await client.read(balancer_id)).pools
    await client.update_monitor(str(pool.health_monitor_id), {"delay": 9})
    found = await client.read(balancer_id)
    async with asyncio.timeout(WITHIN):  # for all else
        while dataclasses.replace(found, listeners=()).is_pending():
            await asyncio.sleep(PAUSE)
            found = await client.read(balancer_id)
    for _ in range(10):
        await asyncio.sleep(PAUSE)
        found = await client.read(balancer_id)
    assert found.statuses() == {"ACTIVE", "PENDING_UPDATE"}
    assert found.listeners[0].provisioning_status == "PENDING_UPDATE"
    await client.set_members(pool.id, pool.pool.members)
    assert statuses(await octavia.settled(balancer_id)) == {"ACTIVE"}


async def test_ports_come_and_go_with_their_monitors(
    side: Side, octavia: Octavia, subnet: str, client: Client, provider: str
) -> None:
    one = wanted(side, subnet, provider, "TCP:80")
    other = wanted(side, subnet, provider, "TCP:81")
    balancer_id = await make(octavia, client, one)
    steps = await carry_out(octavia, client, balancer_id, other)
    new = ["CreatePool", "SetMembers", "DeleteListener", "CreateListener", "CreateHealthMonitor"]
    assert steps == [*new, "DeletePool"]
    moved = dataclasses.replace(other.listeners[0], port=82)
    desired = dataclasses.replace(other, listeners=(moved,))
    steps = await carry_out(octavia, client, balancer_id, desired)
    assert steps == ["DeleteListener", "CreateListener"]


@ANY_PROVIDER
async def test_a_pool_has_one_monitor_of_a_type_that_fits(
    octavia: Octavia, side: Side, subnet: str, client: Client, provider: str
) -> None:
    balancer_id = await make(octavia, client, wanted(side, subnet, provider, "TCP:80", "UDP:80"))
    pools = {pool.pool.protocol: pool for pool in (await client.read(balancer_id)).pools}
    tcp, udp = pools["TCP"], pools["UDP"]
    with pytest.raises(errors.Conflict, match="This pool already has a health monitor"):
        await client.create_monitor(octavia_bodies.monitor_body(MONITOR, tcp.id))
    reply = await octavia.put(
        f"{MONITORS}/{tcp.health_monitor_id}", {"healthmonitor": {"type": "HTTP"}}
    )
    assert reply.status == 400
    assert udp.health_monitor_id is not None
    with pytest.raises(errors.BadRequest, match="request delay value 1 should be larger than 3"):
        await client.update_monitor(udp.health_monitor_id, {"delay": 1})
    for wrong, pool in (("UDP-CONNECT", tcp), ("TLS-HELLO", udp)):
        body = octavia_bodies.monitor_body(dataclasses.replace(MONITOR, type=wrong), pool.id)
        with pytest.raises(errors.Unsupported) as caught:
            await client.create_monitor(body)
        assert (caught.value.feature, caught.value.status) == ("health_monitor", 400)
    assert next_step(
        wanted(side, subnet, provider, "TCP:80", "UDP:80"), await client.read(balancer_id)
    ) is None  # fmt: skip


async def test_amphora_knows_monitors_that_send_requests(
    side: Side, octavia: Octavia, subnet: str, client: Client
) -> None:
    base = wanted(side, subnet, "amphora", "TCP:80")
    hello = dataclasses.replace(MONITOR, type="TLS-HELLO")
    other = {"http_method": "HEAD", "url_path": "/a?b=%20c", "expected_codes": "200,204"}
    anew = ["DeleteHealthMonitor", "CreateHealthMonitor"]
    balancer_id = await make(octavia, client, with_parts(base, {}, {"health_monitor": HTTP}))
    for monitor, steps in (
        (HTTP, []),
        (dataclasses.replace(HTTP, **other), ["UpdateHealthMonitor"]),
        (dataclasses.replace(HTTP, expected_codes="200-299"), ["UpdateHealthMonitor"]),
        (dataclasses.replace(HTTP, type="HTTPS"), anew),
        (hello, anew),
    ):
        desired = with_parts(base, {}, {"health_monitor": monitor})
        assert await carry_out(octavia, client, balancer_id, desired) == steps


async def test_a_monitor_that_sends_no_requests_has_nothing_of_them(
    octavia: Octavia, side: Side, subnet: str, client: Client
) -> None:
    base = wanted(side, subnet, "amphora", "TCP:80")
    balancer_id = await make(octavia, client, base)
    [pool] = (await client.read(balancer_id)).pools
    monitor_id = str(pool.health_monitor_id)
    for changes in ({"url_path": "/"}, {"http_method": None}, {"expected_codes": "200"}):
        [name] = changes
        with pytest.raises(errors.Unsupported, match=f"{name} is not a valid option") as caught:
            await client.update_monitor(monitor_id, changes)
        assert caught.value.feature == "health_monitor"
    await client.delete_monitor(monitor_id)
    await octavia.settled(balancer_id)
    wrong: tuple[Json, ...] = (
        {"url_path": "healthz"},
        {"url_path": "//x"},
        {"expected_codes": "2"},
    )
    for change in wrong:
        monitor = dataclasses.replace(HTTP, **change)
        with pytest.raises(errors.Unsupported) as caught:
            await client.create_monitor(octavia_bodies.monitor_body(monitor, pool.id))
        assert caught.value.feature == "health_monitor"


async def refused(client: Client, desired: LoadBalancer) -> tuple[int, str]:
    """Of a creation, the status and the feature."""
    with pytest.raises(errors.Unsupported) as caught:
        await client.create_load_balancer(octavia_bodies.create_body(desired))
    return caught.value.status, caught.value.feature


async def test_what_ovn_cannot_do_is_unsupported_by_its_name(
    side: Side, subnet: str, client: Client
) -> None:
    base = wanted(side, subnet, "ovn", "TCP:80")
    for listener, pool, feature in (
        ({"allowed_cidrs": ("10.0.0.0/8",)}, {}, "allowed_cidrs"),
        ({}, {"lb_algorithm": "ROUND_ROBIN"}, "lb_algorithm"),
        ({}, {"health_monitor": HTTP}, "health_monitor"),
        ({}, {"protocol": "PROXY"}, "protocol"),
        ({"protocol": "HTTP"}, {"protocol": "HTTP"}, "protocol"),
    ):
        assert await refused(client, with_parts(base, listener, pool)) == (501, feature)


@ANY_PROVIDER
async def test_what_octavia_itself_cannot_do_is_unsupported_by_its_name(
    side: Side, subnet: str, client: Client, provider: str
) -> None:
    base = wanted(side, subnet, provider, "TCP:80")
    headers = {"insert_headers": ("X-Forwarded-For",)}
    tls = {"protocol": "TERMINATED_HTTPS", "default_tls_container_ref": NOBODY}
    for listener, pool, feature in (
        (headers, {}, "insert_headers"),
        ({"default_tls_container_ref": NOBODY}, {}, "default_tls_container_ref"),
        (tls, {"protocol": "HTTP"}, "default_tls_container_ref"),
        ({"sni_container_refs": (NOBODY,)}, {}, "default_tls_container_ref"),
        (tls | {"tls_ciphers": "a b"}, {"protocol": "HTTP"}, "tls_ciphers"),
        ({"allowed_cidrs": ("fd00::/8",)}, {}, "allowed_cidrs"),
    ):
        assert await refused(client, with_parts(base, listener, pool)) == (400, feature)
    for choice in ("flavor_id", "availability_zone"):
        desired = dataclasses.replace(base, **{choice: NOBODY})
        assert await refused(client, desired) == (400, choice)


async def test_amphora_knows_http_headers_proxies_and_every_monitor(
    side: Side, octavia: Octavia, subnet: str, client: Client
) -> None:
    base = wanted(side, subnet, "amphora", "TCP:80", "TCP:81", "HTTP:82")
    proxy, proxy2, http = base.pools
    headers = ("X-Forwarded-For", "X-Forwarded-Port")
    desired = dataclasses.replace(
        base,
        listeners=(
            dataclasses.replace(base.listeners[0], allowed_cidrs=("10.0.0.0/8",)),
            base.listeners[1],
            dataclasses.replace(base.listeners[2], insert_headers=headers),
        ),
        pools=(
            dataclasses.replace(proxy, protocol="PROXY"),
            dataclasses.replace(proxy2, protocol="PROXYV2"),
            dataclasses.replace(http, health_monitor=HTTP),
        ),
    )
    balancer_id = await make(octavia, client, desired)
    assert next_step(desired, await client.read(balancer_id)) is None
    without = dataclasses.replace(
        desired, listeners=tuple(dataclasses.replace(listener, insert_headers=(), allowed_cidrs=())
                                 for listener in desired.listeners)
    )  # fmt: skip
    steps = await carry_out(octavia, client, balancer_id, without)
    assert steps == ["UpdateListener", "UpdateListener"]


async def test_a_vip_is_an_existing_port_which_stays(
    side: Side, octavia: Octavia, subnet: str, client: Client, provider: str
) -> None:
    network_id = (await side.admin.get(f"/subnets/{subnet}")).body["subnet"]["network_id"]
    port = await side.admin.create(
        "port", network_id=network_id, project_id=side.kuryr.project_id, name=side.mark
    )
    base = wanted(side, subnet, provider)
    desired = dataclasses.replace(base, vip_subnet_id=None, vip_port_id=port["id"])
    for _ in range(2):
        balancer_id = await make(octavia, client, desired)
        found = await client.read(balancer_id)
        assert next_step(desired, found) is None
        assert found.vip_address == port["fixed_ips"][0]["ip_address"]
        assert (found.vip_subnet_id, found.vip_network_id) == (subnet, network_id)
        await client.delete_load_balancer(balancer_id)
        await octavia.gone(balancer_id)
        assert (await side.admin.get(f"/ports/{port['id']}")).status == 200
    nobody = dataclasses.replace(desired, vip_port_id=NOBODY)
    with pytest.raises(errors.BadRequest, match=f"Port {NOBODY} not found."):
        await client.create_load_balancer(octavia_bodies.create_body(nobody))


@ANY_PROVIDER
async def test_a_port_that_somebody_has_is_no_vip(
    octavia: Octavia, subnet: str, provider: str
) -> None:
    made = await octavia.make(bare(subnet, provider))
    body = {"provider": provider, "vip_port_id": made["vip_port_id"]}
    status, text = (await octavia.post(BALANCERS, {"loadbalancer": body})).fault
    start = f"Validation failure: Port {made['vip_port_id']} is already used by device"
    assert (status, text[: len(start)]) == (400, start)


async def test_a_vip_is_anywhere_in_a_network(
    side: Side, octavia: Octavia, subnet: str, client: Client, provider: str
) -> None:
    network_id = (await side.admin.get(f"/subnets/{subnet}")).body["subnet"]["network_id"]
    base = wanted(side, subnet, provider)
    desired = dataclasses.replace(base, vip_subnet_id=None, vip_network_id=network_id)
    balancer_id = await make(octavia, client, desired)
    found = await client.read(balancer_id)
    assert (found.vip_subnet_id, found.vip_network_id) == (subnet, network_id)
    assert next_step(desired, found) is None


async def test_additional_vips_are_in_other_subnets_of_the_network(
    side: Side, octavia: Octavia, client: Client, provider: str
) -> None:
    network = await side.network("10.218.0.0/24", "10.218.1.0/24")
    elsewhere = await side.network("10.218.2.0/24")
    first, second = network["subnets"]
    base = dataclasses.replace(wanted(side, first, provider), additional_vips=(second,))
    balancer_id = await make(octavia, client, base)
    found = await client.read(balancer_id)
    assert next_step(base, found) is None
    assert len(found.vips()) == len(set(found.vips())) == 2
    for wrong in (first, elsewhere["subnets"][0]):
        body = octavia_bodies.create_body(dataclasses.replace(base, additional_vips=(wrong,)))
        with pytest.raises(errors.BadRequest, match="subnet"):
            await client.create_load_balancer(body)
    await client.delete_load_balancer(balancer_id)
    await octavia.gone(balancer_id)
    ports = (await side.kuryr.get("/ports", device_id=f"lb-{balancer_id}")).body["ports"]
    assert not ports


async def test_octavia_chooses_ciphers_and_versions_again(
    side: Side, octavia: Octavia, subnet: str, client: Client
) -> None:
    balancer_id = await make(octavia, client, wanted(side, subnet, "amphora", "TCP:80"))
    [listener] = (await client.read(balancer_id)).listeners
    for changes in ({"tls_ciphers": None}, {"tls_versions": ["TLSv1.3"]}, {"tls_versions": None}):
        await client.update_listener(listener.id, changes)
        assert statuses(await octavia.settled(balancer_id)) == {"ACTIVE"}
    [listener] = (await client.read(balancer_id)).listeners
    assert listener.listener.tls_ciphers
    assert listener.listener.tls_versions == ("TLSv1.2", "TLSv1.3")


async def test_groups_of_a_vip_are_given_and_taken_and_exclude_source_ranges(
    side: Side, octavia: Octavia, subnet: str, client: Client
) -> None:
    group = await side.kuryr.create("security_group", name=side.mark)
    base = wanted(side, subnet, "amphora", "TCP:80")
    desired = dataclasses.replace(base, vip_sg_ids=(group["id"],))
    balancer_id = await make(octavia, client, desired)
    assert next_step(desired, await client.read(balancer_id)) is None
    ranges = with_parts(desired, {"allowed_cidrs": ("10.0.0.0/8",)}, {})
    [listener] = (await client.read(balancer_id)).listeners
    with pytest.raises(errors.Unsupported) as caught:
        await client.update_listener(
            listener.id, octavia_bodies.listener_changes(ranges.listeners[0])
        )
    assert caught.value.feature == "allowed_cidrs"
    desired = dataclasses.replace(ranges, vip_sg_ids=())
    assert await carry_out(octavia, client, balancer_id, desired) == [
        "SetSecurityGroups", "UpdateListener",
    ]  # fmt: skip
    desired = dataclasses.replace(base, vip_sg_ids=(group["id"],))
    assert await carry_out(octavia, client, balancer_id, desired) == [
        "SetSecurityGroups", "UpdateListener",
    ]  # fmt: skip
    for groups in ((), (group["id"],)):
        desired = dataclasses.replace(base, vip_sg_ids=groups)
        assert await carry_out(octavia, client, balancer_id, desired) == ["SetSecurityGroups"]
    with pytest.raises(errors.BadRequest, match=f"Security Group {NOBODY} not found."):
        await client.set_security_groups(balancer_id, [NOBODY])
    await client.delete_load_balancer(balancer_id)  # the group goes after it
    await octavia.gone(balancer_id)


@ANY_PROVIDER
@pytest.mark.parametrize("named", ["port", "network", "subnet"])
async def test_a_vip_is_in_a_network_that_only_another_project_has(
    side: Side, octavia: Octavia, provider: str, named: str
) -> None:
    """The role `service` shows us all networks: the check of whose they are is ours."""
    theirs = await side.network("10.217.0.0/24", owner=side.stranger)
    [subnet_id] = theirs["subnets"]
    ids = {"network": theirs["id"], "subnet": subnet_id}
    if named == "port":
        owner = side.stranger.project_id
        port = await side.admin.create("port", network_id=theirs["id"], project_id=owner)
        ids["port"] = port["id"]
    made = await octavia.make({"provider": provider, f"vip_{named}_id": ids[named]})
    assert made["project_id"] == side.kuryr.project_id
    assert (made["vip_network_id"], made["vip_subnet_id"]) == (theirs["id"], subnet_id)


NOBODY = "1b0bf90d-8c51-4c3b-9ad1-4a3d5b7d9b5e"
