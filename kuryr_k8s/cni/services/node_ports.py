"""Services at their node ports: keeps the node's table of them (see :mod:`.nftables`) right."""

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kuryr_k8s import errors
from kuryr_k8s.cni.netlink import Flows, Led, LinkError
from kuryr_k8s.cni.services import nftables
from kuryr_k8s.engine.metrics import SECONDS
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.node_port import NodePort, ServiceAtNodes

Wanted = dict[tuple[int, str, int], NodePort]  # by version of IP, protocol, port
LOG = logging.getLogger(__name__)
# Seconds from a change to its transaction, and at least from the end of one to the next: what
# changes meanwhile is in it, too.
PACE = 0.2
# After a transaction there is no other one for so many times as long as it took; seconds at most.
REST, LONGEST = 4, 2.0
FORWARDING = {
    4: Path("/proc/sys/net/ipv4/ip_forward"),
    6: Path("/proc/sys/net/ipv6/conf/all/forwarding"),
}
ENOUGH = 2  # failures of transactions in a row, for balancers to go to other nodes
LOOK_AGAIN = 60.0  # seconds: others may have flushed all tables, as a restart of nftables does


class Services(Protocol):
    """The part of the cache of Services that we need."""

    def values(self) -> Iterator[ServiceAtNodes]: ...


class NodePorts:
    """Reconciles one key, the node's."""

    def __init__(self, services: Services, flows: Flows, registry: CollectorRegistry) -> None:
        self._failures: int | None = None  # of transactions, in a row; None: no table yet
        self._services = services
        self._flows = flows
        self._led: Wanted = {}
        self._former: set[tuple[int, int]] = set()  # ports of UDP that led: flows may go on
        self._forbidden: set[int] = set()  # versions of IP that the node does not forward
        self._ended, self._took = 0.0, 0.0
        ports = Gauge(
            "kuryr_node_ports",
            "Ports of the node led to Services, counted for each version of IP and protocol",
            registry=registry,
        )
        ports.set_function(lambda: len(self._led))
        self._transactions = Counter(
            "kuryr_node_ports_transactions",
            "Replacements of the node's table of node ports: done, or failed",
            ["outcome"],
            registry=registry,
        )
        self._seconds = Histogram(
            "kuryr_node_ports_seconds",
            "Length of such a replacement",
            buckets=SECONDS,
            registry=registry,
        )

    @property
    def working(self) -> bool:
        """Node ports lead where they should. One transaction that fails changes nothing of that:
        the kernel keeps the table before. After a second one in a row this is in doubt.
        """
        return self._failures is not None and self._failures < ENOUGH

    async def reconcile(self, _key: Key) -> float | None:
        """:raises errors.KuryrError: the table is as it was before; to be tried again."""
        rest = self._ended + max(PACE, min(self._took * REST, LONGEST)) - time.monotonic()
        if rest > 0:
            raise errors.Wait("node ports change often", delay=rest)
        wanted = self._wanted()
        started = time.monotonic()
        try:
            await self._replace(wanted)
            if wanted != self._led:
                LOG.info("%d ports of the node lead to Services", len(wanted))
            self._former = (self._former | _of_udp(self._led)) - _of_udp(wanted)
            self._led = wanted
            self._check_forwarding()
            await self._correct_flows()
        finally:
            self._ended = time.monotonic()
            self._took = self._ended - started
        return LOOK_AGAIN

    def _wanted(self) -> Wanted:
        """Of two Services that want the same port, which no API server lets happen, the first."""
        wanted: Wanted = {}
        for service in self._services.values():
            for one in service.node_ports:
                wanted.setdefault((one.version, one.protocol, one.port), one)
        return wanted

    async def _replace(self, wanted: Wanted) -> None:
        started = time.monotonic()
        outcome = "failed"
        try:
            await nftables.replace(wanted.values())
            outcome, self._failures = "done", 0
        except errors.KuryrError:
            if self._failures is not None:
                self._failures += 1
            raise
        finally:
            self._transactions.labels(outcome).inc()
            self._seconds.observe(time.monotonic() - started)

    async def _correct_flows(self) -> None:
        """Of all ports, whatever has changed: while somebody had flushed our table, flows began
        that lead nowhere. What fails now is made up for the next time.
        """
        ports = [
            Led(version, port, one.address, one.target)
            for (version, protocol, port), one in self._led.items()
            if protocol == "UDP"
        ]
        ports += [Led(version, port, None, 0) for version, port in self._former]
        if not ports:
            return
        try:
            forgotten = await self._flows.correct(ports)
        except LinkError as error:
            LOG.warning("flows of UDP that go on may go where their node port led: %s", error)
        else:
            self._former.clear()
            LOG.debug("forgot %d flows of UDP", forgotten)

    def _check_forwarding(self) -> None:
        """Say in the log, once, why connections from elsewhere will lead nowhere; only of those
        versions of IP that node ports have.
        """
        versions = {version for version, _protocol, _port in self._led}
        forbidden = {version for version in versions if _is_forbidden(FORWARDING[version])}
        for version in forbidden - self._forbidden:
            LOG.warning("node ports are not reached from elsewhere: %s is 0", FORWARDING[version])
        self._forbidden = forbidden


def _is_forbidden(way: Path) -> bool:
    return way.exists() and way.read_text().strip() == "0"


def _of_udp(wanted: Wanted) -> set[tuple[int, int]]:
    """(version of IP, port) of each."""
    return {(version, port) for version, protocol, port in wanted if protocol == "UDP"}


async def remove() -> None:
    """Take away the table that an earlier daemon may have left, where node ports are not ours."""
    try:
        await nftables.apply(nftables.no_table(nftables.SUCCESSOR) + nftables.no_table())
    except errors.KuryrError as error:
        LOG.debug("no table of node ports can be there: %s", error)
