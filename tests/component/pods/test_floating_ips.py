"""Pods that ask for floating IPs."""

import pytest

from tests.component.pools.pods import end, pool
from tests.kit.confs import NODE
from tests.kit.fakes.faults import answer

ASKED, TOLD = "openstack.org/floating_ip", "openstack.org/port_floating_ip"
NETWORK = "openstack.org/network_id"
PATIENCE = {"first_refused": 0.2, "refused": 0.2, "unneeded": 0.2}
RETRIES = {"first_retry": 0.1}


@pytest.fixture(autouse=True)
def public(stage):
    """An external network, with a router to the Pods' own."""
    public = stage.cloud.add_external_network("public", "172.24.4.0/24")
    stage.cloud.add_router(public["id"], *stage.cloud.pods["subnets"][:1])
    return public


@pytest.fixture
def options(public):
    return {
        "kubernetes": {"multi_vif_drivers": "named_network"},
        "neutron_defaults": {"external_svc_net": public["id"], "sweep_interval": "1"},
    }


async def add(stage, name, asked, **annotations):
    return await stage.cluster.add_pod(name, node=NODE, annotations={ASKED: asked, **annotations})


def path(stage, name):
    return f"/api/v1/namespaces/{stage.cluster.namespace}/pods/{name}"


async def told(stage, name):
    """The floating IP that the Pod tells of, and the one that its KuryrPort records."""
    pod = await stage.client.find(path(stage, name))
    recorded = await stage.kuryrport(name)
    status = (recorded or {}).get("status") or {}
    return (pod["metadata"].get("annotations") or {}).get(TOLD), status.get("floatingIP")


async def until_has(stage, name):
    """Wait until the Pod tells of a floating IP that leads to its port; the floating IP."""

    async def found():
        address, recorded = await told(stage, name)
        return address and address == recorded and address

    address = await stage.until(found)
    (floating_ip,) = (
        each
        for each in stage.cloud.floating_ips.values()
        if each["floating_ip_address"] == address
    )
    port = stage.cloud.ports[(await stage.port_ids(name))["eth0"]]
    assert floating_ip["port_id"] == port["id"]
    assert floating_ip["fixed_ip_address"] in [ip["ip_address"] for ip in port["fixed_ips"]]
    return floating_ip


async def test_pod_has_a_floating_ip_for_as_long_as_it_is_there(stage, options):
    async with stage.controller(**options):
        plain = await stage.cluster.add_pod("plain", node=NODE)
        pod = await add(stage, "web", "true")
        await until_has(stage, "web")
        await stage.until_plugged_in("plain")
        assert await told(stage, "plain") == (None, None)
        await end(stage, "web", pod)
        await end(stage, "plain", plain)
        assert not stage.cloud.floating_ips


@pytest.mark.parametrize("by", ["floating_ip_address", "id"])
async def test_floating_ip_that_the_pod_names_stays_afterwards(stage, options, public, by):
    theirs = stage.cloud.add_floating_ip(public["id"], description="ours since 2019")
    async with stage.controller(**options):
        pod = await add(stage, "web", theirs[by])
        assert (await until_has(stage, "web"))["id"] == theirs["id"]
        await end(stage, "web", pod)
    left = stage.cloud.floating_ips[theirs["id"]]
    assert (left["port_id"], left["tags"], left["description"]) == (None, [], "ours since 2019")


async def test_floating_ip_follows_from_one_pod_to_the_next(stage, options, public):
    theirs = stage.cloud.add_floating_ip(public["id"])
    async with stage.controller(patience=PATIENCE, **options):
        first = await add(stage, "one", theirs["floating_ip_address"])
        await until_has(stage, "one")
        await add(stage, "two", theirs["floating_ip_address"])
        assert await stage.until_told("is another Service's") == "KuryrFloatingIPInUse"
        await end(stage, "one", first)
        assert (await until_has(stage, "two"))["id"] == theirs["id"]


async def test_running_pod_gets_a_floating_ip_and_loses_it_as_its_annotation_says(stage, options):
    async with stage.controller(**options):
        await stage.cluster.add_pod("web", node=NODE)
        await stage.until_plugged_in("web")
        for asked in ("true", "false", "true", None):
            patch = {"metadata": {"annotations": {ASKED: asked}}}
            await stage.client.patch(path(stage, "web"), patch)
            if asked == "true":
                await until_has(stage, "web")
                continue

            async def lost():
                return await told(stage, "web") == (None, None)

            await stage.until(lost)
            assert not stage.cloud.floating_ips


async def test_pod_that_went_while_nobody_led_loses_its_floating_ip(stage, options, public):
    theirs = stage.cloud.add_floating_ip(public["id"])
    async with stage.controller(**options):
        one = await add(stage, "one", "true")
        two = await add(stage, "two", theirs["id"])
        await until_has(stage, "one")
        await until_has(stage, "two")
    for pod in (one, two):
        await stage.cluster.delete_pod(pod)
    async with stage.controller(**options):
        for name in ("one", "two"):
            await stage.until_deleting(name)
            await stage.let_go(name)
            await stage.until_gone(name)
    assert list(stage.cloud.floating_ips) == [theirs["id"]]


async def test_floating_ip_of_a_pod_without_any_record_is_swept(stage, options, public):
    theirs = stage.cloud.add_floating_ip(public["id"])
    async with stage.controller(**options):
        pods = [await add(stage, "one", "true"), await add(stage, "two", theirs["id"])]
        for name in ("one", "two"):
            await until_has(stage, name)
    for pod, name in zip(pods, ("one", "two"), strict=True):
        await stage.cluster.delete_pod(pod)
        await stage.client.delete(stage.path(name))
        await stage.client.patch(stage.path(name), {"metadata": {"finalizers": None}})
        await stage.until_gone(name)
    async with stage.controller(patience=PATIENCE, **options):
        await stage.cloud.wait_for(lambda: list(stage.cloud.floating_ips) == [theirs["id"]])
        await stage.cloud.wait_for(lambda: not stage.cloud.floating_ips[theirs["id"]]["tags"])


async def test_floating_ip_follows_from_a_pod_whose_node_is_lost(stage, options, public):
    theirs = stage.cloud.add_floating_ip(public["id"])
    async with stage.controller(patience=PATIENCE, **options):
        lost = await add(stage, "one", theirs["id"])
        await until_has(stage, "one")
        await stage.cluster.delete_pod(lost)  # by force: its node never unplugs it
        await add(stage, "two", theirs["id"])
        assert (await until_has(stage, "two"))["id"] == theirs["id"]
        assert (await stage.kuryrport("one"))["metadata"]["finalizers"]


async def test_port_of_a_pod_goes_although_its_floating_ip_cannot(stage, options):
    async with stage.controller(patience=PATIENCE, **options):
        pod = await add(stage, "web", "true")
        await until_has(stage, "web")
        refused = answer(403, "PolicyNotAuthorized", "no")
        fault = stage.cloud.faults.add(
            method="DELETE", path="/floatingips/", times=None, action=refused
        )
        await end(stage, "web", pod)
        assert not stage.ports_of(pod)
        fault.remove()
        await stage.cloud.wait_for(lambda: not stage.cloud.floating_ips)


async def end_in_vain(stage, name, pod, status):
    """Have a Pod end whose floating IP cannot be changed, for as long as the fault lasts."""
    fault = stage.cloud.faults.add(
        path="/floatingips/", times=None, action=answer(status, "PolicyNotAuthorized", "no way")
    )
    await stage.cluster.delete_pod(pod)
    await stage.until_deleting(name)
    await stage.cloud.wait_for(lambda: fault.hits > 0)  # while the node has not let go
    await stage.let_go(name)
    before = fault.hits
    await stage.cloud.wait_for(lambda: fault.hits >= before + 4)
    return fault


@pytest.mark.parametrize("status", [500, 403])
async def test_port_is_no_other_pods_while_a_floating_ip_leads_to_it(stage, options, status):
    pooled = pool(ports_pool_min="0", ports_pool_batch="1", patience=PATIENCE | RETRIES)
    groups = {name: {**pooled.get(name, {}), **options.get(name, {})} for name in pooled}
    async with stage.controller(**groups):
        pod = await add(stage, "one", "true")
        floating_ip = await until_has(stage, "one")
        port_id = floating_ip["port_id"]
        fault = await end_in_vain(stage, "one", pod, status)
        await stage.cluster.add_pod("two", node=NODE)
        assert (await stage.until_plugged_in("two"))["id"] != port_id
        assert floating_ip["port_id"] == port_id
        assert (await stage.until_told("no way")).startswith("OpenStack")
        fault.remove()
        await stage.until_gone("one")
        await stage.cloud.wait_for(lambda: not stage.cloud.floating_ips)
        await stage.cluster.add_pod("three", node=NODE)
        assert (await stage.until_plugged_in("three"))["id"] == port_id


@pytest.mark.parametrize("status", [500, 403])
async def test_users_port_is_not_free_while_a_floating_ip_leads_to_it(stage, options, status):
    theirs = stage.cloud.add_port(stage.cloud.pods["id"], name="theirs")
    async with stage.controller(patience=PATIENCE | RETRIES, **options):
        pod = await add(stage, "one", "true", **{"openstack.org/spec-default-port": theirs["id"]})
        await until_has(stage, "one")
        fault = await end_in_vain(stage, "one", pod, status)
        assert theirs["device_id"] == pod["metadata"]["uid"]
        fault.remove()
        await stage.until_gone("one")
        assert theirs["device_id"] == ""
        await stage.cloud.wait_for(lambda: not stage.cloud.floating_ips)


async def test_what_is_told_of_a_floating_ip_is_true_whatever_is_refused(stage, options):
    async with stage.controller(patience=PATIENCE, **options):
        await add(stage, "web", "true")
        await until_has(stage, "web")
        stage.proxy.faults.add(method="PATCH", path="/pods/web/status", action=answer(500))
        patch = {"metadata": {"annotations": {ASKED: None}}}
        await stage.client.patch(path(stage, "web"), patch)

        async def lost():
            return await told(stage, "web") == (None, None)

        await stage.until(lost)


async def test_floating_ip_that_somebody_leads_elsewhere_comes_back(stage, options):
    async with stage.controller(patience=PATIENCE, **options):
        await add(stage, "web", "true")
        floating_ip = await until_has(stage, "web")
        port_id = floating_ip["port_id"]
        stage.cloud.store.change("floatingip", floating_ip, {"port_id": None})
        await stage.cloud.wait_for(lambda: floating_ip["port_id"] == port_id)


async def test_pod_that_names_its_network_has_a_floating_ip_there(stage, options, public):
    storage = stage.cloud.add_network("storage", "10.70.0.0/24")
    stage.cloud.add_router(public["id"], *storage["subnets"])
    async with stage.controller(**options):
        await add(stage, "web", "true", **{NETWORK: storage["id"]})
        assert (await until_has(stage, "web"))["fixed_ip_address"].startswith("10.70.0.")


REFUSED = {
    "neither nor": ("yes", "is neither true nor false"),
    "IPv6": ("fd00::1", "is neither true nor false"),
    "unknown address": ("172.24.4.99", "has no floating IP 172.24.4.99"),
    "tenant's": ("{theirs}", "has no floating IP"),
    "in use": ("{used}", "is in use by port"),
}


@pytest.mark.parametrize("case", list(REFUSED))
async def test_floating_ip_that_cannot_be_is_an_event_and_the_pod_runs(
    stage, options, public, case
):
    cloud = stage.cloud
    tenant = cloud.add_project("tenant")
    vm = cloud.add_port(cloud.pods["id"], name="vm")
    made = {
        "theirs": cloud.add_floating_ip(public["id"], project_id=tenant)["id"],
        "used": cloud.add_floating_ip(public["id"], port_id=vm["id"])["id"],
    }
    before = {name: dict(each) for name, each in cloud.floating_ips.items()}
    asked, words = REFUSED[case]
    async with stage.controller(**options):
        await add(stage, "web", asked.format(**made))
        await stage.until_told(words)
        await stage.until_plugged_in("web")
        assert cloud.floating_ips == before


async def test_floating_ips_are_granted_like_those_of_services(stage, options, public):
    theirs = stage.cloud.add_floating_ip(public["id"])
    async with stage.controller(**options, policy={"floating_ips": "elsewhere:*"}):
        await add(stage, "web", theirs["id"])
        assert await stage.until_told("is not granted to namespace") == "KuryrNotGranted"


async def test_pod_whose_network_no_router_connects_says_so(stage, options):
    storage = stage.cloud.add_network("storage", "10.70.0.0/24")
    async with stage.controller(**options):
        await add(stage, "web", "true", **{NETWORK: storage["id"]})
        assert await stage.until_told("is not reachable") == "KuryrFloatingNetworkUnfit"
