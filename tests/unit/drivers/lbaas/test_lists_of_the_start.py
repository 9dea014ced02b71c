"""What the lists of the start tell is no longer relied on where it is known to be old."""

import openstack
import pytest

from kuryr_k8s import errors
from kuryr_k8s.cloud.connect import ServiceAdapter
from kuryr_k8s.cloud.mark import ClusterMark
from kuryr_k8s.cloud.octavia import bodies
from kuryr_k8s.cloud.octavia.api import Octavia
from kuryr_k8s.cloud.transport import Transport
from kuryr_k8s.drivers.lbaas import ownership
from kuryr_k8s.drivers.lbaas.records import Records
from kuryr_k8s.drivers.lbaas.work import Gone, Work
from kuryr_k8s.model.owner import Owner, Role
from tests.kit.contexts import driver_context
from tests.kit.fakes import FakeCloud, answer
from tests.kit.fakes.octavia.kinds import LISTENER, POOL
from tests.kit.load_balancer_worker import furnish, wanted

OWNER = Owner("6f1c9a52-1111-4222-8333-444455556666")
GUEST = Owner("0e3b7d10-1111-4222-8333-444455556666", Role.SHARED)
MARK = ClusterMark("a-cluster")
TAGS = ("ours", MARK.tag)

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")


@pytest.fixture
async def cloud():
    async with FakeCloud() as cloud:
        furnish(cloud)
        yield cloud


@pytest.fixture
async def octavia(cloud):
    connection = openstack.connect(**cloud.connect_options())
    transport = Transport(ServiceAdapter(connection, "load_balancer"), limit=4)
    yield Octavia(transport)
    transport.close()
    connection.close()


@pytest.fixture
def records(cloud, octavia):
    context = driver_context(None, None, octavia)
    return Records(context, TAGS, MARK, {cloud.project_id}, lambda _owner: None)


@pytest.fixture
def work(octavia):
    context = driver_context(None, None, octavia)
    return Work(context, TAGS, lambda _owner: None, limit=1, longest=60.0)


@pytest.fixture
async def view(cloud, octavia, records):
    """What the lists tell of a load balancer with a port."""
    await create(cloud, octavia)
    await records.survey.require()
    return await records.own_view(OWNER)


async def create(cloud, octavia):
    """Make the owner's load balancer; its id."""
    desired = ownership.tagged(wanted(cloud, OWNER, ports=["http"], pods=1), OWNER, TAGS)
    return (await octavia.create_load_balancer(bodies.create_body(desired))).id


async def attach(cloud, octavia, load_balancer_id):
    """Give a guest a port in it."""
    desired = wanted(cloud, GUEST, ports=["dns"], pods=0)
    (listener,) = ownership.tagged(desired, GUEST, TAGS, shared=True).listeners
    await octavia.create_listener(bodies.listener_body(listener, load_balancer_id))


async def test_parts_of_a_guest_that_came_after_the_lists_are_seen_where_they_matter(
    cloud, octavia, work, view
):
    await attach(cloud, octavia, view.id)
    view.doubt()
    look = await work.look(view)
    assert look.fresh
    assert [each.listener.port for each in look.others.listeners] == [53]


async def test_what_a_second_list_shows_to_be_changed_is_read_anew(
    cloud, octavia, records, work, view
):
    (listener_id,) = cloud.octavia.store.of(LISTENER)
    await octavia.delete_listener(listener_id)
    await records.list_all()
    assert (await work.look(view)).own.listeners == ()


async def test_what_a_second_list_shows_unchanged_costs_no_read(cloud, records, work, view):
    await records.list_all()
    assert not (await work.look(view)).fresh


async def test_part_that_went_after_the_lists_does_not_pass_for_the_load_balancer(
    cloud, octavia, work, view
):
    (pool_id,) = cloud.octavia.store.of(POOL)
    await octavia.delete_pool(pool_id)
    look = await work.look(view)
    assert look.fresh
    assert [each.listener.port for each in look.own.listeners] == [80]
    assert look.own.pools == ()
    cloud.octavia.remove(view.id)
    view.doubt()
    with pytest.raises(Gone):
        await work.look(view)


async def test_part_that_goes_while_its_load_balancer_is_read_does_not_pass_for_that_either(
    cloud, work, view
):
    view.doubt()
    cloud.faults.add(method="GET", path="/members$", action=answer(404))
    with pytest.raises(errors.CloudError, match="has changed while it was read"):
        await work.look(view)
    assert (await work.look(view)).own.id == view.id


async def test_load_balancer_that_went_between_two_attempts_at_a_later_list_stays_forgotten(
    cloud, octavia, records, view
):
    cloud.faults.add(method="GET", path="/lbaas/pools$", action=answer(503))
    with pytest.raises(errors.CloudError):
        await records.list_all()
    await octavia.delete_load_balancer(view.id)
    records.released(OWNER)
    await records.list_all()
    assert await records.own_view(OWNER) is None


async def test_second_load_balancer_is_none_if_the_first_went_after_the_lists(
    cloud, octavia, records
):
    oldest, second = await create(cloud, octavia), await create(cloud, octavia)
    cloud.load_balancers[oldest]["created_at"] = "2020-01-01T00:00:00"
    await records.survey.require()
    await octavia.delete_load_balancer(oldest)
    view = await records.own_view(OWNER)
    assert view.id == second
    assert not view.duplicates


async def test_second_load_balancer_is_one_if_octavia_still_says_so(cloud, octavia, records):
    oldest, second = await create(cloud, octavia), await create(cloud, octavia)
    cloud.load_balancers[oldest]["created_at"] = "2020-01-01T00:00:00"
    await records.survey.require()
    view = await records.own_view(OWNER)
    assert view.id == oldest
    assert view.duplicates == {second}
