"""The networks of pools' ports: learned from Pods' requests, else from Neutron."""

import asyncio
from collections.abc import Iterable

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.api import Neutron
from kuryr_k8s.drivers.base import PodNetwork, PoolKey


class PoolNetworks:
    """Networks by their ids."""

    def __init__(self, neutron: Neutron) -> None:
        self._neutron = neutron
        self._known: dict[str, PodNetwork] = {}
        self._asking = asyncio.Lock()

    def add(self, pod_network: PodNetwork) -> None:
        """Remember the network of a request."""
        self._known[pod_network.network.id] = pod_network

    def get(self, network_id: str) -> PodNetwork | None:
        """Look up a network."""
        return self._known.get(network_id)

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
                    subnets = [await self._neutron.get_subnet(id_) for id_ in key.subnet_ids]
                except errors.NotFound:
                    continue  # no Pod will use its ports
                self.add(PodNetwork(network=network, subnets=tuple(subnets)))
