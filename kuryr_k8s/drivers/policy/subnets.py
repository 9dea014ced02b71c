"""Drivers for the subnets of a Pod's default interface and of Services."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.api import Subnet
from kuryr_k8s.cloud.neutron.full_subnets import FullSubnets
from kuryr_k8s.drivers.base import (
    Driver,
    DriverContext,
    PodNetwork,
    PodSubnetsDriver,
    ServiceSubnetsDriver,
    granted,
    read_subnets,
)
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.engine.workqueue import WorkQueue
from kuryr_k8s.model.pod import Pod
from kuryr_k8s.model.service import Service

GRANTED = 600.0  # seconds after which the projects that may use a network are checked again


class _ConfiguredSubnets(Driver):
    """An option of ``[neutron_defaults]``: subnets of one network.

    They are read again and again, since their MTU, DNS servers and routes change. No Pod waits for
    that, and what was read last stays valid while Neutron does not answer.
    """

    option: ClassVar[str]

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        self._known: PodNetwork | None = None
        self._granted_at = context.clock.now()
        self._queue: WorkQueue[str] = WorkQueue(context.clock, cap=context.patience.sweep_retry)
        self._grants = granted.Grants(self._check)

    async def start(self) -> None:
        if not self._ids:
            raise errors.ConfigError(f"[neutron_defaults] {self.option} is not set")
        try:
            await self._network()
        except (errors.NotFound, errors.Refused) as error:
            raise errors.Refused(f"[neutron_defaults] {self.option}: {error}") from error
        self._queue.add_after(self.option, self._context.patience.pod_network)

    def loops(self) -> Sequence[Controller[str]]:
        """Return the loop that reads the subnets again."""
        return (
            Controller(
                f"read-{self.option}",
                self._refresh,
                queue=self._queue,
                workers=1,
                observe=self._context.observe,
                patience=self._context.patience,
            ),
        )

    @property
    def _ids(self) -> list[str]:
        return list(self._context.conf.neutron_defaults[self.option])

    async def _network_for(self, project_id: str) -> PodNetwork:
        found = await self._network()
        await self._grants.require(project_id)
        return found

    async def _check(self, project_id: str) -> None:
        network = (await self._network()).network
        await granted.check_network(self._context.neutron, network, project_id)

    async def _network(self) -> PodNetwork:
        if self._known is None:
            self._known = await self._read()
        return self._known

    async def _refresh(self, _option: str) -> float:
        """Read the subnets again.

        :returns: seconds until the next time.
        """
        read = await self._read()
        if read != self._known:  # else pools would take the new object for a change
            self._known = read
        now = self._context.clock.now()
        if now - self._granted_at > GRANTED:
            self._granted_at = now
            self._grants.forget()
        return self._context.patience.pod_network

    async def _read(self) -> PodNetwork:
        neutron = self._context.neutron
        subnets = await read_subnets(neutron, self._ids)
        network = await neutron.get_network(subnets[0].network_id)
        return self._checked(PodNetwork.of(network, subnets))

    def _checked(self, found: PodNetwork) -> PodNetwork:
        """Return the network; a subclass may refuse it."""
        return found


class DefaultSubnets(_ConfiguredSubnets, PodSubnetsDriver):
    """``[neutron_defaults] pod_subnet`` for every Pod: of each family, the first with room."""

    option = "pod_subnet"

    def collectors(self) -> Sequence[Collector]:
        return (_FullSubnetsCollector(self._ids, self._context.neutron.full_subnets),)

    async def pod_network(self, pod: Pod, project_id: str) -> PodNetwork:
        return await self.default_network(project_id)

    async def default_network(self, project_id: str) -> PodNetwork:
        return await self._network_for(project_id)

    async def subnets_of(self, namespace: str) -> tuple[Subnet, ...]:
        return (await self._network()).all_subnets


class DefaultServiceSubnets(_ConfiguredSubnets, ServiceSubnetsDriver):
    """``[neutron_defaults] service_subnet`` for every Service."""

    option = "service_subnet"

    def _checked(self, found: PodNetwork) -> PodNetwork:
        if found.further:
            raise errors.Refused("Services take one subnet of each address family")
        return found

    async def subnets(self, service: Service, project_id: str) -> tuple[Subnet, ...]:
        return (await self._network_for(project_id)).subnets

    async def all_subnets(self) -> tuple[Subnet, ...]:
        return (await self._network()).subnets


class _FullSubnetsCollector(Collector):
    """The metric of the subnets for Pods that are full, as far as is known."""

    def __init__(self, subnet_ids: Sequence[str], full: FullSubnets) -> None:
        self._subnet_ids = subnet_ids
        self._full = full

    def collect(self) -> Iterator[Metric]:
        metric = GaugeMetricFamily(
            "kuryr_pod_subnet_full",
            "Whether a subnet for Pods is known to have no free address",
            labels=["subnet"],
        )
        for subnet_id in self._subnet_ids:
            metric.add_metric([subnet_id], self._full.is_full(subnet_id))
        yield metric
