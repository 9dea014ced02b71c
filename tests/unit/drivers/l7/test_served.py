"""Which routes count as served, by what was found of the load balancer."""

import dataclasses

import pytest

from kuryr_k8s.drivers.l7.plan import plan
from kuryr_k8s.drivers.l7.wanted import HTTPS, Wanted, served
from kuryr_k8s.model.load_balancer import (
    ACTIVE,
    FoundL7Policy,
    FoundListener,
    FoundLoadBalancer,
    FoundPool,
    Pool,
)
from kuryr_k8s.model.routes import Forward, Host, Path, Route

ROUTE = Route(name="shop", host=Host("a"), path=Path.prefix("/"), action=Forward("pool"))
POOL = Pool(
    name="pool",
    protocol="HTTP",
    lb_algorithm="ROUND_ROBIN",
    tls_enabled=True,
    ca_tls_container_ref="new CA",
)


def wanted():
    made = plan((ROUTE,))
    listener = dataclasses.replace(
        HTTPS, policies=made.policies, default_tls_container_ref="new", sni_container_refs=("b",)
    )
    return Wanted({HTTPS.key: made}, (listener,), (POOL,), shown={"shop": "new"})


def found(pool=POOL, **of_listener):
    """The load balancer as it is wanted, but for these."""
    [listener] = wanted().listeners
    policies = tuple(
        FoundL7Policy(
            id="policy", provisioning_status=ACTIVE, policy=each, is_enabled=True, pool_id="id"
        )
        for each in listener.policies
    )
    listener = dataclasses.replace(listener, **of_listener)
    return FoundLoadBalancer(
        id="lb",
        name="router",
        project_id="p",
        provider="amphora",
        vip_address="10.0.0.1",
        vip_subnet_id="s",
        vip_port_id="port",
        provisioning_status=ACTIVE,
        operating_status="ONLINE",
        tags=(),
        listeners=(
            FoundListener(
                id="l",
                provisioning_status=ACTIVE,
                listener=listener,
                pool_id=None,
                policies=policies,
            ),
        ),
        pools=(FoundPool(id="id", provisioning_status=ACTIVE, pool=pool),),
    )


def test_route_is_served_where_all_is_as_wanted():
    assert served(wanted(), found()) == {"shop"}


@pytest.mark.parametrize(
    "former",
    [
        {"ca_tls_container_ref": "former CA"},
        {"tls_enabled": False},
        {"lb_algorithm": "LEAST_CONNECTIONS"},
        {"persistence": "HTTP_COOKIE"},
    ],
)
def test_route_whose_pool_is_as_before_is_notserved(former):
    assert not served(wanted(), found(dataclasses.replace(POOL, **former)))


def test_route_whose_certificate_is_not_shown_is_notserved():
    assert not served(wanted(), found(default_tls_container_ref="former"))
    others = {"default_tls_container_ref": "b", "sni_container_refs": ("new",)}
    assert served(wanted(), found(**others)) == {"shop"}
