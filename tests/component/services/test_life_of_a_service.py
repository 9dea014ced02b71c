"""The whole controller, a real API server, a fake Octavia: one Service's life and its turns."""

import asyncio
import json

import pytest

from tests.component.services.web import HTTP, TWO, UP, run
from tests.kit.confs import MARK
from tests.kit.load_balancer_services import open_up
from tests.kit.service_stage import CUT, FINALIZER, SPEC, STATE, VERSION

DRAINING = {"ready": False, "serving": True, "terminating": True}


async def test_service_gets_a_load_balancer_with_its_endpoints(services):
    async with services.controller():
        service = await run(services)
        (tree,) = services.trees()
    assert tree["name"] == f"{services.cluster.namespace}/web"
    assert tree["vip_address"] == service["spec"]["clusterIP"]
    assert tree["vip_subnet_id"] == services.cloud.services["subnets"][0]
    assert (tree["provider"], tree["project_id"]) == ("ovn", services.cloud.project_id)
    assert tree["tags"] == [
        MARK,
        f"kuryr-namespace:{services.cluster.namespace}",
        f"kuryr-service:{service['metadata']['uid']}",
        "test-cluster",
    ]
    (listener,) = tree["listeners"]
    assert listener["pool"]["lb_algorithm"] == "SOURCE_IP_PORT"
    pods = services.cloud.pods["subnets"][0]
    assert {member["subnet_id"] for member in listener["pool"]["members"]} == {pods}


async def test_spec_and_state_are_published_in_the_ancestors_formats(services):
    async with services.controller():
        service = await run(services)
        on_endpoints = (await services.endpoints())["metadata"]["annotations"]
        now = await services.service()
    on_service = now["metadata"]["annotations"]
    assert on_service[SPEC] == on_endpoints[SPEC]
    assert on_service[VERSION] == on_endpoints[VERSION] == service["metadata"]["resourceVersion"]
    spec = json.loads(on_service[SPEC])["versioned_object.data"]
    assert spec["ip"] == service["spec"]["clusterIP"]
    assert spec["ports"][0]["versioned_object.data"]["targetPort"] == "80"
    assert spec["security_groups_ids"] == [services.cloud.group["id"]]
    state = json.loads(on_endpoints[STATE])["versioned_object.data"]
    (balancer,) = services.cloud.load_balancers
    assert state["loadbalancer"]["versioned_object.data"]["id"] == balancer
    members = [member["versioned_object.data"] for member in state["members"]]
    assert {(member["ip"], member["port"]) for member in members} == set(TWO)
    assert STATE not in on_service
    assert CUT not in on_endpoints
    assert "finalizers" not in now["metadata"]  # Kubernetes expects a ClusterIP to go at once


async def test_service_whose_slice_comes_after_it_costs_no_more_writes(services):
    async with services.controller(patience={"service_slices": 60.0}):
        await services.add_service("web", HTTP)

        async def specs():
            return len(services.kube_writes()) == 2

        await services.until(specs)  # the handler loadbalancer has all but the slice
        await services.set_slice("a", "10.62.0.5", "10.62.0.6", ports=[("http", 8080)])
        await services.until_members(UP)
        assert services.octavia_calls() == [("POST", "/loadbalancers")]


async def test_service_without_slices_is_served_all_the_same(services):
    async with services.controller():
        await services.add_service("web", HTTP)
        await services.until_members({("TCP", 80): {}})


async def test_service_costs_three_writes_to_kubernetes_and_one_to_octavia(services):
    async with services.controller():
        await run(services)
        assert services.octavia_calls() == [("POST", "/loadbalancers")]
        assert sorted(services.kube_writes()) == [
            ("patch", "endpoints"),
            ("patch", "endpoints"),
            ("patch", "services"),
        ]
        await services.delete_service()
        await services.until_no_balancers()
    assert services.kube_writes().count(("patch", "services")) == 1
    assert services.octavia_calls()[1:] == [("DELETE", "/loadbalancers/{id}")]
    assert not services.cloud.load_balancers


async def test_unchanged_service_costs_a_restarted_controller_no_write(services):
    async with services.controller():
        await run(services)
    kube, octavia = services.kube_writes(), services.octavia_calls()
    async with services.controller():
        await services.add_service("other", HTTP)
        await services.until_published("other")
    assert len(services.octavia_calls()) == len(octavia) + 1
    assert len(services.kube_writes()) == len(kube) + 3


async def test_ports_added_renamed_and_removed_are_followed(services):
    async with services.controller():
        await run(services)
        ports = [{"name": "http", "port": 80}, {"name": "admin", "port": 9000}]
        await services.set_slice(
            "a", "10.62.0.5", "10.62.0.6", ports=[("http", 8080), ("admin", 9001)]
        )
        await services.patch_service(spec={"ports": ports})
        admin = {("10.62.0.5", 9001): 1, ("10.62.0.6", 9001): 1}
        await services.until_members(UP | {("TCP", 9000): admin})
        ports[1]["port"] = 9443
        await services.patch_service(spec={"ports": ports})
        await services.until_members(UP | {("TCP", 9443): admin})
        await services.patch_service(spec={"ports": [{"name": "www", "port": 80}]})
        await services.until_members({("TCP", 80): {}})
        await services.set_slice("a", "10.62.0.5", "10.62.0.6", ports=[("www", 8080)])
        await services.until_members(UP)
        await services.until_settled(listeners=1)


@pytest.mark.parametrize("provider", ["amphora", "ovn"])
async def test_endpoints_that_come_drain_and_go_are_followed(services, provider):
    """ovn knows no weights: there, who drains is no member."""
    if provider == "amphora":
        open_up(services)
    async with services.controller():
        await run(services)
        ending = ("10.62.0.6", DRAINING)
        await services.set_slice("b", "10.62.0.7", ending, ports=[("http", 9090)])
        await services.set_slice("a", "10.62.0.5", ending, ports=[("http", 8080)])
        ready = {("10.62.0.5", 8080): 1, ("10.62.0.7", 9090): 1}
        draining = {("10.62.0.6", 8080): 0, ("10.62.0.6", 9090): 0}
        members = ready if provider == "ovn" else ready | draining
        await services.until_members({("TCP", 80): members})
        await services.set_slice("b", ports=[("http", 9090)])
        await services.set_slice("a", "10.62.0.5", ports=[("http", 8080)])
        await services.until_members({("TCP", 80): {("10.62.0.5", 8080): 1}})


async def test_many_changes_of_endpoints_are_at_most_one_write_a_second(services):
    loop = asyncio.get_running_loop()
    async with services.controller():
        await run(services)
        before, begun = len(services.octavia_calls()), loop.time()
        for number in range(25):
            await services.set_slice("a", f"10.62.1.{number}", ports=[("http", 8080)])
            await asyncio.sleep(0.1)
        await services.until_members({("TCP", 80): {("10.62.1.24", 8080): 1}})
        seconds = loop.time() - begun
    # each change by itself would be 25, however long this took
    assert len(services.octavia_calls()) - before <= min(seconds + 1, 25 / 2)


@pytest.mark.parametrize("kind", ["NodePort", "LoadBalancer"])
async def test_other_types_have_their_cluster_ip_served_and_change_into_each_other(services, kind):
    async with services.controller():
        await run(services, type=kind)
        (balancer,) = services.cloud.load_balancers
        await services.patch_service(spec={"type": "ClusterIP"})

        async def followed():
            marks = (await services.endpoints())["metadata"]["annotations"]
            return '"type": "ClusterIP"' in marks[SPEC]

        await services.until(followed)
        assert set(services.cloud.load_balancers) == {balancer}


async def test_service_that_turns_into_an_external_name_loses_everything_and_gets_it_back(
    services,
):
    async with services.controller():
        await run(services)
        outside = {"type": "ExternalName", "externalName": "example.org"}
        none = {"clusterIP": None, "clusterIPs": None, "ipFamilies": None, "ipFamilyPolicy": None}
        await services.patch_service(spec=outside | none)
        await services.until_no_balancers()

        async def clean():
            meta = (await services.service())["metadata"]
            marks = (await services.endpoints())["metadata"].get("annotations")
            return not (meta.get("finalizers") or meta.get("annotations") or marks)

        await services.until(clean)
        await services.patch_service(spec={"type": "ClusterIP", "externalName": None})
        await services.until_members(UP)
        await services.until_published()
    assert not await services.events()


async def test_services_of_others_are_left_alone(services):
    proxied = {"service.kubernetes.io/service-proxy-name": "other"}
    async with services.controller():
        await services.add_service("headless", HTTP, clusterIP="None")
        await services.add_service("outside", type="ExternalName", externalName="example.org")
        await services.add_service("proxied", HTTP, labels=proxied)
        await services.add_service("web", HTTP)
        await services.until_published("web")
        for name in ("headless", "outside", "proxied"):
            meta = (await services.service(name))["metadata"]
            assert not meta.get("annotations")
            assert not any(
                finalizer.startswith("kuryr") for finalizer in meta.get("finalizers", ())
            )
    assert len(services.cloud.load_balancers) == 1
    assert not await services.events()


@pytest.mark.parametrize("label", ["headless", "service-proxy-name"])
async def test_slice_of_others_has_no_members(services, label):
    """Kubernetes' own slices are in use beside it."""
    name = f"service.kubernetes.io/{label}"
    path = f"/apis/discovery.k8s.io/v1/namespaces/{services.cluster.namespace}/endpointslices/b"
    both = {("TCP", 80): {("10.62.0.5", 8080): 1, ("10.62.0.9", 8080): 1}}
    async with services.controller():
        await services.set_slice("a", "10.62.0.5", ports=[("http", 8080)])
        await services.set_slice("b", "10.62.0.9", ports=[("http", 8080)])
        await services.add_service("web", HTTP)
        await services.until_members(both)
        await services.client.patch(path, {"metadata": {"labels": {name: "other"}}})
        await services.until_members({("TCP", 80): {("10.62.0.5", 8080): 1}})
        await services.client.patch(path, {"metadata": {"labels": {name: None}}})
        await services.until_members(both)


async def delete_before_octavia(services):
    """A Service is served, and deleted while Octavia ends nothing; its load balancer."""
    await run(services)
    services.cloud.octavia_pending = float("inf")
    (balancer,) = services.cloud.load_balancers
    await services.delete_service()
    await services.until_service_gone()
    return balancer


async def test_deleted_service_is_gone_at_once_and_its_load_balancer_follows(services):
    async with services.controller():
        balancer = await delete_before_octavia(services)
        await services.cloud.wait_for(
            lambda: (
                services.cloud.load_balancers[balancer]["provisioning_status"] == "PENDING_DELETE"
            )
        )
        services.cloud.octavia.progress.finish(balancer)
        await services.until_no_balancers()


async def test_service_deleted_while_octavia_makes_what_is_in_it_waits_for_that(services):
    """The ovn provider shows the load balancer ACTIVE before its parts, and never ends to make
    those whose load balancer has gone: they could not be deleted."""
    octavia = services.cloud.octavia
    async with services.controller():
        services.cloud.octavia_pending = float("inf")
        await services.set_slice("a", "10.62.0.5", ports=[("http", 8080)])
        await services.add_service("web", HTTP)
        await services.cloud.wait_for(lambda: services.cloud.load_balancers)
        (balancer,) = services.cloud.load_balancers.values()
        octavia.store.set_status(balancer, "ACTIVE")
        await services.delete_service()

        def looked_again():
            reads = [call for call in services.cloud.calls if call.what.endswith("/status")]
            return len(reads) > 2

        await services.cloud.wait_for(looked_again)
        assert balancer["provisioning_status"] == "ACTIVE"
        services.cloud.octavia_pending = 0
        octavia.progress.finish(balancer["id"])
        await services.until_no_balancers()
    assert not octavia.store.leaked


async def test_next_service_of_the_name_does_not_wait_until_the_last_ones_is_gone(services):
    async with services.controller():
        old = await delete_before_octavia(services)
        new = await services.add_service("web", HTTP)

        async def made():
            return {tree["vip_address"] for tree in services.trees()} >= {new["spec"]["clusterIP"]}

        await services.until(made)
        assert old in services.cloud.load_balancers
        for balancer in list(services.cloud.load_balancers):
            services.cloud.octavia.progress.finish(balancer)
        services.cloud.octavia_pending = 0
        await services.until_published()


async def test_finalizer_of_an_earlier_version_is_taken_off_a_cluster_ip(services):
    async with services.controller():
        await run(services)
        await services.patch_service(metadata={"finalizers": [FINALIZER]})

        async def off():
            return "finalizers" not in (await services.service())["metadata"]

        await services.until(off)
    assert services.members() == UP


async def test_service_of_another_class_has_its_cluster_ip_and_nothing_outside(services):
    async with services.controller():
        await run(services, type="LoadBalancer", loadBalancerClass="example.org/other")
        meta = (await services.service())["metadata"]
        assert not [name for name in meta.get("finalizers", ()) if name.startswith("kuryr")]
        assert not services.cloud.floating_ips
        await services.delete_service()
        await services.until_no_balancers()


async def test_service_made_again_with_the_same_address_gets_a_load_balancer_of_its_own(services):
    async with services.controller():
        old = await run(services)
        (old_id,) = services.cloud.load_balancers
        await services.delete_service()
        await services.until_service_gone()
        await run(services, clusterIP=old["spec"]["clusterIP"])
        (new_id,) = services.cloud.load_balancers
    assert new_id != old_id
    assert not await services.events()


async def test_service_made_again_by_force_gets_a_load_balancer_of_its_own(services):
    async with services.controller():
        old = await run(services)
        (old_id,) = services.cloud.load_balancers
        services.proxy.events.hold("services")  # else it might be put on again
        await services.delete_service()  # nobody holds it: it is gone at once
        services.proxy.events.release()
        new = await run(services, clusterIP=old["spec"]["clusterIP"])
        await services.until_published()

        async def alone():
            return len(services.cloud.load_balancers) == 1

        await services.until(alone)
        (new_id,) = services.cloud.load_balancers
        (tree,) = services.trees()
    assert new_id != old_id
    assert f"kuryr-service:{new['metadata']['uid']}" in tree["tags"]


async def test_what_happened_while_the_controller_was_down_is_made_up_for(services):
    async with services.controller():
        await run(services)
        await services.set_slice("x", "10.62.0.9", ports=[("http", 80)], service="gone")
        await services.add_service("gone", HTTP)
        await services.until_published("gone")
    await services.set_slice("a", "10.62.0.5", ports=[("http", 8080)])
    await services.delete_service("gone")
    async with services.controller():
        await services.until_members({("TCP", 80): {("10.62.0.5", 8080): 1}})

        async def alone():
            return [tree["name"].partition("/")[2] for tree in services.trees()] == ["web"]

        await services.until(alone)


async def test_service_without_endpoints_has_its_state_itself_until_they_come(services):
    body = {"selector": None}
    async with services.controller():
        await services.set_slice("a", "10.62.0.5", "10.62.0.6", ports=[("http", 8080)])
        await services.add_service("web", HTTP, endpoints=False, **body)
        await services.until_members(UP)
        await services.until_published(of=services.service)
        await services.add_endpoints("web")
        await services.until_published()

        async def moved():
            return STATE not in (await services.service())["metadata"]["annotations"]

        await services.until(moved)


async def test_dual_stack_service_is_served_in_both_families(services):
    async with services.controller():
        await services.set_slice("a", "10.62.0.5", ports=[("http", 8080)])
        await services.set_slice("b", "fd62::5", ports=[("http", 8080)], family="IPv6")
        service = await services.add_service("web", HTTP, ipFamilyPolicy="RequireDualStack")

        async def both():
            return len(services.cloud.load_balancers) == 2

        await services.until(both)
        await services.until_published()
        first, second = service["spec"]["clusterIPs"]

        async def served():
            found = {
                tree["vip_address"]: [
                    member["address"] for member in tree["listeners"][0]["pool"]["members"]
                ]
                for tree in services.trees()
            }
            return found == {first: ["10.62.0.5"], second: ["fd62::5"]}

        await services.until(served)
        single = {"ipFamilyPolicy": "SingleStack", "clusterIPs": [first], "ipFamilies": ["IPv4"]}
        await services.patch_service(spec=single)

        async def one():
            return [tree["vip_address"] for tree in services.trees()] == [first]

        await services.until(one)
        await services.delete_service()
        await services.until_no_balancers()
