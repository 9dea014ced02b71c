"""NeutronPortPools: NeutronPorts that are there before Pods want them."""

import pytest

from tests.component.neutron_ports import ports
from tests.kit.kube.client import KubeRefusal
from tests.kit.kube.objects import make_neutron_port, make_neutron_port_pool, path_of

LABEL = "openstack.org/neutron-port-pool"


def options(mode="bind", **groups):
    chosen = ports.options(mode, **groups)
    chosen["kubernetes"]["enabled_handlers"] += ",neutron_port_pool"
    return chosen


async def add(stage, name="web", *, labels=None, **spec):
    """A user makes a NeutronPortPool."""
    return await stage.client.create(
        make_neutron_port_pool(name, stage.cluster.namespace, labels=labels, **spec)
    )


async def change(stage, pool, **spec):
    await stage.client.patch(path_of(pool), {"spec": spec})


async def members(stage):
    """The NeutronPorts of the test's namespace, by their names."""
    path = f"/apis/openstack.org/v1/namespaces/{stage.cluster.namespace}/neutronports"
    return {each["metadata"]["name"]: each for each in await stage.client.list(path)}


async def until(stage, pool, **counts):
    """Wait until the status of a pool says so; the status."""

    async def reached():
        found = (await stage.client.find(path_of(pool)) or {}).get("status") or {}
        return found if counts.items() <= found.items() else None

    return await stage.until(reached)


async def until_there_are(stage, count):
    async def reached():
        found = await members(stage)
        return found if len(found) == count else None

    return await stage.until(reached)


@pytest.fixture
def storage(stage):
    """A second network of the project."""
    return stage.cloud.add_network("storage", "10.70.0.0/24")


async def test_pool_has_as_many_neutron_ports_as_it_says(stage, storage):
    async with stage.controller(**options()):
        template = {"spec": {"network": "storage"}}
        pool = await add(stage, labels={"tier": "web"}, min=3, template=template)
        status = await until(stage, pool, available=3, bound=0, pending=0, failed=0)
        assert status["observedGeneration"] == 1
        (ready,) = status["conditions"]
        assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "True", "PortsReady")
        found = await members(stage)
        assert len(found) == 3
        for each in found.values():
            assert each["spec"] == {"network": "storage", "reclaimPolicy": "Delete"}
            assert each["metadata"]["labels"] == {"tier": "web", LABEL: "web"}
            (owner,) = each["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["name"]) == ("NeutronPortPool", "web")
            assert (owner["uid"], owner["controller"]) == (pool["metadata"]["uid"], True)
        assert {port["network_id"] for port in stage.cloud.ports.values()} == {storage["id"]}


async def test_pods_take_neutron_ports_of_a_pool_and_others_come(stage):
    async with stage.controller(**options()):
        pool = await add(stage, min=2)
        await until(stage, pool, available=2)
        first = set(stage.cloud.ports)
        pod, port = await ports.run(stage, "one", **{ports.NAME: f"{LABEL}=web"})
        assert port["id"] in first
        await until(stage, pool, available=2, bound=1)
        await stage.cluster.delete_pod(pod)
        await stage.until_deleting("one")
        await stage.let_go("one")
        await until(stage, pool, available=3, bound=0)
        assert len(await members(stage)) == 3


async def test_many_pods_that_come_at_once_get_neutron_ports_of_a_small_pool(stage):
    async with stage.controller(**options(patience=ports.LATE)):
        pool = await add(stage, min=1)
        await until(stage, pool, available=1)
        for number in range(12):
            await stage.cluster.add_pod(
                f"pod{number}", node=ports.NODE, annotations={ports.NAME: f"{LABEL}=web"}
            )
        for number in range(12):
            await stage.until_plugged_in(f"pod{number}")
        await until(stage, pool, bound=12)


async def test_no_more_are_available_than_it_says(stage):
    async with stage.controller(**options()):
        pool = await add(stage, min=4)
        await until(stage, pool, available=4)
        await change(stage, pool, min=1, max=2)
        await until(stage, pool, available=2)
        await until_there_are(stage, 2)
        assert len(stage.cloud.ports) == 2


async def test_those_beyond_the_minimum_go_when_they_are_old(stage):
    async with stage.controller(**options()):
        pool = await add(stage, min=3)
        await until(stage, pool, available=3)
        await change(stage, pool, min=1, ttlSeconds=1)
        await until(stage, pool, available=1)
        await until_there_are(stage, 1)


async def test_one_that_a_pod_has_stays_when_the_pool_shrinks(stage):
    async with stage.controller(**options()):
        pool = await add(stage, min=1)
        await until(stage, pool, available=1)
        _, port = await ports.run(stage, "one", **{ports.NAME: f"{LABEL}=web"})
        await until(stage, pool, available=1, bound=1)
        await change(stage, pool, min=0, ttlSeconds=1)
        await until(stage, pool, available=0, bound=1)
        await until_there_are(stage, 1)
        assert set(stage.cloud.ports) == {port["id"]}


async def test_neutron_ports_follow_the_template_also_those_that_pods_have(stage):
    group = stage.cloud.add_security_group("web")["id"]
    async with stage.controller(**options()):
        pool = await add(stage, min=1)
        await until(stage, pool, available=1)
        await ports.run(stage, "one", **{ports.NAME: f"{LABEL}=web"})
        await until(stage, pool, available=1, bound=1)
        template = {"metadata": {"labels": {"tier": "web"}}, "spec": {"securityGroups": ["web"]}}
        await change(stage, pool, template=template)
        assert len(stage.cloud.ports) == 2
        for port in stage.cloud.ports.values():
            await stage.cloud.wait_for(lambda port=port: port["security_groups"] == [group])
        for each in (await members(stage)).values():
            assert each["metadata"]["labels"]["tier"] == "web"
        await until(stage, pool, observedGeneration=2)


async def test_what_others_change_about_a_neutron_port_is_changed_back(stage):
    async with stage.controller(**options()):
        pool = await add(stage, min=1)
        await until(stage, pool, available=1)
        (name,) = await members(stage)
        change = {"securityGroups": ["nobody"], "reclaimPolicy": "Retain"}
        await stage.client.patch(ports.path(stage, name), {"spec": change})

        async def as_before():
            return (await members(stage))[name]["spec"] == {"reclaimPolicy": "Delete"}

        await stage.until(as_before)


async def test_one_that_is_deleted_is_made_again(stage):
    async with stage.controller(**options()):
        pool = await add(stage, min=2)
        await until(stage, pool, available=2)
        first, second = await members(stage)
        await stage.client.delete(ports.path(stage, first))

        async def another():
            found = await members(stage)
            return len(found) == 2 and second in found

        await stage.until(another)
        await until(stage, pool, available=2)


async def test_no_more_are_made_while_some_can_have_no_port(stage):
    async with stage.controller(**options()):
        stage.cloud.set_quota(stage.cloud.project_id, port=2)
        pool = await add(stage, min=5)
        status = await until(stage, pool, available=2, failed=3)
        (ready,) = status["conditions"]
        assert (ready["status"], ready["reason"]) == ("False", "OpenStackQuotaExceeded")
        assert ready["message"].startswith("NeutronPort web-")
        assert len(await members(stage)) == 5
        await change(stage, pool, min=3)
        await until_there_are(stage, 3)
        stage.cloud.set_quota(stage.cloud.project_id, port=10)
        status = await until(stage, pool, available=3, failed=0)
        assert status["conditions"][0]["status"] == "True"


async def test_restart_makes_no_more(stage):
    async with stage.controller(**options()):
        pool = await add(stage, min=3)
        await until(stage, pool, available=3)
        before = set(await members(stage))
    async with stage.controller(**options()):
        await change(stage, pool, min=4)
        await until(stage, pool, available=4)
        assert before < set(await members(stage))


async def test_a_pool_that_goes_leaves_its_neutron_ports_to_the_garbage_collector(stage):
    async with stage.controller(**options()):
        pool = await add(stage, min=1)
        await until(stage, pool, available=1)
        (name,) = await members(stage)
        await stage.client.delete(path_of(pool))
        await stage.client.delete(ports.path(stage, name))  # as the garbage collector does
        await ports.until_gone(stage, name)
        other = await add(stage, "other", min=1)
        await until(stage, other, available=1)
        assert len(await members(stage)) == 1


async def test_neutron_ports_of_others_are_none_of_its(stage):
    async with stage.controller(**options()):
        await ports.add(stage, "web-mine", labels={LABEL: "web"})
        await ports.until(stage, "web-mine", "Available")
        pool = await add(stage, min=1)
        await until(stage, pool, available=1)
        assert len(await members(stage)) == 2
        await change(stage, pool, min=0, ttlSeconds=1)
        await until(stage, pool, available=0)
        assert set(await until_there_are(stage, 1)) == {"web-mine"}


@pytest.mark.parametrize(
    ("name", "spec", "words"),
    [
        ("web", {"min": -1}, "greater than or equal to 0"),
        ("web", {"min": 5, "max": 2}, "max must not be less than min"),
        ("w" * 64, {"min": 1}, "63 characters"),
        ("web", {"min": 1, "labels": {"tier": "web server"}}, "labels"),
        ("web", {"min": 1, "template": {"spec": {"floatingIP": "10.0.0.1"}}}, "floatingIP"),
    ],
)
async def test_what_cannot_be_is_refused_by_the_schema(stage, name, spec, words):
    with pytest.raises(KubeRefusal, match=words):
        await add(stage, name, **spec)


@pytest.mark.parametrize("field", [{"network": "other"}, {"network": None}, {"subnets": ["a"]}])
async def test_network_of_the_template_never_changes(stage, field):
    pool = await add(stage, min=0, template={"spec": {"network": "storage"}})
    with pytest.raises(KubeRefusal, match="never change"):
        await change(stage, pool, template={"spec": field})


async def test_template_with_a_network_cannot_be_removed(stage):
    pool = await add(stage, min=0, template={"spec": {"network": "storage"}})
    with pytest.raises(KubeRefusal, match="never change"):
        await change(stage, pool, template=None)


async def test_owner_that_another_namespace_names_is_no_owner(stage):
    """Whoever knows the uid of a pool can name it as the owner of a NeutronPort of theirs."""
    async with stage.controller(**options()):
        pool = await add(stage, min=1)
        await until(stage, pool, available=1)
        other = await stage.cluster.add_namespace(f"{stage.cluster.namespace}-other")
        forged = make_neutron_port("theirs", other, labels={"mine": "yes"})
        owner = {"kind": "NeutronPortPool", "name": "web", "uid": pool["metadata"]["uid"]}
        owner |= {"apiVersion": "openstack.org/v1", "controller": True}
        forged["metadata"]["ownerReferences"] = [owner]
        made = await stage.client.create(forged)
        template = {"metadata": {"labels": {"tier": "web"}}}
        await change(stage, pool, min=2, template=template)
        await until(stage, pool, available=2, observedGeneration=2)
        live = await stage.client.find(path_of(made))
        assert live["metadata"]["labels"] == {"mine": "yes"}


async def test_what_is_wrong_with_one_is_told_by_the_pool(stage):
    async with stage.controller(**options()):
        pool = await add(stage, min=1)
        await until(stage, pool, available=1)
        await change(stage, pool, template={"spec": {"securityGroups": ["nobody"]}})

        async def told():
            status = (await stage.client.find(path_of(pool)))["status"]
            (ready,) = status["conditions"]
            return ready["status"] == "False" and "nobody" in ready["message"]

        await stage.until(told)
