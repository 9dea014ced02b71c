"""The private server is a real one: RBAC, watches that expire, objects without controllers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.kube.client import Json, KubeClient, KubeRefusal
from tests.kit.kube.cluster import Cluster
from tests.kit.kube.server import KubeServer
from tests.kit.paths import REPOSITORY


async def test_a_user_without_rights_is_refused(cluster: Cluster, kube_server: KubeServer) -> None:
    token = kube_server.token_for("nobody")
    async with KubeClient(kube_server.base_url, token, kube_server.ca_file) as client:
        with pytest.raises(KubeRefusal) as refusal:
            await client.list("/api/v1/pods")
    assert refusal.value.status == 403


async def test_a_pod_is_scheduled_run_and_removed_by_hand(cluster: Cluster) -> None:
    await cluster.add_node("node-1")
    pod = await cluster.add_pod("web")
    await cluster.bind(pod, "node-1")
    pod = await cluster.set_phase(pod, "Running", podIP="10.0.0.1")
    assert pod["spec"]["nodeName"] == "node-1"
    assert pod["status"]["phase"] == "Running"
    await cluster.delete_pod(pod)
    assert await cluster.client.list(f"/api/v1/namespaces/{cluster.namespace}/pods") == []


async def test_a_cluster_leaves_nothing_that_a_controller_would_work_on(kube: KubeClient) -> None:
    cluster = Cluster(kube)
    await cluster.add_namespace()
    await cluster.add_node("node-2")
    pod = await cluster.add_pod("held", node="node-2")
    await kube.patch(
        f"/api/v1/namespaces/{cluster.namespace}/pods/held",
        {"metadata": {"finalizers": ["example.org/held"]}},
    )
    await cluster.delete_pod(pod)
    await cluster.clean()
    assert await kube.find("/api/v1/nodes/node-2") is None
    assert await kube.list("/api/v1/pods") == []


async def test_a_restart_keeps_objects_and_makes_old_versions_too_old(
    cluster: Cluster, kube_server: KubeServer
) -> None:
    path = f"/api/v1/namespaces/{cluster.namespace}/pods"
    first = await cluster.add_pod("one")
    await cluster.add_pod("two")
    await asyncio.to_thread(kube_server.restart_apiserver)
    pods = await cluster.client.list(path)
    assert [pod["metadata"]["name"] for pod in pods] == ["one", "two"]
    version = first["metadata"]["resourceVersion"]
    event = await _first_event(cluster.client, version)
    assert event["type"] == "ERROR"
    assert event["object"]["code"] == 410


async def _first_event(client: KubeClient, version: str) -> Json:
    """A server that has just started refuses watches until its caches are filled."""
    async with asyncio.timeout(60):
        while True:
            try:
                async for event in client.watch("/api/v1/pods", resourceVersion=version):
                    return event
            except KubeRefusal as refusal:
                if refusal.status != 429:
                    raise
            await asyncio.sleep(0.05)


def test_the_programs_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys, tests.kit.kube.children as c\n"
        "child = c.Launcher().start(['sleep', '300'], pathlib.Path(sys.argv[1]))\n"
        "print(child.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "log")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
    )
    with parent:
        pid = int(parent.stdout.readline())
        status = Path(f"/proc/{pid}/stat")
        assert status.exists()
        watcher = subprocess.Popen(["tail", f"--pid={pid}", "-f", "/dev/null"])
        parent.kill()
    assert watcher.wait(timeout=120) == 0


async def test_the_audit_log_says_what_a_user_was_refused(
    cluster: Cluster, kube_server: KubeServer
) -> None:
    token = kube_server.token_for("nobody")
    async with KubeClient(kube_server.base_url, token, kube_server.ca_file) as client:
        with pytest.raises(KubeRefusal):
            await client.list(f"/api/v1/namespaces/{cluster.namespace}/secrets")
    lines = kube_server.audit_log.read_text().splitlines()
    mine = [
        entry for line in lines if cluster.namespace in (entry := json.loads(line))["requestURI"]
    ]
    assert [(entry["verb"], entry["responseStatus"]["code"]) for entry in mine] == [("list", 403)]
