"""The time that Octavia alone takes for load balancers.

`python -m bench.services.floor_process N ENDPOINTS PENDING --config-file …` creates N
fully-populated load balancers, and looks at the status tree of each once it is no longer PENDING
(after so many seconds), with the product's client and its limit of calls in flight
(`[octavia_defaults] max_calls`). It calls no Kubernetes, decides nothing, and waits no longer than
needed. It prints the seconds until the last creation is over, and until the last look.
"""

from __future__ import annotations

import asyncio
import sys
import time
from statistics import median

from oslo_config import cfg

from bench.services.objects import PORT, addresses
from kuryr_k8s import config
from kuryr_k8s.cloud import connect
from kuryr_k8s.cloud.connect import ServiceAdapter
from kuryr_k8s.cloud.octavia import bodies as octavia_bodies
from kuryr_k8s.cloud.octavia.api import Octavia
from kuryr_k8s.cloud.transport import Transport
from kuryr_k8s.model.load_balancer import ACTIVE, Listener, LoadBalancer, Member, Pool

NAME = "floor"  # of all load balancers
STEADY = 10  # load balancers in all runs together, at the least
RETRY = 0.05  # seconds until another look after one that came too soon


async def seconds(
    arguments: list[str], number: int, endpoints: int, pending: float
) -> tuple[float, float]:
    """Measure the floor in as many runs as make the medians steady.

    :returns: the fields of bench.services.floor.Floor.
    """
    conf = config.load(arguments, "service-floor")
    limit = conf.octavia_defaults.max_calls
    connection = connect.connect(conf, connections=limit)
    transport = Transport(ServiceAdapter(connection, "load_balancer"), limit=limit)
    try:
        octavia = Octavia(transport)
        async with asyncio.TaskGroup() as group:
            for _ in range(limit):
                group.create_task(octavia.providers())  # connections, and a token
        wanted = _wanted(await transport.project_id(), conf, endpoints)
        runs = [
            await _run(octavia, wanted, number, pending) for _ in range(max(1, STEADY // number))
        ]
    finally:
        transport.close()
        connection.close()
    made, seen = zip(*runs, strict=True)
    return median(made), median(seen)


async def _run(
    octavia: Octavia, wanted: LoadBalancer, number: int, pending: float
) -> tuple[float, float]:
    made: list[float] = []

    async def create() -> None:
        body = octavia_bodies.create_body(wanted)
        load_balancer = await octavia.create_load_balancer(body)
        await asyncio.sleep(pending)
        made.append(time.monotonic())
        while True:
            if (await octavia.status_tree(load_balancer.id)).statuses == {ACTIVE}:
                return
            await asyncio.sleep(RETRY)

    begun = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for _ in range(number):
            group.create_task(create())
    return max(made) - begun, time.monotonic() - begun


def _wanted(project_id: str, conf: cfg.ConfigOpts, endpoints: int) -> LoadBalancer:
    """Return a load balancer like one of a Service; Octavia chooses its address."""
    name, port = "floor:TCP:80", PORT[1]
    subnet = conf.neutron_defaults.pod_subnet[0]
    members = tuple(
        Member(address=address, port=port, name=f"floor/pod-{address}:{port}", subnet_id=subnet)
        for address in addresses(endpoints)
    )
    pool = Pool(name=name, protocol="TCP", lb_algorithm="SOURCE_IP_PORT", members=members)
    return LoadBalancer(
        name=NAME,
        project_id=project_id,
        vip_subnet_id=conf.neutron_defaults.service_subnet[0],
        vip_address=None,
        provider=conf.kubernetes.endpoints_driver_octavia_provider,
        tags=("floor",),
        listeners=(Listener(name=name, protocol="TCP", port=port, pool=name),),
        pools=(pool,),
    )


if __name__ == "__main__":
    count, members, pending_seconds, *options = sys.argv[1:]
    print(*asyncio.run(seconds(options, int(count), int(members), float(pending_seconds))))
