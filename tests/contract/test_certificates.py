"""Certificates in Barbican, as our client stores them and Octavia reads them."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator

import pytest

from kuryr_k8s import errors
from kuryr_k8s.cloud.barbican.api import Barbican
from kuryr_k8s.cloud.connect import ServiceAdapter
from kuryr_k8s.cloud.mark import ClusterMark
from kuryr_k8s.cloud.octavia.api import Octavia as Client
from kuryr_k8s.cloud.transport import Transport
from kuryr_k8s.drivers.l7.certificates import StoredCertificates
from kuryr_k8s.drivers.lbaas.steps import (
    CreateListener,
    CreatePool,
    DeleteListener,
    UpdateListener,
    take,
)
from kuryr_k8s.engine.clock import CLOCK
from kuryr_k8s.model.certificate import LONGEST, Certificate, read_certificate
from kuryr_k8s.model.load_balancer import (
    TERMINATED_HTTPS,
    FoundLoadBalancer,
    Listener,
    LoadBalancer,
    Pool,
)
from tests.kit.lbaas.plans import next_step
from tests.kit.tls import make_pair

from .balancers import Octavia, make, statuses, with_l7
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
    return StoredCertificates(barbican, f"{ClusterMark(side.mark).tag}:", CLOCK, pause=1.0)


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
    assert name == f"kuryr-cluster:{side.mark}:one:{one.digest}"
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
    with pytest.raises(errors.OverQuota):
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
    """Take the next step, which must be of this kind and succeed."""
    step = next_step(desired, found)
    assert isinstance(step, kind)
    await take(client, step)
    assert statuses(await octavia.settled(found.id)) == {"ACTIVE"}
    return await client.read(found.id)


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
