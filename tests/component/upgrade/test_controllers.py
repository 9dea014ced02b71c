"""A controller of the earlier version, then one of this version, and back: nothing is made twice,
nothing is lost, and nothing is left over."""

import asyncio
import signal

import pytest

from tests.kit.confs import MARK, NODE, TAG
from tests.kit.controllers import Crash
from tests.kit.fakes.faults import Answer, drop
from tests.kit.load_balancer_services import (
    HTTP,
    READY,
    floating,
    until_condition,
)
from tests.kit.processes import STARTING

pytestmark = pytest.mark.complete
PODS = ("web-0", "web-1")
POOL = "/apis/openstack.org/v1/kuryrportpools/{}"
LEAST, MOST = 5, 10  # ports of Pods and of the pool, however they follow one another
REPORTED = {"KuryrUnmarked", "KuryrNotOurs", "KuryrTagsOverlap", "KuryrPortForged"}
# Where the controller that works dies, and whether its write has arrived: what it was about to
# record, the next one finds.
PORT = pytest.param(("cloud", "POST", "/ports$", True), id="port")
KURYRPORT = pytest.param(("kube", "PATCH", "/kuryrports/[^/]+/status$", False), id="KuryrPort")
LOAD_BALANCER = pytest.param(("cloud", "POST", "/loadbalancers$", True), id="load balancer")
FLOATING_IP = pytest.param(("cloud", "POST", "/floatingips$", True), id="floating IP")


def our_ports(site):
    return {port["id"]: port for port in site.cloud.ports_tagged(TAG)}


def without_tags(tree):
    """A load balancer without what the mark changes, and without times."""
    if isinstance(tree, dict):
        left_out = ("tags", "updated_at")
        return {key: without_tags(value) for key, value in tree.items() if key not in left_out}
    return [without_tags(each) for each in tree] if isinstance(tree, list) else tree


async def state(site, *pods):
    """What must be the same after a change of the version."""
    vifs = [(await site.kuryrport(name))["status"]["vifs"] for name in pods]
    ports = [each["eth0"]["vif"]["versioned_object.data"]["id"] for each in vifs]
    fields = ("mac_address", "fixed_ips", "binding:host_id", "security_groups", "network_id")
    return {
        "KuryrPorts": [(await site.kuryrport(name))["metadata"]["uid"] for name in pods],
        "interfaces": vifs,
        "ports": [{name: site.cloud.ports[port][name] for name in fields} for port in ports],
        "load balancers": without_tags(site.trees()),
        "floating IPs": {
            each["id"]: (each["floating_ip_address"], each["port_id"])
            for each in site.cloud.floating_ips.values()
        },
        "groups": sorted(site.cloud.security_groups),
        "addresses": [(await site.service(name))["status"] for name in ("web", "db")],
    }


async def furnish(site):
    """Pods, a Service of type LoadBalancer, and one with a ClusterIP."""
    for name in PODS:
        await site.cluster.add_pod(name, node=NODE)
        await site.until_plugged_in(name)
        await site.activate(name)
    await site.set_slice("a", "10.62.0.5", ports=[("http", 8080)])
    await site.add_service("web", HTTP, type="LoadBalancer")
    await site.set_slice("b", "10.62.0.6", ports=[("http", 8080)], service="db")
    await site.add_service("db", HTTP)
    await until_condition(site, READY, "True")
    for name in ("web", "db"):
        await site.until_published(name)


async def until_filled(site):
    """Wait until the pool has its ports, all of which the Node is to park."""

    async def filled():
        found = await site.client.find(POOL.format(NODE))
        ports = set(our_ports(site))
        return found and len(ports) >= LEAST and set(found["spec"]["ports"]) == ports

    await site.until(filled, within=60)


def is_marked(site):
    objects = (
        *our_ports(site).values(),
        *site.cloud.load_balancers.values(),
        *site.cloud.floating_ips.values(),
    )
    return all(MARK in each["tags"] for each in objects)


async def swept(site, times=3):
    """Wait until so many searches for ports have begun after now."""
    count = lambda: sum(  # noqa: E731
        call.method == "GET" and "device_owner" in call.query and "tags=" in call.query
        for call in site.cloud.calls
    )
    before = count()
    await site.cloud.wait_for(lambda: count() > before + times)


async def end(site, name):
    await site.cluster.delete_pod(await site.client.find(_pod(site, name)))
    await site.until_deleting(name)
    await site.let_go(name)
    await site.until_gone(name)


def _pod(site, name):
    return f"/api/v1/namespaces/{site.cluster.namespace}/pods/{name}"


async def run(site, name):
    """Have another Pod run, on a port that the other version made."""
    before = set(our_ports(site))
    await site.cluster.add_pod(name, node=NODE)
    vif = await site.until_plugged_in(name)
    await site.activate(name)
    assert vif["id"] in before


async def events_of_the_cluster(site):
    """The reasons of Events about objects without a namespace, by the Events' uids."""
    found = await site.client.list("/apis/events.k8s.io/v1/namespaces/default/events")
    return {event["metadata"]["uid"]: event["reason"] for event in found}


async def reasons(site, earlier_tests):
    """The reasons of all Events but those that earlier tests have left in this cluster."""
    found = await events_of_the_cluster(site)
    ours = {reason for uid, reason in found.items() if uid not in earlier_tests}
    return ours | {reason for reason, _ in await site.events()}


async def test_there_and_back_everything_stays_as_it_is(site, earlier):
    earlier_tests = await events_of_the_cluster(site)
    async with earlier():
        await furnish(site)
        await until_filled(site)
    known = set(our_ports(site))
    before = await state(site, *PODS)
    async with site.controller() as app:

        async def marked():
            return is_marked(site)

        await site.until(marked, within=60)
        await swept(site)
        assert set(our_ports(site)) == known
        assert await state(site, *PODS) == before
        for kind in ("ports", "load balancers", "public IPs"):
            labels = {"kind": kind}
            assert app.registry.get_sample_value("kuryr_unmarked_objects", labels) == 0
        await run(site, "new")
    before = await state(site, *PODS, "new")
    async with earlier():
        await swept(site)
        assert await state(site, *PODS, "new") == before
        await run(site, "old")
        await end(site, "new")
    before = await state(site, *PODS, "old")
    async with site.controller():
        await swept(site)
        assert await state(site, *PODS, "old") == before
        assert not await reasons(site, earlier_tests) & REPORTED
        await end(site, "old")
        await end(site, "web-0")
        await site.delete_service("web")
        await site.until_service_gone("web")
        assert not floating(site)
    site.options["kubernetes"]["vif_pool_driver"] = "noop"
    (port,) = [each["id"] for each in our_ports(site).values() if await names(site, each["id"])]
    async with site.controller():
        await site.cloud.wait_for(lambda: set(our_ports(site)) == {port})
        await end(site, "web-1")
        assert port not in our_ports(site)
        await site.delete_service("db")
        await site.until_service_gone("db")
        await site.cloud.wait_for(lambda: not our_ports(site))
        await site.until_no_balancers()
        assert await site.client.find(POOL.format(NODE)) is None
    assert not await reasons(site, earlier_tests) & REPORTED


async def names(site, port_id):
    """Whether the KuryrPort of the Pod that is left names the port."""
    vifs = (await site.kuryrport("web-1"))["status"]["vifs"]
    return vifs["eth0"]["vif"]["versioned_object.data"]["id"] == port_id


async def complete(site):
    """Wait until the Pods and the Services have what they need, and nothing is there twice."""
    vifs = [await site.until_plugged_in(name) for name in PODS]
    await until_condition(site, READY, "True")
    for name in ("web", "db"):
        await site.until_published(name)
    held = {vif["id"] for vif in vifs}
    assert len(held) == len(PODS)

    async def single():
        pool = await site.client.find(POOL.format(NODE))
        available = set(pool["spec"]["ports"]) if pool else set()
        return set(our_ports(site)) == held | available and len(available) <= MOST

    await site.until(single, within=60)
    await swept(site)
    assert await single()
    assert len(site.cloud.load_balancers) == 2
    assert len(site.cloud.floating_ips) == 1
    groups = [each for each in site.cloud.security_groups.values() if "kuryr" in each["name"]]
    assert len(groups) == 1


async def first_pod(site):
    """A Pod runs, and its pool is filled if there is one."""
    await site.cluster.add_pod(PODS[0], node=NODE)
    await site.until_plugged_in(PODS[0])
    if site.options["kubernetes"]["vif_pool_driver"] == "neutron":
        await site.cloud.wait_for(lambda: len(our_ports(site)) == LEAST - 1)


async def start_all(site):
    """As :func:`furnish`, without waiting for anything; one Pod runs already."""
    await site.cluster.add_pod(PODS[1], node=NODE)
    await site.set_slice("a", "10.62.0.5", ports=[("http", 8080)])
    await site.add_service("web", HTTP, type="LoadBalancer")
    await site.set_slice("b", "10.62.0.6", ports=[("http", 8080)], service="db")
    await site.add_service("db", HTTP)


def strike(site, place, action):
    side, method, path, _ = place
    faults = site.cloud.faults if side == "cloud" else site.proxy.faults
    return faults.add(method=method, path=path, times=1, action=action)


@pytest.mark.parametrize("pool", ["noop", "neutron"])
@pytest.mark.parametrize("place", [PORT, KURYRPORT, LOAD_BALANCER, FLOATING_IP])
async def test_what_the_earlier_version_had_begun_when_it_died_is_finished(
    site, earlier, place, pool
):
    site.options["kubernetes"]["vif_pool_driver"] = pool
    async with earlier() as process:

        async def die(request, proceed):
            try:
                if place[3]:
                    await proceed()
            except Answer:
                pass
            process.send(signal.SIGKILL)
            await process.ended()
            return drop(request)

        await first_pod(site)
        strike(site, place, die)
        await start_all(site)
        await process.ended()
    async with site.controller():
        await complete(site)


@pytest.mark.parametrize("pool", ["noop", "neutron"])
@pytest.mark.parametrize("place", [PORT, KURYRPORT, LOAD_BALANCER])
async def test_what_this_version_had_begun_when_it_died_is_finished(site, earlier, place, pool):
    site.options["kubernetes"]["vif_pool_driver"] = pool
    crash = Crash(applied=place[3]).on(site)
    async with site.controller():
        await first_pod(site)
        strike(site, place, crash)
        await start_all(site)
        async with asyncio.timeout(STARTING):
            await crash.struck.wait()
    crash.bury()
    async with earlier():
        await complete(site)
