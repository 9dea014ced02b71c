"""Fixtures for tests/component: import the names wanted into its conftest.

from tests.kube.fixtures import cluster, kube_proxy, kube_server  # noqa: F401
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from lab.install import binaries

from .client import KubeClient
from .cluster import Cluster
from .proxy import KubeProxy
from .server import KubeServer

USERS = ("controller", "daemon", "nobody")


@pytest.fixture(scope="session")
def kube_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeServer]:
    """The server of this session; its programs are built if they are not there yet."""
    programs = binaries.ensure(["etcd", "kube-apiserver"])
    server = KubeServer(tmp_path_factory.mktemp("kube"), programs, USERS)
    try:
        server.start()
        # kubernetes_asyncio reads the machine's certificate authorities at the start of each
        # client, also of one without TLS: a fifth of the time of tests that start many
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SSL_CERT_FILE", str(server.ca_file))
            yield server
    finally:
        server.close()
        if reports := os.environ.get("KURYR_LAB_REPORTS"):
            # the audit of a whole run counts what was asked of this server, too
            worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
            with (Path(reports) / f"component-audit-{worker}.log").open("a") as kept:
                kept.write(server.audit_log.read_text())


@pytest.fixture
async def kube(kube_server: KubeServer) -> AsyncIterator[KubeClient]:
    """The admin's client."""
    async with KubeClient(
        kube_server.base_url, kube_server.admin_token, kube_server.ca_file
    ) as client:
        yield client


@pytest.fixture
async def cluster(kube: KubeClient) -> AsyncIterator[Cluster]:
    """A namespace for this test; whatever is in it goes with it."""
    made = Cluster(kube)
    await made.add_namespace()
    try:
        yield made
    finally:
        await made.clean()


@pytest.fixture
async def kube_proxy(kube_server: KubeServer) -> AsyncIterator[KubeProxy]:
    """A proxy in front of the server, with nothing wrong yet."""
    async with KubeProxy(kube_server) as proxy:
        yield proxy
