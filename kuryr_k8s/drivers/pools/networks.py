"""The networks of pools' ports: learned from Pods' requests, else from Neutron."""

import asyncio
from collections.abc import Iterable

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.api import Neutron
from kuryr_k8s.drivers.base import PodNetwork, PoolKey


class PoolNetworks:
    """Networks by their ids, and which of their subnets stand in for each other."""

    def __init__(self, neutron: Neutron) -> None:
        self._neutron = neutron
        self._known: dict[str, PodNetwork] = {}
        # Ids of subnets that a request asks for → those of all choices that it has
        self._choices: dict[tuple[str, ...], tuple[tuple[str, ...], ...]] = {}
        self._asking = asyncio.Lock()

    def add(self, pod_network: PodNetwork) -> None:
        """Remember the network of a request."""
        if self._known.get(pod_network.network.id) is not pod_network:
            self._known[pod_network.network.id] = pod_network
            choices = tuple(choice.asked_subnet_ids for choice in pod_network.choices)
            self._choices |= dict.fromkeys(choices, choices)

    def get(self, network_id: str) -> PodNetwork | None:
        """Look up a network."""
        return self._known.get(network_id)

    def alternatives(self, key: PoolKey) -> tuple[PoolKey, ...]:
        """List the pools whose ports will do where those of this one do, in order of preference.

        They differ by their subnets only, and the pool itself is one of them.
        """
        choices = self._choices.get(key.subnet_ids, ())
        if len(choices) < 2:
            return (key,)
        return tuple(key._replace(subnet_ids=subnet_ids) for subnet_ids in choices)

    def has_room(self, key: PoolKey) -> bool:
        """Return whether the subnets of a pool may have free addresses, as far as is known."""
        return self._neutron.full_subnets.has_room(key.subnet_ids)

    def with_room(self, key: PoolKey) -> PoolKey | None:
        """Return the first of these pools whose subnets are not known to be full."""
        return next(filter(self.has_room, self.alternatives(key)), None)

    def preferred(self, key: PoolKey) -> PoolKey:
        """Return the one of these pools that is to have ports for Pods to come."""
        return self.with_room(key) or self.alternatives(key)[0]

    def widened(self, key: PoolKey) -> PoolKey:
        """Return the key with the subnets of all these pools.

        Who waits for an address waits for one of any of them.
        """
        others = self.alternatives(key)
        if others == (key,):
            return key
        subnet_ids = {subnet_id for other in others for subnet_id in other.subnet_ids}
        return key._replace(subnet_ids=tuple(sorted(subnet_ids)))

    async def exist(self, key: PoolKey) -> bool:
        """Ask Neutron for the network and the subnets of a pool, and tell whether all exist.

        :raises errors.CloudError: Neutron does not answer.
        """
        try:
            await self._neutron.get_network(key.network_id)
            for subnet_id in key.subnet_ids:
                await self._neutron.get_subnet(subnet_id)
        except errors.NotFound:
            return False
        return True

    async def learn(self, keys: Iterable[PoolKey]) -> None:
        """Ask Neutron for networks that no request has named yet.

        :raises errors.CloudError: Neutron does not answer.
        """
        async with self._asking:
            for key in set(keys):
                if key.network_id in self._known:
                    continue
                try:
                    network = await self._neutron.get_network(key.network_id)
                except errors.NotFound:
                    continue  # no Pod will use its ports
                # which subnets belong together is told by requests alone
                self._known[network.id] = PodNetwork(network=network, subnets=())
