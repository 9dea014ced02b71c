"""What a KuryrPort names, and which of its interfaces follow the groups of their Pod."""

import copy

import pytest

from kuryr_k8s.model.codec import DecodeError
from kuryr_k8s.model.kuryrport import KuryrPort, write_vifs
from tests.kit.node.fakes import ovs_vif

VIFS = {"a0": ovs_vif(2), "eth0": ovs_vif(1), "own0": ovs_vif(3)}


def recorded(vifs):
    meta = {"namespace": "default", "name": "web", "uid": "kp", "resourceVersion": "1"}
    spec = {"podUid": "u1", "podNodeName": "node1"}
    return KuryrPort.read({"metadata": meta, "spec": spec, "status": {"vifs": vifs}})


def test_interfaces_follow_except_those_with_groups_of_their_own_the_default_one_first():
    port = recorded(write_vifs(VIFS, own_groups={"own0"}))
    assert port.following() == [ovs_vif(1), ovs_vif(2)]
    assert port.vifs() == VIFS


def test_all_interfaces_follow_that_kuryr_kubernetes_has_written():
    entries = {name: {"default": name == "eth0", "vif": VIFS[name].to_json()} for name in VIFS}
    assert recorded(entries).following() == [ovs_vif(1), ovs_vif(2), ovs_vif(3)]
    assert write_vifs(VIFS) == entries


def test_no_interface_follows_before_there_is_one():
    assert recorded(None).following() == []


OTHERS = "11111111-2222-4333-8444-555555555555"  # somebody's port


def with_active(value):
    """Return an interface, and it with something that its node wrote into ``active``."""
    before = write_vifs({"eth0": ovs_vif(1)})
    after = copy.deepcopy(before)
    after["eth0"]["vif"]["versioned_object.data"]["active"] = value
    return recorded(before), recorded(after)


@pytest.mark.parametrize("value", [OTHERS, {"id": OTHERS}, [OTHERS]], ids=["str", "dict", "list"])
def test_nothing_but_a_bool_in_active_is_the_nodes(value):
    granted, written = with_active(value)
    assert written.vifs_granted != granted.vifs_granted
    assert OTHERS not in written.uuids()
    assert not written.may_name(OTHERS)


@pytest.mark.parametrize("value", [True, False])
def test_node_may_say_whether_an_interface_is_active(value):
    granted, written = with_active(value)
    assert written.vifs_granted == granted.vifs_granted


def test_ports_that_are_named_are_those_of_the_interfaces():
    port = recorded(write_vifs(VIFS))
    assert port.uuids() == {vif.id for vif in VIFS.values()}
    assert port.may_name(ovs_vif(3).id)
    network = ovs_vif(1).network.id
    assert network not in port.uuids()
    assert not port.may_name(network)


UNREADABLE = [
    {"versioned_object.name": "VIFOfAnotherKind", "versioned_object.data": {"id": OTHERS}},
    {"versioned_object.data": OTHERS},
    ovs_vif(1).to_json() | {"versioned_object.version": 1, "port": OTHERS},
    write_vifs({"eth0": ovs_vif(1)})["eth0"]["vif"]
    | {"versioned_object.data": {"id": [OTHERS], "vif_name": "a", "bridge_name": "b"}},
]


@pytest.mark.parametrize("vif", UNREADABLE, ids=["kind", "data", "version", "id"])
def test_interface_that_is_unreadable_may_name_any_port_that_it_mentions(vif):
    port = recorded(write_vifs({"eth0": ovs_vif(2)}) | {"eth1": {"vif": vif}})
    assert {OTHERS, ovs_vif(2).id} <= port.uuids()
    assert port.may_name(OTHERS)


def test_kuryrport_without_interfaces_names_nothing():
    assert recorded(None).uuids() == set()
    assert not recorded(None).may_name(OTHERS)


@pytest.mark.parametrize("levels", [60, 180, 450, *range(950, 1000, 3), 3000])
def test_an_interface_that_is_nested_too_deeply_is_unreadable(levels):
    junk = None
    for _ in range(levels):
        junk = [junk]
    entry = write_vifs({"eth0": ovs_vif(1)})["eth0"]
    entry["vif"]["versioned_object.data"]["network"] = junk
    port = recorded({"eth0": entry, **write_vifs({"own0": ovs_vif(3)})})
    with pytest.raises(DecodeError):
        port.vifs()
    assert port.uuids() == {ovs_vif(3).id}


def places(value, path=()):
    yield path
    inside = dict(enumerate(value)) if isinstance(value, list) else value
    for key, inner in inside.items() if isinstance(inside, dict) else ():
        yield from places(inner, (*path, key))


@pytest.mark.parametrize("path", list(places(write_vifs({"eth0": ovs_vif(1)})))[1:], ids=str)
def test_null_anywhere_is_read_or_unreadable(path):
    vifs = write_vifs({"eth0": ovs_vif(1)})
    place = vifs
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = None
    port = recorded(vifs)
    port.uuids()
    port.may_name(OTHERS)
    try:
        port.following()
    except DecodeError:
        return
    assert set(port.vifs()) == {"eth0"}
