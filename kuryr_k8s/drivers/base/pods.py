"""The slots for decisions about Pods' interfaces, and for the drivers that make them."""

import abc
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from kuryr_k8s import errors
from kuryr_k8s.cloud.mark import clusters_on
from kuryr_k8s.cloud.neutron.address_pairs import AddressPair
from kuryr_k8s.cloud.neutron.api import Subnet
from kuryr_k8s.cloud.neutron.own_ports import POOL_TAG
from kuryr_k8s.cloud.neutron.specific_ports import OF_PODS
from kuryr_k8s.drivers.base.driver import Driver
from kuryr_k8s.drivers.base.pod_network import PodNetwork
from kuryr_k8s.drivers.base.port_settings import PortSettings
from kuryr_k8s.model.device import Device
from kuryr_k8s.model.neutronport import NORMAL, NeutronPort
from kuryr_k8s.model.pod import Node, Pod
from kuryr_k8s.model.vif import VIFBase

DEVICE_OWNER = OF_PODS  # of the ports that the drivers make
NAME_LIMIT = 255  # characters of a port's name
PORT_FIELDS = (  # what drivers read of the ports that they are shown
    "id",
    "name",
    "description",
    "device_id",
    "device_owner",
    "tags",
    "project_id",
    "network_id",
    "fixed_ips",
    "mac_address",
    "security_groups",
    "admin_state_up",
    "port_security_enabled",
    "allowed_address_pairs",
    "qos_policy_id",
    "binding:host_id",
    "binding:vif_type",
    "binding:vif_details",
    "binding:profile",
)
# binding:vnic_type of ports on a device of the node
DIRECT, MACVTAP = "direct", "macvtap"


@dataclass(frozen=True, slots=True, kw_only=True)
class PortRequest(PortSettings):
    """A request for the port of an interface that a Pod needs.

    :param pod_uid: the Pod's identity; (cluster tag, pod_uid, ifname) names the port.
    :param node: the Pod's.
    :param may_exist: an earlier try may have made the port: look before making one.
    :param wake: to be called when a request that was answered with Wait can be met.
    :param port_id: of an existing port to use; None: make one.
    :param as_found: what is recorded of the fields of that port; None if the Pod has it already.
    :param vnic_type: Neutron's ``binding:vnic_type``.
    :param further_addresses: what replaces the addresses, in order, while another port has one of
        them.
    :param own_groups: whether the security groups are others than those of the Pod.
    :param device: of the node, for a port on a device.
    """

    pod_uid: str
    pod_name: str
    node: Node
    ifname: str
    project_id: str
    may_exist: bool
    wake: Callable[[], None] = lambda: None
    port_id: str | None = None
    as_found: Mapping[str, str] | None = None
    vnic_type: str = NORMAL
    further_addresses: tuple[tuple[str, ...], ...] = ()
    own_groups: bool = False
    device: Device | None = None

    @property
    def choices_of_addresses(self) -> tuple[tuple[str, ...], ...]:
        """All addresses that the interface may have, in the order of preference."""
        return (self.addresses, *self.further_addresses)

    @property
    def is_plain(self) -> bool:
        """True if any port of the network, the subnets and the groups will do."""
        return not self.particulars

    @property
    def particulars(self) -> tuple[str, ...]:
        """The names of the fields that ask for more than network, subnets and groups."""
        asked = {
            "port_id": self.port_id is not None,
            "vnic_type": self.vnic_type != NORMAL,
            "addresses": bool(self.addresses),
            "mac": self.mac is not None,
            "port_security": self.port_security is not None,
            "address_pairs": bool(self.address_pairs),
            "qos_policy_id": self.qos_policy_id is not None,
            "device": self.device is not None,
        }
        return tuple(name for name, is_asked in asked.items() if is_asked)

    def require_plain(self, driver: str, but: Collection[str] = ()) -> None:
        """Refuse the request on behalf of a driver that makes plain ports only.

        :param but: particulars that its ports can have.
        :raises kuryr_k8s.errors.Refused: it asks for more.
        """
        if unmet := [name for name in self.particulars if name not in but]:
            raise errors.Refused(
                f"interface {self.ifname}: the pod_vif driver {driver} cannot honour "
                f"{', '.join(unmet)}"
            )


class NodeNotReady(errors.Refused):
    """The node's daemon has not published Neutron's name of the node on the Node yet."""

    reason = "KuryrNodeNotReady"


class NeutronPortWish(Protocol):
    """Which NeutronPort a Pod waits for."""

    @property
    def awaited_name(self) -> str:
        """The name of the only one that it can be, or is to be; empty: it may be any."""

    def may_have(self, port: NeutronPort) -> bool:
        """Return whether the Pod could have the NeutronPort as it is."""


class NoNeutronPort(errors.Refused):
    """No NeutronPort is free that a Pod could have."""

    reason = "KuryrNoNeutronPort"

    def __init__(self, message: str, wish: NeutronPortWish) -> None:
        super().__init__(message)
        self.wish = wish


class NeutronPortAwaited(errors.Wait):
    """The NeutronPort that a Pod is to have is about to have a port, or to go for another one."""

    def __init__(self, message: str, delay: float, wish: NeutronPortWish) -> None:
        super().__init__(message, delay)
        self.wish = wish


class BindingFailed(errors.Refused):
    """Neutron has no live agent that could bind the port on its host."""

    reason = "PortBindingFailed"


class NoVLANID(errors.OverQuota):
    """The trunk of the Pod's node has no free VLAN id."""


class PodProjectDriver(Driver):
    """Chooses the project of a Pod's ports."""

    slot = "pod_project"

    @abc.abstractmethod
    async def project(self, pod: Pod) -> str:
        """Return the id of the project that the Pod's ports belong to.

        :raises kuryr_k8s.errors.Refused: the namespace asks for what is not granted to it.
        """

    async def project_of_namespace(self, namespace: str) -> str:
        """Return the id of the project that ports of no Pod in particular belong to.

        :raises kuryr_k8s.errors.Refused: this driver goes by Pods.
        """
        raise errors.Refused(f"the pod_project driver knows no project of namespace {namespace}")


class PodSubnetsDriver(Driver):
    """Chooses the network and the subnets of a Pod's default interface."""

    slot = "pod_subnets"

    @abc.abstractmethod
    async def pod_network(self, pod: Pod, project_id: str) -> PodNetwork:
        """Return the network of the Pod's default interface.

        :raises kuryr_k8s.errors.Refused: the network is neither the project's own nor shared
            with it.
        """

    async def default_network(self, project_id: str) -> PodNetwork:
        """Return the network of ports of no Pod in particular.

        :raises kuryr_k8s.errors.Refused: the project may not use it, or this driver goes by Pods.
        """
        raise errors.Refused("the pod_subnets driver has no network but those of Pods")

    async def subnets_of(self, namespace: str) -> tuple[Subnet, ...]:
        """List the subnets that the namespace's Pods may be in, as far as they are known.

        Load balancers then reach Pods in their own subnet (``member_mode = L2``), and not through
        the router.
        """
        return ()


class PodSecurityGroupsDriver(Driver):
    """Chooses the security groups of a Pod's ports."""

    slot = "pod_security_groups"

    @abc.abstractmethod
    async def security_groups(self, pod: Pod, project_id: str) -> tuple[str, ...]:
        """List the ids of the security groups of the Pod's ports, sorted.

        Called again whenever the Pod's KuryrPort is reconciled: the ports follow the answer.
        """

    async def default_groups(self, project_id: str) -> tuple[str, ...]:
        """List the ids of the security groups of ports of no Pod in particular, sorted.

        :raises kuryr_k8s.errors.Refused: this driver goes by Pods.
        """
        raise errors.Refused(f"the pod_security_groups driver has no groups of {project_id}")

    async def member_groups(self, project_id: str) -> tuple[str, ...]:
        """List the groups by which load balancers and nodes reach the project's Pods.

        Ports that have groups of their own choice have these as well.
        """
        return ()


class PodVIFDriver(Driver):
    """Makes and removes the Neutron side of interfaces.

    :cvar kind: the class of its VIFs.
    :cvar device_owners: the values of ``device_owner`` that its ports may have.
    :cvar claims_unmarked: whether :meth:`made` is true of ports without any mark that only this
        driver gives. Such a driver gets what no other driver has made.
    """

    slot = "pod_vif"
    kind: ClassVar[type[VIFBase]]
    device_owners: ClassVar[tuple[str, ...]] = (DEVICE_OWNER,)
    claims_unmarked: ClassVar[bool] = False

    @abc.abstractmethod
    async def ensure(self, request: PortRequest) -> VIFBase:
        """Return the interface, with its port bound to the node; make it if it does not exist.

        :raises kuryr_k8s.errors.OverQuota: the project has no port or no address left.
        """

    async def parent_port(self, node: Node) -> str:
        """Return the id of the parent port of the trunk that carries the ports of a node's Pods.

        :returns: empty: they are on no trunk.
        :raises NodeNotReady: the trunk is not known yet.
        """
        return ""

    def releases(self, vif: VIFBase) -> bool:
        """Return whether this driver releases such VIFs; by default those of its own kind."""
        return type(vif) is self.kind

    async def holds(self, vif: VIFBase, pod_uid: str) -> bool:
        """Return whether the port is the Pod's, by its fields in Neutron.

        A node can write any id into a KuryrPort; only the controller writes the fields of ports
        that bear the mark. A port that is gone is nobody else's.
        """
        try:
            port = await self._context.neutron.own_port(vif.id)
        except errors.NotFound:
            return True
        except errors.NotOurs:
            return await self._adopt_for(vif.id, pod_uid)
        return self.names(port, pod_uid)

    def names(self, port: dict[str, Any], pod_uid: str) -> bool:
        """Return whether a port that bears the mark names the Pod."""
        return pod_uid in (port["device_id"], self.pod_uid_of(port))

    async def _adopt_for(self, port_id: str, pod_uid: str) -> bool:
        """Adopt a port that an earlier version made for the Pod; return whether it did."""
        neutron = self._context.neutron
        resource_tags = self._context.conf.neutron_defaults.resource_tags
        query = {"id": port_id, "tags": ",".join(resource_tags)}
        for port in await neutron.list_ports(query):
            if is_unmarked(port, resource_tags) and self.names(port, pod_uid):
                await neutron.mark_port(port)
                return True
        return False

    @abc.abstractmethod
    async def update_security_groups(self, vif: VIFBase, groups: tuple[str, ...]) -> None:
        """Replace the port's security groups; called only if :meth:`holds` is true."""

    @abc.abstractmethod
    async def release(self, vif: VIFBase) -> None:
        """Remove the port; a port that is gone already is no error.

        Called only if :meth:`holds` is true.
        """

    @abc.abstractmethod
    async def release_unrecorded(self, pod_uid: str) -> int:
        """Remove every port that was made for the Pod and that no KuryrPort names.

        :returns: how many ports were removed.
        """

    def made(self, port: dict[str, Any]) -> bool:
        """Return whether this driver made the port, as far as the port itself shows.

        Override it where the ``device_owner`` alone does not tell: ``compute:kuryr`` is that of
        several drivers. Look for a mark that only this driver gives, such as a tag.

        :param port: a port with the tags of this cluster, as Neutron shows it.
        """
        return port["device_owner"] in self.device_owners

    def pod_uid_of(self, port: dict[str, Any]) -> str | None:
        """Return the uid of the Pod for which the port was made; None: for no Pod in particular.

        :param port: a port that this driver made, as Neutron shows it.
        """
        return None if POOL_TAG in port["tags"] else str(port["device_id"])

    async def discard(self, port: dict[str, Any]) -> None:
        """Remove a port that it made and that nothing names; a port that is gone is no error."""
        await self._context.neutron.delete_port(port["id"])


def is_unmarked(port: dict[str, Any], resource_tags: Iterable[str]) -> bool:
    """Return whether a port has the tags of the cluster and no cluster's mark."""
    tags = port.get("tags") or ()
    return set(resource_tags) <= set(tags) and not clusters_on(tags)


def maker_of(port: dict[str, Any], drivers: Iterable[PodVIFDriver]) -> PodVIFDriver | None:
    """Return the driver that made the port: one that knows it by a mark, before others."""
    makers = [driver for driver in drivers if driver.made(port)]
    return min(makers, key=lambda driver: driver.claims_unmarked, default=None)


def releaser_of(vif: VIFBase, drivers: Iterable[PodVIFDriver]) -> PodVIFDriver | None:
    """Return the driver that releases the VIF: the one of exactly its kind, before others."""
    releasers = [driver for driver in drivers if driver.releases(vif)]
    return min(releasers, key=lambda driver: driver.kind is not type(vif), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfaceRequest:
    """An interface that a Pod asks for besides its default one, or instead of it.

    :param ifname: its name in the Pod; None: the next one of ``[kubernetes]
        additional_ifname_prefix`` and a number that is free. That of the default interface
        replaces it.
    :param pod_network: where it is plugged.
    :param port_id: of an existing port to use, which is given back afterwards; None: a port is
        made.
    :param as_found: what of the fields that are changed for the Pod was not empty before; None if
        the Pod has the port already.
    :param vif_driver: entry point name of the pod_vif driver that makes it; None: that of the
        Pod's node. Its Multi-VIF driver must have asked for that driver in its constructor
        (``context.drivers.named(PodVIFDriver, name)``).
    :param vnic_type: Neutron's ``binding:vnic_type``.
    :param physnet: the interface is a device that the Pod gets, on this physical network: it takes
        the place of a :class:`DeviceRequest`, whose VIF driver makes it; empty: Neutron does not
        show us the physical network; None: it is no device.
    :param security_groups: None: those of the Pod's default interface, now and when they change.
    :param addresses: fixed addresses, at most one for each subnet; empty: any.
    :param further_addresses: what replaces them, in order, while another port has one of them.
    :param mac: its MAC address; None: any.
    :param port_security: None: as the network has it.
    :param address_pairs: from which it may send besides its own; an empty MAC is its own.
    :param qos_policy_id: of its QoS policy; None: that of the network, if it has one.
    :param gateways: of the Pod's default routes, which then lead through this interface; empty:
        those of its subnets; None: the default routes are not this interface's.
    :param network_name: name of the network, as the Pod's users know it; empty: it has none.
    :param delegated: whether the node's plugin is called for it on its own.
    """

    pod_network: PodNetwork
    ifname: str | None = None
    port_id: str | None = None
    as_found: Mapping[str, str] | None = None
    vif_driver: str | None = None
    vnic_type: str = NORMAL
    physnet: str | None = None
    security_groups: tuple[str, ...] | None = None
    addresses: tuple[str, ...] = ()
    further_addresses: tuple[tuple[str, ...], ...] = ()
    mac: str | None = None
    port_security: bool | None = None
    address_pairs: tuple[AddressPair, ...] = ()
    qos_policy_id: str | None = None
    gateways: tuple[str, ...] | None = None
    network_name: str = ""
    delegated: bool = False

    @property
    def choices_of_addresses(self) -> tuple[tuple[str, ...], ...]:
        """All addresses that the interface may have, in the order of preference."""
        return (self.addresses, *self.further_addresses)

    @property
    def has_own_groups(self) -> bool:
        """True if the interface does not follow the security groups of the Pod."""
        if self.port_security is False:
            return True  # it cannot have any
        return self.security_groups is not None or self.port_id is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    """A device of the node that a Pod gets: an interface, in the network that is said here.

    An :class:`InterfaceRequest` with its physical network takes its place, whatever driver that is
    of: it may have another network, or an existing port.

    :param physnet: the physical network behind the device, by Neutron's name.
    :param vif_driver: as for an interface.
    :param pod_network: where it is plugged; or what is refused if nothing takes its place.
    """

    physnet: str
    vif_driver: str
    pod_network: PodNetwork | errors.Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherInterface:
    """An interface that another plugin makes in the Pod: its name is taken."""

    ifname: str


class MultiVIFDriver(Driver):
    """Reads what interfaces a Pod asks for; makes none itself.

    A driver whose users ask by an annotation has the cache of Pods keep it, in its constructor
    (``context.informers.of(PODS).keep(NAME)``). Nothing else parses that annotation.

    :cvar asks_for_floating_ips: whether :meth:`floating_ip` may return one.
    """

    slot = "multi_vif"
    asks_for_floating_ips: ClassVar[bool] = False

    def may_ask(self, pod: Pod) -> bool:
        """Return whether the Pod may ask for an interface, without asking anybody."""
        return True

    def floating_ip(self, pod: Pod) -> str | None:
        """Return which floating IP the Pod asks for by now.

        :returns: the address or the id of one that exists; empty: any; None: it asks for none.
        :raises kuryr_k8s.errors.Refused: it cannot be read.
        """
        return None

    def names_network(self, pod: Pod) -> bool:
        """Return whether the Pod names the network of its default interface, or its Namespace.

        With ``[kubernetes] pod_selection = annotated``, other Pods are left to another plugin.
        """
        return False

    @abc.abstractmethod
    async def request_additional_vifs(
        self, pod: Pod, project_id: str
    ) -> Sequence[InterfaceRequest | DeviceRequest | OtherInterface]:
        """Return the requests for the Pod's additional interfaces; empty where it asks for none.

        The KuryrPort handler has VIF drivers and pools answer them, so that a Pod gets all of its
        interfaces or none, and that they are released in one place.

        :raises kuryr_k8s.errors.Refused: the Pod asks for what cannot be, or is not granted.
        """
