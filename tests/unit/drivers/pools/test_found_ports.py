"""Ports that pools find in lists: ghosts of deleted ones, and those whose answers were lost."""

import dataclasses

import pytest

from kuryr_k8s.drivers.base import Holder
from tests.kit.pools.ports import KEY
from tests.kit.pools.site import Site


@pytest.fixture
async def site(tmp_path):
    site = Site(tmp_path, ports_pool_min=1)
    await site.recover()
    return site


@pytest.mark.parametrize("is_known", [True, False], ids=["listed before", "made meanwhile"])
async def test_port_deleted_during_a_long_list_is_given_to_no_pod(site, is_known):
    before = site.pool.known()
    await site.request("first", "node1")
    await site.work()
    known = site.pool.known() if is_known else before
    listed = site.cloud.shown(site.cloud.ports.values())
    (view,) = site.pool.pools()
    site.pool.free(view.key, None)
    site.pool.close_node("node1")
    await site.pool.release_unrecorded("first")
    await site.pass_time(301)
    assert not site.cloud.ports
    await site.survey(known, listed)
    await site.request("second", "node1")
    await site.pass_time(2)
    assert await site.request("second", "node1") in site.cloud.ports


async def doubtful_site(tmp_path, **options):
    """A site whose node may have a Pod that an earlier leader still gives a port."""
    site = Site(tmp_path, **options)
    site.add_node("node1")
    await site.survey(frozenset(), [], doubtful=frozenset({"node1"}))
    site.cloud.loses = True
    return site


@pytest.mark.parametrize("minimum", [0, 3])
async def test_lost_answers_at_a_doubtful_place_make_no_more_ports_than_wanted(tmp_path, minimum):
    site = await doubtful_site(tmp_path, ports_pool_min=minimum)
    assert await site.request("first", "node1") is None
    await site.pass_time(300)
    assert len(site.cloud.ports) == 1 + minimum


async def test_ports_made_unnoticed_are_given_to_pods_when_the_doubt_ends(tmp_path):
    site = await doubtful_site(tmp_path)
    surveys = []
    site.pool.on_lost(lambda: surveys.append("asked for"))
    await site.request("first", "node1")
    await site.pass_time(60)
    assert await site.request("first", "node1") is None
    assert surveys == ["asked for"]
    await site.survey(site.pool.known(), site.cloud.shown(site.cloud.ports.values()))
    await site.pass_time(1)
    assert await site.request("first", "node1") in site.cloud.ports
    assert len(site.cloud.ports) == 1


async def test_port_made_unnoticed_stays_the_pods_to_which_an_earlier_leader_gave_it(tmp_path):
    site = await doubtful_site(tmp_path)
    await site.request("first", "node1")
    await site.pass_time(60)
    (theirs,) = site.cloud.ports
    site.cloud.loses = False
    holder = Holder("other", "default/other")
    listed = site.cloud.shown(site.cloud.ports.values())
    await site.survey(
        site.pool.known(), listed, claims={theirs: [holder]}, pods={"other": holder.pod}
    )
    await site.pass_time(60)
    assert await site.request("first", "node1") in site.cloud.ports.keys() - {theirs}


WEB = Holder("web", "default/web")


async def site_after_a_start(tmp_path, *, named=None, lies=False):
    """A controller that starts where two ports name a Pod; its KuryrPort names this one of them.

    :param lies: the port that the KuryrPort names is another Pod's by its own word.
    """
    site = Site(tmp_path)
    site.add_node("node1")
    for port_id in (site.cloud.make(KEY).id, site.cloud.make(KEY).id):
        device = "another" if lies and port_id == named else WEB.pod_uid
        port = site.cloud.ports[port_id]
        site.cloud.ports[port_id] = dataclasses.replace(port, name=WEB.pod, device_id=device)
    claims = {named: [WEB]} if named else {}

    async def survey():
        known, ports = site.pool.known(), site.cloud.shown(site.cloud.ports.values())
        await site.survey(known, ports, claims=claims, pods={WEB.pod_uid: WEB.pod})

    await survey()
    await site.pass_time(121)
    return site, survey


async def test_port_that_names_a_pod_with_another_port_comes_back_after_two_surveys(tmp_path):
    site, survey = await site_after_a_start(tmp_path, named="port1")
    await survey()
    assert dict(site.phases(KEY)) == {"port0": "in_use", "port1": "in_use"}
    await survey()
    await site.pass_time(60)
    assert dict(site.phases(KEY)) == {"port0": "available", "port1": "in_use"}
    assert await site.request("other", "node1") == "port0"


@pytest.mark.parametrize(
    "case", [{}, {"named": "port1", "lies": True}], ids=["names none yet", "names another's"]
)
async def test_port_stays_the_pods_that_it_names_while_the_kuryrport_is_no_evidence(
    tmp_path, case
):
    site, survey = await site_after_a_start(tmp_path, **case)
    for _ in range(3):
        await survey()
        await site.pass_time(121)
    assert dict(site.phases(KEY))["port0"] == "in_use"


async def test_port_that_was_set_aside_comes_back_while_its_pod_lives_on(tmp_path):
    """The Pod's subnet is another one by now, and it has another port."""
    site = Site(tmp_path)
    await site.recover()
    await site.request(WEB.pod_uid, "node1")
    await site.work()
    assert await site.request(WEB.pod_uid, "node1") == "port0"
    assert await site.request(WEB.pod_uid, "node1", subnets=("other",)) is None
    await site.work()
    assert await site.request(WEB.pod_uid, "node1", subnets=("other",)) == "port1"
    for _ in range(2):
        await site.pass_time(121)
        listed = site.cloud.shown(site.cloud.ports.values())
        records = {"claims": {"port1": [WEB]}, "pods": {WEB.pod_uid: WEB.pod}}
        await site.survey(site.pool.known(), listed, **records)
    await site.pass_time(60)
    assert dict(site.phases(KEY)) == {"port0": "available"}


@pytest.mark.parametrize("unplugged", [True, False])
async def test_port_comes_back_at_once_if_its_pod_was_unplugged_before_its_kuryrport_went(
    tmp_path, unplugged
):
    """An earlier leader's request, which removed the last finalizer, arrived late."""
    site = Site(tmp_path)
    site.add_node("node1")
    theirs = site.cloud.make(KEY).id
    uids = frozenset({WEB.pod_uid})
    going = {"pods": {WEB.pod_uid: WEB.pod}, "claims": {theirs: [WEB]}, "leaving": uids}
    listed = site.cloud.shown(site.cloud.ports.values())
    await site.survey(frozenset(), listed, **going, unplugged=uids if unplugged else frozenset())
    await site.survey(site.pool.known(), listed)
    await site.pass_time(60)
    assert site.phases(KEY) == [(theirs, "available" if unplugged else "in_use")]


async def test_port_that_is_given_again_after_its_pod_was_unplugged_is_not_taken_back(tmp_path):
    """Its Pod's KuryrPort was deleted by hand, and the next one came during a survey."""
    site = Site(tmp_path)
    await site.recover()
    await site.request(WEB.pod_uid, "node1")
    await site.work()
    theirs = await site.request(WEB.pod_uid, "node1")
    listed = site.cloud.shown(site.cloud.ports.values())
    uids = frozenset({WEB.pod_uid})
    going = {"pods": {WEB.pod_uid: WEB.pod}, "claims": {theirs: [WEB]}, "leaving": uids}
    await site.survey(site.pool.known(), listed, **going, unplugged=uids)
    assert await site.request(WEB.pod_uid, "node1") == theirs
    await site.survey(site.pool.known(), listed)  # the new KuryrPort came after the list
    await site.pass_time(60)
    assert dict(site.phases(KEY)) == {theirs: "in_use"}


async def lose_a_creation(site, pod):
    """Have a port made for the Pod whose creation is not answered."""
    site.cloud.loses = True
    assert await site.request(pod, "node1") is None
    await site.work()
    site.cloud.loses = False


async def test_port_deleted_during_a_long_search_is_given_to_no_pod(site):
    await site.request("first", "node1")
    await site.pass_time(2)
    (available,) = [port_id for port_id, phase in site.phases(KEY) if phase == "available"]
    list_ports = site.cloud.list_ports

    async def list_slowly(query):
        listed = await list_ports(query)
        site.pool.free(KEY, None)
        await site.pass_time(310)
        return listed

    site.pool.populate(KEY, 1)
    site.cloud.loses = True
    await site.pass_time(0.5)
    site.cloud.loses, site.cloud.list_ports = False, list_slowly
    await site.pass_time(2)
    site.cloud.list_ports = list_ports
    assert available not in site.cloud.ports
    assert available not in dict(site.phases(KEY))


async def test_search_takes_in_no_port_that_was_missing_when_pools_recovered_and_is_a_pods(
    tmp_path,
):
    """A replica of Neutron's database may lag behind."""
    site = Site(tmp_path)
    site.add_node("node1")
    theirs = site.cloud.make(KEY).id
    records = {"claims": {theirs: [WEB]}, "pods": {WEB.pod_uid: WEB.pod}}
    await site.survey(frozenset(), [], **records)
    await lose_a_creation(site, "other")
    await site.pass_time(60)
    assert await site.request("other", "node1") in site.cloud.ports.keys() - {theirs}
    assert theirs not in dict(site.phases(KEY))


async def test_search_takes_in_no_port_of_a_pod_that_neutron_did_not_show_for_a_while(site):
    await site.request(WEB.pod_uid, "node1")
    await site.work()
    theirs = await site.request(WEB.pod_uid, "node1")
    hidden = site.cloud.ports.pop(theirs)
    known, listed = site.pool.known(), site.cloud.shown(site.cloud.ports.values())
    await site.survey(known, listed, claims={theirs: [WEB]}, pods={WEB.pod_uid: WEB.pod})
    site.cloud.ports[theirs] = hidden
    await site.pass_time(301)
    site.pool.free(KEY, None)
    await lose_a_creation(site, "other")
    await site.pass_time(60)
    assert await site.request("other", "node1") in site.cloud.ports.keys() - {theirs}
    assert theirs not in dict(site.phases(KEY))
