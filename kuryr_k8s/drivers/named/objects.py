"""The objects of Neutron that a port is asked to have: found, and checked."""

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import PodNetwork, PodSecurityGroupsDriver, granted
from kuryr_k8s.drivers.named.asked import Asked, Words
from kuryr_k8s.drivers.named.context import Context
from kuryr_k8s.drivers.named.names import Names
from kuryr_k8s.drivers.named.networks import NamedNetworks
from kuryr_k8s.drivers.named.ownership import check_owner
from kuryr_k8s.drivers.named.shared_objects import SharedObjects

# of [policy], by the kinds of objects that users name
OPTIONS = {"security_group": "security_groups", "qos_policy": "qos_policies"}


class NamedObjects:
    """Finds what users of a namespace name, and checks that they may.

    :param words: how they name it.
    """

    def __init__(self, context: Context, groups: PodSecurityGroupsDriver, words: Words) -> None:
        self._conf = context.conf
        self._groups = groups
        self._words = words
        self._names = Names(context)
        self._networks = NamedNetworks(context)
        self._shared_objects = SharedObjects(context)

    async def network(
        self, namespace: str, project_id: str, asked: Asked, words: str = ""
    ) -> PodNetwork:
        """Return the network that is named, by itself or by its subnets.

        :param words: for the network or the subnets, if they are others than usual.
        :raises errors.Refused: there is none, or it is not granted.
        """
        words = words or (self._words.subnets if asked.subnets else self._words.network)
        try:
            named = [await self._names.id_of("subnet", project_id, each) for each in asked.subnets]
            network_id = (
                None
                if asked.network is None
                else await self._names.id_of("network", project_id, asked.network)
            )
            found = await self._networks.granted(namespace, project_id, named or network_id or "")
        except errors.Refused as error:
            raise told(words, error) from error
        if network_id not in (None, found.network.id):
            raise errors.Refused(
                f"{self._words.subnets}: the subnet is not one of network {asked.network}"
            )
        return found

    async def read(self, subnet_ids: tuple[str, ...]) -> PodNetwork:
        """Return the network of subnets of which a port has addresses already.

        :raises errors.Refused: they cannot belong to one interface.
        """
        return await self._networks.read(subnet_ids)

    def check(
        self, namespace: str, project_id: str, network: PodNetwork, asked: Asked
    ) -> PodNetwork:
        """Check that nothing is asked for that the project may not have in this network.

        :returns: the network with those of its subnets that the addresses are in.
        :raises errors.Refused: something is.
        """
        network = network.holding(asked.every_address)
        check_owner(
            self._conf,
            namespace,
            project_id,
            network,
            unfiltered=self._unfiltered(asked),
            chosen=self._chosen(asked),
            addresses=asked.every_address,
        )
        return network

    async def groups(
        self, namespace: str, project_id: str, named: tuple[str, ...] | None
    ) -> tuple[str, ...] | None:
        """Return the ids of the security groups, with those by which load balancers come in.

        :returns: None if none are named.
        :raises errors.Refused: there is no such group, or it is not granted.
        """
        if named is None:
            return None
        found = set(await self._groups.member_groups(project_id))
        for each in named:
            found.add(
                await self._shared(
                    self._words.groups, "security_group", namespace, project_id, each
                )
            )
        return tuple(sorted(found))

    async def qos_policy(self, namespace: str, project_id: str, named: str | None) -> str | None:
        """Return the id of the QoS policy.

        :raises errors.Refused: there is no such policy, or it is not granted.
        """
        if named is None:
            return None
        return await self._shared(self._words.qos, "qos_policy", namespace, project_id, named)

    async def _shared(
        self, words: str, kind: str, namespace: str, project_id: str, named: str
    ) -> str:
        try:
            object_id = await self._names.id_of(kind, project_id, named)
            granted.check_named(self._conf, OPTIONS[kind], namespace, object_id)
            await self._shared_objects.require(kind, object_id, project_id)
        except errors.Refused as error:
            raise told(words, error) from error
        return object_id

    def _unfiltered(self, asked: Asked) -> str:
        """Return what asks for a port that may send from addresses of others; empty: nothing."""
        if asked.pairs:
            return self._words.pairs
        return f"{self._words.port_security}=false" if asked.port_security is False else ""

    def _chosen(self, asked: Asked) -> str:
        """Return what asks for an address or a MAC; empty: nothing does."""
        said = {
            self._words.addresses: asked.addresses,
            self._words.pool: asked.pool,
            self._words.mac: asked.mac,
        }
        return next((words for words, value in said.items() if value), "")


def told(words: str, error: errors.Refused) -> errors.Refused:
    """Return the error with the words for what asked for it before its own.

    What Neutron refused is a plain refusal then: what was asked is wrong, not the call.
    """
    kind = errors.Refused if isinstance(error, errors.CloudError) else type(error)
    return kind(f"{words}: {getattr(error, 'brief', error)}")
