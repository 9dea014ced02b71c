"""What a program says of itself when the API server tells its caches nothing any more."""

import asyncio
import contextlib
import json

import aiohttp
import pytest

from kuryr_k8s import errors
from kuryr_k8s.cni.caches import Caches
from kuryr_k8s.k8s.connect import connect
from kuryr_k8s.k8s.refusals import Refusals
from kuryr_k8s.k8s.resources import KURYRPORTS
from tests.kit.clock import ManualClock
from tests.kit.confs import NODE
from tests.kit.fakes.faults import answer, from_proxy
from tests.kit.kube.client import KubeRefusal
from tests.kit.kube.objects import path_of
from tests.kit.kube.proxy import is_watch

REFUSED = "kuryr_kubernetes_refused"
AGE = "kuryr_informer_age_seconds"
SPEC = {"podUid": "somebody", "podNodeName": NODE}


@pytest.fixture
def ready(stage, controller_url):
    """Ask /readyz: whether it is ready, and the checks that failed."""
    _, url = controller_url

    async def ask():
        async with aiohttp.ClientSession() as session, session.get(f"{url}/readyz") as answer:
            lines = (await answer.text()).splitlines()
            return answer.status == 200, [line for line in lines if line.startswith("[-]")]

    return ask


def errors_about(capsys, plural):
    """Return the error lines about one kind of objects since the last call."""
    lines = capsys.readouterr().out.splitlines()
    return [line for line in lines if " ERROR " in line and f" {plural}: " in line]


async def test_five_minutes_without_a_sign_of_life_show_until_the_next_one(
    stage, controller_url, ready, capsys
):
    clock = ManualClock()
    options = {"kubernetes": {"lease_duration": "6000"}} | controller_url[0]
    async with stage.controller(clock=clock, **options) as app:
        await stage.proxy.wait_for(lambda: stage.proxy.watching("pods") == 1)
        stage.proxy.events.hold()
        clock.advance(290)
        await stage.until(lambda: _is(ready, True, []))
        clock.advance(11)
        await stage.until(lambda: _is(ready, False, ["[-] caches followed"]))
        assert app.registry.get_sample_value(AGE, {"resource": "pods"}) == 301
        for _ in range(3):
            clock.advance(60)
            await stage.until(lambda: _is(ready, False, ["[-] caches followed"]))
        assert len(errors_about(capsys, "pods")) == 1
        for resource in {stream.resource for stream in stage.proxy.streams}:
            await stage.proxy.bookmark(resource)
        await stage.until(lambda: _is(ready, True, []))
        assert app.registry.get_sample_value(AGE, {"resource": "pods"}) == 0


@pytest.mark.parametrize("status", [401, 403])
async def test_refused_watch_shows_at_once_until_it_is_granted(
    stage, controller_url, ready, capsys, status
):
    patience = {"first_watch_retry": 0.1}
    async with stage.controller(patience=patience, **controller_url[0]) as app:
        await stage.proxy.wait_for(lambda: stage.proxy.watching("pods") == 1)
        await stage.until(lambda: _is(ready, True, []))
        capsys.readouterr()
        watch = {"path": "/pods$", "when": is_watch} if status == 403 else {}
        refusal = stage.proxy.faults.add(**watch, times=None, action=answer(status))
        stage.proxy.cut_watches("pods")
        await stage.until(lambda: _is(ready, False, ["[-] nothing refused"]))
        assert app.registry.get_sample_value(REFUSED, {"status": str(status)}) == 1
        await stage.proxy.wait_for(lambda: refusal.hits >= 3)
        lines = [line for line in capsys.readouterr().out.splitlines() if " ERROR " in line]
        assert len(lines) == 1
        told = {401: "our credentials for the API server are refused", 403: "WATCH pods: refused"}
        assert told[status] in lines[0]
        stage.proxy.faults.clear()
        await stage.cluster.add_pod("web", node=NODE)
        await stage.until_plugged_in("web")
        await stage.until(lambda: _is(ready, True, []))
        assert app.registry.get_sample_value(REFUSED, {"status": str(status)}) == 0


async def test_permission_that_is_missed_no_more_is_forgotten_after_five_minutes():
    clock = ManualClock()
    refusals = Refusals(clock)
    refusals.answered("PATCH pods", errors.KubeForbidden("no", status=403))
    refusals.answered("GET pods", None)
    clock.advance(300)
    assert not refusals.none()
    clock.advance(1)
    assert refusals.none()


async def test_namespace_that_is_being_deleted_is_no_missing_permission(
    stage, controller_url, ready
):
    terminating = {"reason": "NamespaceTerminating", "field": "metadata.namespace"}
    status = {
        "code": 403,
        "message": "it is being terminated",
        "details": {"causes": [terminating]},
    }
    refusal = stage.proxy.faults.add(
        method="POST",
        path="/kuryrports$",
        action=from_proxy(403, json.dumps(status), "application/json"),
    )
    async with stage.controller(**controller_url[0]):
        await stage.cluster.add_pod("web", node=NODE)
        await stage.proxy.wait_for(lambda: refusal.hits)
        assert await _is(ready, True, [])


QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "spec": {"hard": {"count/kuryrports.openstack.org": "0"}},
}
POLICY = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicy",
    "spec": {
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": ["openstack.org"],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["kuryrports"],
                }
            ]
        },
        "validations": [{"expression": "object.metadata.name != 'web'", "reason": "Forbidden"}],
    },
}


async def _by_quota(cluster):
    """No controller-manager counts what there is."""
    metadata = {"name": "few", "namespace": cluster.namespace}
    quota = await cluster.client.create(QUOTA | {"metadata": metadata})
    status = {"hard": QUOTA["spec"]["hard"], "used": QUOTA["spec"]["hard"]}
    await cluster.client.patch(f"{path_of(quota)}/status", {"status": status})
    return [quota]


async def _by_policy(cluster):
    metadata = {"name": f"not-{cluster.namespace}"}
    labels = {"kubernetes.io/metadata.name": cluster.namespace}
    spec = {
        "policyName": metadata["name"],
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": {"matchLabels": labels}},
    }
    binding = {"kind": "ValidatingAdmissionPolicyBinding", "spec": spec}
    made = [POLICY, POLICY | binding]
    return [await cluster.client.create(manifest | {"metadata": metadata}) for manifest in made]


async def _is_enforced(cluster):
    """Return whether the API server refuses the KuryrPort: it learns of rules in its own time."""
    port = {"apiVersion": "openstack.org/v1", "kind": "KuryrPort", "spec": SPEC}
    metadata = {"name": "web", "namespace": cluster.namespace}
    path = path_of(port | {"metadata": {"namespace": cluster.namespace}})
    try:
        await cluster.client.request("POST", path, port | {"metadata": metadata}, dryRun="All")
    except KubeRefusal as refusal:
        return refusal.status == 403
    return False


@pytest.mark.parametrize(
    ("refuse", "told"),
    [(_by_quota, "exceeded quota"), (_by_policy, "denied request")],
    ids=["quota", "policy"],
)
async def test_object_that_is_refused_for_itself_is_no_missing_permission(
    stage, controller_url, ready, capsys, refuse, told
):
    async with stage.controller(**controller_url[0]) as app:
        rules = await refuse(stage.cluster)
        try:
            await stage.until(lambda: _is_enforced(stage.cluster))
            await stage.cluster.add_pod("web", node=NODE)
            assert told in await stage.until_event("KubernetesFailed")
            assert await _is(ready, True, [])
            assert app.registry.get_sample_value(REFUSED, {"status": "403"}) == 0
            lines = capsys.readouterr().out.splitlines()
            assert len([line for line in lines if told in line]) == 1
        finally:
            for rule in rules:
                await stage.client.delete(path_of(rule))
        await stage.until_plugged_in("web")


async def test_daemon_that_is_refused_its_watch_is_not_ready(stage, load_conf):
    kubeconfig = str(stage.proxy.kubeconfig_for("daemon"))
    api = await connect(load_conf(kubernetes={"kubeconfig": kubeconfig}))
    caches = Caches(api)
    informer = caches.follow(KURYRPORTS, {})
    check = caches.checks()["nothing refused"]
    async with asyncio.TaskGroup() as group, contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(api.close)
        (following,) = [group.create_task(loop.run()) for loop in caches.loops()]
        await informer.synced.wait()
        assert check()
        stage.proxy.faults.add(times=None, action=answer(401))
        stage.proxy.cut_watches()
        await stage.until(lambda: _is_not(check))
        following.cancel()


async def _is_not(check):
    return not check()


async def _is(ready, *wanted):
    return await ready() == tuple(wanted)
