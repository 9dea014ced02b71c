"""The proxy does what component tests build on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.kit.fakes import answer, cut, lose_reply
from tests.kit.kube.client import KubeClient, KubeRefusal
from tests.kit.kube.cluster import Cluster
from tests.kit.kube.proxy import KubeProxy, is_watch
from tests.kit.kube.server import KubeServer

Json = dict[str, Any]


@pytest.fixture
async def proxied(kube_proxy: KubeProxy, kube_server: KubeServer) -> AsyncIterator[KubeClient]:
    async with KubeClient(kube_proxy.url, kube_server.admin_token) as client:
        yield client


class Watcher:
    """Reads a watch of the namespace's Pods in the background of a test."""

    def __init__(self, client: KubeClient, cluster: Cluster) -> None:
        self.path = f"/api/v1/namespaces/{cluster.namespace}/pods"
        self.client = client
        self.seen: list[tuple[str, str]] = []
        self.codes: list[int] = []

    async def run(self) -> None:
        try:
            async for event in self.client.watch(self.path):
                if event["type"] == "ERROR":
                    self.codes.append(event["object"]["code"])
                else:
                    self.seen.append((event["type"], event["object"]["metadata"]["name"]))
        except aiohttp.ClientError:
            self.codes.append(0)


async def test_the_nth_write_is_applied_but_its_reply_is_lost(
    cluster: Cluster, kube_proxy: KubeProxy, proxied: KubeClient
) -> None:
    through = Cluster(proxied)
    kube_proxy.faults.at_write(2, lose_reply())
    await through.add_pod("one", namespace=cluster.namespace)
    with pytest.raises(aiohttp.ClientError):
        await through.add_pod("two", namespace=cluster.namespace)
    await through.add_pod("three", namespace=cluster.namespace)
    pods = await cluster.client.list(f"/api/v1/namespaces/{cluster.namespace}/pods")
    assert {pod["metadata"]["name"] for pod in pods} == {"one", "two", "three"}
    assert kube_proxy.calls.by_kind() == {("create", "pods"): 3}


async def test_a_write_is_cut_or_refused_before_it_is_applied(
    cluster: Cluster, kube_proxy: KubeProxy, proxied: KubeClient
) -> None:
    pod = await cluster.add_pod("one")
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/one"
    body = {"metadata": {"labels": {"a": "b"}}}
    kube_proxy.faults.at_write(1, cut())
    kube_proxy.faults.add(method="PATCH", path="/pods/one$", action=answer(409))
    with pytest.raises(aiohttp.ClientError):
        await proxied.patch(path, body)
    with pytest.raises(KubeRefusal) as refusal:
        await proxied.patch(path, body)
    assert (refusal.value.status, refusal.value.body["reason"]) == (409, "Conflict")
    assert (await proxied.get(path))["metadata"]["resourceVersion"] == (
        pod["metadata"]["resourceVersion"]
    )
    assert (await proxied.patch(path, body))["metadata"]["labels"] == {"a": "b"}
    assert kube_proxy.calls.by_kind() == {("patch", "pods"): 3, ("get", "pods"): 1}


async def test_events_are_dropped_doubled_and_held(
    cluster: Cluster, kube_proxy: KubeProxy, proxied: KubeClient
) -> None:
    watcher = Watcher(proxied, cluster)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(watcher.run())
        await kube_proxy.wait_for(lambda: kube_proxy.watching("pods"))
        kube_proxy.events.drop(1, "pods")
        kube_proxy.events.double(1, "pods")
        await cluster.add_pod("lost")
        await cluster.add_pod("twice")
        await kube_proxy.wait_for(lambda: kube_proxy.events.passed == 1)
        kube_proxy.events.hold("pods")
        await cluster.add_pod("late")
        assert await cluster.client.find(f"{watcher.path}/late") is not None
        assert kube_proxy.events.passed == 1
        kube_proxy.events.release()
        await kube_proxy.wait_for(lambda: kube_proxy.events.passed == 2)
        kube_proxy.cut_watches("pods")
        await task
    assert watcher.seen[:2] == [("ADDED", "twice")] * 2
    assert watcher.codes == [0]
    assert kube_proxy.watching("pods") == 0


@pytest.mark.parametrize("lost", [False, True])
async def test_no_server_tells_of_progress_past_an_event_that_was_lost(
    cluster: Cluster, kube_proxy: KubeProxy, proxied: KubeClient, lost: bool
) -> None:
    """The real one does so again and again, at least shortly before the watch ends."""
    path = f"/api/v1/namespaces/{cluster.namespace}/pods"
    kinds: list[str] = []

    async def follow() -> None:
        query = {"allowWatchBookmarks": "true", "timeoutSeconds": "4"}
        async for event in proxied.watch(path, **query):
            kinds.append(event["type"])  # noqa: PERF401 - looked at meanwhile

    async with asyncio.TaskGroup() as group:
        group.create_task(follow())
        await kube_proxy.wait_for(lambda: kube_proxy.watching("pods"))
        if lost:
            kube_proxy.events.drop(1, "pods")
        await cluster.add_pod("one")
        passed = 0 if lost else 1
        await kube_proxy.wait_for(
            lambda: not kube_proxy.events.dropping and kube_proxy.events.passed == passed
        )
        before = len(kinds)
    assert ("BOOKMARK" in kinds[before:]) is not lost


async def test_watches_expire_and_are_refused(
    cluster: Cluster, kube_proxy: KubeProxy, proxied: KubeClient
) -> None:
    watcher = Watcher(proxied, cluster)
    async with asyncio.TaskGroup() as group:
        group.create_task(watcher.run())
        await kube_proxy.wait_for(lambda: kube_proxy.watching("pods"))
        kube_proxy.expire_watches()
    assert watcher.codes == [410]
    rule = kube_proxy.faults.add(times=None, when=is_watch, action=answer(410, "Expired"))
    with pytest.raises(KubeRefusal) as refusal:
        await watcher.run()
    assert refusal.value.status == 410
    assert rule.hits == 1
    assert await proxied.list(watcher.path) == []


async def test_a_server_that_is_down_is_a_broken_connection(
    cluster: Cluster, kube_server: KubeServer, kube_proxy: KubeProxy, proxied: KubeClient
) -> None:
    await asyncio.to_thread(kube_server.stop_apiserver, kill=True)
    try:
        with pytest.raises(aiohttp.ClientError):
            await proxied.list("/api/v1/pods")
    finally:
        await asyncio.to_thread(kube_server.start_apiserver)
    assert await proxied.list(f"/api/v1/namespaces/{cluster.namespace}/pods") == []
