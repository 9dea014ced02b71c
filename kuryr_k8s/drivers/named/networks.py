"""Networks that users name by ids, theirs or of subnets: read from Neutron, and checked."""

import asyncio
import functools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.api import Network, Subnet
from kuryr_k8s.drivers.base import PodNetwork, check_subnets, granted
from kuryr_k8s.drivers.named.context import Context

MOST_KNOWN = 10_000
EARLY = 10.0  # seconds before a network must be read again in which it is read with others
Named = str | Sequence[str]  # the id of a network, or those of subnets


@dataclass(slots=True, eq=False)
class _Known:
    """A network as last read, and the projects that may use it as far as was seen since.

    :param used: when it was last asked for.
    :param problem: why the network cannot be that of an interface: for those who may use it.
    """

    projects: granted.Grants
    used: float = -math.inf
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
        self._reading = asyncio.Lock()

    async def granted(self, namespace: str, project_id: str, named: Named) -> PodNetwork:
        """Return the network that is named, if the namespace and its project may use it.

        Unless it is granted by its id, without the subnets of nodes and of Services.

        :raises errors.Refused: see :meth:`usable`. The words say nothing of the network that the
            user did not say.
        :raises granted.NotGranted: [policy] does not grant it, or only the other subnets of it.
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
        if by_id:
            return await self.read(named)
        return self._open_to_users(namespace, named, await self.usable(project_id, named))

    def _open_to_users(self, namespace: str, named: Named, network: PodNetwork) -> PodNetwork:
        """Return the network without the subnets of nodes and of Services.

        All Pods let in what comes from there (drivers/policy/member_group.py), so whoever had an
        address there would reach those of every namespace.

        :raises granted.NotGranted: one of these subnets is named, or there are no others.
        """
        defaults = self._conf.neutron_defaults
        trusted = {*defaults.node_subnet, *defaults.service_subnet}
        left = [each for each in network.all_subnets if each.id not in trusted]
        closed = [each.id for each in network.all_subnets if each.id in trusted]
        if not closed:
            return network
        if not left or not isinstance(named, str):
            raise granted.NotGranted(
                f"subnet {' and '.join(closed)} is for nodes or Services ([neutron_defaults] "
                "node_subnet and service_subnet), as all Pods let in what comes from there: name "
                f"another one, or have the network granted to namespace {namespace} by its id "
                "([policy] networks in kuryr.conf)"
            )
        return PodNetwork.of(network.network, left)

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
        known.used = self._clock.now()
        if known.used >= known.until:
            async with self._reading:  # those that ask meanwhile share the answer
                if self._clock.now() >= known.until:
                    await self._read_due()
        return known

    def _known_of(self, named: Named) -> _Known:
        if len(self._known) > MOST_KNOWN:
            now = self._clock.now()
            for old, known in list(self._known.items()):
                if now >= max(known.until, known.used + self._longest):
                    del self._known[old]
        asked = named if isinstance(named, str) else tuple(named)
        if asked not in self._known:
            grants = granted.Grants(functools.partial(self._check, asked))
            self._known[asked] = _Known(grants)
        return self._known[asked]

    async def _read_due(self) -> None:
        """Read all networks that are in use and have to be read again, with a few lists.

        So a thousand of them cost hardly more than one.
        """
        now = self._clock.now()
        due = {
            named: known
            for named, known in self._known.items()
            if now >= known.until - EARLY and now < known.used + self._longest
        }
        chosen = {each for named in due if not isinstance(named, str) for each in named}
        subnets = {subnet.id: subnet for subnet in await self._neutron.list_subnets_by_id(chosen)}
        network_ids = {named for named in due if isinstance(named, str)}
        of_networks: defaultdict[str, list[Subnet]] = defaultdict(list)
        for subnet in await self._neutron.list_subnets_of(network_ids):
            of_networks[subnet.network_id].append(subnet)
        network_ids |= {subnet.network_id for subnet in subnets.values()}
        networks = {each.id: each for each in await self._neutron.list_networks(network_ids)}
        for named, known in due.items():
            known.network = known.pod_network = known.problem = None
            try:
                found = (
                    sorted(of_networks[named], key=lambda each: each.ip_version)
                    if isinstance(named, str)
                    else [_found(subnets, each) for each in named]
                )
                network_id = named if isinstance(named, str) else found[0].network_id
                known.network = networks.get(network_id)
                known.pod_network = _pod_network_of(named, known.network, found)
            except errors.Refused as error:
                known.problem = error
            known.projects.forget()
            known.until = now + self._longest


def _found(subnets: Mapping[str, Subnet], subnet_id: str) -> Subnet:
    if subnet_id not in subnets:
        raise errors.Refused(f"there is no subnet {subnet_id} in Neutron")
    return subnets[subnet_id]


def _pod_network_of(named: Named, network: Network | None, found: Sequence[Subnet]) -> PodNetwork:
    """Return the network with the subnets that are named, or with all of its.

    :raises errors.Refused: there is none, or the subnets cannot belong to one interface.
    """
    if network is None:
        raise errors.Refused(f"there is no network {named} in Neutron")
    if not found:
        raise errors.Refused(f"network {named} has no subnets")
    check_subnets(found)
    if not isinstance(named, str) and len({each.ip_version for each in found}) < len(found):
        raise errors.Refused("an interface has one subnet of each address family at most")
    return PodNetwork.of(network, found)


def _words(named: Named) -> str:
    """Return words for a network that say nothing of it that the user did not say."""
    if isinstance(named, str):
        return f"network {named}"
    return f"the network of subnet {' and '.join(named)}"
