"""What is left of a load balancer without what was refused of it."""

import dataclasses

import pytest

from kuryr_k8s import errors
from kuryr_k8s.handlers.services.refusals import without_refused
from tests.kit.lbaas.plans import MONITOR, listener, pool, wanted

OVN = "Provider 'ovn' does not support a requested option: OVN provider does not support "
MONITORS = errors.Unsupported(
    f"{OVN}HTTP health monitor type. Supported types: UDP-CONNECT, TCP",
    feature="health_monitor",
    status=501,
)
HTTP = errors.Unsupported(f"{OVN}HTTP protocol", feature="protocol", status=501)
BOTH = wanted(
    listener("web", 80, "HTTP"),
    pool("web", "HTTP", health_monitor=dataclasses.replace(MONITOR, type="HTTP")),
    listener("dns", 53, "UDP"),
    pool("dns", "UDP", health_monitor=dataclasses.replace(MONITOR, type="UDP-CONNECT")),
)


def left(*refusals):
    """The types of monitors that are left, by the ports that are left."""
    found = without_refused(BOTH, refusals)
    if found is None:
        return None
    assert {each.pool for each in found.listeners} == {each.name for each in found.pools}
    monitors = {each.name: each.health_monitor for each in found.pools}
    return {name: monitor and monitor.type for name, monitor in monitors.items()}


def test_monitors_go_and_all_else_stays():
    assert left(MONITORS) == {"web": None, "dns": None}


def test_ports_of_a_protocol_go_and_monitors_of_others_stay():
    assert left(HTTP) == {"dns": "UDP-CONNECT"}


@pytest.mark.parametrize("refusals", [(HTTP, MONITORS), (MONITORS, HTTP)])
def test_of_several_things_that_are_refused_one_after_the_other_all_go(refusals):
    assert left(*refusals) == {"dns": None}


def test_nothing_is_left_where_the_same_is_refused_again_or_something_else():
    algorithm = errors.Unsupported(f"{OVN}X algorithm", feature="lb_algorithm", status=501)
    assert left(MONITORS, MONITORS) is None
    assert left(HTTP, HTTP) is None
    assert left(algorithm) is None
    assert left(MONITORS, algorithm) is None


def test_monitor_stays_where_octavia_refuses_what_users_wrote_of_it():
    wrong = errors.Unsupported("url_path is wrong", feature="health_monitor", status=400)
    assert left(wrong) is None


def test_additional_vips_go_where_octavia_knows_none():
    older = errors.Unsupported("additional_vips needs version 2.26", feature="additional_vips")
    desired = dataclasses.replace(BOTH, additional_vips=("subnet",))
    assert without_refused(desired, (older,)) == BOTH
    assert without_refused(BOTH, (older,)) is None
