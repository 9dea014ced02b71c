"""What a NetworkAttachmentDefinition says about Neutron: ``openstack.org/kuryr-config``."""

from dataclasses import dataclass
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.drivers.multi_vif.annotations import read_id, shown
from kuryr_k8s.k8s.informer import LONGEST_KEPT
from kuryr_k8s.k8s.resources import Resource
from kuryr_k8s.model.annotation_values import json_of

NADS: Resource[Any] = Resource(
    "NetworkAttachmentDefinition", "network-attachment-definitions", group="k8s.cni.cncf.io"
)
CONFIG = "openstack.org/kuryr-config"
PLUGIN, PASSED_ON = "kuryr-cni", "netAttachDefName"
SUBNET, DRIVER = "subnetId", "driverType"
GROUPS, PORT_SECURITY = "securityGroupIds", "portSecurity"
MOST_GROUPS = 10
MACVLAN, SRIOV = "nested-macvlan", "sriov"
# of the first two, either is served by the pod_vif driver of the Pod's node
DRIVERS = ("neutron-vif", "nested-vlan", MACVLAN, SRIOV)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What a network is in Neutron.

    :param subnets: one, or one of each address family.
    :param vif_driver: entry point name of the pod_vif driver; None: that of the Pod's node.
    :param is_device: whether it is for a device that the Pod gets.
    :param security_groups: None: those of the Pod.
    :param port_security: None: as the network has it.
    """

    subnets: tuple[str, ...]
    vif_driver: str | None = None
    is_device: bool = False
    security_groups: tuple[str, ...] | None = None
    port_security: bool | None = None

    @property
    def is_unfiltered(self) -> bool:
        """True if no security groups of the Pod's apply; those of its node may."""
        return self.port_security is False or self.vif_driver == MACVLAN


def delegates(nad: dict[str, Any], name: str | None = None) -> bool:
    """Return whether Multus calls kuryr-cni for a NetworkAttachmentDefinition.

    :param name: of the definition, as namespace/name; its configuration has to pass it on, as
        Multus does not tell it. None: it need not, since it is for the default interface.
    :raises errors.Refused: it does not.
    """
    try:
        found = json_of((nad.get("spec") or {}).get("config") or "{}")
        plugins = [each for each in found.get("plugins") or [found] if each.get("type") == PLUGIN]
    except (ValueError, TypeError, AttributeError):
        return False  # Multus says what is wrong with it
    if plugins and name is not None and plugins[0].get(PASSED_ON) != name:
        raise errors.Refused(f'its configuration of {PLUGIN} lacks "{PASSED_ON}": "{name}"')
    return bool(plugins)


def read_config(text: str) -> Config:
    """Read the annotation of a NetworkAttachmentDefinition.

    :raises ValueError: its words follow the annotation's name.
    """
    if len(text) > LONGEST_KEPT:
        raise ValueError(f"has more than {LONGEST_KEPT} characters")
    fields = json_of(text)
    if not isinstance(fields, dict):
        raise ValueError("is no object")  # noqa: TRY004 - of the user's text
    unknown = fields.keys() - {SUBNET, DRIVER, GROUPS, PORT_SECURITY}
    if unknown:
        raise ValueError(f"has the key {shown(min(unknown))}, which means nothing")
    subnets, driver = fields.get(SUBNET), fields.get(DRIVER)
    groups, port_security = fields.get(GROUPS), fields.get(PORT_SECURITY)
    if not isinstance(subnets, str):
        raise ValueError(f"has no {SUBNET}")  # noqa: TRY004
    if subnets.count(",") > 1:
        raise ValueError(f"has more than two ids in {SUBNET}")
    if driver not in (None, "", *DRIVERS):
        raise ValueError(f"has a {DRIVER} that is none of {', '.join(DRIVERS)}")
    if groups is not None and not (
        isinstance(groups, list) and all(isinstance(each, str) for each in groups)
    ):
        raise ValueError(f"has {GROUPS} that are no list of ids")
    if groups is not None and len(groups) > MOST_GROUPS:
        raise ValueError(f"has {len(groups)} {GROUPS}, and a port may have {MOST_GROUPS} here")
    if port_security is not None and not isinstance(port_security, bool):
        raise ValueError(f"has a {PORT_SECURITY} that is neither true nor false")
    if groups and port_security is False:
        raise ValueError(f"has {GROUPS}, and {PORT_SECURITY} is false")
    if driver == MACVLAN and (groups or port_security is not None):
        raise ValueError(f"has {GROUPS} or {PORT_SECURITY}, and {MACVLAN} has those of the node")
    if driver == SRIOV and groups:
        raise ValueError(f"has {GROUPS}, and no card has filters for {SRIOV}")
    return Config(
        subnets=tuple(read_id(each.strip(), f"a {SUBNET}") for each in subnets.split(",")),
        vif_driver=driver if driver == MACVLAN else None,
        is_device=driver == SRIOV,
        security_groups=None
        if groups is None
        else tuple(read_id(each, GROUPS) for each in groups),
        port_security=port_security,
    )
