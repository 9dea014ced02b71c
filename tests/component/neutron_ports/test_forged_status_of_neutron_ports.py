"""A status that somebody else has written: no port is touched that is not the NeutronPort's."""

import pytest

from tests.component.neutron_ports import ports
from tests.kit.confs import NODE


def unchanged(stage, port):
    changing = ("revision_number", "updated_at", "status")
    live = stage.cloud.ports[port["id"]]
    return {name: value for name, value in live.items() if name not in changing}


@pytest.fixture(params=["a machine's", "a Pod's", "another one's"])
async def theirs(request, stage):
    """A port in the cloud, and the uid of the Pod that has it."""
    if request.param == "a machine's":
        tenant = stage.cloud.add_project("tenant")
        network = stage.cloud.add_network("theirs", "10.71.0.0/24", project_id=tenant)
        port = stage.cloud.add_port(
            network["id"], project_id=tenant, device_owner="compute:nova", device_id="vm"
        )
        return port, "vm"
    annotations = {ports.NAME: "theirs"} if request.param == "another one's" else {}
    if annotations:
        await ports.add(stage, "theirs")
    pod = await stage.cluster.add_pod("victim", node=NODE, annotations=annotations)
    async with stage.controller(**ports.options()):
        vif = await stage.until_plugged_in("victim")
    return stage.cloud.ports[vif["id"]], pod["metadata"]["uid"]


async def forge(stage, **status):
    await stage.client.patch(f"{ports.path(stage, 'db')}/status", {"status": status})


async def test_port_of_others_is_neither_changed_nor_deleted(stage, theirs):
    port, uid = theirs
    before = unchanged(stage, port)
    async with stage.controller(**ports.options()):
        await ports.add(stage, "db")
        own = await ports.until(stage, "db", "Available")
        bound_to = {
            "namespace": stage.cluster.namespace,
            "name": "nobody",
            "uid": uid,
            "node": NODE,
            "kuryrPortUid": uid,
        }
        await forge(stage, portId=port["id"], boundTo=bound_to, phase="Bound")

        async def is_mended():
            found = await ports.status(stage, "db")
            return found.get("portId") == own["portId"] and found["phase"] == "Available"

        await stage.until(is_mended)
        assert unchanged(stage, port) == before
        await forge(stage, portId=port["id"])
        await stage.client.delete(ports.path(stage, "db"))
        await ports.until_gone(stage, "db")
        assert unchanged(stage, port) == before
        assert own["portId"] not in stage.cloud.ports
