"""Which interfaces of a KuryrPort follow the security groups of their Pod."""

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
