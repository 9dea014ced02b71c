"""The program kuryr-k8s-daemon. READ FIRST: all parts are built here, and run in one TaskGroup.

kuryr-cni → server → dispatcher → attachments → bindings → netlink, ovs
                                       ↑
                                  kuryrports ← cache of this node's KuryrPorts → acknowledgements
"""

import asyncio
import contextlib
import ctypes
import ipaddress
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from oslo_config import cfg
from prometheus_client import CollectorRegistry

from kuryr_k8s.cni import installation
from kuryr_k8s.cni.bindings import base
from kuryr_k8s.cni.caches import Caches
from kuryr_k8s.cni.dispatcher import Dispatcher
from kuryr_k8s.cni.host_id import HostIdPublisher
from kuryr_k8s.cni.netlink import Links
from kuryr_k8s.cni.node.interface import NodeInterfacePart
from kuryr_k8s.cni.node.own_node import OwnNodes
from kuryr_k8s.cni.ovs.switch import OpenVSwitch
from kuryr_k8s.cni.parts import Job, Part
from kuryr_k8s.cni.permission import WritePermission
from kuryr_k8s.cni.pods.acknowledgements import Acknowledgements
from kuryr_k8s.cni.pods.adds import Adds
from kuryr_k8s.cni.pods.attachments import Attachments
from kuryr_k8s.cni.pods.healing import Healing
from kuryr_k8s.cni.pods.housekeeping import Housekeeping
from kuryr_k8s.cni.pods.kuryrports import KuryrPorts
from kuryr_k8s.cni.pods.outages import Outages
from kuryr_k8s.cni.server import Handle, Server
from kuryr_k8s.cni.services.health_checks import HealthChecks
from kuryr_k8s.cni.services.node_ports import SERVICES_AT_NODES, NodePorts, NoNodePorts
from kuryr_k8s.cni.services.ready_endpoints import ReadyEndpoints
from kuryr_k8s.cni.spool import Spool
from kuryr_k8s.engine.clock import CLOCK, Clock
from kuryr_k8s.engine.health import HealthServer
from kuryr_k8s.k8s.api import KubeApi
from kuryr_k8s.k8s.connect import connect
from kuryr_k8s.k8s.events import EventRecorder
from kuryr_k8s.k8s.refusals import Refusals
from kuryr_k8s.k8s.resources import KURYRPORTS, Key
from kuryr_k8s.model.node_port import WITH_NODE_PORTS
from kuryr_k8s.patience import PATIENCE, Patience
from kuryr_k8s.process import Waiting, notify, start

LOG = logging.getLogger(__name__)
NAME = "kuryr-k8s-daemon"
# mallopt(3), malloc.h
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
LARGE = 128 * 1024  # bytes; malloc's own default, until it is moved


def main() -> None:
    """Run ``kuryr-k8s-daemon``."""
    _give_memory_back()
    sys.exit(start(NAME, sys.argv[1:], DaemonApp))


def _give_memory_back() -> None:
    """Have malloc return what is freed to the kernel.

    All threads use one arena: each would keep what it needed at its peak. What is large, such as
    an answer of an API server, is mapped by itself: malloc would take that from the heap from the
    second time on, where what remains behind it keeps it.
    """
    with contextlib.suppress(AttributeError, OSError):  # a C library without such options
        libc = ctypes.CDLL(None)
        libc.mallopt(M_ARENA_MAX, 1)
        libc.mallopt(M_MMAP_THRESHOLD, LARGE)
        libc.mallopt(M_TRIM_THRESHOLD, LARGE)


class DaemonApp:
    """One daemon process."""

    def __init__(
        self, conf: cfg.ConfigOpts, patience: Patience = PATIENCE, clock: Clock = CLOCK
    ) -> None:
        self._conf = conf
        self._patience = patience
        self._clock = clock

    async def run(self) -> None:
        """Run until cancelled; requests that are being done then get some seconds to end."""
        stop = asyncio.Event()
        refusals = Refusals(self._clock)
        api = await connect(self._conf, refusals=refusals, patience=self._patience)
        caches = Caches(api, self._patience, self._clock)
        links = Links()
        try:
            async with asyncio.TaskGroup() as group:
                serving = group.create_task(
                    run(self._conf, api, caches, links, stop), name="daemon"
                )
                try:
                    await asyncio.wait([serving])
                finally:
                    stop.set()
                    await asyncio.wait([serving])
        finally:
            links.close()
            await api.close()


async def run(
    conf: cfg.ConfigOpts, api: KubeApi, caches: Caches, links: Links, stop: asyncio.Event
) -> None:
    """Run the daemon until ``stop`` is set."""
    parts, handle = build(conf, api, caches, links)
    server = Server(Path(conf.cni_daemon.socket), handle)
    health = _health(conf, parts)
    serving = server.serving, health.serving
    loops = [Job("health", health.run), *(loop for part in parts for loop in part.loops())]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(loop.run(), name=loop.name) for loop in loops]
        announcement = _announce(conf, parts, serving, caches.waiting)
        tasks.append(group.create_task(announcement, name="announce"))
        await server.run(stop)
        LOG.info("stopping")
        for task in tasks:
            task.cancel()


def build(
    conf: cfg.ConfigOpts, api: KubeApi, caches: Caches, links: Links
) -> tuple[Sequence[Part], Handle]:
    """Build the daemon: switch, bindings, attachments, and what reports on them.

    :returns: all parts, and the function that does requests.
    """
    options = conf.cni_daemon
    node = Key("", name_of_node(conf))
    LOG.info("kuryr-k8s-daemon of node %s", node)

    selectors = {"fieldSelector": f"spec.podNodeName={node}"}
    cache = caches.follow(KURYRPORTS, selectors)
    kuryrports = KuryrPorts(cache, api)

    adds, settled = Adds(), asyncio.Event()
    switch = OpenVSwitch(options.ovsdb_connection) if options.ovsdb_connection else None
    bindings = base.load(
        base.BindingContext(
            conf=conf,
            node=node,
            api=api,
            caches=caches,
            links=links,
            switch=switch,
            adds=adds,
            settled=settled,
        )
    )
    attachments = Attachments(
        bindings, kuryrports, adds=adds, settled=settled, add_timeout=options.add_timeout
    )
    events = EventRecorder(api, NAME, node.name, enabled=conf.kubernetes.use_events)
    spool = Spool(Path(options.spool_dir))
    dispatcher = Dispatcher(attachments, spool)
    parts = [
        caches,
        WritePermission(api, node, caches.waiting),
        kuryrports,
        *(_with_switch(api, links, switch, node, events) if switch else []),
        *bindings,
        attachments,
        dispatcher,
        Housekeeping(attachments, spool, dispatcher.handle, synced=cache.synced),
        Acknowledgements(cache, api, attachments),
        Healing(node, bindings, attachments, kuryrports, links.events, Outages(node, events)),
        *_services(conf, api, caches, links),
    ]
    return parts, dispatcher.handle


def _with_switch(
    api: KubeApi, links: Links, switch: OpenVSwitch, node: Key, events: EventRecorder
) -> list[Part]:
    """Build what a node with Open vSwitch has."""
    nodes = OwnNodes(api, node)
    return [
        switch,
        HostIdPublisher(api, node, switch),
        nodes,
        NodeInterfacePart(nodes, node, switch, links.node, api, events),
    ]


def _services(conf: cfg.ConfigOpts, api: KubeApi, caches: Caches, links: Links) -> list[Part]:
    """Build what answers for Services at the node."""
    if not conf.cni_daemon.node_ports:
        return [NoNodePorts()]
    services = caches.follow(SERVICES_AT_NODES, WITH_NODE_PORTS)
    networks = [ipaddress.ip_network(text) for text in conf.cni_daemon.node_port_addresses]
    node_ports = NodePorts(services, links.flows, networks=networks)
    endpoints = ReadyEndpoints(services, api)
    return [node_ports, endpoints, HealthChecks(services, node_ports.works_at, endpoints.any_of)]


def _health(conf: cfg.ConfigOpts, parts: Sequence[Part]) -> HealthServer:
    """Build the server of the checks and metrics of all parts."""
    registry = CollectorRegistry()
    checks: dict[str, Callable[[], bool]] = {}
    for part in parts:
        checks |= part.checks()
        for collector in part.collectors():
            registry.register(collector)
    options = conf.cni_health_server
    return HealthServer(options.address, options.port, checks, registry)


async def _announce(
    conf: cfg.ConfigOpts,
    parts: Sequence[Part],
    serving: Iterable[asyncio.Event],
    waiting: Waiting,
) -> None:
    """Tell systemd once requests are taken; once all parts have started, tell the runtime.

    systemd must not wait for the parts: they need the API server and the Node, which on a master
    only the kubelet brings, and what is ordered after this unit may be the kubelet.
    """
    for event in serving:
        await event.wait()
    install_configuration = installation.prepare(conf)
    notify("READY=1")
    for part in parts:
        if awaited := part.awaited():
            waiting.does(f"the node is not announced yet: waiting for {awaited}")
        await part.started()
    install_configuration()
    waiting.does("working")
    LOG.info("ready")


def name_of_node(conf: cfg.ConfigOpts) -> str:
    """Return the Node's name: an option, the Pod's environment, or the host's name.

    It is in lower case, as the kubelet makes it.
    """
    told = conf.kubernetes.node_name or os.environ.get("KUBERNETES_NODE_NAME")
    return str(told or socket.gethostname()).strip().lower()


if __name__ == "__main__":
    main()
