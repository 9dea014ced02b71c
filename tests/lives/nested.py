"""Lives of a Pod on a VM."""

import dataclasses

from kuryr_k8s.cloud.neutron.specific_ports import ON_TRUNK
from tests.lives import pods, pools
from tests.lives.life import life

WRITES = (
    "kube create kuryrports",
    "kube patch kuryrports/status",
    "kube delete kuryrports",
    "kube patch kuryrports",
    "neutron POST /ports",
    "neutron PUT /trunks/{id}/add_subports",
    "neutron PUT /trunks/{id}/remove_subports",
    "neutron DELETE /ports/{id}",
)
deleted, made_again = (
    dataclasses.replace(one, name=f"nested_{one.name}", environment="nested", writes=writes)
    for one, writes in ((pods.deleted, WRITES), (pods.made_again, ()))
)


@life(
    environment="nested",
    options={"neutron_defaults": {"sweep_interval": "1"}},
    batched={"/v2.0/trunks/{id}/add_subports": 1},  # ports may be attached together
)
async def nested_specific_port(stage, keeper, at):
    """The port that its user made is a subport meanwhile; a sweep removes the last of that."""
    await pods.specific_port.steps(stage, keeper, at)
    ports = stage.cloud.ports
    await stage.cloud.wait_for(
        lambda: (
            not any(tag.startswith(ON_TRUNK) for port in ports.values() for tag in port["tags"])
        )
    )


MACVLAN_WRITES = (
    "kube create kuryrports",
    "kube patch kuryrports/status",
    "kube delete kuryrports",
    "kube patch kuryrports",
    "neutron POST /ports",
    "neutron PUT /ports/{id}",
    "neutron PUT /ports/{id} #2",
    "neutron DELETE /ports/{id}",
)
macvlan_deleted, macvlan_made_again = (
    dataclasses.replace(one, name=f"macvlan_{one.name}", environment="macvlan", writes=writes)
    for one, writes in ((pods.deleted, MACVLAN_WRITES), (pods.made_again, ()))
)
LIVES = (deleted, made_again, nested_specific_port, macvlan_deleted, macvlan_made_again)
PAIRED = (
    *LIVES,
    *(
        dataclasses.replace(
            one,
            name=f"nested_{one.name}",
            environment="nested",
            options=one.options | {"kubernetes": {"vif_pool_driver": "nested"}},
            writes=(),
            struck=None,
        )
        for one in (pools.pooled, pools.filled, pools.surplus, pools.handed_on)
    ),
)
