"""The slot for pools of ports, and the contract of pod_vif drivers that make such ports."""

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from kuryr_k8s import errors
from kuryr_k8s.drivers.base.driver import Driver, DriverContext
from kuryr_k8s.drivers.base.pod_network import PodNetwork
from kuryr_k8s.drivers.base.pods import PodVIFDriver, PortRequest
from kuryr_k8s.model.pod import Node
from kuryr_k8s.model.vif import VIFBase

Json = dict[str, Any]
AVAILABLE = "available-port"  # the name of a pool's port while no Pod has it
LEAVING = "leaving-port"  # the name of a pool's port while it is being deleted


class PoolKey(NamedTuple):
    """The properties that make ports interchangeable: a pool has the ports of one key.

    ``place`` is the host or trunk where the ports can be used: the node's name in Neutron
    (``binding:host_id``), or the id of its trunk. The ids of subnets and of security groups are
    sorted. Subnets with automatic addresses are left out: every port of the network has an address
    of each, even if the subnet was added after the port.
    """

    project_id: str
    place: str
    network_id: str
    subnet_ids: tuple[str, ...]
    security_groups: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledPort:
    """A port of a pool: made for no Pod in particular.

    :param fixed_ips: pairs (subnet id, address), sorted.
    :param vlan_id: on the trunk ``key.place``; 0 where there is none.
    :param fit: the port is bound (or attached), and nothing was added to it since it was made.
    """

    id: str
    key: PoolKey
    mac: str
    fixed_ips: tuple[tuple[str, str], ...]
    bridge: str = ""
    vlan_id: int = 0
    name: str
    device_id: str
    fit: bool


class PooledVIFDriver(PodVIFDriver):
    """A pod_vif driver whose ports can be made before there is a Pod for them."""

    @property
    @abc.abstractmethod
    def pooled_marks(self) -> Mapping[str, str]:
        """Fields that such a port has from its creation, to find it before it has tags."""

    @abc.abstractmethod
    async def place(self, node: Node) -> str:
        """Name the host or trunk where ports for the node's Pods are made: see PoolKey.

        :raises NodeNotReady: it is not known yet.
        """

    async def has_place(self, place: str) -> bool:
        """Ask whether a host or trunk that :meth:`place` named exists; of hosts, Nodes tell.

        :raises errors.CloudError: there is no answer.
        """
        return True

    def queries_of_places(self, places: Sequence[str]) -> Sequence[Mapping[str, Sequence[str]]]:
        """Return queries that together list the ports at these places, and few others.

        By default all ports are listed.
        """
        return ({},)

    def forget(self, node_name: str) -> None:
        """Forget the host or trunk of a Node that was deleted."""

    @abc.abstractmethod
    async def create_pooled(
        self, key: PoolKey, count: int
    ) -> tuple[list[PooledPort], errors.CloudError | None]:
        """Make ``count`` ports, usable at once, in as few calls as Neutron allows.

        The marks by which :meth:`find_pooled` recognizes the ports are part of their creation.

        :returns: the ports that were made, and the error if some were not. After an error, ports
            may exist that are not returned.
        """

    @abc.abstractmethod
    async def find_pooled(self, ports: Sequence[Json]) -> list[PooledPort]:
        """Select the ports of pools, those in use included.

        :param ports: ports as Neutron shows them.
        """

    @abc.abstractmethod
    async def delete_pooled(self, port: PooledPort) -> None:
        """Delete the port; a port that is gone already is no error."""

    @abc.abstractmethod
    def vif_of_pooled(self, port: PooledPort, pod_network: PodNetwork) -> VIFBase:
        """Describe the interface that a Pod gets with this port."""


class Holder(NamedTuple):
    """The Pod that has a port: its uid, and its namespace/name."""

    pod_uid: str
    pod: str


CONTESTED = Holder("", "")  # nobody has the port for certain, and somebody may be using it


@dataclass(frozen=True, slots=True)
class Records:
    """The KuryrPorts of the cluster, from a list that the API server vouches for.

    Nodes can write the ids of ports into them. So what a port itself says counts for more.

    :param claims: the Pods whose KuryrPorts name a port, by its id.
    :param pods: the namespace/name of each Pod that has a KuryrPort, by its uid.
    :param leaving: the uids of the Pods whose KuryrPorts are being deleted.
    :param unplugged: the uids of those of them whose ports their nodes have unplugged.
    :param doubtful: the names of nodes with a Pod that an earlier leader may still give a port.
    """

    claims: Mapping[str, Sequence[Holder]]
    pods: Mapping[str, str]
    leaving: frozenset[str] = frozenset()
    unplugged: frozenset[str] = frozenset()
    doubtful: frozenset[str] = frozenset()

    def holder_of(self, port_id: str, device_id: str) -> Holder | None:
        """Return the Pod that has a port of a pool; CONTESTED if that cannot be told.

        :param device_id: the port's; the controller writes the Pod's uid there, some seconds after
            the Pod got the port.
        """
        claims = self.claims.get(port_id, ())
        if (name := self.pods.get(device_id)) is not None:
            holder = Holder(device_id, name)
            return holder if not claims or holder in claims else CONTESTED
        # of two that name a port, the one that goes released it in an earlier life
        staying = [claim for claim in claims if claim.pod_uid not in self.leaving] or claims
        if len(staying) > 1:
            return CONTESTED
        return next(iter(staying), None)


class VIFPoolDriver(Driver):
    """Stands between the handlers and the pod_vif driver."""

    slot = "vif_pool"

    def __init__(self, context: DriverContext, vif: PodVIFDriver | None = None) -> None:
        """Stand before a pod_vif driver.

        :param vif: None: the driver that ``[kubernetes] pod_vif_driver`` names.
        """
        super().__init__(context)
        self._vif = context.drivers[PodVIFDriver] if vif is None else vif

    @abc.abstractmethod
    async def request(self, request: PortRequest) -> VIFBase:
        """Provide the interface: see :meth:`PodVIFDriver.ensure`."""

    async def holds(self, vif: VIFBase, pod_uid: str) -> bool | None:
        """Return whether the port is the Pod's: see :meth:`PodVIFDriver.holds`.

        :returns: None: that cannot be told yet.
        """
        return await self._vif.holds(vif, pod_uid)

    @abc.abstractmethod
    async def update_security_groups(self, vif: VIFBase, groups: tuple[str, ...]) -> None:
        """Change the port's groups: see :meth:`PodVIFDriver.update_security_groups`."""

    @abc.abstractmethod
    async def release(self, vif: VIFBase, pod_uid: str) -> None:
        """Release the port that the Pod had.

        Called only after the node has let go of the port. It may be called once more when another
        Pod has the port already.
        """

    @abc.abstractmethod
    async def release_unrecorded(self, pod_uid: str) -> int:
        """Release ports that no KuryrPort names: see :meth:`PodVIFDriver.release_unrecorded`."""

    def vif_drivers(self) -> Sequence[PodVIFDriver]:
        """List the pod_vif drivers that it stands before: all their VIFs are its business."""
        return (self._vif,)

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called when a Pod's port is gone, or it is unclear whose one is."""

    def parts(self) -> "tuple[VIFPoolDriver, ...]":
        """List the drivers that this one chooses from; by default, itself alone."""
        return (self,)

    def part_of(self, node: Node) -> "VIFPoolDriver":
        """Choose the driver for a node's Pods.

        :raises errors.Refused: the Node asks for a driver that is not configured.
        """
        return self


class PoolNumbers(NamedTuple):
    """The numbers of a pool's ports by phase, and of the claims that wait for a port.

    :param parked: available ports that the node keeps plugged.
    :param target: how many ports should be available at least.
    """

    available: int
    parked: int
    in_use: int
    creating: int
    returning: int
    leaving: int
    target: int
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """A pool as others see it.

    :param node: the name of the Node; empty where no known Node has the place.
    :param network_name: empty while it is not known.
    """

    key: PoolKey
    node: str
    network_name: str
    numbers: PoolNumbers


class ParkablePort(NamedTuple):
    """A port that its node should keep plugged, or unplug.

    :param mtu: of its network; None while nothing is known of the network.
    :param leaving: the port is to be unplugged and deleted.
    """

    port: PooledPort
    mtu: int | None
    leaving: bool


class KeepsPorts(VIFPoolDriver):
    """The capability of a pool driver that keeps ports ready for Pods to come.

    Nodes may park its ports, operators may populate and free its pools, and surveys of all ports
    in Neutron let it recover. Its upkeep runs in :meth:`Driver.loops`.
    """

    name: ClassVar[str]

    # -- changes

    @abc.abstractmethod
    def on_change(self, callback: Callable[[str], None]) -> None:
        """Have ``callback`` called with a Node's name when the node's pools have changed.

        The name is empty where pools changed and no known Node has their place.
        """

    # -- surveys

    @property
    @abc.abstractmethod
    def recovered(self) -> bool:
        """True once the first survey has told which ports there are."""

    @abc.abstractmethod
    def known(self) -> frozenset[str]:
        """List the ids of all ports of its pools, those in use included."""

    @abc.abstractmethod
    async def survey(
        self, known: frozenset[str], ports: list[Json], records: Records
    ) -> list[Json]:
        """Compare the pools with all ports of the cluster; the first time, recover them.

        :param known: what :meth:`known` returned before the ports were listed.
        :returns: the ports that do not belong to its pools.
        """

    # -- nodes

    @abc.abstractmethod
    async def locate(self, node: Node) -> str:
        """Find the host or trunk of a node, and remember that its pools are this Node's.

        Not called for a Node if another Node has the pools of its host.

        :raises NodeNotReady: it is not known yet.
        """

    @abc.abstractmethod
    def close_node(self, name: str) -> None:
        """Empty the pools of a Node that was deleted."""

    @abc.abstractmethod
    def close_unlocated(self) -> None:
        """Empty the pools of all places that belong to no Node; every Node has been located."""

    @abc.abstractmethod
    async def ports_to_park(self, place: str) -> list[ParkablePort]:
        """List the ports that the node at this place should keep plugged, or unplug.

        :raises errors.CloudError: Neutron does not describe a port's network.
        """

    @abc.abstractmethod
    def set_parked(self, place: str, parked: frozenset[str], leaving: frozenset[str]) -> None:
        """Note what the node at this place has parked.

        :param parked: the ids of the ports that it keeps plugged.
        :param leaving: the ids of the ports that it was told to unplug, perhaps by an earlier
            life of the controller.
        """

    # -- operators

    @abc.abstractmethod
    def pools(self, place: str | None = None) -> list[PoolView]:
        """Describe all pools, or those of one place."""

    @abc.abstractmethod
    def ports(self, key: PoolKey) -> list[tuple[PooledPort, str]]:
        """List a pool's ports with their phases."""

    @abc.abstractmethod
    async def key_of(self, request: PortRequest) -> PoolKey:
        """Name the pool that would serve the request.

        :raises NodeNotReady: the place of the request's node is not known yet.
        """

    @abc.abstractmethod
    def populate(self, key: PoolKey, count: int) -> None:
        """Make ``count`` more ports available, once."""

    @abc.abstractmethod
    def free(self, key: PoolKey, count: int | None) -> int:
        """Delete available ports, and make none until a Pod asks for one.

        :param count: how many; None: all of them.
        :returns: how many ports are being deleted.
        """


def keepers(driver: VIFPoolDriver) -> list[KeepsPorts]:
    """List the drivers that keep ports, among those that ``driver`` chooses from."""
    return [part for part in driver.parts() if isinstance(part, KeepsPorts)]
