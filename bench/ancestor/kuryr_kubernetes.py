"""kuryr-kubernetes in the test bed: its controller, and the stand-in of its nodes' daemon."""

from __future__ import annotations

import asyncio
import configparser
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from bench.testbed import processes
from bench.testbed.data_plane import DataPlaneClient
from bench.testbed.implementations import Implementation, Options
from bench.testbed.node_daemon import NodeDaemon, vifs_of
from bench.testbed.publication import STATUS
from bench.testbed.testbed import TAG, Controller, Testbed
from kuryr_k8s.model.annotations import KURYRPORT_FINALIZER, NODE_NAME_LABEL
from lab.bench import ancestor
from lab.paths import Paths
from tests.kit.kube.children import free_ports

Json = dict[str, Any]
USER = "ancestor"  # its user of the API server
_START_SECONDS = 60.0
_PERMISSION = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": USER},
    "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "cluster-admin",
    },
    "subjects": [{"kind": "User", "name": USER}],
}


class AncestorNode(NodeDaemon):
    """The node of kuryr-kubernetes, whose daemon writes nothing.

    `active` holds the times when the controller's mark was seen in the watch.
    """

    finalizer = KURYRPORT_FINALIZER  # the controller's, which waits for no node

    def _query(self) -> dict[str, str]:
        return {"labelSelector": f"{NODE_NAME_LABEL}={self.node}"}

    def _take(self, group: asyncio.TaskGroup, event: str, kuryrport: Json) -> None:
        super()._take(group, event, kuryrport)
        name, vifs = kuryrport["metadata"]["name"], vifs_of(kuryrport)
        if vifs and name not in self.active and all(map(_is_active, vifs.values())):
            self.active[name] = time.monotonic()

    async def _mark(self, kuryrport: Json) -> None:
        """Leave the mark to the controller, which asks Neutron until the port is ACTIVE."""

    async def _remove_finalizer(self, kuryrport: Json) -> None:
        """Leave the finalizer to the controller."""


class KuryrKubernetes(Implementation):
    """kuryr-kubernetes with its own CRDs and every permission."""

    name = f"kuryr-kubernetes {ancestor.VERSION}"
    user = USER
    publication = STATUS
    handlers = "vif,kuryrport,service,endpoints,kuryrloadbalancer"
    families = 1

    def __init__(self) -> None:
        self._installed = ancestor.ensure(Paths.from_environment())
        self.crds = self._installed.crds

    async def install(self, testbed: Testbed) -> None:
        """Install the CRDs and the permission, and Neutron's extension for tags."""
        await super().install(testbed)
        # without it tags are not in the bodies of creations
        await testbed.cloud.add_extension("tag-ports-during-bulk-creation")
        bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
        if await testbed.admin.find(f"{bindings}/{USER}") is None:
            await testbed.admin.create(_PERMISSION)

    @asynccontextmanager
    async def controller(self, testbed: Testbed, options: Options) -> AsyncIterator[Controller]:
        """Run the controller with these options beside those of the test bed."""
        health, metrics = free_ports(2)
        file = testbed.directory / "ancestor.conf"
        _write(file, _configuration(testbed, health, metrics), options)
        command = [str(self._installed.controller), "--config-file", str(file)]
        log = testbed.directory / "ancestor.out"
        started = time.monotonic()
        # its answer to /ready asks the API server without regard to ssl_ca_crt_file
        environment = {"PYTHONPATH": "", "REQUESTS_CA_BUNDLE": str(testbed.server.ca_file)}
        process = processes.start(testbed.launcher, command, log, environment)
        controller = Controller(process, started)
        try:
            await _wait_until_ready(controller, health)
            yield controller
        finally:
            await asyncio.to_thread(process.stop)

    def node(self, testbed: Testbed, node: str, data_plane: DataPlaneClient | None) -> NodeDaemon:
        """Return the stand-in of the daemon on a node."""
        return AncestorNode(testbed.daemon, node, data_plane)


def _configuration(testbed: Testbed, health: int, metrics: int) -> Options:
    token = testbed.directory / "ancestor.token"
    token.write_text(testbed.server.token_for(USER))
    facts = testbed.facts
    return {
        "DEFAULT": {"use_stderr": "true"},
        "kubernetes": {
            "api_root": testbed.server.base_url,
            "token_file": str(token),
            "ssl_ca_crt_file": str(testbed.server.ca_file),
            "ssl_verify_server_crt": "true",
            "enabled_handlers": "vif,kuryrport",
            "pod_vif_driver": "neutron-vif",
        },
        "neutron_defaults": {
            "project": facts["project"],
            "pod_subnet": facts["subnets"][0],
            "pod_security_groups": facts["group"],
            "ovs_bridge": "br-int",
            "resource_tags": TAG,
        },
        "neutron": facts["neutron"],
        "oslo_concurrency": {"lock_path": str(testbed.directory / "locks")},
        "cache": {"enabled": "true", "backend": "dogpile.cache.memory"},
        "health_server": {"port": str(health)},
        "prometheus_exporter": {"controller_exporter_port": str(metrics)},
    }


def _write(file: Path, *layers: Options) -> None:
    parser = configparser.ConfigParser(interpolation=None)
    for options in layers:
        parser.read_dict(options)
    with file.open("w") as opened:
        parser.write(opened)


async def _wait_until_ready(controller: Controller, health: int) -> None:
    """Wait until the controller answers /ready, as a kubelet would."""
    url = f"http://127.0.0.1:{health}/ready"
    try:
        async with asyncio.timeout(_START_SECONDS), aiohttp.ClientSession() as session:
            while True:
                if await _is_ready(session, url):
                    break
                await asyncio.sleep(0.1)
    except TimeoutError:
        output = controller.process.output_tail()
        raise RuntimeError(f"kuryr-kubernetes did not get ready:\n{output}") from None
    controller.ready = time.monotonic()


async def _is_ready(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url) as response:
            return response.status == 200
    except aiohttp.ClientConnectionError:
        return False


def _is_active(vif: Json) -> bool:
    return bool(vif["vif"]["versioned_object.data"]["active"])
