"""The ports that nodes keep plugged, so that they are ACTIVE before a Pod comes."""

from kuryr_k8s.drivers.base import ParkablePort, PooledPort
from kuryr_k8s.drivers.base.pool import Phase
from kuryr_k8s.drivers.pools.effects import Effects
from kuryr_k8s.drivers.pools.networks import PoolNetworks
from kuryr_k8s.drivers.pools.parts import PoolContext


class Parking:
    """Tells nodes which ports to park, and learns which ports they have parked.

    :param enabled: whether nodes should park ports.
    """

    def __init__(self, context: PoolContext, networks: PoolNetworks, *, enabled: bool) -> None:
        self._context = context
        self._state = context.state
        self._networks = networks
        self._enabled = enabled

    async def ports_to_park(self, place: str) -> list[ParkablePort]:
        """List the ports of a node: see :meth:`KeepsPorts.ports_to_park`."""
        if not self._enabled:
            return []
        await self._networks.learn(pool.key for pool in self._state.at(place))
        mtus: dict[str, int | None] = {}
        parkable = []
        for record in (record for pool in self._state.at(place) for record in pool.records()):
            network_id = record.port.key.network_id
            if network_id not in mtus:
                mtus[network_id] = self._mtu_for(record.port)
            leaving = record.phase is Phase.LEAVING
            parkable.append(ParkablePort(record.port, mtus[network_id], leaving))
        return parkable

    def _mtu_for(self, port: PooledPort) -> int | None:
        pod_network = self._networks.get(port.key.network_id)
        if pod_network is None:
            return None
        network = self._context.vif.vif_of_pooled(port, pod_network).network
        return (network.mtu or 0) if network is not None else None

    def set_parked(self, place: str, parked: frozenset[str], leaving: frozenset[str]) -> Effects:
        """Note what a node has parked: see :meth:`KeepsPorts.set_parked`."""
        now = self._context.now()
        concerned = self._state.set_parked(place, parked)
        for port_id in leaving:
            if self._state.phase(port_id) in (Phase.AVAILABLE, Phase.RETURNING):
                self._state.dismiss(port_id, now)
                concerned.add(port_id)
        records = (self._state.record(port_id) for port_id in concerned)
        keys = {r.pool.key for r in records if r is not None and r.phase is Phase.LEAVING}
        return Effects(upkeep=tuple(keys))
