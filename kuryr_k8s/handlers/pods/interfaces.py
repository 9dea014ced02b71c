"""The interfaces of a Pod, each made and released by the driver whose kind it is."""

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import (
    Drivers,
    InterfaceRequest,
    MultiVIFDriver,
    PodSubnetsDriver,
    PodVIFDriver,
    PortRequest,
    VIFPoolDriver,
    releaser_of,
)
from kuryr_k8s.model.kuryrport import DEFAULT_IFNAME
from kuryr_k8s.model.pod import Pod
from kuryr_k8s.model.vif import VIFBase


class Interfaces:
    """The pool driver, and the pod_vif drivers that Multi-VIF drivers name.

    Interfaces of the node's own kind are the pool's business; all others go straight to the
    pod_vif driver that their request names. What kind a recorded VIF is of tells who releases it.
    """

    def __init__(self, drivers: Drivers) -> None:
        self._subnets = drivers[PodSubnetsDriver]
        self._multi_vif = drivers.several(MultiVIFDriver)
        self._pool = drivers[VIFPoolDriver]
        self._drivers = drivers

    async def wanted(self, pod: Pod, project_id: str) -> list[InterfaceRequest]:
        """Return the requests for all interfaces of the Pod, the default one first.

        :raises errors.Refused: two interfaces have one name, or a driver refuses.
        """
        pod_network = await self._subnets.pod_network(pod, project_id)
        requests = [InterfaceRequest(ifname=DEFAULT_IFNAME, pod_network=pod_network)]
        for driver in self._multi_vif:
            requests += await driver.request_additional_vifs(pod, project_id)
        names = [request.ifname for request in requests]
        if len(set(names)) < len(names):
            raise errors.Refused(f"two interfaces of the Pod have one name: {', '.join(names)}")
        return requests

    async def ensure(self, request: PortRequest, vif_driver: str | None) -> VIFBase:
        """Return the interface, made if need be.

        :param vif_driver: entry point name of its pod_vif driver; None: that of the Pod's node.
        """
        if vif_driver is None:
            return await self._pool.request(request)
        try:
            driver = self._drivers.named(PodVIFDriver, vif_driver)
        except LookupError as error:
            raise errors.Refused(
                f"no Multi-VIF driver in use has asked for the pod_vif driver {vif_driver!r}"
            ) from error
        return await driver.ensure(request)

    async def holds(self, vif: VIFBase, pod_uid: str) -> bool | None:
        """Return whether the port is the Pod's, by what no node can write.

        :returns: None: that cannot be told yet.
        """
        driver = self._releaser_of(vif)
        if driver in self._pool.vif_drivers():
            return await self._pool.holds(vif, pod_uid)
        return await driver.holds(vif, pod_uid)

    async def update_security_groups(self, vif: VIFBase, groups: tuple[str, ...]) -> None:
        """Give the interface's port these security groups, and no others."""
        driver = self._releaser_of(vif)
        if driver in self._pool.vif_drivers():
            await self._pool.update_security_groups(vif, groups)
        else:
            await driver.update_security_groups(vif, groups)

    async def release(self, vif: VIFBase, pod_uid: str) -> None:
        """Release the interface, once the node has unplugged it."""
        driver = self._releaser_of(vif)
        if driver in self._pool.vif_drivers():
            await self._pool.release(vif, pod_uid)
        else:
            await driver.release(vif)

    async def release_unrecorded(self, pod_uid: str) -> None:
        """Remove every port made for the Pod that no KuryrPort came to name.

        A driver that claims unmarked ports comes after others: by then, theirs are gone.
        """
        for driver in sorted(self._others(), key=lambda driver: driver.claims_unmarked):
            await driver.release_unrecorded(pod_uid)
        await self._pool.release_unrecorded(pod_uid)

    def _others(self) -> list[PodVIFDriver]:
        """Return the pod_vif drivers that the pool does not stand before."""
        pools = self._pool.vif_drivers()
        return [driver for driver in self._drivers.of_slot(PodVIFDriver) if driver not in pools]

    def _releaser_of(self, vif: VIFBase) -> PodVIFDriver:
        drivers = [*self._pool.vif_drivers(), *self._others()]
        if (driver := releaser_of(vif, drivers)) is not None:
            return driver
        raise errors.Refused(
            f"no pod_vif driver in use knows a {type(vif).__name__} (port {vif.id}): enable the "
            "Multi-VIF driver that asked for it"
        )
