"""Which ports of the cluster nobody names: those go."""

import asyncio

import pytest

from kuryr_k8s.drivers.vif import nested_plan, neutron_plan
from kuryr_k8s.handlers.pods.portions import AT_ONCE
from kuryr_k8s.handlers.pods.sweep import nameless, records
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
async def test_port_is_nameless_if_the_kuryrport_of_its_pod_names_others(recorded, found):
    ports = [port(1), port(2), port(3)]
    unnamed = await nameless(ports, recorded, neutron_plan.pod_uid_of)
    assert unnamed == [port(number) for number in found]


async def test_port_on_a_trunk_is_its_pods_by_its_description():
    nested = port(3, pod_uid="") | {"description": "kuryr-pod:u1", "device_owner": ""}
    assert nested_plan.is_made_here(nested)
    assert await nameless([nested], [kuryrport(None)], nested_plan.pod_uid_of) == []
    assert await nameless([nested], [kuryrport(BOTH)], nested_plan.pod_uid_of) == [nested]


@pytest.mark.parametrize("plan", [neutron_plan, nested_plan])
@pytest.mark.parametrize("owner", ["compute:nova", "network:dhcp", ""])
def test_port_with_the_clusters_tag_alone_is_none_of_ours(plan, owner):
    assert not plan.is_made_here(port(1, pod_uid="") | {"device_owner": owner})


async def test_port_of_a_pool_is_named_by_any_pod():
    pooled = port(1, pod_uid="kuryr-pool:tag") | {"tags": ["kuryr-pool"]}
    assert await nameless([pooled], [kuryrport(BOTH)], neutron_plan.pod_uid_of) == []
    assert await nameless([pooled], [kuryrport(None)], neutron_plan.pod_uid_of) == [pooled]


def read_records(_ports, recorded):
    return records(recorded, "leader")


def find_nameless(ports, recorded):
    return nameless(ports, recorded, neutron_plan.pod_uid_of)


def find_nameless_of_pools(ports, recorded):
    pooled = [each | {"device_id": "kuryr-pool:tag", "tags": ["kuryr-pool"]} for each in ports]
    return nameless(pooled[:1], recorded, neutron_plan.pod_uid_of)


@pytest.mark.parametrize("read", [read_records, find_nameless, find_nameless_of_pools])
async def test_others_have_their_turns_while_many_kuryrports_are_read(read):
    turns = 0

    async def work():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    many = 5 * AT_ONCE
    async with asyncio.TaskGroup() as group:
        working = group.create_task(work())
        await read([port(1)] * many, [kuryrport(BOTH)] * many)
        working.cancel()
    assert turns >= 5


def test_bound_port_is_made_by_the_driver_of_bound_ports_alone():
    bound = port(1) | {"device_owner": "compute:kuryr", "binding:host_id": "chassis1"}
    assert neutron_plan.is_made_here(bound)
    assert not nested_plan.is_made_here(bound)
