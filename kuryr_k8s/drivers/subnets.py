"""The subnets of a Pod's default interface."""

import asyncio

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron import Subnet
from kuryr_k8s.drivers import granted
from kuryr_k8s.drivers.base import DriverContext, PodNetwork, PodSubnetsDriver
from kuryr_k8s.model.pod import Pod

REFRESH = 600.0  # seconds after which subnets are read again: DNS servers and routes change


class DefaultSubnets(PodSubnetsDriver):
    """``[neutron_defaults] pod_subnet``: one subnet, or one of each family of one network."""

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        self._known: PodNetwork | None = None
        self._read_at = 0.0
        self._grants = granted.Grants(self._check)

    async def start(self) -> None:
        ids = self._context.conf.neutron_defaults.pod_subnet
        if not ids:
            raise errors.ConfigError("[neutron_defaults] pod_subnet is not set")
        try:
            await self._network()
        except (errors.NotFound, errors.Refused) as error:
            raise errors.ConfigError(f"[neutron_defaults] pod_subnet: {error}") from error

    async def pod_network(self, pod: Pod, project_id: str) -> PodNetwork:
        found = await self._network()
        await self._grants.require(project_id)
        return found

    async def _check(self, project_id: str) -> None:
        network = (await self._network()).network
        await granted.check_network(self._context.neutron, network, project_id)

    async def _network(self) -> PodNetwork:
        now = asyncio.get_running_loop().time()
        if self._known is None or now - self._read_at > REFRESH:
            self._read_at = now  # the others go on with what is known
            self._known = await self._read()
            self._grants.forget()
        return self._known

    async def _read(self) -> PodNetwork:
        neutron = self._context.neutron
        ids = self._context.conf.neutron_defaults.pod_subnet
        try:
            subnets = tuple([await neutron.get_subnet(subnet_id) for subnet_id in ids])
        except errors.NotFound as error:
            raise errors.Refused(f"no such subnet in Neutron: {error}") from error
        check_families(subnets)
        network = await neutron.get_network(subnets[0].network_id)
        return PodNetwork(network=network, subnets=subnets)


def check_families(subnets: tuple[Subnet, ...]) -> None:
    """:raises errors.Refused: more than one network, or two subnets of one family."""
    if len({subnet.network_id for subnet in subnets}) > 1:
        raise errors.Refused("the subnets of an interface must be of one network")
    if len({subnet.ip_version for subnet in subnets}) < len(subnets):
        raise errors.Refused("an interface takes one subnet of each address family")
