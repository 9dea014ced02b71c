"""Networks that users name by ids, theirs or of subnets: read from Neutron, and checked."""

import asyncio
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.api import Network
from kuryr_k8s.drivers.base import PodNetwork, check_subnets, granted, read_subnets
from kuryr_k8s.drivers.named.context import Context

MOST_KNOWN = 1000
Named = str | Sequence[str]  # the id of a network, or those of subnets


@dataclass(slots=True, eq=False)
class _Known:
    """A network as last read, and the projects that may use it as far as was seen since.

    :param lock: held while the network is read: those that ask meanwhile share the answer.
    :param problem: why the network cannot be that of an interface: for those who may use it.
    """

    projects: granted.Grants
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    network: Network | None = None
    pod_network: PodNetwork | None = None
    problem: errors.Refused | None = None
    until: float = -math.inf


class NamedNetworks:
    """Networks that users name; each is read, and checked, once a minute at most."""

    def __init__(self, context: Context) -> None:
        self._conf = context.conf
        self._neutron = context.neutron
        self._clock = context.clock
        self._longest = context.patience.pod_network
        self._known: dict[str | tuple[str, ...], _Known] = {}

    async def granted(self, namespace: str, project_id: str, named: Named) -> PodNetwork:
        """Return the network that is named, if the namespace and its project may use it.

        :raises errors.Refused: see :meth:`usable`. The words say nothing of the network that the
            user did not say.
        """
        network = (await self._up_to_date(named)).network
        try:
            by_id = granted.check_named(
                self._conf, "networks", namespace, network.id if network else ""
            )
        except granted.NotGranted as error:
            raise granted.NotGranted(
                f"{_words(named)} is not granted to namespace {namespace} "
                "([policy] networks in kuryr.conf)"
            ) from error
        return await (self.read(named) if by_id else self.usable(project_id, named))

    async def usable(self, project_id: str, named: Named) -> PodNetwork:
        """Return the network that the operator chose, if the project may use it.

        :raises errors.Refused: it may not, or see :meth:`read`.
        """
        await (await self._up_to_date(named)).projects.require(project_id)
        return await self.read(named)

    async def _check(self, named: Named, project_id: str) -> None:
        network = (await self._up_to_date(named)).network
        if network is None or not await granted.may_use_network(
            self._neutron, network, project_id
        ):
            raise errors.Refused(
                f"{_words(named)} does not exist, or neither belongs to project {project_id} nor "
                "is shared with it (Neutron rbac-policy access_as_shared)"
            )

    async def read(self, named: Named) -> PodNetwork:
        """Return the network of subnets, at most one of each address family; or with all of its.

        :raises errors.Refused: there is none, or the subnets cannot belong to one interface.
        """
        known = await self._up_to_date(named)
        if known.pod_network is None:
            raise errors.Refused(str(known.problem))
        return known.pod_network

    async def _up_to_date(self, named: Named) -> _Known:
        known = self._known_of(named)
        async with known.lock:
            if self._clock.now() >= known.until:
                known.network = known.pod_network = known.problem = None
                try:
                    await self._read(known, named)
                except errors.Refused as error:
                    known.problem = error
                known.projects.forget()
                known.until = self._clock.now() + self._longest
            return known

    def _known_of(self, named: Named) -> _Known:
        if len(self._known) > MOST_KNOWN:
            now = self._clock.now()
            for old, known in list(self._known.items()):
                if now >= known.until and not known.lock.locked():
                    del self._known[old]
        asked = named if isinstance(named, str) else tuple(named)
        if asked not in self._known:
            grants = granted.Grants(functools.partial(self._check, asked))
            self._known[asked] = _Known(grants)
        return self._known[asked]

    async def _read(self, known: _Known, named: Named) -> None:
        neutron = self._neutron
        try:
            if isinstance(named, str):
                known.network = await neutron.get_network(named)
                listed = await neutron.list_subnets(named)
                subnets = sorted(listed, key=lambda each: each.ip_version)
            else:
                first, *others = named
                subnets = [await neutron.get_subnet(first)]
                known.network = await neutron.get_network(subnets[0].network_id)
                subnets += await read_subnets(neutron, others)
        except errors.NotFound as error:
            raise errors.Refused(f"no such network in Neutron: {error}") from error
        if not subnets:
            raise errors.Refused(f"network {named} has no subnets")
        check_subnets(subnets)
        is_chosen = not isinstance(named, str)
        if is_chosen and len({subnet.ip_version for subnet in subnets}) < len(subnets):
            raise errors.Refused("an interface has one subnet of each address family at most")
        known.pod_network = PodNetwork.of(known.network, subnets)


def _words(named: Named) -> str:
    """Return words for a network that say nothing of it that the user did not say."""
    if isinstance(named, str):
        return f"network {named}"
    return f"the network of subnet {' and '.join(named)}"
