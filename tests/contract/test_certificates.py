"""Certificates in Barbican, and those of CAs, as our client stores and Octavia reads them."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator

import pytest

from kuryr_k8s import errors
from kuryr_k8s.cloud.barbican.api import Barbican
from kuryr_k8s.cloud.connect import ServiceAdapter
from kuryr_k8s.cloud.mark import ClusterMark
from kuryr_k8s.cloud.octavia import bodies
from kuryr_k8s.cloud.octavia.api import Octavia as Client
from kuryr_k8s.cloud.transport import Transport
from kuryr_k8s.drivers.l7.certificates import StoredCertificates
from kuryr_k8s.drivers.lbaas.outcomes import is_told, outcome_of
from kuryr_k8s.drivers.lbaas.steps import (
    CreateListener,
    CreateLoadBalancer,
    CreatePool,
    DeleteListener,
    DeletePolicy,
    DeletePool,
    Pending,
    UpdateListener,
    UpdatePool,
    take,
)
from kuryr_k8s.engine.clock import CLOCK
from kuryr_k8s.model.authority import Authority, read_authority
from kuryr_k8s.model.certificate import LONGEST, Certificate, read_certificate
from kuryr_k8s.model.load_balancer import (
    TERMINATED_HTTPS,
    FoundLoadBalancer,
    L7Policy,
    L7Rule,
    Listener,
    LoadBalancer,
    Pool,
)
from kuryr_k8s.patience import PATIENCE
from tests.kit.lbaas.plans import next_step
from tests.kit.tls import make_authority, make_pair, pem_of

from .balancers import POOLS, Octavia, in_no_order, make, statuses, with_l7
from .sides import Side


@pytest.fixture
async def barbican(side: Side) -> AsyncIterator[Barbican]:
    """Our client; what it stores with the side's mark is removed."""
    transport = Transport(ServiceAdapter(side.kuryr.connection, "key_manager"), limit=2)
    client = Barbican(transport)
    yield client
    for secret in await client.list_secrets():
        if side.mark in secret.name:
            await client.delete(secret.ref)
    transport.close()


@pytest.fixture
def certificates(side: Side, barbican: Barbican) -> StoredCertificates:
    """What the driver of routers has, of a cluster of its own."""
    return with_mark(barbican, side)


def with_mark(barbican: Barbican, side: Side) -> StoredCertificates:
    return StoredCertificates(barbican, f"{ClusterMark(side.mark).tag}:", CLOCK, PATIENCE)


def certificate(source: str, *names: str) -> Certificate:
    return read_certificate(source, *make_pair(*names))


async def names_of(barbican: Barbican, side: Side) -> list[str]:
    return [each.name for each in await barbican.list_secrets() if side.mark in each.name]


async def test_certificate_is_stored_once_found_again_and_deleted(
    side: Side, barbican: Barbican, certificates: StoredCertificates
) -> None:
    one = certificate("one", "a.com")
    stored = await certificates.store([one])
    assert stored.problem is None
    [name] = await names_of(barbican, side)
    assert name.startswith(f"kuryr-cluster:{side.mark}:one:")
    assert name.endswith(f":{one.digest}")
    again = with_mark(barbican, side)
    assert await again.store([one]) == stored
    await again.delete_unused(stored.refs.values())
    assert len(await names_of(barbican, side)) == 1
    await again.delete_unused(())
    assert await names_of(barbican, side) == []
    await barbican.delete(stored.refs["one"])  # it is gone: that is no error


async def test_secret_of_the_most_bytes_that_certificates_may_have_is_taken_and_no_larger_one(
    side: Side, barbican: Barbican
) -> None:
    await barbican.store(f"{side.mark} largest", b"\x01" * LONGEST)
    with pytest.raises(errors.BadRequest, match="larger than"):
        await barbican.store(f"{side.mark} too large", b"\x01" * (LONGEST + 3))


async def test_all_pages_are_listed(side: Side, barbican: Barbican) -> None:
    for number in range(103):
        await barbican.store(f"{side.mark} {number}", b"x")
    assert len(await names_of(barbican, side)) == 103


async def test_other_projects_do_not_see_it(side: Side, certificates: StoredCertificates) -> None:
    await certificates.store([certificate("one", "a.com")])
    transport = Transport(ServiceAdapter(side.stranger.connection, "key_manager"), limit=1)
    assert not [
        each for each in await Barbican(transport).list_secrets() if side.mark in each.name
    ]
    transport.close()


POOL = Pool(name="other", protocol="HTTP", lb_algorithm="ROUND_ROBIN")


def balancer(side: Side, subnet_id: str, *refs: str) -> LoadBalancer:
    listener = Listener(
        name="https",
        protocol=TERMINATED_HTTPS,
        port=443,
        pool="",
        default_tls_container_ref=refs[0] if refs else None,
        sni_container_refs=refs[1:],
    )
    return with_l7(side, subnet_id, *([listener] if refs else []))


async def take_next(
    octavia: Octavia, client: Client, desired: LoadBalancer, found: FoundLoadBalancer, kind: type
) -> FoundLoadBalancer:
    """Take the next step, which must be of this kind and succeed.

    If it is one of those, what it has made is known without a whole read.
    """
    step = next_step(desired, found)
    assert isinstance(step, kind)
    assert not isinstance(step, CreateLoadBalancer | Pending)
    made = await take(client, step)
    assert statuses(await octavia.settled(found.id)) == {"ACTIVE"}
    now = await client.read(found.id)
    if is_told(step) and not isinstance(step, DeletePool):  # which may take longer than that
        tree = await client.status_tree(found.id)
        told = await outcome_of(client, found, step, made or "", tree)
        assert told is not None
        # Octavia changes that one later, by itself
        told = dataclasses.replace(told, operating_status=now.operating_status)
        assert in_no_order(told) == in_no_order(now)
    return now


async def test_listener_gets_changes_and_loses_certificates(
    side: Side,
    octavia: Octavia,
    subnet: str,
    client: Client,
    certificates: StoredCertificates,
) -> None:
    one, two = certificate("one", "a.com"), certificate("two", "b.com")
    refs = (await certificates.store([one, two])).refs
    balancer_id = await make(octavia, client, balancer(side, subnet))
    found = await client.read(balancer_id)
    desired = balancer(side, subnet, refs["one"], refs["two"])
    found = await take_next(octavia, client, desired, found, CreateListener)
    assert next_step(desired, found) is None
    renewed = dataclasses.replace(certificate("one", "a.com"), source="one")
    later = (await certificates.store([renewed, two])).refs
    desired = balancer(side, subnet, later["one"], later["two"])
    found = await take_next(octavia, client, desired, found, UpdateListener)
    assert next_step(desired, found) is None
    await certificates.delete_unused(later.values())
    desired = balancer(side, subnet, later["two"])
    found = await take_next(octavia, client, desired, found, UpdateListener)
    await certificates.delete_unused([later["two"]])
    found = await take_next(octavia, client, balancer(side, subnet), found, DeleteListener)
    await certificates.delete_unused(())


async def test_listener_whose_certificate_barbican_has_lost_is_mended_by_another_one(
    side: Side, octavia: Octavia, subnet: str, client: Client, certificates: StoredCertificates
) -> None:
    one = certificate("one", "a.com")
    refs = (await certificates.store([one])).refs
    balancer_id = await make(octavia, client, balancer(side, subnet, refs["one"]))
    await certificates.delete_unused(())
    found = await client.read(balancer_id)
    [listener] = found.listeners
    later = (await certificates.store([one])).refs
    # any other change would come to no end in a real Octavia
    more = dataclasses.replace(balancer(side, subnet, later["one"]), pools=(POOL,))
    found = await take_next(octavia, client, more, found, UpdateListener)
    assert found.listeners[0].id == listener.id
    await take_next(octavia, client, more, found, CreatePool)


SECURE = dataclasses.replace(POOL, name="secure", tls_enabled=True)


def authority(source: str, count: int = 1) -> Authority:
    """So many CAs, for pools."""
    return read_authority(source, pem_of(*(make_authority()[0] for _ in range(count))), "its CA")


def balancer_over_tls(side: Side, subnet_id: str, *refs: str | None) -> LoadBalancer:
    """A listener, and a pool over TLS with each of these CAs, to which its policies lead."""
    pools = tuple(
        dataclasses.replace(SECURE, name=f"secure {number}", ca_tls_container_ref=ref)
        for number, ref in enumerate(refs)
    )
    policies = tuple(
        L7Policy(
            action="REDIRECT_TO_POOL",
            rules=(L7Rule("PATH", "STARTS_WITH", f"/{number}"),),
            redirect_pool=pool.name,
        )
        for number, pool in enumerate(pools)
    )
    listener = Listener(name="http", protocol="HTTP", port=80, pool="", policies=policies)
    return with_l7(side, subnet_id, listener, pools=pools)


async def test_pool_gets_a_ca_and_another_one_and_loses_it(
    side: Side, octavia: Octavia, subnet: str, client: Client, certificates: StoredCertificates
) -> None:
    first = (await certificates.store([authority("pods")])).refs["pods"]
    several = authority("pods", count=3)
    balancer_id = await make(octavia, client, balancer_over_tls(side, subnet, first, None))
    found = await client.read(balancer_id)
    assert [each.pool.tls_enabled for each in found.pools] == [True, True]
    assert {each.pool.ca_tls_container_ref for each in found.pools} == {first, None}
    assert next_step(balancer_over_tls(side, subnet, first, None), found) is None
    second = (await certificates.store([several])).refs["pods"]
    desired = balancer_over_tls(side, subnet, second, None)
    found = await take_next(octavia, client, desired, found, UpdatePool)
    await certificates.delete_unused([second])
    assert next_step(desired, found) is None
    desired = balancer_over_tls(side, subnet, None, None)
    found = await take_next(octavia, client, desired, found, UpdatePool)
    await certificates.delete_unused(())
    assert next_step(desired, found) is None
    plain = dataclasses.replace(desired.pools[0], tls_enabled=False)
    desired = dataclasses.replace(desired, pools=(plain, desired.pools[1]))
    found = await take_next(octavia, client, desired, found, UpdatePool)
    assert next_step(desired, found) is None


async def test_pool_whose_ca_barbican_has_lost_is_mended_by_another_one_and_deleted_after_it(
    side: Side, octavia: Octavia, subnet: str, client: Client, certificates: StoredCertificates
) -> None:
    pods = authority("pods")
    refs = (await certificates.store([pods])).refs
    desired = balancer_over_tls(side, subnet, refs["pods"])
    balancer_id = await make(octavia, client, desired)
    await certificates.delete_unused(())
    found = await client.read(balancer_id)
    later = (await certificates.store([pods])).refs["pods"]
    # any other change would come to no end in a real Octavia
    more = balancer_over_tls(side, subnet, later)
    more = dataclasses.replace(more, pools=(*more.pools, POOL))
    found = await take_next(octavia, client, more, found, UpdatePool)
    found = await take_next(octavia, client, more, found, CreatePool)
    less = with_l7(side, subnet, dataclasses.replace(more.listeners[0], policies=()))
    found = await take_next(octavia, client, less, found, DeletePolicy)
    found = await take_next(octavia, client, less, found, DeletePool)
    await certificates.delete_unused(())


async def test_ca_that_cannot_be_had_or_is_none_is_refused_in_words(
    side: Side, octavia: Octavia, subnet: str, client: Client, barbican: Barbican
) -> None:
    lost = await barbican.store(f"{side.mark} lost", pem_of(make_authority()[0]))
    await barbican.delete(lost.ref)
    garbage = await barbican.store(f"{side.mark} garbage", b"no pem")
    good = await barbican.store(f"{side.mark} good", pem_of(make_authority()[0]))
    balancer_id = await make(octavia, client, balancer_over_tls(side, subnet, good.ref))
    [pool] = (await client.read(balancer_id)).pools
    for ref, words in (
        (lost.ref, f"Could not retrieve certificate: ['{lost.ref}']"),
        (
            garbage.ref,
            "Validation failure: The client authentication CA certificate is invalid. It must be"
            " a valid x509 PEM format certificate. Error: ",
        ),
    ):
        changed = dataclasses.replace(pool.pool, ca_tls_container_ref=ref)
        new = bodies.pool_body(changed, load_balancer_id=balancer_id)
        for reply in (
            await octavia.put(f"{POOLS}/{pool.id}", {"pool": bodies.pool_changes(changed)}),
            await octavia.post(POOLS, {"pool": new}),
        ):
            assert reply.status == 400
            assert reply.body["faultstring"].startswith(words)
    assert statuses(await octavia.settled(balancer_id)) == {"ACTIVE"}
