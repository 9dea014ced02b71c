"""The process that keeps a router is frozen, killed or ended in the midst of each of its writes.

The other one works on: with the one router, its policies and pools, and the addresses that it has.
"""

import pytest

from tests.kit.fixtures import RouterLanes
from tests.lives.routers import routed
from tests.tables.report import judge
from tests.tables.runs import undisturbed
from tests.tables.signals import SWEEPS, Frozen, Killed, Terminated, signalled

LEASE = 20.0  # seconds; for half of it the processors may be busy with others
LONG = 6000.0  # seconds: nobody waits for the end of such a Lease
ENDS = {Frozen: LEASE, Killed: LEASE, Terminated: LONG}


def addresses(stage):
    """The VIPs of all load balancers, and where all floating IPs lead: one of each."""
    vips = {
        each["vip_port_id"]: each["vip_address"] for each in stage.cloud.load_balancers.values()
    }
    return (*vips.values(),), *(
        (each["floating_ip_address"], vips.get(each["port_id"]))
        for each in stage.cloud.floating_ips.values()
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", ENDS, ids=lambda how: how.name)
async def test_router_is_kept_whatever_becomes_of_its_leader(how, lanes_of, choice, request):
    lanes = lanes_of(RouterLanes)
    record = await undisturbed(lanes, routed, neutron_defaults=SWEEPS)
    places = choice.frozen(routed, record, of=8)
    cells = await signalled(
        lanes, routed, record, places, how, at_once=8, seen=addresses, lease=ENDS[how]
    )
    judge(request.config, cells, of=len(record.writes))
