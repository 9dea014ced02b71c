"""The interfaces of a Pod, each made and released by the driver whose kind it is."""

import asyncio
import logging
from collections.abc import Sequence

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import (
    Drivers,
    PodVIFDriver,
    PortRequest,
    VIFPoolDriver,
    releaser_of,
)
from kuryr_k8s.model.pod import Node
from kuryr_k8s.model.vif import VIFBase

LOG = logging.getLogger(__name__)


class Interfaces:
    """The pool driver, and the pod_vif drivers that Multi-VIF drivers name.

    Interfaces of the node's own kind are the pool's business; all others go straight to the
    pod_vif driver that their request names. What kind a recorded VIF is of tells who releases it.
    """

    def __init__(self, drivers: Drivers) -> None:
        self._pool = drivers[VIFPoolDriver]
        self._drivers = drivers

    async def ensure_all(
        self, requests: Sequence[tuple[PortRequest, str | None]]
    ) -> dict[str, VIFBase]:
        """Make the interfaces of one Pod, those that do not exist.

        They are made at the same time, unless ports of an earlier try are looked for: before such
        a port has its tags, it does not show which interface it is for.

        :param requests: each with the entry point name of its pod_vif driver; None: that of the
            Pod's node.
        :returns: the interfaces by name, in the order of the requests.
        :raises Exception: what went wrong; of several failures, the weightiest one.
        """
        made: dict[str, VIFBase] = {}
        failures: list[Exception] = []

        async def ensure(request: PortRequest, vif_driver: str | None) -> None:
            try:
                made[request.ifname] = await self._ensure(request, vif_driver)
            except Exception as error:  # that of the others has to end, too
                failures.append(error)

        if len(requests) == 1 or any(request.may_exist for request, _ in requests):
            for request, vif_driver in requests:
                await ensure(request, vif_driver)
        else:
            async with asyncio.TaskGroup() as group:
                for request, vif_driver in requests:
                    group.create_task(ensure(request, vif_driver))
        if failures:
            for failure in failures:
                LOG.debug("an interface is not made: %r", failure)
            raise min(failures, key=_weight)
        return {request.ifname: made[request.ifname] for request, _ in requests}

    async def _ensure(self, request: PortRequest, vif_driver: str | None) -> VIFBase:
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

    async def parent_port(self, node: Node) -> str:
        """Return the id of the port that carries those of the node's Pods; empty: none does."""
        (driver,) = self._pool.part_of(node).vif_drivers()
        return await driver.parent_port(node)

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


def _weight(failure: Exception) -> int:
    """Return the place of a failure among those of one Pod's interfaces, the weightiest first.

    A defect of ours comes before all; of the others, a refusal tells most, and what only has to
    wait tells least.
    """
    if not isinstance(failure, errors.KuryrError):
        return 0
    if isinstance(failure, errors.Refused | errors.OverQuota):
        return 1
    return 3 if isinstance(failure, errors.Wait) else 2
