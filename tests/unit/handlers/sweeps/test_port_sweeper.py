"""Which ports of the cluster nobody names: those go."""

import pytest

from kuryr_k8s.handlers.pods.sweep import is_ours, nameless
from kuryr_k8s.model.kuryrport import KuryrPort, write_vifs
from tests.kit.node.fakes import ovs_vif


def port(number, pod_uid="u1"):
    return {"id": ovs_vif(number).id, "device_id": pod_uid, "name": "default/web", "tags": []}


def kuryrport(vifs, pod_uid="u1"):
    meta = {"namespace": "default", "name": "web", "uid": "kp", "resourceVersion": "1"}
    spec = {"podUid": pod_uid, "podNodeName": "node1"}
    return KuryrPort.read({"metadata": meta, "spec": spec, "status": {"vifs": vifs}})


JUNK = {"eth0": {"vif": {"versioned_object.name": "Junk"}}}
BOTH = write_vifs({"eth0": ovs_vif(1), "net1": ovs_vif(2)})


@pytest.mark.parametrize(
    ("recorded", "found"),
    [
        ([], [1, 2, 3]),
        ([kuryrport(BOTH, pod_uid="another")], [1, 2, 3]),
        ([kuryrport(BOTH)], [3]),
        ([kuryrport(None)], []),
        ([kuryrport(JUNK)], []),
    ],
    ids=["no KuryrPort", "another Pod's", "two interfaces", "none yet", "nobody can read them"],
)
def test_port_is_nameless_if_the_kuryrport_of_its_pod_names_others(recorded, found):
    ports = [port(1), port(2), port(3)]
    assert nameless(ports, recorded) == [port(number) for number in found]


def test_port_on_a_trunk_is_its_pods_by_its_description():
    nested = port(3, pod_uid="") | {"description": "kuryr-pod:u1", "device_owner": ""}
    assert is_ours(nested)
    assert nameless([nested], [kuryrport(None)]) == []
    assert nameless([nested], [kuryrport(BOTH)]) == [nested]


def test_port_with_the_clusters_tag_alone_is_none_of_ours():
    assert not is_ours(port(1) | {"device_owner": "compute:nova"})
    assert not is_ours(port(1, pod_uid="") | {"device_owner": ""})
