"""What nodes write into KuryrPorts, and what has our tags, never reaches the ports of others."""

import json

import pytest

from tests.component.pools.pods import OPTIONS
from tests.component.pools.pods import end as end_of
from tests.kit.confs import HOST, MARK, NODE, TAG
from tests.kit.fakes.faults import Answer, Hang, answer

OFTEN = {"neutron_defaults": {"sweep_interval": "1"}}
POOLED = {"kubernetes": {"vif_pool_driver": "neutron"}, "vif_pool": OPTIONS}
KINDS = pytest.mark.parametrize("groups", [{}, POOLED], ids=["noop", "pool"])
OTHER_CLUSTER = "kuryr-cluster:0f0e0d0c-0000-4000-8000-00000000000b"
HASH = "5f0c9b3a7d6e4f218a90b7c6d5e4f302"  # of a static Pod's configuration


async def forge(stage, name, port_id, **more):
    """What root on a node can do with the daemon's token."""
    data = {"id": port_id, **more}
    vifs = {"eth0": {"vif": {"versioned_object.data": data}}}
    await stage.client.patch(f"{stage.path(name)}/status", {"status": {"vifs": vifs}})


async def run(stage, name, **more):
    pod = await stage.cluster.add_pod(name, node=NODE, **more)
    return pod, (await stage.until_plugged_in(name))["id"]


async def swept(stage, times=2):
    """Wait until so many searches have begun and ended after now."""
    count = lambda: sum(  # noqa: E731
        "device_owner" in call.query and "tags=" in call.query and call.method == "GET"
        for call in stage.cloud.calls
    )
    before = count()
    await stage.cloud.wait_for(lambda: count() > before + times)


def victim(stage, **more):
    """A port of somebody else, in another project."""
    tenant = stage.cloud.add_project("tenant")
    network = stage.cloud.add_network("theirs", "10.77.0.0/24", project_id=tenant)
    port = stage.cloud.add_port(
        network["id"], project_id=tenant, device_owner="compute:nova", device_id="vm", **more
    )
    return json.loads(json.dumps(port))


def refuse_after(hang):
    """Answer that there was an error, once the hang is over."""

    async def act(request, _proceed):
        async def nothing():
            raise Answer(503)

        return await hang(request, nothing)

    return act


async def test_every_port_bears_the_uid_of_kube_system(stage):
    async with stage.controller(**POOLED):
        await run(stage, "web")
        await stage.cloud.wait_for(lambda: len(stage.cloud.ports) == 4)
    assert all(MARK in port["tags"] for port in stage.cloud.ports.values())
    devices = {port["device_id"] for port in stage.cloud.ports.values()}
    assert devices == {f"kuryr-pool:{MARK.removeprefix('kuryr-cluster:')}"}


@KINDS
async def test_port_of_another_tenant_that_a_node_names_is_neither_changed_nor_deleted(
    stage, groups
):
    before = victim(stage)
    async with stage.controller(**groups):
        pod, _port = await run(stage, "web")
    await forge(stage, "web", before["id"])
    other = stage.cloud.add_security_group("other")["id"]
    async with stage.controller(**groups, neutron_defaults={"pod_security_groups": other}):

        async def followed():
            return (await stage.kuryrport("web"))["status"]["securityGroupIds"] == [other]

        await stage.until(followed)
        await end_of(stage, "web", pod)
    assert stage.cloud.ports[before["id"]] == before
    about = [note for reason, note in await stage.events() if reason == "KuryrNotOurs"]
    assert len(about) == 1
    assert before["id"] in about[0]


async def test_plain_port_of_a_pod_whose_kuryrport_names_another_goes_with_the_pod(stage):
    before = victim(stage)
    async with stage.controller():
        pod, _port = await run(stage, "web")
    await forge(stage, "web", before["id"])
    async with stage.controller():
        await end_of(stage, "web", pod)
    assert list(stage.cloud.ports) == [before["id"]]


@KINDS
async def test_port_of_another_pod_that_a_node_names_stays_that_pods(stage, groups):
    async with stage.controller(**groups):
        _, held = await run(stage, "victim")
        thief, _ = await run(stage, "thief")
    await forge(stage, "thief", held)
    before = json.loads(json.dumps(stage.cloud.ports[held]))
    async with stage.controller(**groups):
        await end_of(stage, "thief", thief)
        _, port = await run(stage, "next")
        assert port != held
    after = stage.cloud.ports[held]
    same = ("device_id", "security_groups", "fixed_ips", "tags")
    assert {name: after[name] for name in same} == {name: before[name] for name in same}


def mirrors(identity):
    """The annotations of a static Pod's mirror; whoever may create Pods may set them."""
    return {"kubernetes.io/config.mirror": "x", "kubernetes.io/config.hash": identity}


@KINDS
async def test_pod_that_says_it_mirrors_another_pods_uid_is_a_pod_of_its_own(stage, groups):
    async with stage.controller(**groups, patience={"mirror_pod": 0.1}):
        pod, held = await run(stage, "victim")
        evil, port = await run(stage, "evil", annotations=mirrors(pod["metadata"]["uid"]))
        assert port != held
        assert (await stage.kuryrport("evil"))["spec"]["podUid"] == evil["metadata"]["uid"]
        await end_of(stage, "evil", evil)
        _, other = await run(stage, "next")
        assert other != held
        assert held in stage.cloud.ports


@KINDS
async def test_pod_with_the_hash_of_a_static_pod_is_refused(stage, groups):
    marks = mirrors(HASH)
    async with stage.controller(**groups, patience={"mirror_pod": 0.1}):
        _, held = await run(stage, "victim", annotations=marks)
        evil = await stage.cluster.add_pod("evil", node=NODE, annotations=marks)
        await stage.until_event("KuryrRefused")
        assert await stage.kuryrport("evil") is None
        await stage.cluster.delete_pod(evil)
        _, other = await run(stage, "next")
        assert other != held
        assert held in stage.cloud.ports


@KINDS
async def test_kuryrport_with_the_hash_of_a_static_pod_gets_and_takes_nothing(stage, groups):
    """An earlier leader's late request made it."""
    marks = mirrors(HASH)
    async with stage.controller(**groups, patience={"mirror_pod": 0.1}):
        _, held = await run(stage, "victim", annotations=marks)
    recorded = await stage.kuryrport("victim")
    kept = {name: recorded["metadata"][name] for name in ("namespace", "finalizers")}
    body = {name: recorded[name] for name in ("apiVersion", "kind", "spec")}
    await stage.client.create(body | {"metadata": {"name": "evil", **kept}})
    evil = await stage.cluster.add_pod("evil", node=NODE, annotations=marks)
    async with stage.controller(**groups, patience={"mirror_pod": 0.1}):
        await stage.until_event("KuryrRefused")
        assert "status" not in await stage.kuryrport("evil")
        await stage.cluster.delete_pod(evil)
        await stage.until_gone("evil")
        _, other = await run(stage, "next")
        assert other != held
        assert held in stage.cloud.ports


async def test_other_groups_reach_a_contested_port_when_it_turns_out_whose_it_is(stage):
    """Until then, nobody's change reaches it, and no change is taken for done."""
    async with stage.controller(**POOLED):
        _, held = await run(stage, "victim")
        thief, _ = await run(stage, "thief")
    await forge(stage, "thief", held)
    before = stage.cloud.ports[held]["security_groups"]
    other = stage.cloud.add_security_group("other")["id"]
    groups = POOLED | {
        "neutron_defaults": {"sweep_interval": "1", "pod_security_groups": other},
        "patience": {"untold_port": 0.2},
    }

    async def has_followed():
        return (await stage.kuryrport("victim"))["status"]["securityGroupIds"] == [other]

    async with stage.controller(**groups):
        await swept(stage, 3)
        assert stage.cloud.ports[held]["security_groups"] == before
        assert not await has_followed()
        await end_of(stage, "thief", thief)
        await stage.until(has_followed)
    assert stage.cloud.ports[held]["security_groups"] == [other]
    assert "KuryrNotOurs" not in {reason for reason, _note in await stage.events()}


async def test_pooled_port_that_names_its_pod_is_not_given_away_though_its_kuryrport_lies(stage):
    groups = {
        "kubernetes": {"vif_pool_driver": "neutron"},
        "vif_pool": OPTIONS | {"port_names": "true"},
        "patience": {"pooled_port_name": 0.0},
    }
    async with stage.controller(**groups):
        pod, held = await run(stage, "victim")
        uid = pod["metadata"]["uid"]
        await stage.cloud.wait_for(lambda: stage.cloud.ports[held]["device_id"] == uid)
        await stage.cloud.wait_for(lambda: len(stage.cloud.ports) == 4)
    nothing = [{"op": "remove", "path": "/status/vifs"}]
    path = f"{stage.path('victim')}/status"
    await stage.client.patch(path, nothing, "application/json-patch+json")
    thief = await stage.cluster.add_pod("thief", node=NODE)
    async with stage.controller(**groups):
        await stage.until_plugged_in("thief")
        await forge(stage, "thief", held)
        await end_of(stage, "thief", thief)
        for number in range(3):
            _, port = await run(stage, f"next{number}")
            assert port != held
    assert stage.cloud.ports[held]["device_id"] == uid


@KINDS
async def test_change_of_status_vifs_by_others_is_undone_but_for_active(stage, groups):
    before = victim(stage)
    async with stage.controller(**groups):
        pod, port = await run(stage, "web")
        await stage.activate("web")
        wanted = (await stage.kuryrport("web"))["status"]["vifs"]
        await forge(stage, "web", before["id"], address="fa:16:3e:00:00:01", junk={"a": 1})

        async def restored():
            return (await stage.kuryrport("web"))["status"].get("vifs") == wanted

        await stage.until(restored)
        erased = [{"op": "remove", "path": "/status/vifs"}]
        path = f"{stage.path('web')}/status"
        await stage.client.patch(path, erased, "application/json-patch+json")
        await stage.until(restored)
        assert wanted["eth0"]["vif"]["versioned_object.data"]["active"]
        assert "KuryrPortForged" in {reason for reason, _ in await stage.events()}
        await end_of(stage, "web", pod)
    assert stage.cloud.ports[before["id"]] == before
    assert port not in stage.cloud.ports or groups


async def test_forged_project_is_not_believed(stage):
    tenant = stage.cloud.add_project("tenant")
    hang = Hang()
    async with stage.controller():
        stage.cloud.faults.add(method="POST", path="/ports$", times=1, action=refuse_after(hang))
        pod = await stage.cluster.add_pod("web", node=NODE)
        await hang.reached.wait()
        await stage.client.patch(f"{stage.path('web')}/status", {"status": {"projectId": tenant}})
        hang.release()
        await stage.until_plugged_in("web")
    (port,) = stage.ports_of(pod)
    assert port["project_id"] == stage.cloud.project_id


async def test_ports_of_another_cluster_with_our_tags_stay_and_stop_the_sweep(stage, neutron):
    body = {
        "network_id": stage.cloud.pods["id"],
        "device_owner": "compute:kuryr",
        "device_id": "a Pod of theirs",
        "binding:host_id": HOST,
    }
    theirs = stage.cloud.add_port(**body, tags=[TAG, OTHER_CLUSTER])["id"]
    ours = (await neutron.create_port(body | {"tags": [TAG]}))["id"]
    async with stage.controller(**OFTEN) as app:
        await swept(stage)
        await run(stage, "web")  # Pods are served
        await swept(stage)
        assert theirs in stage.cloud.ports
        assert ours in stage.cloud.ports  # nothing at all is swept
        labels = {"kind": "ports"}
        assert app.registry.get_sample_value("kuryr_other_clusters_objects", labels) == 1
        assert "KuryrTagsOverlap" in await stage.cluster_events()
        stage.cloud.remove_port(theirs)
        await stage.cloud.wait_for(lambda: ours not in stage.cloud.ports)
        assert app.registry.get_sample_value("kuryr_other_clusters_objects", labels) == 0


async def test_ports_of_an_earlier_version_are_adopted_if_a_kuryrport_names_them(stage):
    async with stage.controller():
        pod, port = await run(stage, "web")
        other, gone = await run(stage, "gone")
    for port_id in (port, gone):
        tags = [tag for tag in stage.cloud.ports[port_id]["tags"] if tag != MARK]
        stage.cloud.store.change("port", stage.cloud.ports[port_id], {"tags": tags})
    await stage.cluster.delete_pod(other)
    stray = stage.cloud.add_port(
        stage.cloud.pods["id"],
        device_owner="compute:kuryr",
        device_id="nobody",
        tags=[TAG, "kuryr-ifname:eth0"],
        **{"binding:host_id": HOST},
    )["id"]
    async with stage.controller(**OFTEN) as app:
        await stage.cloud.wait_for(lambda: MARK in stage.cloud.ports[port]["tags"])
        assert "kuryr-ifname:eth0" in stage.cloud.ports[port]["tags"]
        await stage.until_deleting("gone")
        await stage.let_go("gone")
        await stage.until_gone("gone")
        await swept(stage, 3)
        assert set(stage.cloud.ports) == {port, stray}
        assert app.registry.get_sample_value("kuryr_unmarked_objects", {"kind": "ports"}) == 1
        assert "KuryrUnmarked" in await stage.cluster_events()
        await end_of(stage, "web", pod)
    assert set(stage.cloud.ports) == {stray}


async def test_adopted_port_is_marked_after_keystone_refused_us_and_does_not_hold_up_others(stage):
    async with stage.controller():
        _, refused = await run(stage, "refused")
        _, other = await run(stage, "other")
    for port_id in (refused, other):
        tags = [tag for tag in stage.cloud.ports[port_id]["tags"] if tag != MARK]
        stage.cloud.store.change("port", stage.cloud.ports[port_id], {"tags": tags})
    path = f"/ports/{refused}/tags$"
    broken = stage.cloud.faults.add(method="PUT", path=path, times=None, action=answer(401))
    async with stage.controller(**OFTEN):
        await stage.cloud.wait_for(lambda: MARK in stage.cloud.ports[other]["tags"])
        await swept(stage)
        broken.remove()
        await stage.cloud.wait_for(lambda: MARK in stage.cloud.ports[refused]["tags"])


async def test_port_of_an_earlier_version_goes_with_a_pod_that_ends_before_any_search(stage):
    async with stage.controller():
        pod, port = await run(stage, "web")
    tags = [tag for tag in stage.cloud.ports[port]["tags"] if tag != MARK]
    stage.cloud.store.change("port", stage.cloud.ports[port], {"tags": tags})
    await stage.cluster.delete_pod(pod)
    hang = Hang()
    stage.cloud.faults.add(
        method="GET",
        path="/ports$",
        action=hang,
        when=lambda request: "device_owner" in request.query,
    )
    async with stage.controller():
        await stage.until_deleting("web")
        await stage.let_go("web")
        await stage.until_gone("web")
        hang.release()
    assert not stage.cloud.ports


async def test_ports_of_pools_are_known_where_a_port_of_another_project_hides_all_tags(stage):
    """Neutron shows the tags of a list to whom it shows those of its first port."""
    await stage.cluster.add_node("without-a-daemon")
    waits = await stage.cluster.add_pod("waits", node="without-a-daemon")
    async with stage.controller(**POOLED):
        await run(stage, "web")
        await stage.cloud.wait_for(lambda: len(stage.cloud.ports) == 4)
        await stage.until_event("KuryrNodeNotReady")
    ours = set(stage.cloud.ports)
    tenant = stage.cloud.add_project("tenant")
    network = stage.cloud.add_network("theirs", "10.77.0.0/24", project_id=tenant)
    alike = {"project_id": tenant, "device_owner": "compute:kuryr", "tags": [TAG, MARK]}
    while min(stage.cloud.ports) in ours:
        stage.cloud.add_port(network["id"], device_id=waits["metadata"]["uid"], **alike)
    before = copy_of(stage.cloud.ports)
    options = {name: dict(POOLED.get(name, {}), **OFTEN.get(name, {})) for name in POOLED | OFTEN}
    async with stage.controller(**options):
        await swept(stage, 3)
        _, taken = await run(stage, "another")
        assert taken in ours
        await swept(stage, 3)
    tags = {port_id: sorted(port["tags"]) for port_id, port in stage.cloud.ports.items()}
    assert {port_id: tags.get(port_id) for port_id in before} == {
        port_id: sorted(port["tags"]) for port_id, port in before.items()
    }


async def test_port_of_a_tenant_with_the_mark_of_a_cluster_stops_no_sweep(stage):
    tenant = stage.cloud.add_project("tenant")
    network = stage.cloud.add_network("theirs", "10.77.0.0/24", project_id=tenant)
    tags = [TAG, OTHER_CLUSTER]
    alike = {"project_id": tenant, "device_owner": "compute:kuryr", "tags": tags}
    stage.cloud.add_port(network["id"], device_id="vm", **alike)
    lost = stage.cloud.add_port(
        stage.cloud.pods["id"],
        project_id=stage.cloud.project_id,
        device_owner="compute:kuryr",
        device_id="a-pod-that-is-gone",
        tags=[TAG, MARK],
    )
    async with stage.controller(**OFTEN):
        await stage.cloud.wait_for(lambda: lost["id"] not in stage.cloud.ports)


def copy_of(ports):
    return json.loads(json.dumps(ports))
