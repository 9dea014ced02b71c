"""The node ports of Services: keeps the node's table (see :mod:`.nftables`) up to date."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from prometheus_client import Counter, Histogram
from prometheus_client.registry import Collector

from kuryr_k8s import errors
from kuryr_k8s.cni import nft
from kuryr_k8s.cni.netlink import Flows, LinkError, Network, UdpTarget, is_within
from kuryr_k8s.cni.parts import Job, Loop, Part
from kuryr_k8s.cni.patience import USUAL, Patience
from kuryr_k8s.cni.services import nftables
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.engine.metrics import SECONDS, gauge
from kuryr_k8s.k8s.resources import SERVICES, Key, Resource
from kuryr_k8s.model.node_port import NodePort, ServiceAtNodes

Wanted = dict[tuple[int, str, int], NodePort]  # by version of IP, protocol, port
LOG = logging.getLogger(__name__)
KEY = Key("", "node ports")  # the only one
# After a transaction there is a pause of so many times its length; seconds at most.
PAUSE, LONGEST_PAUSE = 4, 2.0
FORWARDING = {
    4: Path("/proc/sys/net/ipv4/ip_forward"),
    6: Path("/proc/sys/net/ipv6/conf/all/forwarding"),
}
TOO_MANY = 2  # failures of transactions in a row: then balancers avoid this node
LOOK_AGAIN = 60.0  # seconds: others may flush all tables, as a restart of nftables does


# The kind Service, with the view that a node keeps.
SERVICES_AT_NODES = Resource(SERVICES.kind, SERVICES.plural, view=ServiceAtNodes.read)


class Services(Protocol):
    """The part of the cache of Services that this package needs."""

    synced: asyncio.Event

    def values(self) -> Iterator[ServiceAtNodes]:
        """Return all Services as last reported."""

    def subscribe(
        self, subscriber: Callable[[Key, ServiceAtNodes | None, ServiceAtNodes | None], None]
    ) -> None:
        """Call a function at each change."""


class NodePorts(Part):
    """Reconciles a single key: forwards the node ports of all Services.

    :param networks: those with the node's addresses at which it forwards; empty for all addresses.
    """

    def __init__(
        self,
        services: Services,
        flows: Flows,
        patience: Patience = USUAL,
        networks: Sequence[Network] = (),
    ) -> None:
        self._services = services
        self._networks = tuple(networks)
        self._flows = flows
        self._patience = patience
        self._interval = patience.node_ports_interval
        self._failures: int | None = None  # of transactions, in a row; None: no table yet
        self._forwarded: Wanted = {}
        self._former: set[tuple[int, int]] = set()  # UDP ports whose flows may go on
        self._blocked: set[int] = set()  # versions of IP that the node does not forward
        self._ended, self._took = 0.0, 0.0
        self._transactions = Counter(
            "kuryr_node_ports_transactions",
            "Replacements of the node's table of node ports: done, or failed",
            ["outcome"],
            registry=None,
        )
        self._seconds = Histogram(
            "kuryr_node_ports_seconds",
            "Length of such a replacement",
            buckets=SECONDS,
            registry=None,
        )
        self._controller = Controller("node-ports", self.reconcile, workers=1)
        services.subscribe(self._changed)

    def loops(self) -> Sequence[Loop]:
        """Return the loop that replaces the table, and the one that starts it."""
        return [self._controller, Job("node-ports-begin", self._begin)]

    def collectors(self) -> Sequence[Collector]:
        """Return the metrics of node ports and their transactions."""
        ports = gauge(
            "kuryr_node_ports",
            "Ports of the node led to Services, counted for each version of IP and protocol",
            lambda: len(self._forwarded),
        )
        return [ports, self._transactions, self._seconds]

    async def _begin(self) -> None:
        """Start even where there is no Service: an earlier daemon may have left a table."""
        await self._services.synced.wait()
        self._controller.queue.add(KEY)

    def works_at(self, address: str) -> bool:
        """Return whether node ports forward as they should at an address of the node."""
        return self.working and is_within(address, self._networks)

    def _changed(self, _key: Key, old: ServiceAtNodes | None, new: ServiceAtNodes | None) -> None:
        if old is None or new is None or old.node_ports != new.node_ports:
            self._controller.queue.add_after(KEY, self._interval)

    @property
    def working(self) -> bool:
        """Return whether node ports forward as they should.

        They do once the first table exists. After one failed transaction they still do, since the
        kernel keeps the earlier table; after two in a row that is in doubt.
        """
        return self._failures is not None and self._failures < TOO_MANY

    async def reconcile(self, _key: Key) -> float | None:
        """Replace the table, then have the kernel forget flows that go elsewhere.

        :returns: seconds until the next look.
        :raises errors.KuryrError: the table is as it was before; to be tried again.
        """
        pause = max(self._interval, min(self._took * PAUSE, LONGEST_PAUSE))
        left = self._ended + pause - time.monotonic()
        if left > 0:
            raise errors.Wait("node ports change often", delay=left)
        wanted = self._wanted()
        started = time.monotonic()
        try:
            await self._replace(wanted)
            if wanted != self._forwarded:
                LOG.info("%d node ports are forwarded to Services", len(wanted))
            self._former = (self._former | _of_udp(self._forwarded)) - _of_udp(wanted)
            self._forwarded = wanted
            self._check_forwarding()
            await self._correct_flows()
        finally:
            self._ended = time.monotonic()
            self._took = self._ended - started
        return LOOK_AGAIN

    def _wanted(self) -> Wanted:
        """Return the node ports of all Services.

        If two Services had the same one, which no API server allows, the first would get it.
        """
        wanted: Wanted = {}
        for service in self._services.values():
            for port in service.node_ports:
                wanted.setdefault((port.version, port.protocol, port.port), port)
        return wanted

    async def _replace(self, wanted: Wanted) -> None:
        started = time.monotonic()
        outcome = "failed"
        try:
            await nftables.replace(wanted.values(), self._patience, self._networks)
            outcome, self._failures = "done", 0
        except errors.KuryrError:
            if self._failures is not None:
                self._failures += 1
            raise
        finally:
            self._transactions.labels(outcome).inc()
            self._seconds.observe(time.monotonic() - started)

    async def _correct_flows(self) -> None:
        """Have the kernel forget UDP flows that go elsewhere than their node port does now.

        All ports are examined, whatever has changed: while somebody had flushed our table, flows
        may have begun that go nowhere. The next call makes up for a failure.
        """
        targets = [
            UdpTarget(version, port, node_port.address, node_port.target, self._networks)
            for (version, protocol, port), node_port in self._forwarded.items()
            if protocol == "UDP"
        ]
        targets += [UdpTarget(version, port, None, 0) for version, port in self._former]
        if not targets:
            return
        try:
            forgotten = await self._flows.correct(targets)
        except LinkError as error:
            LOG.warning("UDP flows may still go where their node port went before: %s", error)
        else:
            self._former.clear()
            LOG.debug("forgot %d UDP flows", forgotten)

    def _check_forwarding(self) -> None:
        """Log once why connections from elsewhere fail, for the versions of IP in use."""
        versions = {version for version, _protocol, _port in self._forwarded}
        blocked = {version for version in versions if _is_off(FORWARDING[version])}
        for version in blocked - self._blocked:
            message = "node ports cannot be reached from elsewhere: %s is 0"
            LOG.warning(message, FORWARDING[version])
        self._blocked = blocked


def _is_off(sysctl: Path) -> bool:
    return sysctl.exists() and sysctl.read_text().strip() == "0"


def _of_udp(wanted: Wanted) -> set[tuple[int, int]]:
    """Return (version of IP, port) of each UDP port."""
    return {(version, port) for version, protocol, port in wanted if protocol == "UDP"}


class NoNodePorts(Part):
    """Node ports on a node where we do not forward them: removes what an earlier daemon left."""

    def loops(self) -> Sequence[Loop]:
        """Return the removal, which ends by itself."""
        return [Job("node-ports", remove)]


async def remove() -> None:
    """Remove the table that an earlier daemon may have left."""
    try:
        await nft.apply(nft.no_table(nftables.SUCCESSOR) + nft.no_table(nftables.TABLE))
    except errors.KuryrError as error:
        LOG.debug("no table of node ports can exist: %s", error)
