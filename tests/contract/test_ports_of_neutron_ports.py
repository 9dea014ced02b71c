"""The port of a NeutronPort: found by what is on it, had by one Pod after another."""

from __future__ import annotations

import random
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kuryr_k8s.cloud.connect import ServiceAdapter
from kuryr_k8s.cloud.mark import ClusterMark
from kuryr_k8s.cloud.neutron.api import Neutron
from kuryr_k8s.cloud.neutron.specific_ports import HOST, PROFILE, PortInUse, fields_of
from kuryr_k8s.cloud.transport import Transport

from .sides import Side
from .test_direct_ports import VF

Json = dict[str, Any]
FIRST, SECOND = "11111111-0000-4000-8000-000000000001", "11111111-0000-4000-8000-000000000002"


@pytest.fixture
async def neutron(side: Side) -> AsyncIterator[Neutron]:
    transport = Transport(ServiceAdapter(side.kuryr.connection, "network"), limit=16)
    yield Neutron(transport, ClusterMark(side.mark))
    transport.close()


@pytest.fixture
async def made(side: Side, pods: Json, neutron: Neutron) -> Json:
    """A port as it is made for a NeutronPort."""
    marks = neutron.specific_ports.neutron_port_marks(str(uuid.uuid4()))
    return await side.kuryr.create(
        "port", network_id=pods["id"], description=f"{neutron.mark.tag} a port", **marks
    )


async def test_it_is_found_by_its_fields_and_bound_to_no_host(
    side: Side, neutron: Neutron, made: Json
) -> None:
    marks = neutron.specific_ports.neutron_port_marks(made["device_id"])
    found = await side.kuryr.get("/ports", **marks, fields="id")
    assert found.body["ports"] == [{"id": made["id"]}]
    assert (made[HOST], made["binding:vif_type"]) == ("", "unbound")


async def test_pods_have_it_one_after_another_and_it_is_as_before(
    side: Side, neutron: Neutron, made: Json
) -> None:
    ports, as_found = neutron.specific_ports, fields_of(made)
    ports.note(made)
    for pod_uid in (FIRST, SECOND):
        taken = await ports.take(made["id"], pod_uid, {HOST: side.host}, as_found=as_found)
        assert (taken["device_id"], taken["binding:vif_type"]) == (pod_uid, "ovs")
        with pytest.raises(PortInUse):
            await ports.take(made["id"], str(uuid.uuid4()), {HOST: side.host}, as_found=as_found)
        await ports.give_back(made["id"], pod_uid, as_found)
        live = (await side.kuryr.get(f"/ports/{made['id']}")).body["port"]
        assert fields_of(live) == as_found
        remembered = ports.remembered(made["id"], made["device_id"])
        assert remembered is not None


async def test_one_for_a_vf_is_bound_to_that_of_its_pod_and_loses_it_again(
    side: Side, neutron: Neutron
) -> None:
    network = await side.network(
        "10.232.0.0/24",
        **{
            "provider:network_type": "vlan",
            "provider:physical_network": "physnet1",
            "provider:segmentation_id": random.randrange(2000, 4000),
        },
    )
    ports = neutron.specific_ports
    marks = ports.neutron_port_marks(str(uuid.uuid4()))
    made = await side.kuryr.create(
        "port", network_id=network["id"], **{"binding:vnic_type": "direct"}, **marks
    )
    ports.note(made)
    binding = {HOST: side.host, PROFILE: VF}
    taken = await ports.take(made["id"], FIRST, binding, as_found=fields_of(made))
    assert (taken["binding:vif_type"], taken[PROFILE]) == ("hw_veb", VF)
    await ports.give_back(made["id"], FIRST, marks)
    live = (await side.kuryr.get(f"/ports/{made['id']}")).body["port"]
    assert (live["binding:vif_type"], live[PROFILE]) == ("unbound", {})
    assert fields_of(live) == fields_of(made)


async def test_what_is_remembered_may_be_wrong(side: Side, neutron: Neutron, made: Json) -> None:
    """Somebody has changed the port: it has another revision."""
    ports = neutron.specific_ports
    ports.note(made)
    path = f"/ports/{made['id']}"
    assert (await side.kuryr.put(path, {"port": {"name": "renamed"}})).status == 200
    taken = await ports.take(made["id"], FIRST, {HOST: side.host}, as_found=fields_of(made))
    assert (taken["device_id"], taken["name"]) == (FIRST, "renamed")
    await ports.give_back(made["id"], FIRST, fields_of(made))


async def test_addresses_and_mac_of_a_lost_port_can_be_had_again(
    side: Side, made: Json, pods: Json
) -> None:
    assert (await side.kuryr.delete(f"/ports/{made['id']}")).status == 204
    again = await side.kuryr.create(
        "port",
        network_id=pods["id"],
        mac_address=made["mac_address"],
        fixed_ips=made["fixed_ips"],
    )
    assert again["mac_address"] == made["mac_address"]
    assert again["fixed_ips"] == made["fixed_ips"]
