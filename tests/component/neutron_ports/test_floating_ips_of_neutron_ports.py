"""Floating IPs of NeutronPorts: they stay from Pod to Pod."""

import pytest

from tests.component.neutron_ports import ports
from tests.component.pools.pods import end


@pytest.fixture
def public(stage):
    """An external network, with a router to that of Pods."""
    public = stage.cloud.add_external_network("public", "172.24.4.0/24")
    stage.cloud.add_router(public["id"], *stage.cloud.pods["subnets"])
    return public


def options(public, **changes):
    groups = ports.options(**changes)
    groups["neutron_defaults"]["external_svc_net"] = public["id"]
    return groups


async def until_told(stage, name, address=None):
    """Wait until the status tells a floating IP, or this one; it."""

    async def told():
        found = (await ports.status(stage, name)).get("floatingIP")
        return found if found and address in (None, found) else None

    return await stage.until(told)


async def test_one_is_made_stays_from_pod_to_pod_and_goes_with_the_object(stage, public):
    async with stage.controller(**options(public)):
        await ports.add(stage, "db", floatingIP="true")
        address = await until_told(stage, "db")
        (made,) = stage.cloud.floating_ips.values()
        assert made["floating_ip_address"] == address
        assert made["port_id"] == (await ports.status(stage, "db"))["portId"]
        for name in ("first", "second"):
            pod, port = await ports.run(stage, name, **{ports.NAME: "db"})
            assert stage.cloud.floating_ips[made["id"]]["port_id"] == port["id"]
            await end(stage, name, pod)
            await ports.until(stage, "db", "Available")
        await stage.client.delete(ports.path(stage, "db"))
        await ports.until_gone(stage, "db")
        assert not stage.cloud.floating_ips


async def test_one_that_exists_is_left_when_the_field_is_removed(stage, public):
    theirs = stage.cloud.add_floating_ip(public["id"], description="of its user")
    async with stage.controller(**options(public)):
        await ports.add(stage, "db", floatingIP=theirs["floating_ip_address"])
        await until_told(stage, "db", theirs["floating_ip_address"])
        await stage.client.patch(ports.path(stage, "db"), {"spec": {"floatingIP": None}})

        async def told_of_none():
            return "floatingIP" not in await ports.status(stage, "db")

        await stage.until(told_of_none)
        live = stage.cloud.floating_ips[theirs["id"]]
        assert (live["port_id"], live["tags"]) == (None, [])


async def test_one_that_others_have_is_a_condition_and_the_port_is_free_for_pods(stage, public):
    theirs = stage.cloud.add_floating_ip(public["id"])
    async with stage.controller(**options(public)):
        await ports.add(stage, "first", floatingIP=theirs["id"])
        await until_told(stage, "first")
        await ports.add(stage, "second", floatingIP=theirs["id"])
        await stage.until_told("spec.floatingIP")
        await ports.until_ready_is(stage, "second", "KuryrFloatingIPInUse")
        version = (await stage.client.find(ports.path(stage, "second")))["metadata"][
            "resourceVersion"
        ]
        await ports.add(stage, "later")  # reconciled after several attempts for the second one
        await until_tried(stage, 3)
        live = await stage.client.find(ports.path(stage, "second"))
        assert live["metadata"]["resourceVersion"] == version, "it is written once"
        await ports.run(stage, "web", **{ports.NAME: "second"})


async def until_tried(stage, times):
    """Wait for so many further looks at floating IPs in Neutron."""
    before = looks(stage)
    await stage.cloud.wait_for(lambda: looks(stage) >= before + times)


def looks(stage):
    return sum("floatingips" in call.what for call in stage.cloud.calls)


async def test_those_of_objects_that_are_gone_are_released(stage, public):
    async with stage.controller(**options(public)):
        await ports.add(stage, "db", floatingIP="true")
        await until_told(stage, "db")
        port_id = (await ports.status(stage, "db"))["portId"]
    finalizers = {"metadata": {"finalizers": None}}
    await stage.client.patch(ports.path(stage, "db"), finalizers)
    await stage.client.delete(ports.path(stage, "db"))
    async with stage.controller(**options(public)):
        await stage.cloud.wait_for(lambda: not stage.cloud.floating_ips)
        await stage.cloud.wait_for(lambda: port_id not in stage.cloud.ports)
