"""Lives of a Node's port, on a cluster whose Nodes get ports."""

import json

from kuryr_k8s.model.annotations import NODE_INTERFACE
from tests.lives.life import life
from tests.lives.pods import LONG

SWEPT = {"sweep_interval": "2"}


@life(
    options={"neutron_defaults": SWEPT},
    writes=("kube patch nodes", "neutron POST /ports", "neutron DELETE /ports/{id}"),
)
async def deleted(stage, keeper, at):
    """It gets a port, and is deleted."""
    network = stage.cloud.add_network("nodes", "10.63.0.0/24", mtu=1442)
    await keeper.restart(neutron_defaults=SWEPT | {"node_subnet": network["subnets"][0]})
    path = f"/api/v1/nodes/{stage.node}"

    async def described():
        node = await stage.client.find(path)
        text = node["metadata"]["annotations"].get(NODE_INTERFACE)
        return text and [json.loads(text)["portId"]] == list(stage.cloud.ports)

    await stage.until(described, within=LONG)
    await at("has a port")
    await stage.client.delete(path)
    await stage.cloud.wait_for(lambda: not stage.cloud.ports, within=LONG)
    await at("end")


LIVES = (deleted,)
