"""The pool driver of those who want no pool."""

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import (
    POOL_TAG,
    DriverContext,
    PodVIFDriver,
    PortRequest,
    VIFPoolDriver,
)
from kuryr_k8s.k8s.resources import KURYRPORTS
from kuryr_k8s.model.vif import VIFBase


class NoopPool(VIFPoolDriver):
    """Makes every interface when it is asked for: hands everything on to the pod_vif driver."""

    def __init__(self, context: DriverContext, vif: PodVIFDriver | None = None) -> None:
        super().__init__(context, vif)
        self._kuryrports = context.informers.of(KURYRPORTS)

    async def request(self, request: PortRequest) -> VIFBase:
        return await self._vif.ensure(request)

    async def holds(self, vif: VIFBase, pod_uid: str) -> bool:
        """Return whether the port is the Pod's; of a time with pools, it may not name the Pod yet.

        Then its KuryrPort counts, if no other one names the port.
        """
        if await self._vif.holds(vif, pod_uid):
            return True
        try:
            port = await self._context.neutron.own_port(vif.id)
        except errors.NotOurs:
            return False
        if POOL_TAG not in port["tags"]:
            return False
        claims = {known.pod_uid for known in self._kuryrports.values() if vif.id in known.uuids()}
        others = {known.pod_uid for known in self._kuryrports.values()} - {pod_uid}
        return claims == {pod_uid} and port["device_id"] not in others

    async def update_security_groups(self, vif: VIFBase, groups: tuple[str, ...]) -> None:
        await self._vif.update_security_groups(vif, groups)

    async def release(self, vif: VIFBase, pod_uid: str) -> None:
        await self._vif.release(vif)

    async def release_unrecorded(self, pod_uid: str) -> int:
        return await self._vif.release_unrecorded(pod_uid)
