"""What a driver is: one abstract class for each slot.

A third party subclasses one of these and ships it as a package with an entry
point in ``kuryr_k8s.controller.drivers.<slot>``; an option in ``kuryr.conf``
names it. A driver is made once, is handed all that it may use, and keeps no
state outside itself. Methods are idempotent: they are called again after any
failure, and after a restart.
"""

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from oslo_config import cfg

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron import Network, Neutron, Subnet
from kuryr_k8s.k8s.informer import Informer
from kuryr_k8s.model.pod import Namespace, Node, Pod
from kuryr_k8s.model.vif import VIFBase


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverContext:
    """What every driver is handed at its making.

    ``pod_vif`` is set for the slots above it: pools make their ports through it.
    """

    conf: cfg.ConfigOpts
    neutron: Neutron
    namespaces: Informer[Namespace]
    pod_vif: "PodVIFDriver | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodNetwork:
    """The network of an interface, and its subnets: one for each address family wanted."""

    network: Network
    subnets: tuple[Subnet, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PortRequest:
    """All that is known about an interface that a Pod needs.

    :param pod_uid: the Pod's identity; (cluster tag, pod_uid, ifname) names the port.
    :param node: the Pod's.
    :param may_exist: an earlier try may have made the port: look before making one.
    :param wake: to be called when a request that was answered with Wait can be met.
    """

    pod_uid: str
    pod_name: str
    node: Node
    ifname: str
    project_id: str
    pod_network: PodNetwork
    security_groups: tuple[str, ...]
    may_exist: bool
    wake: Callable[[], None] = lambda: None


class NodeNotReady(errors.Refused):
    """The node's daemon has not told Neutron's name of the node; its Node object will."""

    reason = "KuryrNodeNotReady"


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
class Spare:
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


class Driver(abc.ABC):
    """Base of all drivers."""

    slot: ClassVar[str]

    def __init__(self, context: DriverContext) -> None:
        self._context = context

    async def start(self) -> None:  # noqa: B027 - a hook that few drivers need
        """Check the configuration; called once, before the first reconcile.

        :raises kuryr_k8s.errors.ConfigError: an option names something that is not there.
        """


class PodProjectDriver(Driver):
    slot = "pod_project"

    @abc.abstractmethod
    async def project(self, pod: Pod) -> str:
        """Id of the project that the Pod's ports belong to.

        :raises kuryr_k8s.errors.Refused: the namespace asks for what is not granted to it.
        """


class PodSubnetsDriver(Driver):
    slot = "pod_subnets"

    @abc.abstractmethod
    async def pod_network(self, pod: Pod, project_id: str) -> PodNetwork:
        """Where the Pod's default interface is plugged.

        :raises kuryr_k8s.errors.Refused: the network is neither the project's own nor shared
            with it.
        """


class PodSecurityGroupsDriver(Driver):
    slot = "pod_security_groups"

    @abc.abstractmethod
    async def security_groups(self, pod: Pod, project_id: str) -> tuple[str, ...]:
        """Ids of the security groups of the Pod's ports, sorted.

        Asked again whenever the Pod's KuryrPort is reconciled: ports follow the answer.
        """


class PodVIFDriver(Driver):
    """Makes and removes the Neutron side of one interface. ``kind`` is the class of its VIFs."""

    slot = "pod_vif"
    kind: ClassVar[type[VIFBase]]

    @abc.abstractmethod
    async def ensure(self, request: PortRequest) -> VIFBase:
        """The interface, made if need be; its port bound to the node.

        :raises kuryr_k8s.errors.OverQuota: no port or no address is to be had.
        """

    @abc.abstractmethod
    async def update_security_groups(self, vif: VIFBase, groups: tuple[str, ...]) -> None:
        """Give the port these security groups, and no others."""

    @abc.abstractmethod
    async def release(self, vif: VIFBase) -> None:
        """Remove the port; gone already is as good."""

    @abc.abstractmethod
    async def release_unrecorded(self, pod_uid: str) -> int:
        """Remove every port made for the Pod that no KuryrPort came to name; how many."""

    def made(self, port: dict[str, Any]) -> bool:
        """Whether a port of this cluster, as Neutron shows it, is of this driver's making."""
        return True

    async def discard(self, port: dict[str, Any]) -> None:
        """Remove a port that it made and that nothing names; gone already is as good."""
        await self._context.neutron.delete_port(port["id"])


class PooledVIFDriver(PodVIFDriver):
    """One whose ports can be made before there is a Pod for them."""

    @property
    @abc.abstractmethod
    def spare_marks(self) -> Mapping[str, str]:
        """Fields of such a port, set at its creation, by which it is found before it has tags."""

    @abc.abstractmethod
    async def place(self, node: Node) -> str:
        """Where ports for the node's Pods are made, see :class:`PoolKey`.

        :raises NodeNotReady: nobody can tell yet.
        """

    def forget(self, node_name: str) -> None:
        """The Node is gone; nothing need be remembered of where it was."""

    @abc.abstractmethod
    async def create_spares(
        self, key: PoolKey, count: int
    ) -> tuple[list[Spare], errors.CloudError | None]:
        """Make so many ports, usable at once, in as few calls as Neutron allows.

        All marks by which :meth:`find_spares` knows them again stand on them from the first
        instant.

        :returns: those that were made; and what went wrong, if they are not all. Then some of
            the others may be made all the same.
        """

    @abc.abstractmethod
    async def find_spares(self, ports: Sequence[dict[str, Any]]) -> list[Spare]:
        """What pools have made of these ports (as Neutron shows them), those in use included."""

    @abc.abstractmethod
    async def remove_spare(self, spare: Spare) -> None:
        """Delete the port; gone already is as good."""

    @abc.abstractmethod
    def vif_of_spare(self, spare: Spare, pod_network: PodNetwork) -> VIFBase:
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
        vif = self._context.pod_vif
        if vif is not None:
            await vif.discard(port)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditionalInterface:
    """A further interface that a Pod asks for."""

    ifname: str
    pod_network: PodNetwork


class MultiVIFDriver(Driver):
    slot = "multi_vif"

    @abc.abstractmethod
    async def interfaces(self, pod: Pod, project_id: str) -> tuple[AdditionalInterface, ...]:
        """The interfaces that the Pod asks for besides its default one."""
