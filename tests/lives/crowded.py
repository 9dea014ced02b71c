"""Lives of a Pod that gets its address from the second subnet: the first one is full."""

import dataclasses

from tests.lives import pods, pools

LIVES = tuple(
    dataclasses.replace(
        life,
        name=f"crowded_{life.name}",
        environment="crowded",
        writes=(),
        plain=False,
        batched={"/v2.0/ports": 2},  # whoever starts anew tries the full subnet once
    )
    for life in (pods.deleted, pools.pooled)
)
