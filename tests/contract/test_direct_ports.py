"""Ports on virtual functions (VFs) of network cards: mechanism driver sriovnicswitch."""

from __future__ import annotations

import random
from typing import Any

import pytest

from .sides import Side

Json = dict[str, Any]
VF = {
    "pci_slot": "0000:03:10.1",
    "pci_vendor_info": "8086:10ca",
    "physical_network": "physnet1",
}


@pytest.fixture
async def vlan(side: Side) -> Json:
    """A network of the cluster's project on a physical network."""
    return await side.network(
        "10.231.0.0/24",
        **{
            "provider:network_type": "vlan",
            "provider:physical_network": "physnet1",
            "provider:segmentation_id": random.randrange(2000, 4000),
        },
    )


async def direct(side: Side, network: Json, **binding: Any) -> Json:
    binding = {f"binding:{name}": value for name, value in binding.items()}
    return await side.kuryr.create(
        "port", network_id=network["id"], **{"binding:vnic_type": "direct"} | binding
    )


async def test_a_port_on_a_vf_is_bound_by_the_card_and_tells_its_vlan(
    side: Side, vlan: Json
) -> None:
    port = await direct(side, vlan, host_id=side.host, profile=VF)
    assert port["binding:vif_type"] == "hw_veb"
    assert port["binding:profile"] == VF
    details = port["binding:vif_details"]
    assert details["vlan"] == str(vlan["provider:segmentation_id"])
    assert details["port_filter"] is False
    assert port["status"] == "DOWN"


async def test_a_direct_port_gets_its_vf_later_and_loses_it_again(side: Side, vlan: Json) -> None:
    port = await direct(side, vlan)
    assert port["binding:vif_type"] == "unbound"
    assert port["binding:profile"] == {}
    on_vf = {"binding:host_id": side.host, "binding:profile": VF}
    reply = await side.kuryr.put(f"/ports/{port['id']}", {"port": on_vf})
    assert reply.body["port"]["binding:vif_type"] == "hw_veb"
    moved = {"binding:profile": VF | {"pci_slot": "0000:03:10.2"}}
    reply = await side.kuryr.put(f"/ports/{port['id']}", {"port": moved})
    assert reply.body["port"]["binding:profile"]["pci_slot"] == "0000:03:10.2"
    assert reply.body["port"]["binding:vif_type"] == "hw_veb"
    free = {"binding:host_id": "", "binding:profile": {}}
    reply = await side.kuryr.put(f"/ports/{port['id']}", {"port": free})
    assert reply.body["port"]["binding:vif_type"] == "unbound"
    assert reply.body["port"]["binding:profile"] == {}


async def test_no_card_is_on_a_network_of_tunnels(side: Side, pods: Json) -> None:
    port = await direct(side, pods, host_id=side.host, profile=VF)
    assert port["binding:vif_type"] == "binding_failed"
