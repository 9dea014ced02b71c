"""When the daemon writes what is parked, and what it asks before it unplugs."""

import asyncio

import pytest

from kuryr_k8s import errors
from kuryr_k8s.cni.bindings import parking
from kuryr_k8s.cni.ovs.switch import PARKED, InterfaceRow
from kuryr_k8s.cni.patience import USUAL, Patience
from kuryr_k8s.k8s.resources import Key
from tests.kit.node.fakes import PoolApi, PoolCache, ovs_vif, pool_entry, pool_item
from tests.unit.cni.node import Node

KEY = Key("", "node1")
ONE, TWO = ovs_vif(1), ovs_vif(2)


class Plugged:
    """What is parked, in memory; it stands for Open vSwitch as well."""

    def __init__(self, attachments):
        self.connected = asyncio.Event()
        self.connected.set()
        self.ids = {}
        self.attachments = attachments

    def interfaces(self):
        return list(self.ids.values())

    def rows(self):
        return self.interfaces()

    def occupied(self, _port_id):
        return False

    async def mend(self):
        pass

    async def park(self, ports):
        for port_id in ports:
            ids = {PARKED: "true", "iface-id": port_id, "ovn-installed": "true"}
            self.ids[port_id] = InterfaceRow(port_id, port_id, ids, "")

    async def unpark(self, rows):
        for row in rows:
            del self.ids[row.iface_id]


@pytest.fixture
async def plugged():
    node = Node()
    node.attachments.settled.set()
    return Plugged(node.attachments)


def parking_of(plugged, patience=USUAL):
    cache = PoolCache()
    api = PoolApi(cache)
    attachments = plugged.attachments
    made = parking.Parking(
        cache,
        api,
        plugged,
        plugged,
        adds=attachments.adds,
        settled=attachments.settled,
        patience=patience,
    )
    return cache, api, made


async def test_two_changes_within_a_second_are_two_writes_a_second_apart(plugged):
    patience = Patience(status_interval=20.0)  # a second may pass on a busy machine meanwhile
    cache, api, made = parking_of(plugged, patience)
    cache.name({ONE: "keep"})
    await made.reconcile(KEY)  # parks
    await made.reconcile(KEY)  # tells
    assert api.patches == [{ONE.id: {}}]
    cache.name({ONE: "keep", TWO: "keep"}, parked=[ONE.id])
    await made.reconcile(KEY)
    delay = await made.reconcile(KEY)
    assert api.patches == [{ONE.id: {}}]
    assert 0 < delay <= patience.status_interval


async def test_what_has_come_and_gone_is_one_write(plugged):
    cache, api, made = parking_of(plugged)
    await plugged.park([ONE.id, TWO.id])
    cache.name({ONE: "keep", TWO: "keep"}, parked=["gone"])
    await made.reconcile(KEY)
    assert api.patches == [{ONE.id: {}, TWO.id: {}, "gone": None}]
    assert cache.get(KEY).parked == {ONE.id, TWO.id}


async def test_many_ports_are_parked_in_batches(plugged):
    cache, _api, made = parking_of(plugged)
    cache.name({ovs_vif(number): "keep" for number in range(1, 26)})
    for wanted in (parking.BATCH, 2 * parking.BATCH):
        assert await made.reconcile(KEY) == 0.0
        assert len(plugged.ids) == wanted
    await made.reconcile(KEY)
    assert len(plugged.ids) == 25


async def test_nothing_is_unplugged_because_a_cache_lacks_it(plugged):
    cache, api, made = parking_of(plugged)
    cache.name({ONE: "keep", TWO: "keep"})
    await made.reconcile(KEY)
    api.live = pool_item({vif.id: pool_entry(vif) for vif in (ONE, TWO)})
    cache.name({ONE: "keep"})
    await made.reconcile(KEY)
    assert plugged.ids.keys() == {ONE.id, TWO.id}
    cache.objects.clear()
    await made.reconcile(KEY)
    assert plugged.ids.keys() == {ONE.id, TWO.id}


async def test_pool_that_is_gone_for_good_leaves_nothing_parked(plugged):
    cache, _api, made = parking_of(plugged)
    cache.name({ONE: "keep"})
    await made.reconcile(KEY)
    cache.objects.clear()
    await made.reconcile(KEY)
    assert plugged.ids == {}


async def test_nothing_is_done_before_it_is_known_what_is_plugged(plugged):
    cache, _api, made = parking_of(plugged)
    cache.name({ONE: "keep"})
    plugged.connected.clear()
    with pytest.raises(errors.Wait):
        await made.reconcile(KEY)
    assert plugged.ids == {}
