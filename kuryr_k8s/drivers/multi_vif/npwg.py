"""The Multi-VIF driver ``npwg_multiple_interfaces``: NetworkAttachmentDefinitions.

A Pod selects them by its annotation ``k8s.v1.cni.cncf.io/networks``. What each is in Neutron
stands in its own annotation ``openstack.org/kuryr-config``: ``{"subnetId": …, "driverType": …}``.
They are read when a Pod selects them, and not watched: clusters without the kind work as well, and
no Pod gets what a definition was before.

With Multus, a definition counts if its own configuration has Multus call kuryr-cni; interfaces
then have the names that Multus gives them.
"""

from dataclasses import replace
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import (
    DIRECT,
    NORMAL,
    DriverContext,
    InterfaceRequest,
    MultiVIFDriver,
    NoNeutronPort,
    OtherInterface,
    PodVIFDriver,
    granted,
)
from kuryr_k8s.drivers.multi_vif.annotations import annotation_of, has_any, refusal, shown
from kuryr_k8s.drivers.multi_vif.neutron_ports import NeutronPorts
from kuryr_k8s.drivers.multi_vif.npwg_config import (
    CONFIG,
    DRIVER,
    MACVLAN,
    NADS,
    PORT_SECURITY,
    SRIOV,
    Config,
    delegates,
    read_config,
)
from kuryr_k8s.drivers.named.asked import Asked
from kuryr_k8s.drivers.named.networks import NamedNetworks
from kuryr_k8s.drivers.named.ownership import check_owner
from kuryr_k8s.k8s.resources import PODS, Key
from kuryr_k8s.model.annotations import annotation
from kuryr_k8s.model.kuryrport import DEFAULT_IFNAME
from kuryr_k8s.model.network_selection import (
    CLAIM,
    NETWORKS,
    NetworkSelection,
    read_selections,
)
from kuryr_k8s.model.pod import Pod

UNFILTERED = f"{PORT_SECURITY}=false, or {DRIVER} {MACVLAN},"


class NPWGMultipleInterfaces(MultiVIFDriver):
    """Requests an interface for each network that a Pod selects, by its node's pod_vif driver."""

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        self._pods = context.informers.of(PODS)
        self._pods.keep(NETWORKS)
        self._networks = NamedNetworks(context)
        self._neutron_ports = NeutronPorts(context)
        self._has_macvlan = bool(context.conf.pod_vif_nested.worker_nodes_subnets)
        if self._has_macvlan:
            context.drivers.named(PodVIFDriver, MACVLAN)
        self._multus = context.conf.kubernetes.multus != "none"
        self._has_devices = SRIOV in context.conf.kubernetes.multi_vif_drivers

    async def request_additional_vifs(
        self, pod: Pod, project_id: str
    ) -> tuple[InterfaceRequest | OtherInterface, ...]:
        text = annotation_of(self._pods, pod, NETWORKS)
        if text is None:
            return ()
        try:
            selections = read_selections(text, pod.namespace, of_others=self._multus)
        except ValueError as error:
            raise errors.Refused(f"annotation {NETWORKS} {error}: {shown(text)}") from error
        if self._multus:
            selections = [
                replace(each, interface=each.interface or f"net{number}")
                for number, each in enumerate(selections, 1)
            ]
        requests = {}
        # all Pods bind ports of these claims in this order: so no two wait for each other
        for number in sorted(
            range(len(selections)), key=lambda each: selections[each].claim or ""
        ):
            requests[number] = await self._request(pod, project_id, selections[number])
        return tuple(requests[number] for number in range(len(selections)))

    def may_ask(self, pod: Pod) -> bool:
        return has_any(self._pods, pod, (NETWORKS,))

    async def _request(
        self, pod: Pod, project_id: str, selection: NetworkSelection
    ) -> InterfaceRequest | OtherInterface:
        name = f"{selection.namespace}/{selection.name}"
        try:
            nad = await self._definition(selection)
            if self._multus and not delegates(nad, name):
                return OtherInterface(ifname=selection.interface or "")
            config = self._config(nad, selection, pod.namespace)
            network = await self._networks.granted(pod.namespace, project_id, config.subnets)
            check_owner(
                self._context.conf,
                pod.namespace,
                project_id,
                network,
                unfiltered=UNFILTERED if config.is_unfiltered else "",
                chosen="ips and mac" if selection.ips or selection.mac else "",
                addresses=selection.ips,
            )
            for group_id in config.security_groups or ():
                granted.check_named(self._context.conf, "security_groups", pod.namespace, group_id)
                await granted.check_security_group(self._context.neutron, group_id, project_id)
        except errors.Refused as error:
            raise refusal(f"{NETWORKS}: {name}", error) from error
        request = InterfaceRequest(
            pod_network=network,
            ifname=selection.interface,
            vif_driver=config.vif_driver,
            vnic_type=DIRECT if config.is_device else NORMAL,
            physnet=network.network.physnet if config.is_device else None,
            security_groups=config.security_groups,
            addresses=selection.ips,
            mac=selection.mac,
            port_security=config.port_security,
            gateways=selection.gateways,
            network_name=name,
            delegated=self._multus,
        )
        if selection.claim is None:
            return request
        try:
            return await self._of_claim(request, pod, config, selection)
        except errors.Refused as error:
            if isinstance(error, NoNeutronPort):
                raise  # it says itself which port the Pod waits for
            raise refusal(f"{NETWORKS}: {name}", error) from error

    async def _of_claim(
        self, request: InterfaceRequest, pod: Pod, config: Config, selection: NetworkSelection
    ) -> InterfaceRequest:
        """Return the request for the port of the IPAMClaim that a Pod refers to.

        :raises errors.Refused: it cannot have one.
        """
        if config.is_device or config.vif_driver is not None:
            raise errors.Refused(f"{CLAIM} needs a network of the node's own {DRIVER}")
        asked = Asked(
            subnets=config.subnets,
            groups=config.security_groups,
            mac=selection.mac,
            port_security=config.port_security,
        )
        assert selection.claim is not None
        return await self._neutron_ports.of_claim(request, pod, asked, selection.claim)

    async def _definition(self, selection: NetworkSelection) -> dict[str, Any]:
        if selection.interface == DEFAULT_IFNAME:
            raise errors.Refused(f"{DEFAULT_IFNAME} is the Pod's default interface")
        key = Key(selection.namespace, selection.name)
        nad = await self._context.kube.find(NADS, key)
        if nad is None:
            raise errors.Refused("there is no such NetworkAttachmentDefinition")
        return nad

    def _config(self, nad: dict[str, Any], selection: NetworkSelection, namespace: str) -> Config:
        if selection.refused:
            raise errors.Refused(f"annotation {NETWORKS} {selection.refused}")
        text = annotation(nad, CONFIG)
        if text is None:
            raise errors.Refused(f"the NetworkAttachmentDefinition has no annotation {CONFIG}")
        try:
            config = read_config(text)
        except ValueError as error:
            # users do not see what stands in other namespaces
            said = f": {shown(text)}" if selection.namespace == namespace else ""
            raise errors.Refused(f"annotation {CONFIG} {error}{said}") from error
        if config.vif_driver == MACVLAN and not self._has_macvlan:
            raise errors.Refused(f"{MACVLAN} needs [pod_vif_nested] worker_nodes_subnets")
        if config.is_device and not self._has_devices:
            raise errors.Refused(f"{SRIOV} needs {SRIOV} in [kubernetes] multi_vif_drivers")
        return config
