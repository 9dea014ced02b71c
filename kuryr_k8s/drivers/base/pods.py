"""The slots that decide about Pods' interfaces, and that make them."""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.api import Network, Subnet
from kuryr_k8s.drivers.base.driver import Driver
from kuryr_k8s.model.pod import Node, Pod
from kuryr_k8s.model.vif import VIFBase

NORMAL = "normal"  # binding:vnic_type of a port that a virtual switch takes


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
    :param port_id: of an existing port to use; None: make one.
    :param vnic_type: Neutron's ``binding:vnic_type``.
    :param addresses: fixed addresses, at most one for each subnet; empty: any.
    :param port_security: None: as the network has it.
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
    port_id: str | None = None
    vnic_type: str = NORMAL
    addresses: tuple[str, ...] = ()
    port_security: bool | None = None

    @property
    def is_plain(self) -> bool:
        """Whether any port of the network, the subnets and the groups will do."""
        return (
            self.port_id is None
            and self.vnic_type == NORMAL
            and not self.addresses
            and self.port_security is None
        )


class NodeNotReady(errors.Refused):
    """The node's daemon has not told Neutron's name of the node; its Node object will."""

    reason = "KuryrNodeNotReady"


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

    async def subnets_of(self, namespace: str) -> tuple[Subnet, ...]:
        """Where the namespace's Pods may be, as far as that is known: so that load balancers
        reach them in their own subnet (``member_mode = L2``), and not through the router."""
        return ()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfaceRequest:
    """An interface that a Pod asks for besides its default one.

    :param ifname: its name in the Pod.
    :param pod_network: where it is plugged.
    :param port_id: of an existing port to use; None: a port is made.
    :param vif_driver: entry point name of the pod_vif driver that makes it; None: that of the
        Pod's node. Its Multi-VIF driver must have asked for that driver in its constructor
        (``context.drivers.named(PodVIFDriver, name)``).
    :param vnic_type: Neutron's ``binding:vnic_type``.
    :param security_groups: None: those of the Pod's default interface.
    :param addresses: fixed addresses, at most one for each subnet; empty: any.
    :param port_security: None: as the network has it.
    """

    ifname: str
    pod_network: PodNetwork
    port_id: str | None = None
    vif_driver: str | None = None
    vnic_type: str = NORMAL
    security_groups: tuple[str, ...] | None = None
    addresses: tuple[str, ...] = ()
    port_security: bool | None = None


class MultiVIFDriver(Driver):
    """Reads what interfaces a Pod asks for besides its default one; makes none itself."""

    slot = "multi_vif"

    @abc.abstractmethod
    async def request_additional_vifs(
        self, pod: Pod, project_id: str
    ) -> tuple[InterfaceRequest, ...]:
        """Return the requests for the Pod's additional interfaces; empty where it asks for none.

        The KuryrPort handler has VIF drivers and pools answer them, so that a Pod gets all of its
        interfaces or none, and that they are released in one place.

        :raises kuryr_k8s.errors.Refused: the Pod asks for what cannot be, or is not granted.
        """
