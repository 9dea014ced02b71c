"""A trunk whose VLAN ids are used up is no matter of other trunks."""

from tests.component.pools.pods import OPTIONS
from tests.kit import confs
from tests.kit.ledger import counts_of
from tests.kit.vms import subports

FULL_VM = "10.63.0.10"


async def test_full_trunk_costs_pools_of_other_nodes_no_port(stage, cloud):
    options = confs.add_vm(cloud)
    await stage.cluster.add_node("vm", addresses=(confs.VM,))
    spared = cloud.trunk
    confs.add_vm(cloud, FULL_VM)
    await stage.cluster.add_node("full-vm", addresses=(FULL_VM,))
    bare = {"network_id": cloud.pods["id"], "device_id": "", "mac_address": "", "tags": []}
    cloud.trunk["sub_ports"] += [
        {"port_id": cloud.store.add("port", bare)["id"], "segmentation_id": number}
        for number in range(1, 4095)
    ]
    cloud.trunk = spared
    kubernetes = options["kubernetes"] | {"vif_pool_driver": "nested"}
    groups = options | {"kubernetes": kubernetes, "vif_pool": OPTIONS | {"ports_pool_min": "3"}}
    async with stage.controller(**groups) as app:
        await stage.cluster.add_pod("one", node="vm")
        await stage.until_plugged_in("one")
        await cloud.wait_for(lambda: len(subports(cloud)) == 4)
        before = subports(cloud)
        await stage.cluster.add_pod("two", node="full-vm")
        await stage.until(lambda: stage.node_events("full-vm"))
        assert counts_of(app)["leaving"] == 0
        assert subports(cloud) == before
