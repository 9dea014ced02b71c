"""Networks that users name by ids of subnets: read from Neutron, and checked for their project."""

import asyncio
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import DriverContext, PodNetwork, granted, read_subnets

MOST_KNOWN = 1000


@dataclass(slots=True, eq=False)
class _Known:
    """A network as last read, and the projects that may use it as far as was seen since.

    :param lock: held while the network is read: those that ask meanwhile share the answer.
    """

    projects: granted.Grants
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    network: PodNetwork | None = None
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
        try:
            by_id = granted.check_named(self._conf, "networks", namespace, found.network.id)
        except granted.NotGranted as error:
            raise granted.NotGranted(
                f"{_network_of(subnet_ids)} is not granted to namespace {namespace} "
                "([policy] networks in kuryr.conf)"
            ) from error
        return found if by_id else await self.usable(project_id, subnet_ids)

    async def usable(self, project_id: str, subnet_ids: Sequence[str]) -> PodNetwork:
        """Return the network of subnets that the operator chose, if the project may use it.

        :raises errors.Refused: see :meth:`read`; or it may not.
        """
        found = await self.read(subnet_ids)
        await self._known_of(subnet_ids).projects.require(project_id)
        return found

    async def _check(self, subnet_ids: Sequence[str], project_id: str) -> None:
        network = (await self.read(subnet_ids)).network
        if not await granted.may_use_network(self._neutron, network, project_id):
            raise errors.Refused(
                f"{_network_of(subnet_ids)} neither belongs to project {project_id} nor is shared "
                "with it (Neutron rbac-policy access_as_shared)"
            )

    async def read(self, subnet_ids: Sequence[str]) -> PodNetwork:
        """Return the network of these subnets, at most one of each address family.

        :raises errors.Refused: there are no such subnets, or they cannot belong to one interface.
        """
        known = self._known_of(subnet_ids)
        async with known.lock:
            if known.network is None or self._clock.now() >= known.until:
                known.network = await self._read(subnet_ids)
                known.projects.forget()
                known.until = self._clock.now() + self._longest
            return known.network

    def _known_of(self, subnet_ids: Sequence[str]) -> _Known:
        if len(self._known) > MOST_KNOWN:
            now = self._clock.now()
            for old, known in list(self._known.items()):
                if now >= known.until and not known.lock.locked():
                    del self._known[old]
        asked = tuple(subnet_ids)
        if asked not in self._known:
            grants = granted.Grants(functools.partial(self._check, asked))
            self._known[asked] = _Known(grants)
        return self._known[asked]

    async def _read(self, subnet_ids: Sequence[str]) -> PodNetwork:
        subnets = await read_subnets(self._neutron, subnet_ids)
        if len({subnet.ip_version for subnet in subnets}) < len(subnets):
            raise errors.Refused("an interface has one subnet of each address family at most")
        try:
            network = await self._neutron.get_network(subnets[0].network_id)
        except errors.NotFound as error:
            raise errors.Refused(f"no such network in Neutron: {error}") from error
        return PodNetwork(network=network, subnets=subnets)


def _network_of(subnet_ids: Sequence[str]) -> str:
    """Return words for a network that say nothing of it that the user did not say."""
    return f"the network of subnet {' and '.join(subnet_ids)}"
