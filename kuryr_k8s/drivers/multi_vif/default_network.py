"""The annotation ``v1.multus-cni.io/default-network``: whose plugin adds the default interface.

Multus calls the plugin of the NetworkAttachmentDefinition that it names, in place of the plugin of
its own default network. If that is kuryr-cni, the definition and the annotation may say about the
interface what the Pod's own annotations can say.
"""

from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import DriverContext
from kuryr_k8s.drivers.multi_vif import pod_annotations as wanted
from kuryr_k8s.drivers.multi_vif.annotations import annotation_of, has_any, refusal, shown
from kuryr_k8s.drivers.multi_vif.npwg_config import (
    CONFIG,
    DRIVER,
    NADS,
    Config,
    delegates,
    read_config,
)
from kuryr_k8s.k8s.resources import PODS, Key
from kuryr_k8s.model.annotations import annotation
from kuryr_k8s.model.kuryrport import DEFAULT_IFNAME
from kuryr_k8s.model.network_selection import CLAIM, NetworkSelection, read_selections
from kuryr_k8s.model.pod import Pod

DEFAULT_NETWORK = "v1.multus-cni.io/default-network"
ANOTHERS = (  # of a default interface, in words
    "the Pod's default interface is another plugin's, unless annotation "
    f"{DEFAULT_NETWORK} names a NetworkAttachmentDefinition that delegates to kuryr-cni "
    "([kubernetes] multus in kuryr.conf)"
)
NAMESPACE = "kube-system"  # of a definition without one, unless Multus has another multusNamespace


class DefaultNetwork:
    """Reads which network a Pod selects for its default interface.

    :ivar is_delegate: Multus calls another plugin for default interfaces, unless Pods say so.
    """

    def __init__(self, context: DriverContext) -> None:
        self._kube = context.kube
        self._pods = context.informers.of(PODS)
        self._pods.keep(DEFAULT_NETWORK)
        options = context.conf.kubernetes
        self.is_delegate: bool = options.multus == "delegate"
        # the driver that makes the interface has to be in use
        self._counts = options.multus != "none" and "named_network" in options.multi_vif_drivers

    def is_selected(self, pod: Pod) -> bool:
        """Return whether the Pod selects a network, without asking whose plugin that has."""
        return self._counts and has_any(self._pods, pod, (DEFAULT_NETWORK,))

    def is_others(self, pod: Pod) -> bool:
        """Return whether another plugin adds the default interface, without asking anybody."""
        return self.is_delegate and not self.is_selected(pod)

    async def of(self, pod: Pod) -> dict[str, str] | None:
        """Return what the Pod's selection says about its default interface.

        :returns: values of annotations by their names, and the IPAMClaim by ``CLAIM``; None:
            another plugin adds the interface.
        :raises errors.Refused: the annotation or the definition cannot be read.
        """
        text = annotation_of(self._pods, pod, DEFAULT_NETWORK) or ""
        selection = _read(text)
        nad = await self._kube.find(NADS, Key(selection.namespace, selection.name))
        try:
            return _stated(selection, nad)
        except errors.Refused as error:
            name = f"{selection.namespace}/{selection.name}"
            raise refusal(f"{DEFAULT_NETWORK}: {name}", error) from error


def _stated(selection: NetworkSelection, nad: dict[str, Any] | None) -> dict[str, str] | None:
    """Return the values of a selection and its definition; None: it is another plugin's."""
    if nad is None:
        raise errors.Refused("there is no such NetworkAttachmentDefinition")
    if not delegates(nad):
        return None
    if selection.refused:
        raise errors.Refused(f"it {selection.refused}")
    if selection.gateways is not None:
        raise errors.Refused("it has a default-route, and the default interface has its own")
    if selection.interface not in (None, DEFAULT_IFNAME):
        raise errors.Refused(f"it has an interface, and the default one is {DEFAULT_IFNAME}")
    text = annotation(nad, CONFIG)
    values = {
        wanted.ADDRESS: ",".join(selection.ips),
        wanted.MAC: selection.mac or "",
        CLAIM: selection.claim or "",
    }
    if text is not None:
        config = _read_config(text)
        values[wanted.SUBNET] = ",".join(config.subnets)
        values[wanted.GROUPS] = ",".join(config.security_groups or ())
        if config.port_security is not None:
            values[wanted.PORT_SECURITY] = str(config.port_security).lower()
    return {name: value for name, value in values.items() if value}


def _read(text: str) -> NetworkSelection:
    """Read the annotation.

    :raises errors.Refused: it does not select one network.
    """
    try:
        selections = read_selections(text, NAMESPACE, of_others=True)
    except ValueError as error:
        raise errors.Refused(f"annotation {DEFAULT_NETWORK} {error}: {shown(text)}") from error
    if len(selections) != 1:
        raise errors.Refused(f"annotation {DEFAULT_NETWORK} does not have one element")
    return selections[0]


def _read_config(text: str) -> Config:
    """Read what the definition says about Neutron.

    :raises errors.Refused: it cannot be read, or is not for default interfaces.
    """
    try:
        config = read_config(text)
    except ValueError as error:  # the text itself is not for users of other namespaces
        raise errors.Refused(f"annotation {CONFIG} {error}") from error
    if config.is_device or config.vif_driver:
        raise errors.Refused(f"annotation {CONFIG}: {DRIVER} is not one of default interfaces")
    return config
