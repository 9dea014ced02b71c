"""Pods that list our readiness gate: they are Ready once the cloud sends them connections."""

import uuid

import pytest
import yaml

from kuryr_k8s.model.load_balancer import DELETED
from tests.component.services.web import HTTP
from tests.kit.fakes.faults import Hang, answer, cut, lose_reply
from tests.kit.fakes.octavia.kinds import MEMBER, POOL
from tests.kit.gated_pods import GATES, UNREADY, GatedPod
from tests.kit.kube.objects import make_pod, path_of
from tests.kit.load_balancer_services import (
    INTERNAL,
    READY,
    ingress_of,
    marks,
    open_up,
    operators,
    until_condition,
    until_reached,
)
from tests.kit.paths import ETC

PORTS = [("http", 8080)]
OLD, NEW = "10.62.0.5", "10.62.0.6"
BOTH = {("TCP", 80): {(OLD, 8080): 1, (NEW, 8080): 1}}
FIRST = {("TCP", 80): {(OLD, 8080): 1}}
MONITORED = marks(enable_health_monitor="true")
RANGES = ["203.0.113.0/24"]
UNREADABLE = marks(enable_health_monitor="maybe")
# no Pod looks at a health monitor again by itself
NEVER = {"first_health_look": 600.0, "longest_health_look": 600.0, "slow_gate": 600.0}
WAITING = "KuryrReadinessGateWaiting"


async def serve(services, **spec):
    """A Service with one endpoint that is ready."""
    await services.set_slice("a", OLD, ports=PORTS)
    await services.add_service("web", HTTP, **spec)
    await services.until_members(FIRST)


async def add_pod(services, name="new", *addresses, **how):
    """A Pod with the gate whose containers are ready; its endpoint is not."""
    pod = await GatedPod(services, name, *(addresses or (NEW,)), **how).start()
    await services.set_slice("a", OLD, pod.endpoint(), ports=PORTS)
    return pod


async def until_waiting(services, app, pods=1):
    """Wait until the controller knows of so many Pods that wait for their gates."""

    async def waiting():
        return app.registry.get_sample_value("kuryr_readiness_gates_waiting") == pods

    await services.until(waiting)


def writes_of_gates(services):
    """All writes to statuses of Pods so far."""
    return [call for call in services.proxy.calls if call.what == "pods/status"]


async def until_slices_seen(services):
    """Wait until the controller has acted on a slice that is made now."""
    await services.set_slice("seen", "10.62.9.9", ports=PORTS)
    await services.until(lambda: has_member(services, "web", "10.62.9.9"))
    await services.client.delete(
        f"/apis/discovery.k8s.io/v1/namespaces/{services.cluster.namespace}/endpointslices/seen"
    )


def reads_of_statuses(services):
    """All reads of what is in a load balancer so far."""
    return [call for call in services.cloud.calls if call.what.endswith("/status")]


@pytest.mark.parametrize("provider", ["ovn", "amphora"])
async def test_gate_is_true_only_after_the_pod_is_a_member_and_all_is_active(services, provider):
    if provider == "amphora":
        open_up(services)
    async with services.controller() as app:
        await serve(services)
        services.cloud.octavia_pending = float("inf")
        pod = await add_pod(services)
        await services.until_members(BOTH)
        await until_waiting(services, app)
        (balancer,) = services.cloud.load_balancers.values()
        if provider == "ovn":  # which shows it ACTIVE before its parts
            services.cloud.octavia.store.set_status(balancer, "ACTIVE")
            await services.cloud.wait_for(lambda: len(reads_of_statuses(services)) > 1)
        assert await pod.gate() is None
        services.cloud.octavia_pending = 0
        services.cloud.octavia.progress.finish(balancer["id"])
        assert await pod.until_passed() == "LoadBalancerMember"


async def test_pod_costs_one_write_of_the_gate_and_one_of_its_membership(services):
    async with services.controller():
        await serve(services)
        before = len(services.octavia_calls())
        pod = await add_pod(services)
        await pod.until_passed()
        await services.set_slice("a", OLD, NEW, ports=PORTS)  # Kubernetes follows the gate
        await until_slices_seen(services)
    assert len(writes_of_gates(services)) == 1
    # the second and third are those of the slice that was waited for
    assert len(services.octavia_calls()) - before <= 3


async def test_pod_without_the_gate_is_no_member_until_it_is_ready(services):
    async with services.controller():
        await serve(services)
        await add_pod(services, gates=[])
        await until_slices_seen(services)
        await services.until_members(FIRST)
    assert not writes_of_gates(services)


async def test_rollout_deletes_no_pod_before_the_load_balancer_has_the_next_one(services):
    """As a Deployment does it: one Pod more, and once it is Ready, one of the old ones goes."""
    services.cloud.octavia_pending = 0.1
    octavia, changes = services.cloud.octavia, ("PUT", "/pools/{pool_id}/members")
    async with services.controller():
        old = ["10.62.0.5", "10.62.0.6", "10.62.0.7"]
        await services.set_slice("a", *old, ports=PORTS)
        await services.add_service("web", HTTP)
        await services.until_members({("TCP", 80): {(address, 8080): 1 for address in old}})
        before = services.octavia_calls().count(changes)
        ready = list(old)
        for number in range(3):
            pod = await GatedPod(services, f"new-{number}", f"10.62.1.{number}").start()
            await services.set_slice("a", *ready, pod.endpoint(), ports=PORTS)
            await pod.until_passed()
            there = {
                member["address"]
                for member in octavia.store.of(MEMBER).values()
                if member["provisioning_status"] == "ACTIVE"
            }
            assert {*ready, pod.addresses[0]} <= there
            ready = [*ready[1:], *pod.addresses]
            await services.set_slice("a", *ready, ports=PORTS)
        await services.until_members({("TCP", 80): {(address, 8080): 1 for address in ready}})
        assert not {*ready} & {*old}
        assert services.octavia_calls().count(changes) - before <= 2 * 3


async def test_conditions_of_the_kubelet_and_the_gate_stand_side_by_side(services):
    """Each of them writes what it knows while the other one is about to."""
    held = Hang()
    services.proxy.faults.add(method="PATCH", path="/pods/new/status", action=held)
    async with services.controller():
        await serve(services)
        pod = await add_pod(services)
        await held.reached.wait()
        await pod.set_ready(True, Initialized=True)
        held.release()
        await pod.until_passed()
        await pod.set_ready(True, Initialized=True)
    found = (await services.client.find(path_of(pod.made)))["status"]["conditions"]
    true = {condition["type"] for condition in found if condition["status"] == "True"}
    assert true >= {"ContainersReady", "Initialized", "Ready", GATES[0]["conditionType"]}
    assert len(found) == len({condition["type"] for condition in found})


async def test_pod_with_the_gate_is_a_member_only_while_its_containers_are_ready(services):
    async with services.controller():
        await serve(services)
        pod = await add_pod(services)
        await services.until_members(BOTH)
        await pod.until_passed()
        await pod.set_ready(False)
        await services.until_members(FIRST)
        assert (await pod.gate())["status"] == "True"
        await pod.set_ready(True)
        await services.until_members(BOTH)


async def test_pod_of_a_lost_node_is_a_member_no_more_until_its_kubelet_is_back(services):
    """Only Ready becomes False there: the containers and the gate stay what they were."""
    async with services.controller():
        await serve(services)
        pod = await add_pod(services)
        await pod.until_passed()
        await pod.set_ready(True)  # the kubelet has seen the gate
        await services.set_slice("a", OLD, NEW, ports=PORTS)
        await services.until_members(BOTH)
        await pod.lose_node()
        await services.set_slice("a", OLD, pod.endpoint(), ports=PORTS)
        await services.until_members(FIRST)
        await pod.set_ready(True)
        await services.until_members(BOTH)


async def test_pod_waits_for_its_other_gates_first(services):
    gates = [*GATES, {"conditionType": "example.org/approved"}]
    async with services.controller():
        await serve(services)
        pod = await add_pod(services, gates=gates)
        await until_slices_seen(services)
        await services.until_members(FIRST)
        await pod.set_ready(True, **{"example.org/approved": True})
        await services.until_members(BOTH)
        await pod.until_passed()


async def test_pod_that_is_being_deleted_is_no_member(services):
    async with services.controller():
        await serve(services)
        pod = await add_pod(services)
        await services.until_members(BOTH)
        path = path_of(pod.made)
        await services.client.patch(path, {"metadata": {"finalizers": ["example.org/held"]}})
        await services.client.delete(path)
        await services.until_members(FIRST)
        await services.client.patch(path, {"metadata": {"finalizers": None}})


async def test_pod_that_is_deleted_while_it_waits_leaves_nothing(services):
    async with services.controller() as app:
        await serve(services)
        services.cloud.octavia_pending = float("inf")
        pod = await add_pod(services)
        await services.until_members(BOTH)
        await until_waiting(services, app)
        await pod.delete()
        await services.set_slice("a", OLD, ports=PORTS)
        await until_waiting(services, app, pods=0)
        services.cloud.octavia_pending = 0
        (balancer,) = services.cloud.load_balancers
        services.cloud.octavia.progress.finish(balancer)
        await services.until_members(FIRST)
    assert not writes_of_gates(services)


@pytest.mark.parametrize(
    "spec",
    [
        None,
        {"clusterIP": "None", "selector": {"app": "web"}},
        {"selector": None},
        {"type": "ExternalName", "externalName": "example.org", "selector": {"app": "web"}},
        {"selector": {"app": "other"}},
    ],
    ids=["none", "headless", "without selector", "ExternalName", "of other Pods"],
)
async def test_pod_without_a_service_passes_at_once(services, spec):
    async with services.controller():
        if spec is not None:
            await services.add_service("web", HTTP, **spec)
        pod = await GatedPod(services, "alone", NEW).start()
        assert await pod.until_passed() == "NoService"


async def test_service_that_is_not_in_the_cache_yet_is_waited_for(services):
    async with services.controller() as app:
        services.proxy.events.hold("services")
        await services.add_service("web", HTTP)
        pod = await GatedPod(services, "new", NEW).start()
        await until_waiting(services, app)
        alone = await GatedPod(services, "alone", "10.62.0.7").start(app="alone")
        assert await alone.until_passed() == "NoService"
        assert await pod.gate() is None
        services.proxy.events.release()
        await services.set_slice("a", pod.endpoint(), ports=PORTS)
        assert await pod.until_passed() == "LoadBalancerMember"


async def test_gate_waits_for_every_service_that_selects_the_pod(services):
    """The slices of the second one are late: that it has none of the Pod is no answer."""
    async with services.controller():
        await serve(services)
        await services.set_slice("b", ports=PORTS, service="api")
        await services.add_service("api", HTTP, selector={"app": "web", "tier": "api"})
        await services.until_published("api")
        pod = await GatedPod(services, "new", NEW).start(app="web", tier="api")
        await passes_beside(services, pod)
        assert await pod.gate() is None
        await services.set_slice("b", pod.endpoint(), ports=PORTS, service="api")
        await pod.until_passed()
        assert await has_member(services, "api", NEW)


async def passes_beside(services, pod):
    """Another Pod passes, after «web» alone has had both Pods for a while."""
    await services.set_slice("a", OLD, pod.endpoint(), ports=PORTS)
    await services.until_shown({(OLD, 8080), (NEW, 8080)})
    other = await GatedPod(services, "other", "10.62.0.7").start()
    await services.set_slice("a", OLD, pod.endpoint(), other.endpoint(), ports=PORTS)
    await other.until_passed()


async def has_member(services, service, address):
    return any(
        member["address"] == address
        for tree in services.trees()
        if f"/{tree['name']}".endswith(f"/{service}")
        for listener in tree["listeners"]
        if listener["pool"] is not None
        for member in listener["pool"]["members"]
    )


async def test_dual_stack_pod_waits_for_both_load_balancers(services):
    async with services.controller():
        await services.set_slice("b", "fd62::5", ports=PORTS, family="IPv6")
        await services.set_slice("a", OLD, ports=PORTS)
        await services.add_service("web", HTTP, ipFamilyPolicy="RequireDualStack")
        await services.until_published()
        pod = await GatedPod(services, "new", NEW, "fd62::6").start()
        await passes_beside(services, pod)
        assert await pod.gate() is None
        endpoint = ("fd62::6", UNREADY, pod.made)
        await services.set_slice("b", "fd62::5", endpoint, ports=PORTS, family="IPv6")
        await pod.until_passed()
        assert await has_member(services, "IPv6", "fd62::6")


async def test_pod_that_was_not_ready_for_a_moment_is_not_taken_for_the_member_that_it_was(
    services,
):
    """It is on its way out of the load balancer when its containers are ready again."""
    services.proxy.faults.add(method="PATCH", path="/pods/", times=None, action=answer(500))
    async with services.controller():
        await serve(services)
        pod = await add_pod(services)
        await services.proxy.wait_for(lambda: writes_of_gates(services))
        services.cloud.octavia_pending = float("inf")
        (balancer,) = services.cloud.load_balancers.values()
        await pod.set_ready(False)
        await services.cloud.wait_for(lambda: balancer["provisioning_status"] == "PENDING_UPDATE")
        services.proxy.faults.clear()
        await pod.set_ready(True)
        alone = await GatedPod(services, "alone", "10.62.0.7").start(app="alone")
        await alone.until_passed()
        assert await pod.gate() is None
        services.cloud.octavia_pending = 0
        services.cloud.octavia.progress.finish(balancer["id"])
        await pod.until_passed()
        assert services.members() == BOTH


async def other_label(services, pod, away):
    labels = {"app": "other" if away else "web"}
    await services.client.patch(path_of(pod.made), {"metadata": {"labels": labels}})


async def other_selector(services, _pod, away):
    await services.patch_service(spec={"selector": {"app": "other" if away else "web"}})


@pytest.mark.parametrize("set_apart", [other_label, other_selector])
async def test_pod_that_was_not_selected_for_a_moment_is_not_taken_for_the_member_that_it_was(
    services, set_apart
):
    """It is on its way out of the load balancer when it is selected again."""
    async with services.controller():
        await serve(services)
        await services.set_slice("b", ports=PORTS, service="api")
        await services.add_service("api", HTTP, selector={"tier": "api"})
        await services.until_published("api")
        pod = await GatedPod(services, "new", NEW).start(app="web", tier="api")
        await passes_beside(services, pod)
        web = id_of(services, "web")
        services.cloud.octavia.progress.stalled = lambda each: each["id"] == web
        balancer = services.cloud.load_balancers[web]
        await set_apart(services, pod, away=True)
        await services.set_slice("a", OLD, ports=PORTS)
        await services.cloud.wait_for(lambda: balancer["provisioning_status"] == "PENDING_UPDATE")
        await set_apart(services, pod, away=False)
        await services.set_slice("b", pod.endpoint(), ports=PORTS, service="api")
        await services.until_shown({(NEW, 8080)}, "api")
        alone = await GatedPod(services, "alone", "10.62.0.8").start(app="alone")
        await alone.until_passed()
        assert await pod.gate() is None
        services.cloud.octavia.progress.stalled = lambda _each: False
        services.cloud.octavia.progress.finish(web)
        await services.set_slice("a", OLD, pod.endpoint(), ports=PORTS)
        await pod.until_passed()
        assert await has_member(services, "web", NEW)


async def test_service_that_comes_later_leaves_a_pod_ready(services):
    services.cloud.octavia_pending = 0.05
    async with services.controller():
        await serve(services)
        pod = await add_pod(services)
        await pod.until_passed()
        passed = await pod.gate()
        services.cloud.octavia_pending = float("inf")
        await services.set_slice("b", pod.endpoint(), ports=PORTS, service="api")
        await services.add_service("api", HTTP, selector={"app": "web"})
        await services.until(lambda: has_member(services, "api", NEW))
        assert await pod.gate() == passed


async def test_service_that_goes_is_waited_for_no_more(services):
    async with services.controller() as app:
        await services.add_service("web", HTTP)
        services.cloud.octavia_pending = float("inf")
        pod = await GatedPod(services, "new", NEW).start()
        await until_waiting(services, app)
        services.cloud.octavia_pending = 0
        await services.delete_service()
        assert await pod.until_passed() == "NoService"


async def test_gate_is_true_after_a_restart_between_membership_and_write(services):
    services.proxy.faults.add(method="PATCH", path="/pods/", times=None, action=answer(500))
    async with services.controller():
        await serve(services)
        pod = await add_pod(services)
        await services.until_members(BOTH)
        await services.proxy.wait_for(lambda: writes_of_gates(services))
    services.proxy.faults.clear()
    writes = services.octavia_calls()
    async with services.controller():
        assert await pod.until_passed() == "LoadBalancerMember"
    assert services.octavia_calls() == writes


@pytest.mark.parametrize(
    "fault",
    [answer(500), answer(409), answer(429), cut(), lose_reply()],
    ids=["500", "409", "429", "cut", "no reply"],
)
async def test_write_that_fails_is_repeated(services, fault):
    services.proxy.faults.add(method="PATCH", path="/pods/", action=fault)
    async with services.controller():
        await serve(services)
        pod = await add_pod(services)
        await pod.until_passed()


async def test_write_that_failed_is_repeated_before_long(services):
    patience = {"first_retry": 600.0, "longest_health_look": 0.1}
    async with services.controller(patience=patience):
        await serve(services)
        services.proxy.faults.add(method="PATCH", path="/pods/", times=3, action=answer(500))
        pod = await add_pod(services)
        await pod.until_passed()


async def test_pod_made_again_under_the_same_name_does_not_inherit_the_gate(services):
    """The cache has the first one still, and the second one's containers have not started."""
    async with services.controller() as app:
        await serve(services)
        services.cloud.octavia_pending = float("inf")
        first = await add_pod(services)
        await services.until_members(BOTH)
        await until_waiting(services, app)
        services.proxy.events.hold("pods")
        await first.delete()
        second = GatedPod(services, "new", NEW)
        second.made = await services.cluster.add_pod(
            "new", labels={"app": "web"}, readinessGates=GATES
        )
        services.cloud.octavia_pending = 0
        (balancer,) = services.cloud.load_balancers
        services.cloud.octavia.progress.finish(balancer)
        await services.proxy.wait_for(lambda: writes_of_gates(services))
        assert await second.gate() is None
        services.proxy.events.release()
        await services.until_members(FIRST)
        await second.set_ready(True)
        await services.set_slice("a", OLD, second.endpoint(), ports=PORTS)
        await second.until_passed()
        assert services.members() == BOTH


async def test_gate_waits_until_the_health_monitor_has_found_the_member_healthy(services):
    open_up(services)
    octavia = services.cloud.octavia
    octavia.progress.unhealthy.add(NEW)
    async with services.controller(patience={"first_health_look": 0.05}):
        await serve(services, type="LoadBalancer", annotations=MONITORED)
        pod = await add_pod(services)
        await services.until_members(BOTH)
        before = len(reads_of_statuses(services))
        await services.cloud.wait_for(lambda: len(reads_of_statuses(services)) > before + 2)
        assert await pod.gate() is None
        octavia.recover(NEW)
        assert await pod.until_passed() == "LoadBalancerMember"


async def test_one_look_at_the_health_monitor_is_for_all_pods_that_wait(services):
    open_up(services)
    async with services.controller(patience=NEVER) as app:
        await serve(services, type="LoadBalancer", annotations=MONITORED)
        pods = [
            await GatedPod(services, f"new-{number}", f"10.62.1.{number}").start()
            for number in range(4)
        ]
        await until_waiting(services, app, pods=4)
        await services.set_slice("a", OLD, *(pod.endpoint() for pod in pods), ports=PORTS)
        for pod in pods:
            assert await pod.until_passed() == "LoadBalancerMember"


async def test_pod_whose_health_could_not_be_asked_is_woken_by_its_service(services):
    open_up(services)
    services.cloud.octavia.progress.unhealthy.add(NEW)
    async with services.controller(patience=NEVER | {"first_retry": 600.0}):
        await serve(services, type="LoadBalancer", annotations=MONITORED)
        pod = await add_pod(services)
        await services.until_shown({(OLD, 8080), (NEW, 8080)})
        failing = services.cloud.faults.add(
            method="GET", path="/status$", times=None, action=answer(409)
        )
        await services.patch_service(metadata={"annotations": marks(hostname="a.example.org")})
        await services.cloud.wait_for(lambda: failing.hits)
        services.cloud.faults.clear()
        services.cloud.octavia.recover(NEW)
        await services.patch_service(metadata={"annotations": marks(hostname="b.example.org")})
        await pod.until_passed()


async def test_health_is_asked_only_while_a_pod_waits_for_it(services):
    open_up(services)
    async with services.controller():
        await serve(services, type="LoadBalancer", annotations=MONITORED)
        await services.until_published()
        assert services.trees()[0]["listeners"][0]["pool"]["health_monitor"]
        before, changes = len(reads_of_statuses(services)), len(services.octavia_calls())
        await add_pod(services, gates=[])
        other = await GatedPod(services, "other", "10.62.0.7").start(app="other")
        await other.until_passed()
        await until_slices_seen(services)
        reads = len(reads_of_statuses(services)) - before
        # one tells of each change when it has been made
        assert reads <= len(services.octavia_calls()) - changes


async def test_pod_waits_for_the_load_balancer_outside_too(services):
    open_up(services)
    async with services.controller() as app:
        await serve_outside(services)
        outside = id_of(services, "external")
        services.cloud.octavia.progress.stalled = lambda each: each["id"] == outside
        pod = await add_pod(services)
        await services.until(lambda: has_member(services, "external", NEW))
        await services.until(lambda: has_member(services, "web", NEW))
        await until_waiting(services, app)
        assert await pod.gate() is None
        services.cloud.octavia.progress.stalled = lambda _each: False
        services.cloud.octavia.progress.finish(outside)
        await pod.until_passed()


def unreadable(_services):
    return {"type": "LoadBalancer", "annotations": UNREADABLE}


def unreadable_timeout(_services):
    return {"annotations": {"openstack.org/kuryr-timeout-client-data": "soon"}}


def unknown_load_balancer(_services):
    return {"type": "LoadBalancer", "annotations": marks(load_balancer_id=str(uuid.uuid4()))}


def taken_port(services):
    taken = operators(services, listeners=[{"protocol": "TCP", "protocol_port": 80}])
    return {"type": "LoadBalancer", "annotations": marks(load_balancer_id=taken)}


def unknown_subnet(_services):
    return {"type": "LoadBalancer", "annotations": marks(subnet_id=str(uuid.uuid4()))}


def used_up_quota(services):
    services.cloud.octavia.set_quota(services.cloud.project_id, loadbalancer=1)
    return {"type": "LoadBalancer", "loadBalancerSourceRanges": RANGES}


@pytest.mark.parametrize(
    "make",
    [
        unreadable,
        unreadable_timeout,
        unknown_load_balancer,
        taken_port,
        unknown_subnet,
        used_up_quota,
    ],
)
async def test_refusal_outside_holds_up_no_pod_where_no_load_balancer_is_there(services, make):
    open_up(services)
    async with services.controller():
        await serve(services, **make(services))
        pod = await add_pod(services)
        assert await pod.until_passed() == "LoadBalancerMember"
        assert await has_member(services, "web", NEW)
        await services.until(services.events)


async def serve_outside(services):
    """A Service with one endpoint, and a load balancer outside that lets in some ranges."""
    await services.set_slice("a", OLD, ports=PORTS)
    await services.add_service("web", HTTP, type="LoadBalancer", loadBalancerSourceRanges=RANGES)
    await services.until(lambda: has_member(services, "external", OLD))
    await services.until(lambda: settled(services, 2))


async def test_pod_waits_only_for_members_where_octavia_refuses_something_else(services):
    """Members are set first: then both load balancers have the Pod."""
    open_up(services)
    refusal = answer(400, message="no such timeout")
    async with services.controller(patience={"first_refused": 0.2, "refused": 0.2}) as app:
        await serve_outside(services)
        outside = id_of(services, "external")
        services.cloud.faults.add(method="PUT", path="/listeners/", times=None, action=refusal)
        await services.patch_service(metadata={"annotations": marks(timeout_client_data=1234)})
        _reason, message = await until_condition(services, READY, "False")
        assert "no such timeout" in message
        services.cloud.octavia.progress.stalled = lambda each: each["id"] == outside
        pod = await add_pod(services)
        await services.until(lambda: has_member(services, "external", NEW))
        await services.until(lambda: has_member(services, "web", NEW))
        await until_waiting(services, app)
        alone = await GatedPod(services, "alone", "10.62.0.7").start(app="alone")
        await alone.until_passed()
        assert await pod.gate() is None
        services.cloud.octavia.progress.stalled = lambda _each: False
        services.cloud.octavia.progress.finish(outside)
        assert await pod.until_passed() == "LoadBalancerMember"


REFUSAL = answer(400, message="no such timeout")


async def serve_in_operators(services):
    """A Service with one endpoint in an operator's load balancer, whose listener is refused."""
    named = operators(services)
    await serve(services, type="LoadBalancer", annotations=marks(load_balancer_id=named))
    await services.until(lambda: has_member(services, "operators", OLD))
    services.cloud.faults.add(method="PUT", path="/listeners/", times=None, action=REFUSAL)
    await services.patch_service(metadata={"annotations": marks(timeout_client_data=1234)})
    _reason, message = await until_condition(services, READY, "False")
    assert "no such timeout" in message
    return named


async def test_pod_waits_only_for_members_where_octavia_refuses_a_part_in_anothers(services):
    open_up(services)
    async with services.controller(patience={"first_refused": 0.2, "refused": 0.2}) as app:
        named = await serve_in_operators(services)
        services.cloud.octavia.progress.stalled = lambda each: each["id"] == named
        pod = await add_pod(services)
        await services.until(lambda: has_member(services, "operators", NEW))
        await services.until(lambda: has_member(services, "web", NEW))
        await until_waiting(services, app)
        assert await pod.gate() is None
        services.cloud.octavia.progress.stalled = lambda _each: False
        services.cloud.octavia.progress.finish(named)
        assert await pod.until_passed() == "LoadBalancerMember"


async def test_pod_waits_where_its_pool_in_anothers_is_in_error(services):
    """One that is refused at the same time does not hide it."""
    open_up(services)
    quick = {"slow_gate": 0.3, "first_refused": 0.2, "refused": 0.2, "first_repair": 600.0}
    async with services.controller(patience=quick):
        named = await serve_in_operators(services)
        pools = services.cloud.octavia.store.of(POOL).values()
        (pool,) = [each for each in pools if each["load_balancer_id"] == named]
        services.cloud.octavia.set_error(pool["id"])
        pod = await add_pod(services)
        await services.until(lambda: has_member(services, "web", NEW))
        await services.until_event(WAITING)
        assert await pod.gate() is None
        services.cloud.octavia.store.set_status(pool, "ACTIVE")
        assert await pod.until_passed() == "LoadBalancerMember"


async def test_second_load_balancer_outside_that_cannot_be_had_is_not_waited_for(services):
    open_up(services)
    services.cloud.octavia.set_quota(services.cloud.project_id, loadbalancer=3)
    spec = {
        "type": "LoadBalancer",
        "annotations": {INTERNAL: "true"},
        "ipFamilyPolicy": "RequireDualStack",
        "ipFamilies": ["IPv4", "IPv6"],
        "loadBalancerSourceRanges": ["203.0.113.0/24", "2001:db8::/32"],
    }
    async with services.controller():
        await services.set_slice("a", OLD, ports=PORTS)
        await services.set_slice("b", "fd62::5", ports=PORTS, family="IPv6")
        await services.add_service("web", HTTP, **spec)
        await services.until(lambda: settled(services, 3))
        pod = await add_pod(services, "new", NEW, "fd62::6")
        six = ("fd62::6", UNREADY, pod.made)
        await services.set_slice("b", "fd62::5", six, ports=PORTS, family="IPv6")
        assert await pod.until_passed() == "LoadBalancerMember"
        assert await has_member(services, "IPv6", "fd62::6")


async def make_unreadable(services):
    await services.patch_service(metadata={"annotations": UNREADABLE})
    _reason, message = await until_condition(services, READY, "False")
    assert "enable-health-monitor" in message


async def test_load_balancer_outside_follows_while_annotations_cannot_be_read(services):
    open_up(services)
    async with services.controller():
        await serve_outside(services)
        ingress = await until_reached(services)
        await make_unreadable(services)
        pod = await add_pod(services)
        assert await pod.until_passed() == "LoadBalancerMember"
        assert await has_member(services, "external", NEW)
        assert await until_reached(services) == ingress


async def test_members_outside_follow_though_nobody_knows_what_is_asked_for(services):
    """The controller was started after the annotations became unreadable."""
    open_up(services)
    async with services.controller():
        await serve_outside(services)
        await make_unreadable(services)
    async with services.controller():
        pod = await add_pod(services)
        assert await pod.until_passed() == "LoadBalancerMember"
        assert await has_member(services, "external", NEW)


async def test_address_is_not_made_from_what_was_asked_of_another_kind_of_service(services):
    """Of one that is not exposed, only timeouts are read: it may be meant to be internal."""
    open_up(services)
    async with services.controller():
        await serve(services, annotations=UNREADABLE | {INTERNAL: "true"})
        await services.until_published()
        await services.patch_service(spec={"type": "LoadBalancer"})
        await until_condition(services, READY, "False")
        assert not await ingress_of(services)
        assert not services.cloud.floating_ips


async def test_pod_waits_for_both_load_balancers_outside_of_a_dual_stack_service(services):
    open_up(services)
    spec = {
        "type": "LoadBalancer",
        "annotations": {INTERNAL: "true"},
        "ipFamilyPolicy": "RequireDualStack",
        "ipFamilies": ["IPv4", "IPv6"],
        "loadBalancerSourceRanges": ["203.0.113.0/24", "2001:db8::/32"],
    }
    async with services.controller() as app:
        await services.set_slice("a", OLD, ports=PORTS)
        await services.set_slice("b", "fd62::5", ports=PORTS, family="IPv6")
        await services.add_service("web", HTTP, **spec)
        await services.until(lambda: has_member(services, "external/IPv6", "fd62::5"))
        await services.until(lambda: settled(services, 4))
        second = id_of(services, "external/IPv6")
        services.cloud.octavia.progress.stalled = lambda each: each["id"] == second
        pod = await add_pod(services, "new", NEW, "fd62::6")
        six = ("fd62::6", UNREADY, pod.made)
        await services.set_slice("b", "fd62::5", six, ports=PORTS, family="IPv6")
        await services.until(lambda: has_member(services, "external", NEW))
        await services.until(lambda: has_member(services, "web", NEW))
        await services.until(lambda: has_member(services, "external/IPv6", "fd62::6"))
        await services.until(lambda: settled(services, 3, but=second))
        await until_waiting(services, app)
        alone = await GatedPod(services, "alone", "10.62.0.7").start(app="alone")
        await alone.until_passed()
        assert await pod.gate() is None
        services.cloud.octavia.progress.stalled = lambda _each: False
        services.cloud.octavia.progress.finish(second)
        await pod.until_passed()


def id_of(services, part):
    """The id of the load balancer with this at the end of its name."""
    (found,) = (
        balancer_id
        for balancer_id, shown in services.cloud.load_balancers.items()
        if shown["name"].endswith(f"/{part}")
    )
    return found


async def settled(services, count, but=None):
    """Return whether so many load balancers are there, and Octavia has nothing to do on them."""
    statuses = [
        shown["provisioning_status"]
        for balancer_id, shown in services.cloud.load_balancers.items()
        if balancer_id != but
    ]
    return len(statuses) == count and set(statuses) <= {"ACTIVE", DELETED}


async def test_pod_that_waits_for_long_has_an_event_and_one_line_in_the_log(services, capsys):
    services.cloud.octavia_pending = 0
    async with services.controller(patience={"slow_gate": 0.3}):
        await serve(services)
        services.cloud.octavia.progress.stalled = lambda _each: True
        pod = await add_pod(services)
        note = await services.until_event(WAITING)
        assert note == "it is no member of the load balancers of Service web yet"
        services.cloud.octavia.progress.stalled = lambda _each: False
        for balancer in services.cloud.load_balancers:
            services.cloud.octavia.progress.finish(balancer)
        await pod.until_passed()
    lines = capsys.readouterr().out.splitlines()
    told = [line for line in lines if "waits for its readiness gate" in line]
    assert len(told) == 1


async def test_event_names_what_is_wrong_with_the_load_balancer(services):
    async with services.controller(patience={"slow_gate": 0.3, "first_repair": 600.0}):
        await serve(services)
        (balancer,) = services.cloud.load_balancers
        services.cloud.octavia.set_error(balancer, forwards=True)
        pod = await add_pod(services)

        async def told():
            notes = [note for reason, note in await services.events() if "Gate" in reason]
            return [note for note in notes if balancer in note and "ERROR" in note]

        await services.until(told)
        assert await pod.gate() is None


async def test_event_names_why_a_service_has_no_load_balancer(services):
    """Its project is not granted: nothing can be asked for."""
    namespace, project = services.cluster.namespace, "b" * 32
    mark = {"metadata": {"annotations": {"openstack.org/kuryr-project": project}}}
    await services.client.patch(f"/api/v1/namespaces/{namespace}", mark)
    driver = {"service_project_driver": "annotation"}
    async with services.controller(kubernetes=driver, patience={"slow_gate": 0.3}):
        await services.add_service("web", HTTP)
        pod = await GatedPod(services, "new", NEW).start()

        async def told():
            notes = [note for reason, note in await services.events() if reason == WAITING]
            return [note for note in notes if "Service web: " in note and project in note]

        await services.until(told)
        assert await pod.gate() is None


async def test_pod_waits_for_the_service_whose_load_balancer_is_in_error(services):
    """The other one has it as a member; when people have mended the first one, it is Ready."""
    quick = {"slow_gate": 0.3, "first_refused": 0.2, "refused": 0.2, "first_repair": 600.0}
    async with services.controller(patience=quick):
        await serve(services)
        (broken_id,) = services.cloud.load_balancers
        await services.set_slice("b", OLD, ports=PORTS, service="api")
        await services.add_service("api", HTTP, selector={"app": "web"})
        await services.until(lambda: has_member(services, "api", OLD))
        services.cloud.octavia.set_error(broken_id, forwards=True)
        pod = await add_pod(services)
        await services.set_slice("b", OLD, pod.endpoint(), ports=PORTS, service="api")
        await services.until(lambda: has_member(services, "api", NEW))

        async def told():
            notes = [note for reason, note in await services.events() if reason == WAITING]
            return [note for note in notes if "Service web: " in note and broken_id in note]

        await services.until(told)
        assert await pod.gate() is None
        services.cloud.octavia.store.set_status(services.cloud.load_balancers[broken_id], "ACTIVE")
        assert await pod.until_passed() == "LoadBalancerMember"
        assert await has_member(services, "web", NEW)
        assert (await pod.gate())["message"] == "member of api, web"


async def test_pod_waits_until_octavia_answers_again(services):
    patience = {"slow_gate": 0.3, "first_retry": 0.1}
    async with services.controller(patience=patience) as app:
        await serve(services)
        await services.until_published()  # while it is at work, nobody would be told why
        outage = {"path": "/lbaas/", "times": None}
        services.cloud.faults.add(**outage, action=answer(503, message="down for repairs"))
        pod = await add_pod(services)

        async def told():
            notes = [note for reason, note in await services.events() if reason == WAITING]
            return [note for note in notes if "down for repairs" in note]

        await services.until(told)
        assert await pod.gate() is None
        services.cloud.faults.clear()
        assert await pod.until_passed() == "LoadBalancerMember"
        assert services.members() == BOTH
        await until_waiting(services, app, pods=0)
        assert app.registry.get_sample_value("kuryr_readiness_gate_seconds_count") == 1


async def test_admission_policy_adds_the_gate_in_labelled_namespaces(services):
    client, name = services.client, services.cluster.namespace
    manifests = list(yaml.safe_load_all((ETC / "admission/readiness-gate.yaml").read_text()))
    labelled = await services.cluster.add_namespace(
        f"{name}-gated", labels={"kuryr.openstack.org/readiness-gate": "enabled"}
    )
    other = {"conditionType": "example.org/approved"}

    async def gates_of(pod):
        pods = path_of(pod).rpartition("/")[0]
        made = await client.request("POST", pods, pod, dryRun="All")
        return made["spec"].get("readinessGates", [])

    try:
        for manifest in manifests:
            await client.create(manifest)

        async def in_force():  # the server learns of it in its own time
            return await gates_of(make_pod("plain", labelled)) == GATES

        await services.until(in_force)
        assert await gates_of(make_pod("more", labelled, readinessGates=[other])) == [
            other,
            *GATES,
        ]
        assert await gates_of(make_pod("own", labelled, readinessGates=GATES)) == GATES
        assert await gates_of(make_pod("elsewhere", name)) == []
        mirror = make_pod(
            "mirror", labelled, node="node1", annotations={"kubernetes.io/config.mirror": "h"}
        )
        assert await gates_of(mirror) == []
    finally:
        for manifest in manifests:
            await client.delete(path_of(manifest))
