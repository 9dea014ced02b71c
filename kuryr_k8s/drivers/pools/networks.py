"""The networks of pools' ports: learned from the Pods that ask, else from Neutron."""

import asyncio
from collections.abc import Iterable

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.api import Neutron
from kuryr_k8s.drivers.base import PodNetwork, PoolKey


class PoolNetworks:
    """By the network's id."""

    def __init__(self, neutron: Neutron) -> None:
        self._neutron = neutron
        self._known: dict[str, PodNetwork] = {}
        self._asking = asyncio.Lock()

    def note(self, pod_network: PodNetwork) -> None:
        self._known[pod_network.network.id] = pod_network

    def get(self, network_id: str) -> PodNetwork | None:
        return self._known.get(network_id)

    async def learn(self, keys: Iterable[PoolKey]) -> None:
        """Ask for those of ports of an earlier life.

        :raises errors.CloudError: Neutron does not tell.
        """
        async with self._asking:
            for key in set(keys):
                if key.network_id in self._known:
                    continue
                try:
                    network = await self._neutron.get_network(key.network_id)
                    subnets = [await self._neutron.get_subnet(id_) for id_ in key.subnet_ids]
                except errors.NotFound:
                    continue  # nobody will use its ports
                self.note(PodNetwork(network=network, subnets=tuple(subnets)))
