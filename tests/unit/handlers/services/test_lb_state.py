"""What is published of a load balancer, within its budget."""

import json

import pytest

from kuryr_k8s.handlers.services.state import BUDGET, publication
from kuryr_k8s.model.lbaas import LBaaSServiceSpec, LBaaSState
from kuryr_k8s.model.load_balancer import (
    ACTIVE,
    FoundListener,
    FoundLoadBalancer,
    FoundPool,
    Listener,
    Member,
    Pool,
)
from tests.kit.paths import GOLDEN

PUBLISHED = json.loads((GOLDEN / "lbaas_state.json").read_text())
ID = "ec3f1f7d-0000-4000-8000-00000000000{}"
SPEC = LBaaSServiceSpec(security_groups_ids=(ID.format(2),))


def found(count):
    members = tuple(
        Member(
            address=f"10.1.{number // 250}.{number % 250}",
            port=8080,
            name=f"default/web-{number}:8080",
            subnet_id=None,
        )
        for number in range(count)
    )
    listener = Listener(name="default/web:TCP:80", protocol="TCP", port=80, pool="pool")
    pool = Pool(name="default/web:TCP:80", protocol="TCP", lb_algorithm="x", members=members)
    return FoundLoadBalancer(
        id=ID.format(3),
        name="default/web",
        project_id="p",
        provider="ovn",
        vip_address="10.96.0.10",
        vip_subnet_id=ID.format(1),
        vip_port_id=ID.format(4),
        provisioning_status=ACTIVE,
        operating_status="ONLINE",
        tags=(),
        listeners=(
            FoundListener(
                id=ID.format(5),
                provisioning_status=ACTIVE,
                listener=listener,
                pool_id=ID.format(6),
            ),
        ),
        pools=(
            FoundPool(
                id=ID.format(6),
                provisioning_status=ACTIVE,
                pool=pool,
                member_ids={member.key: f"{number:036}" for number, member in enumerate(members)},
            ),
        ),
    )


def test_state_is_what_the_ancestor_wrote():
    state, cut = publication(found(0), SPEC)
    assert json.loads(state) == PUBLISHED
    assert state == json.dumps(PUBLISHED, sort_keys=True)
    assert cut is None


def test_members_are_in_it_as_the_ancestor_had_them():
    state, cut = publication(found(1), SPEC)
    (member,) = json.loads(state)["versioned_object.data"]["members"]
    assert member == {
        "versioned_object.name": "LBaaSMember",
        "versioned_object.namespace": "kuryr_kubernetes",
        "versioned_object.version": "1.0",
        "versioned_object.data": {
            "id": f"{0:036}",
            "project_id": "p",
            "name": "default/web-0:8080",
            "pool_id": ID.format(6),
            "subnet_id": ID.format(1),
            "ip": "10.1.0.0",
            "port": 8080,
        },
    }
    assert cut is None
    assert LBaaSState.from_json(json.loads(state)).members[0].ip == "10.1.0.0"


@pytest.mark.parametrize("count", [1, 2, 100, 400, 1000])
def test_state_stays_within_its_budget_and_says_what_is_left_out(count):
    state, cut = publication(found(count), SPEC)
    members = LBaaSState.from_json(json.loads(state)).members
    assert len(state) <= BUDGET
    if cut is None:
        assert len(members) == count
    else:
        assert cut == f"{len(members)} of {count}"
        assert len(state) > BUDGET - 500, "one more would have fitted"
    assert (cut is None) == (count <= 400)


def test_state_does_not_depend_on_the_order_in_which_octavia_answers():
    balancer = found(50)
    (pool,) = balancer.pools
    backwards = type(pool.pool)(
        name=pool.pool.name,
        protocol="TCP",
        lb_algorithm="x",
        members=tuple(reversed(pool.pool.members)),
    )
    other = FoundPool(
        id=pool.id, provisioning_status=ACTIVE, pool=backwards, member_ids=pool.member_ids
    )
    turned = {name: getattr(balancer, name) for name in FoundLoadBalancer.__slots__} | {
        "pools": (other,)
    }
    assert publication(FoundLoadBalancer(**turned), SPEC) == publication(balancer, SPEC)
