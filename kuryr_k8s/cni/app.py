"""kuryr-k8s-daemon: READ FIRST. Builds everything once, and runs it in one TaskGroup.

kuryr-cni → server → daemon → attachments → bindings → netlink, ovs
                                   ↑ ports ← informer of this node's KuryrPorts
parking ← informer of its KuryrPortPool → parked → netlink, ovs
node_ports, health_checks ← informer of Services → nft; where they are wanted
kuryrports (acknowledges), node (publishes the chassis), housekeeping (cleans up)
"""

import asyncio
import functools
import logging
import os
import socket
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from oslo_config import cfg
from prometheus_client import CollectorRegistry

from kuryr_k8s import errors
from kuryr_k8s.cni import conflist
from kuryr_k8s.cni.bindings import base
from kuryr_k8s.cni.bindings.ovs_parked import Parked
from kuryr_k8s.cni.daemon import Daemon
from kuryr_k8s.cni.netlink import Flows, Links
from kuryr_k8s.cni.node import HostIdPublisher
from kuryr_k8s.cni.ovs.openflow import OpenFlow
from kuryr_k8s.cni.ovs.switch import OpenVSwitch
from kuryr_k8s.cni.pods.acknowledgements import KuryrPortAcknowledger
from kuryr_k8s.cni.pods.attachments import Attachments
from kuryr_k8s.cni.pods.housekeeping import Housekeeping
from kuryr_k8s.cni.pods.parking import Parking, may_keep
from kuryr_k8s.cni.pods.wanted import Ports
from kuryr_k8s.cni.server import Server
from kuryr_k8s.cni.services.health_checks import HealthChecks
from kuryr_k8s.cni.services.node_ports import PACE, NodePorts, remove
from kuryr_k8s.cni.spool import Spool
from kuryr_k8s.engine import systemd
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.engine.health import HealthServer
from kuryr_k8s.k8s.api import KubeApi
from kuryr_k8s.k8s.connect import connect
from kuryr_k8s.k8s.informer import Informer
from kuryr_k8s.k8s.resources import KURYRPORTPOOLS, KURYRPORTS, SERVICES, Key
from kuryr_k8s.model.kuryrport import KuryrPort
from kuryr_k8s.model.kuryrportpool import KuryrPortPool
from kuryr_k8s.model.node_port import WITH_NODE_PORTS, ServiceAtNodes
from kuryr_k8s.model.service_class import Classes
from kuryr_k8s.process import reach, start

LOG = logging.getLogger(__name__)
NAME = "kuryr-k8s-daemon"
WORKERS = 8


def main() -> None:
    """Entry point of ``kuryr-k8s-daemon``."""
    sys.exit(start(NAME, sys.argv[1:], DaemonApp))


class DaemonApp:
    """One daemon process."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf

    async def run(self) -> None:
        """Until cancelled; requests in work then get some seconds to end."""
        stop = asyncio.Event()
        api = await connect(self._conf)
        links = Links()
        try:
            async with asyncio.TaskGroup() as group:
                serving = group.create_task(run(self._conf, api, links, stop), name="daemon")
                try:
                    await asyncio.wait([serving])
                finally:
                    stop.set()
                    await asyncio.wait([serving])
        finally:
            links.close()
            await api.close()


async def run(conf: cfg.ConfigOpts, api: KubeApi, links: Links, stop: asyncio.Event) -> None:
    """The daemon, until ``stop`` is set."""
    options = conf.cni_daemon
    node_name = name_of_node(conf)
    registry = CollectorRegistry()
    has_switch = bool(options.ovsdb_connection)
    switch = OpenVSwitch(options.ovsdb_connection)
    if not has_switch:
        switch.connected.set()  # nothing to wait for
    selectors = {"fieldSelector": f"spec.podNodeName={node_name}"}
    informer = Informer(api, KURYRPORTS, KuryrPort.read, selectors=selectors)
    own = {"fieldSelector": f"metadata.name={node_name}"}
    pools = Informer(api, KURYRPORTPOOLS, KuryrPortPool.read, selectors=own)
    key = Key("", node_name)
    parked = Parked(
        links,
        switch,
        OpenFlow.beside(options.ovsdb_connection),
        lambda port_id: may_keep(pools, key, port_id),
    )
    attachments = Attachments(
        base.load(base.Host(links, switch, parked, conf)),
        Ports(informer, api),
        settled=asyncio.Event(),
        add_timeout=options.add_timeout,
    )
    daemon = Daemon(attachments, switch, registry)
    housekeeping = Housekeeping(
        attachments,
        Spool(Path(options.spool_dir)),
        daemon.handle,
        synced=informer.synced,
        connected=switch.connected,
    )
    acknowledger = KuryrPortAcknowledger(informer, api, attachments, switch, parked)
    kuryrports = Controller("kuryrport", acknowledger.reconcile, workers=WORKERS)
    informer.subscribe(lambda key, _old, _new: kuryrports.queue.add(key))
    attachments.subscribe(kuryrports.queue.add)
    publisher = HostIdPublisher(api, switch.host_id)
    node = Controller("node", publisher.reconcile, workers=1)
    switch.subscribe(lambda: node.queue.add(key))
    parking = Controller(
        "parking", Parking(pools, api, parked, switch, attachments).reconcile, workers=1
    )
    pools.subscribe(lambda key, _old, _new: parking.queue.add(key))
    switch.subscribe_ports(lambda: parking.queue.add(key))
    checks = {
        "caches": informer.synced.is_set,
        "openvswitch": switch.connected.is_set,
        "settled": attachments.settled.is_set,
    }
    health = HealthServer(
        conf.cni_health_server.address, conf.cni_health_server.port, checks, registry
    )
    runs: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
        "openvswitch": switch.run,
        "kubernetes": functools.partial(_follow, api, informer),
        "pool": functools.partial(_follow, api, pools),
        "parking": parking.run,
        "kuryrports": kuryrports.run,
        "node": node.run,
        "health": health.run,
        "housekeeping": housekeeping.run,
    }
    published = [publisher.published]
    if not has_switch:  # and so is no chassis
        for part in ("openvswitch", "node", "pool", "parking"):
            del runs[part]
        del checks["openvswitch"]
        published = []
    if options.node_ports:
        runs |= _node_ports(api, Classes.read(conf), links.flows, registry)
    else:
        runs["node-ports"] = remove
    server = Server(Path(options.socket), daemon.handle)
    LOG.info("kuryr-k8s-daemon of node %s", node_name)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part(), name=name) for name, part in runs.items()]
        ready = _announce(conf, attachments.settled, *published)
        tasks.append(group.create_task(ready, name="ready"))
        await server.run(stop)
        LOG.info("stopping")
        for task in tasks:
            task.cancel()


def _node_ports(
    api: KubeApi, classes: Classes, flows: Flows, registry: CollectorRegistry
) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
    """What runs where Services are to be answered at the node."""
    key = Key("", "node")  # of both queues, the only one
    read = functools.partial(ServiceAtNodes.read, classes=classes)
    services = Informer(api, SERVICES, read, selectors=WITH_NODE_PORTS)
    node_ports = NodePorts(services, flows, registry)
    health_checks = HealthChecks(services, lambda: node_ports.working)
    ports = Controller("node-ports", node_ports.reconcile, workers=1)
    checks = Controller("health-checks", health_checks.reconcile, workers=1)

    def changed(_key: Key, old: ServiceAtNodes | None, new: ServiceAtNodes | None) -> None:
        if old is None or new is None or old.node_ports != new.node_ports:
            ports.queue.add_after(key, PACE)
        checks.queue.add(key)

    async def begin() -> None:
        await services.synced.wait()
        ports.queue.add(key)  # also where there is no Service: an earlier daemon left a table

    services.subscribe(changed)
    return {
        "services": functools.partial(_follow, api, services),
        "node-ports": ports.run,
        "node-ports-begin": begin,
        "health-checks": checks.run,
        "health-check-ports": health_checks.run,
    }


async def _follow(api: KubeApi, informer: Informer[Any]) -> None:
    """Fill the cache for ever; an API that will never answer us ends the start."""
    await reach("Kubernetes", functools.partial(api.probe, informer.resource))
    await informer.run()


async def _announce(conf: cfg.ConfigOpts, *wanted: asyncio.Event) -> None:
    """Once all is well, tell systemd, and then the runtime: the configuration comes last."""
    for event in wanted:
        await event.wait()
    try:
        install(conf)
    except OSError as error:
        raise errors.ConfigError(f"cannot install kuryr-cni: {error}") from error
    systemd.notify("READY=1")
    LOG.info("ready")


def install(conf: cfg.ConfigOpts) -> None:
    """Install the plugin, then its configuration, where the options want them."""
    options = conf.cni_daemon
    if options.cni_bin_dir:
        conflist.install_plugin(Path(options.cni_bin_dir))
    if options.cni_conf_dir:
        template = options.cni_conf_template
        text = (
            Path(template).read_text()
            if template
            else conflist.render(options.socket, options.spool_dir)
        )
        conflist.install(Path(options.cni_conf_dir), text)


def name_of_node(conf: cfg.ConfigOpts) -> str:
    """The Node's name: an option, or what the Pod was told, or the host's name."""
    told = conf.kubernetes.node_name or os.environ.get("KUBERNETES_NODE_NAME")
    return str(told or socket.gethostname())


if __name__ == "__main__":
    main()
