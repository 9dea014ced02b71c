"""The Multi-VIF driver ``additional_subnets``: Pods name further subnets in an annotation.

``openstack.org/kuryr-additional-subnets: '["<subnet>", "<subnet>,<subnet>"]'``: a JSON list with
an entry for each interface. Two subnets of one entry are of one network and of both address
families.
"""

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import DriverContext, InterfaceRequest, MultiVIFDriver
from kuryr_k8s.drivers.multi_vif.annotations import (
    annotation_of,
    has_any,
    read_pairs,
    refusal,
    shown,
)
from kuryr_k8s.drivers.named.networks import NamedNetworks
from kuryr_k8s.k8s.resources import PODS
from kuryr_k8s.model.pod import Pod

ANNOTATION = "openstack.org/kuryr-additional-subnets"


class AdditionalSubnets(MultiVIFDriver):
    """Requests an interface for each entry of the annotation, by the node's pod_vif driver."""

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        self._pods = context.informers.of(PODS)
        self._pods.keep(ANNOTATION)
        self._networks = NamedNetworks(context)

    async def request_additional_vifs(
        self, pod: Pod, project_id: str
    ) -> tuple[InterfaceRequest, ...]:
        text = annotation_of(self._pods, pod, ANNOTATION)
        if text is None:
            return ()
        try:
            entries = read_pairs(text)
        except ValueError as error:
            raise errors.Refused(f"annotation {ANNOTATION} {error}: {shown(text)}") from error
        requests = []
        for entry in entries:
            try:
                network = await self._networks.granted(pod.namespace, project_id, entry)
            except errors.Refused as error:
                raise refusal(f"{ANNOTATION}: {','.join(entry)}", error) from error
            requests.append(InterfaceRequest(pod_network=network))
        return tuple(requests)

    def may_ask(self, pod: Pod) -> bool:
        return has_any(self._pods, pod, (ANNOTATION,))
