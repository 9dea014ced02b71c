"""NeutronPorts: each has a port in Neutron, as its specification says, while it is there."""

import pytest

from kuryr_k8s.cloud.neutron.specific_ports import OF_NEUTRON_PORTS
from kuryr_k8s.model.neutronport import FINALIZER
from tests.component.neutron_ports import ports
from tests.component.pools.pods import end
from tests.kit.confs import CLUSTER, NODE
from tests.kit.fakes.faults import answer
from tests.kit.kube.client import KubeRefusal
from tests.kit.kube.objects import make_neutron_port

FIXED = "fa:16:3e:00:00:07"
GRANTED = {"qos_policies": "*:*", "port_security": "*:*"}  # pairs need the latter


@pytest.fixture
def storage(stage):
    """A second network of the project."""
    return stage.cloud.add_network("storage", "10.70.0.0/24", "fd70::/64")


async def test_port_is_made_as_the_specification_says(stage, storage):
    cloud = stage.cloud
    group, policy = cloud.add_security_group("web")["id"], cloud.add_qos_policy("slow")["id"]
    async with stage.controller(**ports.options(policy=GRANTED)):
        made = await ports.add(
            stage,
            "db",
            network="storage",
            fixedIPs=["10.70.0.7", "fd70::0007"],
            macAddress=FIXED.upper(),
            securityGroups=["web"],
            allowedAddressPairs=[{"ipAddress": "10.70.0.100"}],
            qosPolicy="slow",
        )
        found = await ports.until(stage, "db", "Available")
        (port,) = cloud.ports.values()
        assert port["network_id"] == storage["id"]
        assert ports.ips(port) == {"10.70.0.7", "fd70::7"}
        assert (port["mac_address"], port["security_groups"]) == (FIXED, [group])
        assert port["allowed_address_pairs"] == [
            {"ip_address": "10.70.0.100", "mac_address": FIXED}
        ]
        assert port["qos_policy_id"] == policy
        assert port["device_id"] == made["metadata"]["uid"]
        assert port["device_owner"] == f"{OF_NEUTRON_PORTS}{CLUSTER}"
        assert (found["portId"], found["macAddress"]) == (port["id"], FIXED)
        assert found["addresses"][0] == {
            "ipAddress": "10.70.0.7",
            "subnetId": storage["subnets"][0],
            "cidr": "10.70.0.0/24",
            "gateway": "10.70.0.1",
        }
        assert found["observedGeneration"] == 1


async def test_without_a_network_it_is_in_that_of_pods_with_their_groups(stage):
    async with stage.controller(**ports.options()):
        await ports.add(stage, "any")
        await ports.until(stage, "any", "Available")
        (port,) = stage.cloud.ports.values()
        assert port["network_id"] == stage.cloud.pods["id"]
        assert port["security_groups"] == [stage.cloud.group["id"]]


async def test_what_may_change_follows_the_specification(stage):
    group = stage.cloud.add_security_group("web")["id"]
    async with stage.controller(**ports.options(policy=GRANTED)):
        await ports.add(stage, "db")
        await ports.until(stage, "db", "Available")
        (port,) = stage.cloud.ports.values()
        pairs = [{"ipAddress": "10.99.0.0/24"}]
        spec = {"securityGroups": ["web"], "allowedAddressPairs": pairs}
        await stage.client.patch(ports.path(stage, "db"), {"spec": spec})
        await stage.cloud.wait_for(lambda: port["security_groups"] == [group])
        await stage.cloud.wait_for(
            lambda: [p["ip_address"] for p in port["allowed_address_pairs"]] == ["10.99.0.0/24"]
        )

        async def observed():
            found = await ports.status(stage, "db")
            return found["observedGeneration"] == 2 and found["securityGroupIds"] == [group]

        await stage.until(observed)


@pytest.mark.parametrize(
    "change",
    [{"network": "other"}, {"fixedIPs": ["10.70.0.8"]}, {"macAddress": FIXED}, {"portId": None}],
)
async def test_what_never_changes_is_refused_by_the_schema(stage, storage, change):
    first = {"network": "storage", "fixedIPs": ["10.70.0.7"]}
    if "portId" in change:
        change = {"portId": "00000000-0000-4000-8000-000000000000", "network": None}
    await ports.add(stage, "db", **first)
    with pytest.raises(KubeRefusal, match="never change"):
        await stage.client.patch(ports.path(stage, "db"), {"spec": change})


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"fixedIPs": ["10.70.0"]}, "must be an IP address"),
        ({"portSecurity": False, "securityGroups": ["web"]}, "has no securityGroups"),
        ({"portId": "00000000-0000-4000-8000-000000000000"}, "must be Retain"),
        ({"macAddress": "01:00:5e:00:00:01"}, "macAddress"),
    ],
)
async def test_what_cannot_be_is_refused_by_the_schema(stage, spec, words):
    with pytest.raises(KubeRefusal, match=words):
        await ports.add(stage, "db", **spec)


REFUSED = {  # the specification, the words of condition and Event, and the reason
    "network": ({"network": "nowhere"}, "spec.network: project", "KuryrRefused"),
    "group": ({"securityGroups": ["nobody"]}, "spec.securityGroups: project", "KuryrRefused"),
    "outside": ({"fixedIPs": ["10.9.9.9"]}, "is in none of the subnets", "KuryrRefused"),
    "gateway": ({"network": "storage", "fixedIPs": ["10.70.0.1"]}, "gateway", "KuryrRefused"),
    "taken": ({"network": "storage", "fixedIPs": ["10.70.0.9"]}, "10.70.0.9", "KuryrAddressInUse"),
    "theirs": ({"network": "theirs"}, "has no network of the name", "KuryrRefused"),
    "services": ({"network": "services"}, "is for nodes or Services", "KuryrNotGranted"),
    "open": ({"portSecurity": False}, "is not granted to namespace", "KuryrNotGranted"),
}


@pytest.mark.parametrize("case", list(REFUSED))
async def test_what_cannot_be_made_fails_with_an_event_until_it_can(stage, storage, case):
    spec, words, reason = REFUSED[case]
    tenant = stage.cloud.add_project("tenant")
    stage.cloud.add_network("theirs", "10.71.0.0/24", project_id=tenant)
    fixed = [{"subnet_id": storage["subnets"][0], "ip_address": "10.70.0.9"}]
    taken = stage.cloud.add_port(storage["id"], fixed_ips=fixed)
    services = stage.cloud.add_network("services", "10.72.0.0/24")
    defaults = {"service_subnet": services["subnets"][0]}
    async with stage.controller(**ports.options(neutron_defaults=defaults)):
        await ports.add(stage, "db", **spec)
        assert words in await ports.until_ready_is(stage, "db", reason)
        assert (await ports.status(stage, "db"))["phase"] == "Failed"
        assert await stage.until_told(words) == reason
        assert set(stage.cloud.ports) == {taken["id"]}
        if case == "taken":
            stage.cloud.remove_port(taken["id"])
            await ports.until(stage, "db", "Available")


async def test_port_goes_with_its_object(stage):
    async with stage.controller(**ports.options()):
        await ports.add(stage, "db")
        await ports.until(stage, "db", "Available")
        await stage.client.delete(ports.path(stage, "db"))
        await ports.until_gone(stage, "db")
        assert not stage.cloud.ports


async def test_retained_port_stays_and_is_nobodys(stage):
    async with stage.controller(**ports.options()):
        await ports.add(stage, "db", reclaimPolicy="Retain")
        await ports.until(stage, "db", "Available")
        await stage.client.delete(ports.path(stage, "db"))
        await ports.until_gone(stage, "db")
        (port,) = stage.cloud.ports.values()
        assert (port["device_id"], port["device_owner"], port["tags"]) == ("", "", [])
        again = await ports.add(stage, "again", portId=port["id"], reclaimPolicy="Retain")
        await ports.until(stage, "again", "Available")
        assert port["device_id"] == again["metadata"]["uid"]


async def test_retained_port_is_nobodys_though_neutron_fails_in_between(stage):
    async with stage.controller(**ports.options(neutron_defaults={"resource_tags": "a,b"})):
        await ports.add(stage, "db", reclaimPolicy="Retain")
        await ports.until(stage, "db", "Available")
        stage.cloud.faults.add(
            method="DELETE", path="/v2.0/ports/.*/tags/", times=1, action=answer(500)
        )
        await stage.client.delete(ports.path(stage, "db"))
        await ports.until_gone(stage, "db")
        (port,) = stage.cloud.ports.values()
        assert (port["device_id"], port["device_owner"], port["tags"]) == ("", "", [])


async def test_port_of_a_user_is_claimed_and_left_as_it_was(stage):
    network = stage.cloud.add_network("theirs", "10.70.0.0/24")
    port = stage.cloud.add_port(network["id"], name="theirs", description="of the user")
    kept = {n: v for n, v in port.items() if n not in ("revision_number", "updated_at")}
    async with stage.controller(**ports.options()):
        await ports.add(stage, "db", portId=port["id"], reclaimPolicy="Retain")
        found = await ports.until(stage, "db", "Available")
        assert found["portId"] == port["id"]
        assert port["device_owner"].startswith(OF_NEUTRON_PORTS)
        await stage.client.delete(ports.path(stage, "db"))
        await ports.until_gone(stage, "db")
    live = stage.cloud.ports[port["id"]]
    assert {n: v for n, v in live.items() if n not in ("revision_number", "updated_at")} == kept


async def test_port_that_another_one_has_is_not_claimed(stage):
    network = stage.cloud.add_network("theirs", "10.70.0.0/24")
    port = stage.cloud.add_port(network["id"], device_owner="compute:nova", device_id="vm")
    tenants = stage.cloud.add_port(network["id"], project_id=stage.cloud.add_project("tenant"))
    async with stage.controller(**ports.options()):
        await ports.add(stage, "used", portId=port["id"], reclaimPolicy="Retain")
        await ports.add(stage, "theirs", portId=tenants["id"], reclaimPolicy="Retain")
        await ports.until_ready_is(stage, "used", "KuryrPortInUse")
        assert "there is no port" in await ports.until_ready_is(stage, "theirs", "KuryrRefused")


async def test_lost_port_is_made_again_with_its_addresses_and_its_mac(stage):
    async with stage.controller(**ports.options()):
        await ports.add(stage, "db")
        first = await ports.until(stage, "db", "Available")
        stage.cloud.remove_port(first["portId"])

        async def again():
            found = await ports.status(stage, "db")
            return found if found.get("portId") not in (None, first["portId"]) else None

        second = await stage.until(again)
        assert second["addresses"] == first["addresses"]
        assert second["macAddress"] == first["macAddress"]
        assert set(stage.cloud.ports) == {second["portId"]}


async def test_what_others_change_is_changed_back(stage):
    other = stage.cloud.add_security_group("other")["id"]
    async with stage.controller(**ports.options()):
        await ports.add(stage, "db")
        found = await ports.until(stage, "db", "Available")
        port = stage.cloud.ports[found["portId"]]
        before = port["device_id"]
        port |= {"security_groups": [other], "device_id": "", "device_owner": ""}
        await stage.cloud.wait_for(lambda: port["security_groups"] == [stage.cloud.group["id"]])
        await stage.cloud.wait_for(lambda: port["device_id"] == before)


async def test_addresses_of_the_specification_are_changed_back(stage, storage, neutron):
    moved = {"fixed_ips": [{"ip_address": "10.70.0.9"}]}
    async with stage.controller(**ports.options()):
        await ports.add(stage, "db", network="storage", fixedIPs=["10.70.0.7"])
        found = await ports.until(stage, "db", "Available")
        port = stage.cloud.ports[found["portId"]]
        await neutron.update_port(port["id"], moved)
        fixed = [{"subnet_id": storage["subnets"][0], "ip_address": "10.70.0.7"}]
        taken = stage.cloud.add_port(storage["id"], fixed_ips=fixed)
        assert "10.70.0.7" in await ports.until_ready_is(stage, "db", "KuryrAddressInUse")
        stage.cloud.remove_port(taken["id"])
        await ports.until_ready_is(stage, "db", "PortReady")
        assert ports.ips(port) == {"10.70.0.7"}


async def test_address_of_a_pod_is_changed_back(stage, storage, neutron):
    async with stage.controller(**ports.options()):
        await ports.add(stage, "db", network="storage")
        found = await ports.until(stage, "db", "Available")
        _pod, port = await ports.run(stage, "web", **{ports.NAME: "db"})
        before = ports.ips(port)
        kept = [ip for ip in port["fixed_ips"] if ":" in ip["ip_address"]]
        moved = {"fixed_ips": [*kept, {"ip_address": "10.70.0.99"}]}
        await neutron.update_port(port["id"], moved)
        await stage.cloud.wait_for(lambda: ports.ips(port) == before)
        assert (await ports.status(stage, "db"))["addresses"] == found["addresses"]


async def test_pod_that_runs_with_another_address_keeps_it(stage, storage, neutron):
    """The port was changed before the Pod had it, and is as its specification says afterwards."""
    moved = {"fixed_ips": [{"ip_address": "10.70.0.9"}]}
    async with stage.controller(**ports.options(neutron_defaults={"sweep_interval": "600"})):
        await ports.add(stage, "db", network="storage", fixedIPs=["10.70.0.7"])
        found = await ports.until(stage, "db", "Available")
        await neutron.update_port(found["portId"], moved)
        pod, port = await ports.run(stage, "web", **{ports.NAME: "db"})
    async with stage.controller(**ports.options()):
        assert "delete the Pod" in await ports.until_ready_is(stage, "db", "KuryrRefused")
        assert ports.ips(port) == {"10.70.0.9"}
        await end(stage, "web", pod)
        await ports.until_ready_is(stage, "db", "PortReady")
        assert ports.ips(port) == {"10.70.0.7"}


@pytest.mark.parametrize("where", ["project", "network"])
async def test_port_of_others_is_not_taken_for_one_that_an_earlier_attempt_made(stage, where):
    """Users of another project have written on it what only we write."""
    cloud, elsewhere = stage.cloud, stage.cloud.add_network("elsewhere", "10.71.0.0/24")
    body = make_neutron_port("db", stage.cluster.namespace)
    body["metadata"]["finalizers"] = [FINALIZER]  # an earlier attempt may have made a port
    made = await stage.client.create(body)
    uid = made["metadata"]["uid"]
    theirs = cloud.add_port(
        elsewhere["id"] if where == "network" else cloud.pods["id"],
        project_id=cloud.add_project("tenant") if where == "project" else cloud.project_id,
        device_id=uid,
        device_owner=f"{OF_NEUTRON_PORTS}{CLUSTER}",
        description=f"kuryr-cluster:{CLUSTER} neutron-port:{uid}",
    )
    async with stage.controller(**ports.options(neutron_defaults={"sweep_interval": "600"})):
        found = await ports.until(stage, "db", "Available")
        assert found["portId"] != theirs["id"]
        assert not cloud.ports[theirs["id"]]["tags"]


async def test_port_of_a_user_is_given_back_though_its_project_is_refused_by_now(stage):
    """The leader died when the Pod was gone, and before the NeutronPort told so."""
    tenant, namespace = stage.cloud.add_project("tenant"), stage.cluster.namespace
    network = stage.cloud.add_network("theirs", "10.70.0.0/24", project_id=tenant)
    port = stage.cloud.add_port(network["id"], project_id=tenant)
    annotation = {"metadata": {"annotations": {"openstack.org/kuryr-project": tenant}}}
    await stage.client.patch(f"/api/v1/namespaces/{namespace}", annotation)
    options = ports.options()
    options["kubernetes"]["pod_project_driver"] = "annotation"
    policy = {"projects": f"{namespace}:{tenant}"}
    async with stage.controller(**options, policy=policy):
        await ports.add(stage, "db", portId=port["id"], reclaimPolicy="Retain")
        await ports.until(stage, "db", "Available")
    bound_to = {
        "namespace": namespace,
        "name": "gone",
        "uid": "gone",
        "node": NODE,
        "kuryrPortUid": "gone",
    }
    bound = {"status": {"phase": "Bound", "boundTo": bound_to}}
    await stage.client.patch(f"{ports.path(stage, 'db')}/status", bound)
    async with stage.controller(**options):
        await ports.until(stage, "db", "Available")
        await stage.client.delete(ports.path(stage, "db"))
        await ports.until_gone(stage, "db")
        assert (port["device_id"], port["device_owner"]) == ("", "")


async def test_port_of_no_object_is_removed(stage):
    marks = {"device_owner": f"{OF_NEUTRON_PORTS}{CLUSTER}", "device_id": "gone"}
    made = {"description": f"kuryr-cluster:{CLUSTER}", "tags": [f"kuryr-cluster:{CLUSTER}"]}
    ours = stage.cloud.add_port(stage.cloud.pods["id"], **marks, **made)
    claimed = stage.cloud.add_port(stage.cloud.pods["id"], **marks)
    async with stage.controller(**ports.options()):
        await stage.cloud.wait_for(lambda: ours["id"] not in stage.cloud.ports)
        await stage.cloud.wait_for(lambda: not stage.cloud.ports[claimed["id"]]["device_id"])


async def test_unchanged_objects_cost_nothing(stage):
    async with stage.controller(**ports.options()):
        for number in range(3):
            await ports.add(stage, f"db-{number}")
        for number in range(3):
            await ports.until(stage, f"db-{number}", "Available")
        assert len(stage.cloud.ports) == 3
    before = stage.cloud.calls.count("PUT") + stage.cloud.calls.count("POST")
    writes = [call for call in stage.proxy.calls if call.what.startswith("neutronports")]
    async with stage.controller(**ports.options()):
        await ports.add(stage, "last")
        await ports.until(stage, "last", "Available")
        assert stage.cloud.calls.count("PUT") + stage.cloud.calls.count("POST") == before + 2
    later = [
        call
        for call in stage.proxy.calls
        if call.what.startswith("neutronports") and call.method == "patch"
    ]
    assert len(later) - len([call for call in writes if call.method == "patch"]) == 2


async def test_hint_binds_a_new_port_to_the_host_of_the_node(stage):
    async with stage.controller(**ports.options()):
        await ports.add(stage, "db", hostHint=NODE)
        found = await ports.until(stage, "db", "Available")
        assert stage.cloud.ports[found["portId"]]["binding:host_id"] == "chassis1"
