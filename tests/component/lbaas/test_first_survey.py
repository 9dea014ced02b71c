"""The first survey of Octavia after a start ends, however slow or faulty Octavia is."""

import pytest

from kuryr_k8s.model.owner import Owner
from tests.component.lbaas.octavia_calls import calls
from tests.kit.fakes.faults import Answer, delay
from tests.kit.load_balancer_worker import wanted

OWNERS = [Owner(f"0e3b7d1{number}-1111-4222-8333-444455556666") for number in range(5)]
LISTS = "/lbaas/(loadbalancers|listeners|pools)$"
SLOW = 0.1  # seconds that a page takes
DEADLINE = 0.6  # seconds of a reconcile, for 120; the lists take more


@pytest.fixture
async def made(make_worker, cloud):
    """Load balancers of an earlier life, and a server that lists two objects at a time."""
    async with make_worker() as worker:
        for owner in OWNERS:
            worker.want(owner, wanted(cloud, owner, pods=1))
        for owner in OWNERS:
            await worker.done(owner)
    cloud.limit_pages(2)
    cloud.calls.clear()
    return {balancer["name"]: each for each, balancer in cloud.load_balancers.items()}


def _of_survey(request):
    """Neither a list of one load balancer's parts, nor one of a sweep or a watch."""
    query = request.query
    return "fields" not in query and ("project_id" in query or "tags" in query)


class Pages:
    """Answers to pages of lists, each noted by its path and marker.

    :param spoil: gets the number of the request; raises, or does not.
    """

    def __init__(self, cloud, spoil):
        self.answered = []
        self._spoil = spoil
        self._requests = 0
        cloud.faults.add(method="GET", path=LISTS, when=_of_survey, times=None, action=self)

    async def __call__(self, request, proceed):
        self._requests += 1
        self._spoil(self._requests, request)
        response = await delay(SLOW)(request, proceed)
        if "id" not in request.query:  # the question whether a marker exists
            marker, tags = (request.query.get(name) for name in ("marker", "tags"))
            self.answered.append((request.path, marker, tags))
        return response


def slow(_number, _request):
    """Only slow."""


def faulty(number, _request):
    """Every other page fails."""
    if number % 2:
        raise Answer(503)


def small(_number, request):
    """A page of more than two objects never comes, so a proxy gives up."""
    if int(request.query["limit"]) > 2:
        raise Answer(504)


@pytest.mark.parametrize("spoil", [slow, faulty, small])
async def test_survey_that_outlasts_every_reconcile_ends_and_reads_no_page_twice(
    make_worker, cloud, made, spoil
):
    pages = Pages(cloud, spoil)
    async with make_worker(deadline=DEADLINE) as worker:
        for owner in OWNERS:
            worker.want(owner, wanted(cloud, owner, pods=1))
        for owner in OWNERS:
            await worker.done(owner)
        assert len(pages.answered) * SLOW / 2 > DEADLINE, "two lists at a time"
    assert len(pages.answered) == len(set(pages.answered))
    assert calls(cloud, writes=True) == []
    assert {each["name"]: key for key, each in cloud.load_balancers.items()} == made


async def test_survey_goes_on_though_what_its_next_page_follows_is_deleted(
    make_worker, cloud, made
):
    gone = []

    def remove(_number, request):
        marker = request.query.get("marker")
        if request.path.endswith("/loadbalancers") and marker and len(gone) < 2:
            gone.append(cloud.load_balancers[marker]["name"])
            cloud.octavia.remove(marker)

    Pages(cloud, remove)
    async with make_worker(deadline=DEADLINE) as worker:
        for owner in OWNERS:
            worker.want(owner, wanted(cloud, owner, pods=1))
        for owner in OWNERS:
            await worker.done(owner)
    assert len(gone) == 2
    now = {each["name"]: key for key, each in cloud.load_balancers.items()}
    assert now.keys() == made.keys()
    assert {name for name, key in now.items() if made[name] != key} == set(gone)
