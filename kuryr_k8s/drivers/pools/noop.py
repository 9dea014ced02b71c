"""No pool: every interface is made when it is asked for."""

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import DriverContext, PodVIFDriver, PortRequest, VIFPoolDriver
from kuryr_k8s.model.vif import VIFBase


class NoopPool(VIFPoolDriver):
    """Hands everything on to the pod_vif driver."""

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        if context.pod_vif is None:
            raise errors.ConfigError("[kubernetes] vif_pool_driver needs a pod_vif_driver")
        self._vif: PodVIFDriver = context.pod_vif

    async def request(self, request: PortRequest) -> VIFBase:
        return await self._vif.ensure(request)

    async def update_security_groups(self, vif: VIFBase, groups: tuple[str, ...]) -> None:
        await self._vif.update_security_groups(vif, groups)

    async def release(self, vif: VIFBase, pod_uid: str) -> None:
        await self._vif.release(vif)

    async def release_unrecorded(self, pod_uid: str) -> int:
        return await self._vif.release_unrecorded(pod_uid)
