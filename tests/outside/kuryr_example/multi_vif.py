"""The Multi-VIF driver of Pods that ask for an isolated interface by an annotation."""

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import (
    DriverContext,
    InterfaceRequest,
    MultiVIFDriver,
    PodSubnetsDriver,
    PodVIFDriver,
)
from kuryr_k8s.k8s.resources import PODS, Key
from kuryr_k8s.model.pod import Pod

ANNOTATION = "example.org/isolated-interface"
GROUPS = "example.org/isolated-security-groups"  # ids, separated by commas
VIF_DRIVER = "example-isolated"
RESERVED = "eth0"


class AnnotatedMultiVIF(MultiVIFDriver):
    """Requests the interface that the annotation names, in the Pod's own network."""

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        context.drivers.named(PodVIFDriver, VIF_DRIVER)
        self._subnets = context.drivers[PodSubnetsDriver]
        self._pods = context.informers.of(PODS)
        self._pods.keep(ANNOTATION, GROUPS)

    async def request_additional_vifs(
        self, pod: Pod, project_id: str
    ) -> tuple[InterfaceRequest, ...]:
        """Return one request for a Pod with the annotation, none for others."""
        key = Key(pod.namespace, pod.name)
        ifname = self._pods.annotation(key, ANNOTATION)
        if ifname is None:
            return ()
        if not ifname or ifname == RESERVED or len(ifname) > 15:
            raise errors.Refused(f"annotation {ANNOTATION}: {ifname!r} cannot be an interface")
        groups = self._pods.annotation(key, GROUPS)
        return (
            InterfaceRequest(
                ifname=ifname,
                pod_network=await self._subnets.pod_network(pod, project_id),
                vif_driver=VIF_DRIVER,
                security_groups=tuple(sorted(groups.split(","))) if groups else None,
            ),
        )
