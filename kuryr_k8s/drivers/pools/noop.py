"""The pool driver of those who want no pool."""

from kuryr_k8s.drivers.base import PortRequest, VIFPoolDriver
from kuryr_k8s.model.vif import VIFBase


class NoopPool(VIFPoolDriver):
    """Makes every interface when it is asked for: hands everything on to the pod_vif driver."""

    async def request(self, request: PortRequest) -> VIFBase:
        return await self._vif.ensure(request)

    async def update_security_groups(self, vif: VIFBase, groups: tuple[str, ...]) -> None:
        await self._vif.update_security_groups(vif, groups)

    async def release(self, vif: VIFBase, pod_uid: str) -> None:
        await self._vif.release(vif)

    async def release_unrecorded(self, pod_uid: str) -> int:
        return await self._vif.release_unrecorded(pod_uid)
