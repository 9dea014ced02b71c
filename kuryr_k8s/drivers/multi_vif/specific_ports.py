"""The Multi-VIF driver ``specific_ports``: Pods name Neutron ports that their users made.

``openstack.org/spec-ports: '["<port>", …]'``: a JSON list of ids, with an interface for each.
``openstack.org/spec-default-port: <port>``: the Pod's default interface.

A port of vnic_type normal is plugged as the Pod's node plugs ports; one of vnic_type direct or
macvtap is that of a virtual function (VF) that the Pod requests, if ``multi_vif_drivers`` lists
sriov.
"""

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.specific_ports import fields_of
from kuryr_k8s.drivers.base import (
    DIRECT,
    MACVTAP,
    NORMAL,
    DriverContext,
    InterfaceRequest,
    MultiVIFDriver,
    PodNetwork,
)
from kuryr_k8s.drivers.multi_vif.annotations import (
    annotation_of,
    has_any,
    read_ids,
    refusal,
    shown,
)
from kuryr_k8s.drivers.multi_vif.default_network import ANOTHERS, DefaultNetwork
from kuryr_k8s.drivers.named.networks import NamedNetworks
from kuryr_k8s.drivers.named.ports import VNIC_TYPE, named_port
from kuryr_k8s.k8s.resources import PODS
from kuryr_k8s.model.annotation_values import identifier
from kuryr_k8s.model.kuryrport import DEFAULT_IFNAME
from kuryr_k8s.model.pod import Pod

ANNOTATION, ALIAS = "openstack.org/spec-ports", "spec-ports"
DEFAULT = "openstack.org/spec-default-port"
SRIOV = "sriov"  # the driver by which a Pod gets VFs


class SpecificPorts(MultiVIFDriver):
    """Requests an interface for each port that the Pod names."""

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        self._pods = context.informers.of(PODS)
        self._pods.keep(ANNOTATION, ALIAS, DEFAULT)
        self._networks = NamedNetworks(context)
        self._default_network = DefaultNetwork(context)
        self._vnic_types = [NORMAL]
        if SRIOV in context.conf.kubernetes.multi_vif_drivers:
            self._vnic_types += [DIRECT, MACVTAP]

    async def start(self) -> None:
        if not self._context.conf.kubernetes.specific_ports:
            raise errors.ConfigError(
                "[kubernetes] multi_vif_drivers lists specific_ports, and specific_ports is false"
            )

    async def request_additional_vifs(
        self, pod: Pod, project_id: str
    ) -> tuple[InterfaceRequest, ...]:
        named = self._named(pod)
        return tuple(
            [
                await self._request(pod, project_id, annotation, port_id)
                for port_id, annotation in named.items()
            ]
        )

    def may_ask(self, pod: Pod) -> bool:
        return has_any(self._pods, pod, (DEFAULT, ANNOTATION, ALIAS))

    def names_network(self, pod: Pod) -> bool:
        return has_any(self._pods, pod, (DEFAULT,))

    def _named(self, pod: Pod) -> dict[str, str]:
        """Return the annotation that names each port.

        :raises errors.Refused: one of them cannot be read, or a port is named twice.
        """
        named: dict[str, str] = {}
        for annotation in (DEFAULT, ANNOTATION, ALIAS):
            text = annotation_of(self._pods, pod, annotation)
            if text is None:
                continue
            if annotation == DEFAULT and self._default_network.is_others(pod):
                raise errors.Refused(f"annotation {DEFAULT}: {ANOTHERS}")
            try:
                ids = [identifier(text)] if annotation == DEFAULT else read_ids(text)
            except ValueError as error:
                raise errors.Refused(f"annotation {annotation} {error}: {shown(text)}") from error
            for port_id in ids:
                if port_id in named:
                    raise errors.Refused(f"annotation {annotation}: {port_id} is named twice")
                named[port_id] = annotation
        return named

    async def _request(
        self, pod: Pod, project_id: str, annotation: str, port_id: str
    ) -> InterfaceRequest:
        try:
            kinds = [NORMAL] if annotation == DEFAULT else self._vnic_types
            port = await named_port(self._context, pod.namespace, project_id, port_id, kinds)
            is_free = self._context.neutron.specific_ports.is_free(port, pod.identity)
            network = await self._network_of([ip["subnet_id"] for ip in port["fixed_ips"]])
        except errors.Refused as error:
            raise refusal(annotation, error) from error
        vnic_type = port.get(VNIC_TYPE, NORMAL)
        return InterfaceRequest(
            pod_network=network,
            ifname=DEFAULT_IFNAME if annotation == DEFAULT else None,
            port_id=port_id,
            as_found=fields_of(port) if is_free else None,
            vnic_type=vnic_type,
            physnet=None if vnic_type == NORMAL else network.network.physnet,
        )

    async def _network_of(self, subnet_ids: list[str]) -> PodNetwork:
        if not subnet_ids:
            raise errors.Refused("a port without an address cannot be an interface")
        return await self._networks.read(list(dict.fromkeys(subnet_ids)))
