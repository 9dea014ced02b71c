"""The test bed: a real API server, a fake cloud and the controller, each in its process."""

from __future__ import annotations

import asyncio
import configparser
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from bench.testbed import processes
from bench.testbed.audit import AuditLog
from bench.testbed.cloud_control import CloudControl
from bench.testbed.processes import ENVIRONMENT, REPOSITORY, Process
from kuryr_k8s.model.annotations import HOST_ID
from lab.install import binaries
from tests.kit.kube import Cluster, KubeClient, KubeServer
from tests.kit.kube.children import Launcher, free_ports

# The users that the shipped permissions name.
CONTROLLER, DAEMON = (
    f"system:serviceaccount:kube-system:kuryr-{name}" for name in ("controller", "daemon")
)
TAG = "bench"
SYNCED = b"STATUS=standby"  # what systemd is told when the caches are filled
PROGRAM = "from kuryr_k8s.app import main\n\nmain()\n"


@dataclass
class Controller:
    """The controller's process; `started` and `ready` are times of time.monotonic()."""

    process: Process
    started: float
    ready: float = 0.0


@dataclass
class Testbed:
    """The programs of a benchmark, and clients of them."""

    directory: Path
    server: KubeServer
    launcher: Launcher
    admin: KubeClient
    daemon: KubeClient
    cloud: CloudControl
    facts: dict[str, Any]
    audit: AuditLog
    profile: str = ""
    cluster: Cluster = field(init=False)

    def __post_init__(self) -> None:
        self.cluster = Cluster(self.admin)

    @property
    def configuration(self) -> list[str]:
        """The options that name the configuration: the sample, and what differs from it."""
        files = (REPOSITORY / "etc/kuryr.conf.sample", self.directory / "kuryr.conf")
        return [part for file in files for part in ("--config-file", str(file))]

    @asynccontextmanager
    async def controller(self) -> AsyncIterator[Controller]:
        """Run the controller: its caches are synced at first; it is stopped as by systemd."""
        address = self.directory / "notify"
        address.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.setblocking(False)
            channel.bind(str(address))
            controller = self._start_controller(str(address))
            try:
                await self._wait_until_ready(controller, channel)
                yield controller
            finally:
                await asyncio.to_thread(controller.process.stop)

    def _start_controller(self, notify: str) -> Controller:
        program = self.directory / "controller.py"
        program.write_text(PROGRAM)
        profiler = ["-m", "cProfile", "-o", self.profile] if self.profile else []
        command = [sys.executable, *profiler, str(program), *self.configuration]
        started = time.monotonic()
        log = self.directory / "controller.out"
        process = processes.start(
            self.launcher, command, log, ENVIRONMENT | {"NOTIFY_SOCKET": notify}
        )
        return Controller(process, started)

    async def _wait_until_ready(self, controller: Controller, channel: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(120):
                while not (await loop.sock_recv(channel, 4096)).startswith(SYNCED):
                    pass
        except TimeoutError:
            raise RuntimeError(
                f"the controller did not get ready:\n{controller.process.output_tail()}"
            ) from None
        controller.ready = time.monotonic()

    def configure(self, more: Mapping[str, Mapping[str, str]] | None = None) -> None:
        """Write kuryr.conf as a user would, with free ports.

        :param more: options by section that are added, or replace others.
        """
        token = self.directory / "token"
        token.write_text(self.server.token_for(CONTROLLER))
        options = {
            "kubernetes": {
                "api_root": self.server.base_url,
                "ssl_ca_crt_file": str(self.server.ca_file),
                "token_file": str(token),
                "lock_file": str(self.directory / "controller.lock"),
            },
            "neutron": self.facts["neutron"],
            "neutron_defaults": {
                "project": self.facts["project"],
                "pod_subnet": ",".join(self.facts["subnets"]),
                "pod_security_groups": self.facts["group"],
                "resource_tags": TAG,
            },
            "health_server": {
                "port": str(free_ports(1)[0]),
                "admin_socket": str(self.directory / "admin.sock"),
            },
        }
        parser = configparser.ConfigParser(interpolation=None)
        parser.read_dict(options)
        parser.read_dict(more or {})
        with (self.directory / "kuryr.conf").open("w") as file:
            parser.write(file)

    async def replace_crds(self, crds: Path) -> None:
        """Delete all CRDs with their objects, and install those of a folder."""
        kinds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        async with asyncio.timeout(60):
            while left := await self.admin.list(kinds):
                for crd in left:
                    if "deletionTimestamp" not in crd["metadata"]:
                        await self.admin.delete(f"{kinds}/{crd['metadata']['name']}")
                await asyncio.sleep(0.1)
        await self.cluster.install_crds(crds)

    async def install(self, nodes: int) -> None:
        """Create the shipped CRDs and permissions, and nodes annotated with their hosts."""
        await self.cluster.install_crds(REPOSITORY / "etc" / "crds")
        for manifest in await asyncio.to_thread(_permissions):
            await self.admin.create(manifest)
        for number in range(nodes):
            annotations = {HOST_ID: f"node{number}"}
            await self.cluster.add_node(f"node{number}", annotations=annotations)


@asynccontextmanager
async def running_testbed(
    *, nodes: int = 1, profile: str = "", users: Iterable[str] = ()
) -> AsyncIterator[Testbed]:
    """Run a test bed; all its processes and files are removed at the end.

    :param nodes: the number of Nodes.
    :param users: further users of the API server, without permissions.
    :param profile: the file for cProfile's results of the controller; none if empty.
    """
    programs = await asyncio.to_thread(binaries.ensure, ["etcd", "kube-apiserver"])
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        (directory / "kube").mkdir()
        server = KubeServer(directory / "kube", programs, (CONTROLLER, DAEMON, *users))
        stack.callback(server.close)
        await asyncio.to_thread(server.start)
        launcher = Launcher()
        stack.callback(launcher.close)
        cloud, facts = await _start_cloud(stack, launcher, directory, nodes)
        admin, daemon = [
            await stack.enter_async_context(
                KubeClient(server.base_url, server.token_for(user), server.ca_file)
            )
            for user in ("admin", DAEMON)
        ]
        testbed = Testbed(
            directory=directory,
            server=server,
            launcher=launcher,
            admin=admin,
            daemon=daemon,
            cloud=cloud,
            facts=facts,
            audit=AuditLog(server.audit_log),
            profile=profile,
        )
        testbed.configure()
        await testbed.install(nodes)
        yield testbed


async def _start_cloud(
    stack: AsyncExitStack, launcher: Launcher, directory: Path, hosts: int
) -> tuple[CloudControl, dict[str, Any]]:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "bench.testbed.fake_cloud", str(port), str(hosts)]
    process = processes.start(launcher, command, directory / "cloud.out", ENVIRONMENT)
    stack.push_async_callback(asyncio.to_thread, process.stop)
    session = await stack.enter_async_context(aiohttp.ClientSession())
    control = CloudControl(session, port)
    return control, await control.facts()


def _permissions() -> list[dict[str, Any]]:
    """Read the shipped roles and bindings.

    Stand-ins write for nodes whose tokens they lack, which the policy for daemons would refuse.
    """
    paths = sorted((REPOSITORY / "etc" / "rbac").glob("*.yaml"))
    manifests = [manifest for path in paths for manifest in yaml.safe_load_all(path.read_text())]
    return [manifest for manifest in manifests if "AdmissionPolicy" not in manifest["kind"]]
