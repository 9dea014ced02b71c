"""What a controller finds in the cloud that no Service has."""

import pytest

from kuryr_k8s.drivers.public_ip.marks import FOUND_TAG, KEEP_TAG
from tests.kit.confs import MARK, TAG
from tests.kit.load_balancer_services import (
    HTTP,
    expose,
    floating,
    marks,
    open_up,
    until_reached,
)

GONE = "0e3b7d10-1111-4222-8333-444455556666"


EARLIER = "1f4c8e21-1111-4222-8333-444455556666"
THEIRS = "kuryr-cluster:0f0e0d0c-0000-4000-8000-00000000000b"


def tags(owner):
    return [TAG, "kuryr-namespace:default", f"kuryr-service:{owner}"]


def add_floating_ip(cloud, network, description="", tags=()):
    made = cloud.add_floating_ip(network["id"], description=description)
    cloud.store.change("floatingip", made, {"tags": list(tags)})
    return made["id"]


async def test_what_bears_the_mark_of_another_cluster_stays_and_stops_the_sweeps(services):
    """The two have one kuryr.conf."""
    cloud = services.cloud
    public = cloud.add_external_network("public", "172.24.4.0/24")
    theirs = add_floating_ip(cloud, public, tags=[*tags(GONE), THEIRS])
    ours = add_floating_ip(cloud, public, tags=[*tags(GONE), MARK])
    options = {"sweep_interval": "1", "external_svc_net": public["id"]}
    async with services.controller(neutron_defaults=options):
        await services.add_service("web", HTTP)
        await services.until_published("web")
    (balancer_id,) = cloud.load_balancers
    balancer = cloud.octavia.store.part(balancer_id)
    balancer["tags"] = [*tags(GONE), THEIRS]
    await services.delete_service("web")
    async with services.controller(neutron_defaults=options) as app:

        async def reported():
            kinds = ("load balancers", "public IPs")
            return all(others_of(app, kind) == 1 for kind in kinds)

        await services.until(reported)
        begun = searches(cloud)
        await cloud.wait_for(lambda: searches(cloud) >= begun + 4)
        assert set(cloud.floating_ips) == {theirs, ours}
        assert list(cloud.load_balancers) == [balancer_id]
        cloud.remove_floating_ip(theirs)
        cloud.octavia.remove(balancer_id)
        await cloud.wait_for(lambda: not cloud.floating_ips)


def others_of(app, kind):
    name = "kuryr_other_clusters_objects"
    return app.registry.get_sample_value(name, {"kind": kind})


def searches(cloud):
    return sum(call.method == "GET" and call.path.endswith("/floatingips") for call in cloud.calls)


async def test_cluster_with_our_tags_in_a_project_of_no_service_stops_no_sweep(services):
    """Only an administrator's account sees it."""
    cloud = services.cloud
    cloud.promote("admin")
    stranger = cloud.add_project("stranger")
    public = cloud.add_external_network("public", "172.24.4.0/24")
    quick = {"sweep_interval": "1", "external_svc_net": public["id"]}
    async with services.controller(neutron_defaults=quick):
        await services.add_service("web", HTTP)
        await services.add_service("other", HTTP)
        await services.until_published("web")
        await services.until_published("other")
    vip = (await services.service("web"))["spec"]["clusterIP"]
    theirs = next(each for each in cloud.load_balancers.values() if each["vip_address"] == vip)
    cloud.octavia.store.part(theirs["id"]).update(
        project_id=stranger, tags=[*tags(EARLIER), THEIRS]
    )
    for name in ("web", "other"):
        await services.delete_service(name)
        await services.until_service_gone(name)
    async with services.controller(neutron_defaults=quick):
        await cloud.wait_for(lambda: list(cloud.load_balancers) == [theirs["id"]])


async def test_what_a_project_that_is_ours_no_more_has_is_reported_and_stays(services):
    cloud, options = services.cloud, {"sweep_interval": "1"}
    cloud.promote("admin")
    former = cloud.add_project("former")
    async with services.controller(neutron_defaults=options):
        await services.add_service("web", HTTP)
        await services.until_published("web")
    [balancer_id] = cloud.load_balancers
    cloud.octavia.store.part(balancer_id)["project_id"] = former
    await services.delete_service("web")
    await services.until_service_gone("web")
    async with services.controller(neutron_defaults=options) as app:

        def reported():
            name, kind = "kuryr_other_projects_objects", {"kind": "load balancers"}
            return app.registry.get_sample_value(name, kind)

        await cloud.wait_for(lambda: reported() == 1)

        async def told():
            return "KuryrProjectUnknown" in await services.cluster_events()

        await services.until(told)
        begun = listed(cloud)
        await cloud.wait_for(lambda: listed(cloud) >= begun + 6)
        assert list(cloud.load_balancers) == [balancer_id]
        cloud.octavia.remove(balancer_id)
        await cloud.wait_for(lambda: reported() == 0)


async def test_load_balancer_of_an_earlier_version_gets_the_mark_once(services):
    cloud = services.cloud
    async with services.controller():
        await services.add_service("web", HTTP)
        await services.until_published("web")
    (balancer_id,) = cloud.load_balancers
    balancer = cloud.octavia.store.part(balancer_id)
    assert MARK in balancer["tags"]
    parts = services.trees()
    balancer["tags"] = [tag for tag in balancer["tags"] if tag != MARK] + ["joes"]
    writes = len(services.octavia_calls())
    async with services.controller():
        await cloud.wait_for(lambda: {MARK, "joes"} <= set(balancer["tags"]))
        await services.add_service("other", HTTP)
        await services.until_published("other")
    methods = [method for method, _kind in services.octavia_calls()[writes:]]
    assert methods == ["PUT", "POST"]
    assert {tree["vip_address"] for tree in parts} <= {
        tree["vip_address"] for tree in services.trees()
    }


async def test_floating_ips_and_vip_ports_of_nobody_go_and_those_of_others_stay(services):
    cloud = services.cloud
    public = cloud.add_external_network("public", "172.24.4.0/24")
    service = await services.add_service("web", HTTP)

    def floating_ip(description="", tags=()):
        return add_floating_ip(cloud, public, description, tags)

    marked = floating_ip(tags=[*tags(GONE), MARK])
    unmarked_yet = floating_ip(f"kuryr-service:{GONE} {MARK}")
    found = floating_ip("ask Joe", [*tags(GONE), MARK, FOUND_TAG, "joes"])
    others = floating_ip(f"kuryr-service:{GONE} other-cluster")
    earlier = floating_ip(f"kuryr-service:{EARLIER} {TAG}", tags(EARLIER))  # it knew no marks
    peoples = floating_ip("ask Joe")
    port = cloud.add_port(
        cloud.services["id"],
        name=f"ovn-lb-vip-{GONE}",
        device_id=f"lb-{GONE}",
        device_owner="ovn-lb:vip",
    )
    options = {"sweep_interval": "1", "external_svc_net": public["id"]}
    async with services.controller(neutron_defaults=options):
        await services.until_published("web")
        await cloud.wait_for(lambda: port["id"] not in cloud.ports)
        await cloud.wait_for(lambda: {marked, unmarked_yet}.isdisjoint(cloud.floating_ips))
        await cloud.wait_for(lambda: cloud.floating_ips[found]["tags"] == ["joes"])
    assert set(cloud.floating_ips) == {found, others, earlier, peoples}
    assert [kept["description"] for kept in cloud.floating_ips.values()].count("ask Joe") == 2
    assert len(cloud.load_balancers) == 1
    assert service["metadata"]["uid"] != GONE


@pytest.mark.parametrize("kept", [True, False])
async def test_address_to_be_kept_stays_where_the_service_goes_while_no_controller_runs(
    services, kept
):
    open_up(services)
    cloud = services.cloud
    async with services.controller():
        marked = marks(keep_floatingip="true")
        await expose(services, annotations=marked)
        await until_reached(services)
        if not kept:
            await services.patch_service(metadata={"annotations": dict.fromkeys(marked)})
            (floating_ip,) = cloud.floating_ips.values()
            await cloud.wait_for(lambda: KEEP_TAG not in floating_ip["tags"])
    (address,) = floating(services)
    await services.patch_service(metadata={"finalizers": None})
    await services.delete_service()
    await services.until_service_gone()
    async with services.controller(neutron_defaults={"sweep_interval": "1"}):
        await services.until_no_balancers()
        if kept:
            await cloud.wait_for(lambda: floating(services) == {address: None})
            (floating_ip,) = cloud.floating_ips.values()
            await cloud.wait_for(lambda: not floating_ip["tags"])
            assert floating_ip["description"] == ""
        else:
            await cloud.wait_for(lambda: not cloud.floating_ips)


async def test_address_that_a_refused_load_balancer_left_taken_is_free_soon(services):
    """And not only at the next search, in ten minutes."""
    patience = {"refused_vip": 0.2, "vip_port_confirmed": 0.5}
    cloud = services.cloud
    async with services.controller(patience=patience):
        await services.add_service("first", HTTP)
        await services.until_published("first")
        cloud.octavia.set_quota(cloud.project_id, listener=1)
        await services.add_service("web", HTTP)
        await cloud.wait_for(lambda: len(vip_ports(cloud)) > 1)
        assert len(cloud.load_balancers) == 1
        cloud.octavia.set_quota(cloud.project_id, listener=-1)
        await services.until_published("web")
    assert len(vip_ports(cloud)) == len(cloud.load_balancers) == 2


def vip_ports(cloud):
    return [port for port in cloud.ports.values() if port["device_id"].startswith("lb-")]


@pytest.mark.parametrize("immutable", [False, True], ids=["deletable", "immutable"])
async def test_parts_without_a_load_balancer_go_or_are_reported_until_they_are_gone(
    services, immutable
):
    octavia = services.cloud.octavia
    options = {"sweep_interval": "1"}
    async with services.controller(neutron_defaults=options):
        await services.add_service("web", HTTP)
        await services.until_published("web")
    (balancer_id,) = services.cloud.load_balancers
    await services.delete_service("web")
    parts = octavia.store.ids_inside(balancer_id)
    octavia.strand(balancer_id, immutable=immutable)
    async with services.controller(neutron_defaults=options) as app:

        def left():
            return app.registry.get_sample_value("kuryr_load_balancer_parts_left")

        async def reported():
            reasons = await services.cluster_events()
            return left() == 2 and "KuryrLoadBalancerPartsLeft" in reasons

        if immutable:
            await services.until(reported)
            assert octavia.store.ids_inside(balancer_id) == parts
            octavia.store.stranded[balancer_id] = False  # the administrator has mended it
        await services.cloud.wait_for(lambda: not octavia.store.ids_inside(balancer_id))
        await services.cloud.wait_for(lambda: left() == 0)


async def test_parts_in_load_balancers_of_others_are_not_taken_for_stray(services):
    cloud = services.cloud
    async with services.controller(neutron_defaults={"sweep_interval": "1"}):
        await services.add_service("web", HTTP)
        await services.until_published("web")
        [balancer_id] = cloud.load_balancers
        parts = cloud.octavia.store.ids_inside(balancer_id)
        cloud.octavia.store.part(balancer_id)["tags"] = ["operator"]
        begun = listed(cloud)
        await cloud.wait_for(lambda: listed(cloud) >= begun + 6)
    assert cloud.octavia.store.part(parts[0]) is not None


async def test_parts_of_another_project_are_not_taken_for_stray(services):
    """Only an administrator's account sees them."""
    cloud, options = services.cloud, {"sweep_interval": "1"}
    cloud.promote("admin")
    stranger = cloud.add_project("stranger")
    async with services.controller(neutron_defaults=options):
        await services.add_service("web", HTTP)
        await services.until_published("web")
    [balancer_id] = cloud.load_balancers
    await services.delete_service("web")
    parts = cloud.octavia.store.ids_inside(balancer_id)
    for part_id in parts:
        cloud.octavia.store.part(part_id)["project_id"] = stranger
    cloud.octavia.strand(balancer_id, immutable=False)
    async with services.controller(neutron_defaults=options):
        begun = listed(cloud)
        await cloud.wait_for(lambda: listed(cloud) >= begun + 6)
    assert cloud.octavia.store.ids_inside(balancer_id) == parts


def listed(cloud):
    return sum(call.method == "GET" and call.path.endswith("/pools") for call in cloud.calls)
