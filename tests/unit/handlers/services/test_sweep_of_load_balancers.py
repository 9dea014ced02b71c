"""Which load balancers of the cluster no Service wants: those go."""

import pytest

from kuryr_k8s.drivers.base import Owned
from kuryr_k8s.handlers.services.sweep import unwanted_of
from kuryr_k8s.model.owner import Owner, Role
from kuryr_k8s.model.service import Service
from kuryr_k8s.model.service_class import Classes
from tests.kit.service_objects import UID, service_item

FIRST, SECOND, EXTERNAL, OTHER = (
    Owner(UID, role) for role in (Role.FIRST, Role.SECOND, Role.EXTERNAL, Role.EXTERNAL_SECOND)
)
EVERY = [FIRST, SECOND, EXTERNAL, OTHER]
OURS = Classes()
HELD = {"finalizers": ["kuryr.openstack.org/service-finalizer"]}
GOING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
BOTH = ("10.96.0.10", "fd96::10")


def read(addresses=("10.96.0.10",), meta=None, **spec):
    item = service_item([("http", 80)], addresses, **spec)
    item["metadata"] |= meta or {}
    return Service.read(item)


@pytest.mark.parametrize(
    ("services", "unwanted"),
    [
        ([], EVERY),
        ([read(meta={"uid": "another"})], EVERY),
        ([read(meta=HELD)], [SECOND, EXTERNAL, OTHER]),
        ([read(meta=HELD, type="LoadBalancer")], [SECOND]),
        ([read(BOTH, meta=HELD)], [EXTERNAL, OTHER]),
        ([read(meta=HELD | GOING)], []),
        ([read((), type="ExternalName")], EVERY),
        ([read((), meta=HELD, type="ExternalName")], []),
    ],
    ids=[
        "no Service",
        "made again",
        "one address",
        "of type LoadBalancer",
        "dual-stack",
        "being deleted",
        "not handled",
        "not handled, not released yet",
    ],
)
def test_load_balancer_is_wanted_if_a_service_has_it_or_holds_it(services, unwanted):
    owned = [Owned(owner, "default", f"id of {owner}") for owner in EVERY]
    assert [balancer.owner for balancer in unwanted_of(owned, services, OURS)] == unwanted
