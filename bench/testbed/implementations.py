"""Who is measured: this project, or kuryr-kubernetes, on the same stage."""

from __future__ import annotations

import asyncio
import configparser
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import aiohttp

from bench.services.watch import ANNOTATION, STATUS, Publication
from bench.testbed import processes
from bench.testbed.data_plane import Wiring
from bench.testbed.node_daemon import AncestorNode, NodeDaemon
from bench.testbed.testbed import CONTROLLER, REPOSITORY, TAG, Controller, Stage
from lab.bench import ancestor
from lab.paths import Paths
from tests.kit.kube.children import free_ports

Options = Mapping[str, Mapping[str, str]]
ANCESTOR = "ancestor"  # its user of the API server
_START_SECONDS = 60.0
_PERMISSION = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": ANCESTOR},
    "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "cluster-admin",
    },
    "subjects": [{"kind": "User", "name": ANCESTOR}],
}


class Contestant(ABC):
    """A controller, what it needs on the API server, and what its nodes do."""

    name: str
    user: str
    crds: Path
    publication: Publication  # where it tells of Services
    handlers: str  # with those of Services
    families: int  # of addresses that its Services may have

    async def enter(self, stage: Stage) -> None:
        """Have its kinds and permissions on the API server, and nobody else's kinds."""
        await stage.serve(self.crds)

    @abstractmethod
    def controller(
        self, stage: Stage, options: Options
    ) -> AbstractAsyncContextManager[Controller]:
        """Its controller, ready; stopped at the end."""

    @abstractmethod
    def node(self, stage: Stage, node: str, wiring: Wiring | None) -> NodeDaemon:
        """The stand-in of its daemon."""


class Product(Contestant):
    """This project, with its shipped permissions, which the stage has."""

    name = "this project"
    user = CONTROLLER
    crds = REPOSITORY / "etc" / "crds"
    publication = ANNOTATION
    handlers = "vif,kuryrport,lbaas_spec,loadbalancer"
    families = 2

    @asynccontextmanager
    async def controller(self, stage: Stage, options: Options) -> AsyncIterator[Controller]:
        stage.configure(options)
        async with stage.controller() as controller:
            yield controller

    def node(self, stage: Stage, node: str, wiring: Wiring | None) -> NodeDaemon:
        return NodeDaemon(stage.daemon, node, wiring)


class Ancestor(Contestant):
    """kuryr-kubernetes with its own CRDs; it may do everything."""

    name = f"kuryr-kubernetes {ancestor.VERSION}"
    user = ANCESTOR
    publication = STATUS
    handlers = "vif,kuryrport,service,endpoints,kuryrloadbalancer"
    families = 1

    def __init__(self) -> None:
        self._installed = ancestor.ensure(Paths.from_environment())
        self.crds = self._installed.crds

    async def enter(self, stage: Stage) -> None:
        await super().enter(stage)
        # what it looks for before it puts tags into the bodies of creations
        await stage.cloud.announce("tag-ports-during-bulk-creation")
        kinds = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
        if await stage.admin.find(f"{kinds}/{ANCESTOR}") is None:
            await stage.admin.create(_PERMISSION)

    @asynccontextmanager
    async def controller(self, stage: Stage, options: Options) -> AsyncIterator[Controller]:
        health, metrics = free_ports(2)
        file = stage.directory / "ancestor.conf"
        _write(file, _configuration(stage, health, metrics), options)
        command = [str(self._installed.controller), "--config-file", str(file)]
        log = stage.directory / "ancestor.out"
        begun = time.monotonic()
        # its answer to /ready asks the API server without regard to ssl_ca_crt_file
        environment = {"PYTHONPATH": "", "REQUESTS_CA_BUNDLE": str(stage.server.ca_file)}
        process = processes.start(stage.launcher, command, log, environment)
        controller = Controller(process, begun)
        try:
            await _until_ready(controller, health)
            yield controller
        finally:
            await asyncio.to_thread(process.stop)

    def node(self, stage: Stage, node: str, wiring: Wiring | None) -> NodeDaemon:
        return AncestorNode(stage.daemon, node, wiring)


def _configuration(stage: Stage, health: int, metrics: int) -> Options:
    token = stage.directory / "ancestor.token"
    token.write_text(stage.server.token_for(ANCESTOR))
    facts = stage.facts
    return {
        "DEFAULT": {"use_stderr": "true"},
        "kubernetes": {
            "api_root": stage.server.base_url,
            "token_file": str(token),
            "ssl_ca_crt_file": str(stage.server.ca_file),
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
        "oslo_concurrency": {"lock_path": str(stage.directory / "locks")},
        "cache": {"enabled": "true", "backend": "dogpile.cache.memory"},
        "health_server": {"port": str(health)},
        "prometheus_exporter": {"controller_exporter_port": str(metrics)},
    }


def _write(file: Path, *options: Options) -> None:
    parser = configparser.ConfigParser(interpolation=None)
    for some in options:
        parser.read_dict(some)
    with file.open("w") as opened:
        parser.write(opened)


async def _until_ready(controller: Controller, health: int) -> None:
    """Its own word, for what Kubernetes asks as well."""
    url = f"http://127.0.0.1:{health}/ready"
    try:
        async with asyncio.timeout(_START_SECONDS), aiohttp.ClientSession() as session:
            while True:
                if await _is_ready(session, url):
                    break
                await asyncio.sleep(0.1)
    except TimeoutError:
        words = controller.process.last_words()
        raise RuntimeError(f"kuryr-kubernetes did not get ready:\n{words}") from None
    controller.ready = time.monotonic()


async def _is_ready(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url) as response:
            return response.status == 200
    except aiohttp.ClientConnectionError:
        return False
