"""Lives of a Pod on a VM."""

import dataclasses

from tests.lives import pods, pools

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
    dataclasses.replace(life, name=f"nested_{life.name}", environment="nested", writes=writes)
    for life, writes in ((pods.deleted, WRITES), (pods.made_again, ()))
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
    dataclasses.replace(life, name=f"macvlan_{life.name}", environment="macvlan", writes=writes)
    for life, writes in ((pods.deleted, MACVLAN_WRITES), (pods.made_again, ()))
)
LIVES = (deleted, made_again, macvlan_deleted, macvlan_made_again)
PAIRED = (
    *LIVES,
    *(
        dataclasses.replace(
            life,
            name=f"nested_{life.name}",
            environment="nested",
            options=life.options | {"kubernetes": {"vif_pool_driver": "nested"}},
            writes=(),
            struck=None,
        )
        for life in (pools.pooled, pools.filled, pools.surplus, pools.handed_on)
    ),
)
