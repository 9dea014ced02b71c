"""The view of a KuryrPortPool."""

from kuryr_k8s.model.kuryrportpool import KuryrPortPool, PoolPort, park_entry

META = {"name": "node1", "uid": "u1", "resourceVersion": "7"}


def test_port_that_is_written_is_read_again():
    entry = park_entry("FA:16:3E:00:00:01", ("10.0.0.5", "fd00::5"), 1442, "br-int")
    pool = KuryrPortPool.read({"metadata": META, "spec": {"ports": {"p1": entry}}})
    assert pool.ports == {
        "p1": PoolPort(
            mac="fa:16:3e:00:00:01",
            addresses=("10.0.0.5", "fd00::5"),
            mtu=1442,
            bridge="br-int",
            keep=True,
        )
    }
    assert (pool.name, pool.uid, pool.parked, pool.deleting) == ("node1", "u1", frozenset(), False)


def test_port_to_remove_is_not_kept():
    entry = park_entry("fa:16:3e:00:00:01", [], None, "br-int") | {"state": "remove"}
    pool = KuryrPortPool.read({"metadata": META, "spec": {"ports": {"p1": entry}}})
    assert not pool.ports["p1"].keep
    assert pool.ports["p1"].mtu == 0


def test_pool_without_spec_and_status_is_empty():
    pool = KuryrPortPool.read({"metadata": META | {"deletionTimestamp": "now"}})
    assert (pool.ports, pool.parked, pool.deleting) == ({}, frozenset(), True)


def test_ids_of_status_are_parked():
    item = {"metadata": META, "status": {"parked": {"p1": {}, "p2": {}}, "available": 2}}
    assert KuryrPortPool.read(item).parked == {"p1", "p2"}
