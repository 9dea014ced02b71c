"""The slot that keeps ports ready for Pods to come, and what makes such ports."""

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kuryr_k8s import errors
from kuryr_k8s.drivers.base.driver import Driver, DriverContext
from kuryr_k8s.drivers.base.pods import PodNetwork, PodVIFDriver, PortRequest
from kuryr_k8s.model.pod import Node
from kuryr_k8s.model.vif import VIFBase


class PoolKey(NamedTuple):
    """What makes two ports interchangeable: a pool has the ports of one key.

    ``place`` is where they can be used: the node's name in Neutron (``binding:host_id``), or the
    id of its trunk. The ids of subnets and of security groups are sorted.
    """

    project_id: str
    place: str
    network_id: str
    subnet_ids: tuple[str, ...]
    security_groups: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledPort:
    """A port that is made for no Pod in particular, as a pool remembers it.

    :param fixed_ips: pairs (subnet id, address), sorted.
    :param vlan_id: on the trunk ``key.place``; 0 where there is none.
    :param fit: it is bound (or attached), and has nothing that it was not made with.
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
    """One whose ports can be made before there is a Pod for them."""

    @property
    @abc.abstractmethod
    def pooled_marks(self) -> Mapping[str, str]:
        """Fields of such a port, set at its creation, by which it is found before it has tags."""

    @abc.abstractmethod
    async def place(self, node: Node) -> str:
        """Where ports for the node's Pods are made, see :class:`PoolKey`.

        :raises NodeNotReady: nobody can tell yet.
        """

    def forget(self, node_name: str) -> None:
        """The Node is gone; nothing need be remembered of where it was."""

    @abc.abstractmethod
    async def create_pooled(
        self, key: PoolKey, count: int
    ) -> tuple[list[PooledPort], errors.CloudError | None]:
        """Make so many ports, usable at once, in as few calls as Neutron allows.

        All marks by which :meth:`find_pooled` knows them again stand on them from the first
        instant.

        :returns: those that were made; and what went wrong, if they are not all. Then some of
            the others may be made all the same.
        """

    @abc.abstractmethod
    async def find_pooled(self, ports: Sequence[dict[str, Any]]) -> list[PooledPort]:
        """What pools have made of these ports (as Neutron shows them), those in use included."""

    @abc.abstractmethod
    async def delete_pooled(self, spare: PooledPort) -> None:
        """Delete the port; gone already is as good."""

    @abc.abstractmethod
    def vif_of_pooled(self, spare: PooledPort, pod_network: PodNetwork) -> VIFBase:
        """The interface that the port makes."""


class Holder(NamedTuple):
    """The Pod that has a port: its identity, and its namespace/name."""

    pod_uid: str
    pod: str


@dataclass(frozen=True, slots=True)
class Records:
    """All KuryrPorts, by a list that the API server vouches for.

    :param holders: of each port that is named by one.
    :param pods: uids of all Pods that have one.
    """

    holders: Mapping[str, Holder]
    pods: frozenset[str]


class VIFPoolDriver(Driver):
    """Stands between the handlers and the pod_vif driver, and may keep ports ready."""

    slot = "vif_pool"
    keeps_ports: bool = False  # whether it wants to be told by `survey`

    def __init__(self, context: DriverContext, vif: PodVIFDriver | None = None) -> None:
        """Stand before a pod_vif driver.

        :param vif: None: the one that ``[kubernetes] pod_vif_driver`` names.
        """
        super().__init__(context)
        self._vif = context.drivers[PodVIFDriver] if vif is None else vif

    @abc.abstractmethod
    async def request(self, request: PortRequest) -> VIFBase:
        """As :meth:`PodVIFDriver.ensure`."""

    @abc.abstractmethod
    async def update_security_groups(self, vif: VIFBase, groups: tuple[str, ...]) -> None:
        """As :meth:`PodVIFDriver.update_security_groups`."""

    @abc.abstractmethod
    async def release(self, vif: VIFBase, pod_uid: str) -> None:
        """Take the port back from the Pod. Only called once the node has let go of it; perhaps
        again, when another Pod has it already."""

    @abc.abstractmethod
    async def release_unrecorded(self, pod_uid: str) -> int:
        """As :meth:`PodVIFDriver.release_unrecorded`."""

    async def discard(self, port: dict[str, Any]) -> None:
        """As :meth:`PodVIFDriver.discard`."""
        await self._vif.discard(port)

    def serves(self, vif: VIFBase) -> bool:
        """Whether the pod_vif drivers behind it make such VIFs, and so release them."""
        return isinstance(vif, self._vif.kind)

    def has_driver(self, vif: PodVIFDriver) -> bool:
        """Whether it stands before this pod_vif driver."""
        return vif is self._vif

    def on_lost(self, call: Callable[[], None]) -> None:
        """Call back when a port that a Pod has turns out to be gone."""

    def parts(self) -> "tuple[VIFPoolDriver, ...]":
        """The drivers that it chooses from; one that does not choose is its own part."""
        return (self,)

    def part_of(self, node: Node) -> "VIFPoolDriver":
        """The driver of a node's Pods.

        :raises errors.Refused: the Node asks for one that there is not.
        """
        return self

    def known(self) -> frozenset[str]:
        """Ids of the ports that it keeps, or has given to Pods."""
        return frozenset()

    async def survey(
        self, known: frozenset[str], ports: list[dict[str, Any]], records: Records
    ) -> list[dict[str, Any]]:
        """Be told of all ports of the cluster: at the start of the work, and every now and then.

        :param known: what :meth:`known` was before the ports were listed.
        :returns: those of the ports that are none of the pool's.
        """
        return ports
