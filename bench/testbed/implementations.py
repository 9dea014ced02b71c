"""Controllers that benchmarks can measure in the same test bed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from bench.testbed.data_plane import DataPlaneClient
from bench.testbed.node_daemon import NodeDaemon
from bench.testbed.processes import REPOSITORY
from bench.testbed.publication import ANNOTATION, Publication
from bench.testbed.testbed import CONTROLLER, Controller, Testbed

Options = Mapping[str, Mapping[str, str]]


class Implementation(ABC):
    """A controller, the objects it needs on the API server, and the daemon of its nodes."""

    name: str
    user: str
    crds: Path
    publication: Publication  # where it publishes the state of Services
    handlers: str  # with those of Services
    families: int  # of addresses that its Services may have

    async def install(self, testbed: Testbed) -> None:
        """Install its CRDs and permissions, and remove the CRDs of other implementations."""
        await testbed.replace_crds(self.crds)

    @abstractmethod
    def controller(
        self, testbed: Testbed, options: Options
    ) -> AbstractAsyncContextManager[Controller]:
        """Run its controller: ready when the context begins, stopped when it ends."""

    @abstractmethod
    def node(self, testbed: Testbed, node: str, data_plane: DataPlaneClient | None) -> NodeDaemon:
        """Return the stand-in of its daemon on a node."""


class ThisProject(Implementation):
    """The controller of this project, with its shipped permissions."""

    name = "this project"
    user = CONTROLLER
    crds = REPOSITORY / "etc" / "crds"
    publication = ANNOTATION
    handlers = "vif,kuryrport,lbaas_spec,loadbalancer"
    families = 2

    @asynccontextmanager
    async def controller(self, testbed: Testbed, options: Options) -> AsyncIterator[Controller]:
        """Run the controller with these options beside those of the test bed."""
        testbed.configure(options)
        async with testbed.controller() as controller:
            yield controller

    def node(self, testbed: Testbed, node: str, data_plane: DataPlaneClient | None) -> NodeDaemon:
        """Return the stand-in of the daemon on a node."""
        return NodeDaemon(testbed.daemon, node, data_plane)
