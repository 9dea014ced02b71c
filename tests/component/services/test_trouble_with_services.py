"""What others do to Services and load balancers, and what cannot be had."""

import functools
import json

import pytest
from aiohttp import web

from kuryr_k8s.handlers.services.loadbalancer import LoadBalancerHandler
from kuryr_k8s.handlers.services.state import BUDGET
from tests.component.services.web import HTTP, TWO, UP, run
from tests.kit.fakes.faults import answer
from tests.kit.fakes.octavia.kinds import LISTENER, POOL
from tests.kit.kube.objects import make_endpointslice, path_of
from tests.kit.service_stage import CUT, SPEC, STATE, VERSION, ServiceStage


@pytest.mark.parametrize("provider", ["ovn", "amphora"])
async def test_service_is_served_while_octavia_takes_its_time(services, provider):
    services.cloud.octavia_pending = 0.3
    services.options["kubernetes"]["endpoints_driver_octavia_provider"] = provider
    if provider == "amphora":
        services.options["octavia_defaults"] |= {
            "member_mode": "L3",
            "lb_algorithm": "ROUND_ROBIN",
        }
    async with services.controller():
        await run(services)
        await services.set_slice("a", "10.62.0.5", ports=[("http", 8080)])
        await services.until_members({("TCP", 80): {("10.62.0.5", 8080): 1}})
        await services.delete_service()
        await services.until_no_balancers()


async def test_thousand_members_are_served_and_those_that_fit_are_published(services):
    addresses = [f"10.62.{number // 250}.{number % 250}" for number in range(1000)]
    async with services.controller():
        for start in range(0, 1000, 100):
            some = addresses[start : start + 100]
            await services.set_slice(f"s{start}", *some, ports=[("http", 8080)])
        await services.add_service("web", HTTP)
        await services.until_members({("TCP", 80): {(address, 8080): 1 for address in addresses}})

        async def told_of_all():  # before, perhaps, of those slices that were heard of
            marks = await services.until_published()
            return marks if marks.get(CUT, "").endswith(" of 1000") else None

        marks = await services.until(told_of_all)
    state = json.loads(marks[STATE])["versioned_object.data"]
    assert len(marks[STATE]) <= BUDGET
    assert marks[CUT] == f"{len(state['members'])} of 1000"
    assert len(state["members"]) > 300


async def test_state_that_cannot_be_published_holds_up_nothing(services):
    async with services.controller():
        await run(services)
        services.proxy.faults.add(
            method="PATCH", path="/endpoints/", times=None, action=answer(500)
        )
        for number in range(3):
            await services.set_slice("a", f"10.62.1.{number}", ports=[("http", 8080)])
            await services.until_members({("TCP", 80): {(f"10.62.1.{number}", 8080): 1}})
        await services.patch_service(spec={"sessionAffinity": "ClientIP"})

        async def followed():
            (tree,) = services.trees()
            return tree["listeners"][0]["pool"]["lb_algorithm"] == "SOURCE_IP"

        await services.until(followed)


async def test_endpoints_that_never_get_their_spec_hold_up_nothing(services):
    services.proxy.faults.add(method="PATCH", path="/endpoints/", times=None, action=answer(403))
    async with services.controller():
        await services.set_slice("a", "10.62.0.5", "10.62.0.6", ports=[("http", 8080)])
        await services.add_service("web", HTTP)
        await services.until_members(UP)
        await services.set_slice("a", "10.62.1.1", ports=[("http", 8080)])
        await services.until_members({("TCP", 80): {("10.62.1.1", 8080): 1}})


async def test_endpoints_are_left_alone_where_the_operator_says_so(services):
    async with services.controller(kubernetes={"annotate_endpoints": "false"}):
        await services.set_slice("a", "10.62.0.5", "10.62.0.6", ports=[("http", 8080)])
        await services.add_service("web", HTTP)
        await services.until_members(UP)
        marks = await services.until_published(of=services.service)
        assert {SPEC, VERSION, STATE} <= marks.keys()
    assert "annotations" not in (await services.endpoints())["metadata"]
    assert not [call for call in services.proxy.calls if call.what == "endpoints"]


async def test_annotations_of_users_are_never_taken_for_the_truth(services):
    async with services.controller():
        await run(services)
        marks = (await services.service())["metadata"]["annotations"]
        forged = json.loads(marks[SPEC])
        forged["versioned_object.data"]["project_id"] = "somebody-else"
        both = {SPEC: json.dumps(forged, sort_keys=True), VERSION: "1"}
        patch = {"metadata": {"annotations": both}}
        await services.client.patch(services.endpoints_path(), patch)
        await services.client.patch(services.service_path(), patch)

        async def put_right():
            places = (await services.service(), await services.endpoints())
            return [place["metadata"]["annotations"][SPEC] for place in places] == [
                marks[SPEC]
            ] * 2

        await services.until(put_right)
    (tree,) = services.trees()
    assert tree["project_id"] == services.cloud.project_id


async def marks_of(services):
    """Return the annotations of the Service and its Endpoints, without the version read."""
    found = (await services.service(), await services.endpoints())
    marks = [resource["metadata"].get("annotations") or {} for resource in found]
    return [
        {name: text for name, text in annotations.items() if name != VERSION}
        for annotations in marks
    ]


async def test_annotations_that_are_lost_are_written_again_and_change_nothing(services):
    async with services.controller():
        await run(services)
        marks = await marks_of(services)
        assert SPEC in marks[0]
        assert STATE in marks[1]
        writes = services.octavia_calls()
        await services.client.patch(services.endpoints_path(), {"metadata": {"annotations": None}})
        await services.client.patch(services.service_path(), {"metadata": {"annotations": None}})

        async def as_before():
            return await marks_of(services) == marks

        await services.until(as_before)
    assert services.octavia_calls() == writes
    assert services.members() == UP


async def test_endpoints_deleted_by_hand_are_annotated_when_they_come_back(services):
    async with services.controller():
        await run(services)
        await services.client.delete(services.endpoints_path())
        await services.add_endpoints("web")
        await services.until_published()
    assert services.members() == UP


async def test_load_balancer_of_nobody_goes_when_two_searches_have_found_it(services):
    quick = {"neutron_defaults": {"sweep_interval": "1"}}
    async with services.controller(**quick):
        await run(services)
    await services.delete_service()
    async with services.controller(**quick):
        await services.add_service("other", HTTP)
        await services.until_published("other")

        async def alone():
            return [tree["name"].partition("/")[2] for tree in services.trees()] == ["other"]

        await services.until(alone)


@pytest.mark.parametrize("what", ["listener", "pool", "member", "weight", "load balancer"])
async def test_what_others_change_in_octavia_is_put_right_and_told(services, what):
    octavia = services.cloud.octavia
    async with services.controller(neutron_defaults={"sweep_interval": "1"}):
        await run(services)
        (before,) = services.trees()
        (balancer,) = services.cloud.load_balancers.values()
        (listener,) = octavia.store.parts(LISTENER, balancer["id"])
        (pool,) = octavia.store.parts(POOL, balancer["id"])
        member = octavia.store.members(pool["id"])[0]
        balancer["updated_at"] = "2030-01-01T00:00:00"
        if what == "weight":
            member["weight"] = 7
        else:
            victims = {"listener": listener, "pool": pool, "member": member}
            octavia.remove(victims.get(what, balancer)["id"])
        assert services.trees() != [before]

        async def mended():
            return services.trees() == [before]

        await services.until(mended)

        async def told():
            return "KuryrLoadBalancerChanged" in dict(await services.events())

        await services.until(told)


async def test_timeout_of_affinity_that_cannot_be_kept_is_told_once(services):
    timeout = {"clientIP": {"timeoutSeconds": 60}}
    async with services.controller():
        await run(services, sessionAffinity="ClientIP", sessionAffinityConfig=timeout)
        await services.set_slice("a", "10.62.0.5", ports=[("http", 8080)])
        await services.until_members({("TCP", 80): {("10.62.0.5", 8080): 1}})

        async def told():
            return [reason for reason, _ in await services.events()]

        assert await services.until(told) == ["KuryrAffinityTimeoutNotKept"]
        (tree,) = services.trees()
    assert tree["listeners"][0]["pool"]["lb_algorithm"] == "SOURCE_IP"


@pytest.mark.parametrize(
    ("provider", "usual", "calls"),
    [
        # the ovn provider ignores the algorithm in a change of a pool
        ("ovn", "SOURCE_IP_PORT", ["POST pools", "PUT pools", "PUT listeners", "DELETE pools"]),
        ("amphora", "ROUND_ROBIN", ["PUT pools"]),
    ],
)
async def test_affinity_comes_and_goes_and_nothing_that_serves_goes_before_its_successor(
    services, provider, usual, calls, monkeypatch
):
    """All within one second, which is as exact as Octavia's times are."""
    monkeypatch.setattr("tests.kit.fakes.octavia.store._now", lambda: "2026-01-01T00:00:00")
    services.options["kubernetes"]["endpoints_driver_octavia_provider"] = provider
    del services.options["octavia_defaults"]["lb_algorithm"]

    async def pool_is(algorithm, persistence):
        (tree,) = services.trees()
        pool = tree["listeners"][0]["pool"]
        shown = pool["lb_algorithm"], (pool["session_persistence"] or {}).get("type")
        return shown == (algorithm, persistence) and not tree["loose_pools"]

    affine = ("SOURCE_IP", None) if provider == "ovn" else (usual, "SOURCE_IP")
    async with services.controller():
        await run(services)
        for affinity, shown in (("ClientIP", affine), ("None", (usual, None))):
            before = len(services.octavia_calls())
            await services.patch_service(spec={"sessionAffinity": affinity})
            await services.until(functools.partial(pool_is, *shown))
            assert [
                f"{method} {path.split('/')[1]}"
                for method, path in services.octavia_calls()[before:]
            ] == calls
            assert services.members() == UP


@pytest.mark.parametrize(("provider", "has_subnet"), [("ovn", True), ("amphora", False)])
async def test_members_are_reached_as_the_provider_can(services, provider, has_subnet):
    services.options["kubernetes"]["endpoints_driver_octavia_provider"] = provider
    services.options["octavia_defaults"].clear()
    async with services.controller():
        await run(services)
        (tree,) = services.trees()
        members = tree["listeners"][0]["pool"]["members"]
        assert members
        assert all(bool(member["subnet_id"]) is has_subnet for member in members)


async def test_cache_that_lags_behind_takes_no_load_balancer_away(services):
    label = "service.kubernetes.io/service-proxy-name"
    async with services.controller():
        await run(services)
        services.proxy.events.slow(0.5, "services")
        services.proxy.events.hold("services")  # the server is to know better by then
        await services.patch_service(metadata={"labels": {label: "other"}})
        affine = {"sessionAffinity": "ClientIP"}
        await services.patch_service(metadata={"labels": {label: None}}, spec=affine)
        services.proxy.events.release()

        async def followed():
            algorithms = [
                tree["listeners"][0]["pool"]["lb_algorithm"] for tree in services.trees()
            ]
            return algorithms == ["SOURCE_IP"]

        await services.until(followed)
    assert ("DELETE", "/loadbalancers/{id}") not in services.octavia_calls()


async def test_quota_that_is_used_up_is_told_and_waited_for(services):
    octavia = services.cloud.octavia
    octavia.set_quota(services.cloud.project_id, loadbalancer=0)
    async with services.controller():
        await services.set_slice("a", "10.62.0.5", "10.62.0.6", ports=[("http", 8080)])
        await services.add_service("web", HTTP)
        await services.until_event("OpenStackQuotaExceeded")
        octavia.set_quota(services.cloud.project_id, loadbalancer=-1)
        await services.until_members({("TCP", 80): TWO})


async def test_the_api_servers_own_service_is_served_with_its_addresses(
    services, shipped_permissions, whole_server
):
    """Its endpoints are no Pods; this server leaves its slice to us."""
    everywhere = ServiceStage(
        shipped_permissions,
        services.cloud,
        whole_server,
        services.load_conf,
        options=services.options,
    )
    path = "/api/v1/namespaces/default/services/kubernetes"
    own = make_endpointslice(
        "kubernetes", "kubernetes", ("192.0.2.1", "192.0.2.2"), [("https", 6443)]
    )
    for endpoint in own["endpoints"]:
        del endpoint["targetRef"]
    await everywhere.client.create(own)
    try:
        async with everywhere.controller():

            async def served():
                members = {("192.0.2.1", 6443): 1, ("192.0.2.2", 6443): 1}
                return everywhere.members().get(("TCP", 443)) == members

            await everywhere.until(served)
            service = await everywhere.client.get(path)
        addresses = [tree["vip_address"] for tree in everywhere.trees()]
        assert service["spec"]["clusterIP"] in addresses
    finally:
        await everywhere.client.delete(path_of(own))
        nothing = {"metadata": {"finalizers": None, "annotations": None}}
        await everywhere.client.patch(path, nothing)


def handler_of(app):
    """The controller's handler of load balancers."""
    [found] = [handler for handler in app.handlers if isinstance(handler, LoadBalancerHandler)]
    return found


async def test_nothing_is_remembered_of_a_service_that_went_before_it_had_a_finalizer(services):
    services.proxy.faults.add(method="PATCH", path="/services/", times=None, action=answer(500))

    async def remembered():
        return handler_of(app)._settings

    async def forgotten():
        return not handler_of(app)._settings

    async with services.controller() as app:
        await services.add_service("web", HTTP)
        await services.until(remembered)
        await services.delete_service()
        await services.until(forgotten)


async def test_since_when_a_service_waits_is_forgotten_when_it_is_no_more_ours(services):
    async def waits():
        return handler_of(app)._unsliced

    async def forgotten():
        return not handler_of(app)._unsliced

    async with services.controller(patience={"service_slices": 60.0}) as app:
        await services.add_service("web", HTTP)
        await services.until(waits)
        outside = {"type": "ExternalName", "externalName": "example.org"}
        gone = {"clusterIP": None, "clusterIPs": None, "ipFamilies": None, "ipFamilyPolicy": None}
        await services.patch_service(spec=outside | gone)
        await services.until(forgotten)


async def test_members_that_octavia_refuses_once_are_asked_for_again_soon(services):
    """It answers 400 for what it could not ask Neutron, too."""
    async with services.controller():
        await run(services)
        services.cloud.faults.add(method="PUT", path="/members", times=1, action=answer(400))
        await services.set_slice("a", "10.62.0.8", ports=[("http", 8080)])
        await services.until_event("OpenStackRefused")
        await services.set_slice("a", "10.62.0.9", ports=[("http", 8080)])
        await services.until_members({("TCP", 80): {("10.62.0.9", 8080): 1}})


async def test_change_that_octavia_accepts_and_does_not_make_is_told_once(services):
    async def accept(_request, _proceed):
        return web.Response(status=202)

    async with services.controller(patience={"unseen_change": 0.0}):
        await run(services)
        ignored = services.cloud.faults.add(
            method="PUT", path="/members", times=None, action=accept
        )
        await services.set_slice("a", "10.62.0.8", ports=[("http", 8080)])
        await services.until_event("KuryrLoadBalancerUnchanged")
        hits = ignored.hits
        label = {"metadata": {"labels": {"looked": "again"}}}
        await services.patch_service(**label)
        await services.cloud.wait_for(lambda: ignored.hits > hits)
        ignored.remove()
        await services.patch_service(metadata={"labels": None})
        await services.until_members({("TCP", 80): {("10.62.0.8", 8080): 1}})
        told = [reason for reason, _note in await services.events()]
    assert told == ["KuryrLoadBalancerUnchanged"]


@pytest.mark.parametrize("settings", [{}, {"openstack.org/kuryr-timeout-client-data": "7000"}])
async def test_creation_that_octavia_refuses_once_is_asked_for_again_as_it_was(services, settings):
    """It answers 403 for a moment after its start: no reason to leave out what users ask for."""
    path = "/lbaas/loadbalancers"
    services.cloud.faults.add(method="POST", path=path, times=1, action=answer(403))
    async with services.controller():
        await services.set_slice("a", "10.62.0.5", ports=[("http", 8080)])
        await services.add_service("web", HTTP, annotations=settings)
        await services.until_members({("TCP", 80): {("10.62.0.5", 8080): 1}})
        await services.until_published()
        (tree,) = services.trees()
    assert (tree["listeners"][0]["timeout_client_data"] == 7000) == bool(settings)
