"""Networks that users name by ids of subnets: read from Neutron, and checked for their project."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.api import Network
from kuryr_k8s.drivers.base import DriverContext, PodNetwork, check_subnets, granted

MOST_KNOWN = 1000


@dataclass(slots=True, eq=False)
class _Known:
    """A network as last read, and the projects that were seen then to be granted it.

    :param lock: held while Neutron is asked: those that ask meanwhile share the answer.
    """

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    network: PodNetwork | None = None
    projects: set[str] = field(default_factory=set)
    until: float = -math.inf


class NamedNetworks:
    """Networks that users name; each is read, and checked, once a minute at most."""

    def __init__(self, context: DriverContext) -> None:
        self._conf = context.conf
        self._neutron = context.neutron
        self._clock = context.clock
        self._longest = context.patience.pod_network
        self._known: dict[tuple[str, ...], _Known] = {}

    async def granted(
        self, namespace: str, project_id: str, subnet_ids: Sequence[str]
    ) -> PodNetwork:
        """Return the network of these subnets, if the namespace and its project may use it.

        :raises errors.Refused: see :meth:`read`; or they may not. The words say nothing of the
            network that the user did not say.
        """
        found = await self.read(subnet_ids)
        asked = f"the network of subnet {' and '.join(subnet_ids)}"
        try:
            by_id = granted.check_named(self._conf, "networks", namespace, found.network.id)
        except granted.NotGranted as error:
            raise granted.NotGranted(
                f"{asked} is not granted to namespace {namespace} ([policy] networks in "
                "kuryr.conf)"
            ) from error
        if not by_id and not await self._may_use(project_id, subnet_ids, found.network):
            raise errors.Refused(
                f"{asked} neither belongs to project {project_id} nor is shared with it (Neutron "
                "rbac-policy access_as_shared)"
            )
        return found

    async def _may_use(self, project_id: str, subnet_ids: Sequence[str], network: Network) -> bool:
        known = self._known_of(subnet_ids)
        async with known.lock:
            if project_id not in known.projects:
                if not await granted.may_use_network(self._neutron, network, project_id):
                    return False
                known.projects.add(project_id)
        return True

    async def read(self, subnet_ids: Sequence[str]) -> PodNetwork:
        """Return the network of these subnets, at most one of each address family.

        :raises errors.Refused: there are no such subnets, or they cannot belong to one interface.
        """
        known = self._known_of(subnet_ids)
        async with known.lock:
            if known.network is None or self._clock.now() >= known.until:
                known.network = await self._read(subnet_ids)
                known.projects.clear()
                known.until = self._clock.now() + self._longest
            return known.network

    def _known_of(self, subnet_ids: Sequence[str]) -> _Known:
        if len(self._known) > MOST_KNOWN:
            now = self._clock.now()
            for asked, known in list(self._known.items()):
                if now >= known.until and not known.lock.locked():
                    del self._known[asked]
        return self._known.setdefault(tuple(subnet_ids), _Known())

    async def _read(self, subnet_ids: Sequence[str]) -> PodNetwork:
        try:
            subnets = tuple([await self._neutron.get_subnet(each) for each in subnet_ids])
        except errors.NotFound as error:
            raise errors.Refused(f"no such subnet in Neutron: {error}") from error
        check_subnets(subnets)
        if len({subnet.ip_version for subnet in subnets}) < len(subnets):
            raise errors.Refused("an interface has one subnet of each address family at most")
        network = await self._neutron.get_network(subnets[0].network_id)
        return PodNetwork(network=network, subnets=subnets)
