"""The Multi-VIF driver ``npwg_multiple_interfaces``: NetworkAttachmentDefinitions.

A Pod selects them by its annotation ``k8s.v1.cni.cncf.io/networks``. What each is in Neutron
stands in its own annotation ``openstack.org/kuryr-config``: ``{"subnetId": …, "driverType": …}``.
They are read when a Pod selects them, and not watched: clusters without the kind work as well, and
no Pod gets what a definition was before.
"""

import json
from dataclasses import dataclass
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.api import Network
from kuryr_k8s.drivers.base import DriverContext, InterfaceRequest, MultiVIFDriver, granted
from kuryr_k8s.drivers.multi_vif.annotations import asked, refusal, shown
from kuryr_k8s.drivers.multi_vif.networks import NamedNetworks
from kuryr_k8s.k8s.resources import PODS, Key, Resource
from kuryr_k8s.model.annotation_values import identifier
from kuryr_k8s.model.annotations import annotation
from kuryr_k8s.model.kuryrport import DEFAULT_IFNAME
from kuryr_k8s.model.network_selection import NETWORKS, NetworkSelection, read_selections
from kuryr_k8s.model.pod import Pod

CONFIG = "openstack.org/kuryr-config"
SUBNET, DRIVER = "subnetId", "driverType"
GROUPS, PORT_SECURITY = "securityGroupIds", "portSecurity"
LONGEST = 8192  # characters of a configuration
DRIVERS = ("", "neutron-vif", "nested-vlan")  # served by the pod_vif driver of the Pod's node


NADS: Resource[Any] = Resource(
    "NetworkAttachmentDefinition", "network-attachment-definitions", group="k8s.cni.cncf.io"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What a network is in Neutron.

    :param subnets: one, or one of each address family.
    :param security_groups: None: those of the Pod.
    :param port_security: None: as the network has it.
    """

    subnets: tuple[str, ...]
    driver: str = ""
    security_groups: tuple[str, ...] | None = None
    port_security: bool | None = None


class NPWGMultipleInterfaces(MultiVIFDriver):
    """Requests an interface for each network that a Pod selects, by its node's pod_vif driver."""

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        self._pods = context.informers.of(PODS)
        self._pods.keep(NETWORKS)
        self._networks = NamedNetworks(context)

    async def request_additional_vifs(
        self, pod: Pod, project_id: str
    ) -> tuple[InterfaceRequest, ...]:
        text = asked(self._pods, pod, NETWORKS)
        if text is None:
            return ()
        try:
            selections = read_selections(text, pod.namespace)
        except ValueError as error:
            raise errors.Refused(f"annotation {NETWORKS} {error}: {shown(text)}") from error
        return tuple([await self._request(pod, project_id, each) for each in selections])

    async def _request(
        self, pod: Pod, project_id: str, selection: NetworkSelection
    ) -> InterfaceRequest:
        name = f"{selection.namespace}/{selection.name}"
        try:
            config = await self._config(selection, pod.namespace)
            network = await self._networks.granted(pod.namespace, project_id, config.subnets)
            self._check_owner(selection, config, pod.namespace, network.network, project_id)
            for group_id in config.security_groups or ():
                granted.check_named(self._context.conf, "security_groups", pod.namespace, group_id)
                await granted.check_security_group(self._context.neutron, group_id, project_id)
        except errors.Refused as error:
            raise refusal(f"{NETWORKS}: {name}", error) from error
        return InterfaceRequest(
            pod_network=network,
            ifname=selection.interface,
            security_groups=config.security_groups,
            addresses=selection.ips,
            mac=selection.mac,
            port_security=config.port_security,
            gateways=selection.gateways,
            attachment=name,
        )

    def _check_owner(
        self,
        selection: NetworkSelection,
        config: Config,
        namespace: str,
        network: Network,
        project_id: str,
    ) -> None:
        """Check what Neutron allows to a network's owner alone: it takes us for more than users.

        :raises errors.Refused: the project does not own the network.
        """
        if config.port_security is False:
            granted.check_named(self._context.conf, "port_security", namespace, network.id)
        if (selection.ips or selection.mac) and network.project_id != project_id:
            raise errors.Refused(
                f"ips and mac can be had in networks of project {project_id} alone"
            )

    async def _config(self, selection: NetworkSelection, namespace: str) -> Config:
        if selection.interface == DEFAULT_IFNAME:
            raise errors.Refused(f"{DEFAULT_IFNAME} is the Pod's default interface")
        key = Key(selection.namespace, selection.name)
        nad = await self._context.kube.find(NADS, key)
        if nad is None:
            raise errors.Refused("there is no such NetworkAttachmentDefinition")
        text = annotation(nad, CONFIG)
        if text is None:
            raise errors.Refused(f"the NetworkAttachmentDefinition has no annotation {CONFIG}")
        try:
            config = read_config(text)
        except ValueError as error:
            said = f": {shown(text)}" if selection.namespace == namespace else ""
            raise errors.Refused(f"annotation {CONFIG} {error}{said}") from error
        if config.driver not in DRIVERS:
            raise errors.Refused(f"{DRIVER} {config.driver!r} is none of {', '.join(DRIVERS[1:])}")
        return config


def read_config(text: str) -> Config:
    """Read the annotation of a NetworkAttachmentDefinition.

    :raises ValueError: its words follow the annotation's name.
    """
    if len(text) > LONGEST:
        raise ValueError(f"has more than {LONGEST} characters")
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("is no JSON") from None
    if not isinstance(fields, dict):
        raise ValueError("is no object")  # noqa: TRY004 - of the user's text
    unknown = fields.keys() - {SUBNET, DRIVER, GROUPS, PORT_SECURITY}
    if unknown:
        raise ValueError(f"has the key {shown(min(unknown))}, which means nothing")
    subnets, driver = fields.get(SUBNET), fields.get(DRIVER) or ""
    groups, port_security = fields.get(GROUPS), fields.get(PORT_SECURITY)
    if not isinstance(subnets, str):
        raise ValueError(f"has no {SUBNET}")  # noqa: TRY004
    if not isinstance(driver, str):
        raise ValueError(f"has a {DRIVER} that is no string")  # noqa: TRY004
    if groups is not None and not (
        isinstance(groups, list) and all(isinstance(each, str) for each in groups)
    ):
        raise ValueError(f"has {GROUPS} that are no list of ids")
    if port_security is not None and not isinstance(port_security, bool):
        raise ValueError(f"has a {PORT_SECURITY} that is neither true nor false")
    return Config(
        subnets=tuple(_id(each.strip(), SUBNET) for each in subnets.split(",")),
        driver=driver,
        security_groups=None if groups is None else tuple(_id(each, GROUPS) for each in groups),
        port_security=port_security,
    )


def _id(text: str, key: str) -> str:
    try:
        return identifier(text)
    except ValueError as error:
        raise ValueError(f"has a {key} that {error}") from None
