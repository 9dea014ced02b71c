"""The interfaces of a Pod, each made and released by the driver whose kind it is."""

import asyncio
import ipaddress
import itertools
from collections.abc import Sequence

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

    :param prefix: of the names of interfaces whose requests name none.
    :param specific_ports: whether Pods may name ports also where no option lists that driver.
    """

    def __init__(self, drivers: Drivers, *, prefix: str, specific_ports: bool) -> None:
        self._prefix = prefix
        self._subnets = drivers[PodSubnetsDriver]
        self._multi_vif = list(drivers.several(MultiVIFDriver))
        if specific_ports:
            specific = drivers.named(MultiVIFDriver, "specific_ports")
            if specific not in self._multi_vif:
                self._multi_vif.append(specific)
        self._pool = drivers[VIFPoolDriver]
        self._drivers = drivers

    async def wanted(self, pod: Pod, project_id: str) -> dict[str, InterfaceRequest]:
        """Return the requests for all interfaces of the Pod by name, the default one first.

        :raises errors.Refused: two interfaces have one name, an address or a gateway is in none of
            its interface's subnets, or a driver refuses.
        """
        pod_network = await self._subnets.pod_network(pod, project_id)
        requests = [InterfaceRequest(ifname=DEFAULT_IFNAME, pod_network=pod_network)]
        for driver in self._multi_vif:
            requests += await driver.request_additional_vifs(pod, project_id)
        if any(request.ifname == DEFAULT_IFNAME for request in requests[1:]):
            del requests[0]
        named = self._named(sorted(requests, key=lambda each: each.ifname != DEFAULT_IFNAME))
        for ifname, request in named.items():
            _check_addresses(ifname, request)
        return named

    def _named(self, requests: Sequence[InterfaceRequest]) -> dict[str, InterfaceRequest]:
        """Return the requests by name; those without one get the next that is free."""
        asked = [request.ifname for request in requests if request.ifname is not None]
        if len(set(asked)) < len(asked):
            raise errors.Refused(f"two interfaces of the Pod have one name: {', '.join(asked)}")
        numbered = (f"{self._prefix}{number}" for number in itertools.count(1))
        free = (name for name in numbered if name not in asked)
        return {request.ifname or next(free): request for request in requests}

    async def ensure_all(
        self, requests: Sequence[tuple[PortRequest, str | None]]
    ) -> tuple[dict[str, VIFBase], list[Exception]]:
        """Make the interfaces of one Pod, those that do not exist.

        They are made at the same time, unless ports of an earlier try are looked for: before such
        a port has its tags, it does not show which interface it is for.

        :param requests: each with the entry point name of its pod_vif driver; None: that of the
            Pod's node.
        :returns: the interfaces by name; and what went wrong with the others.
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
        return made, failures

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


def _check_addresses(ifname: str, request: InterfaceRequest) -> None:
    """Check the addresses and gateways that an interface is to have, before any port is made."""
    subnets = request.pod_network.subnets
    cidrs = [subnet.cidr for subnet in subnets]
    networks = [ipaddress.ip_network(cidr) for cidr in cidrs]
    asked = {"address": request.addresses, "default-route": request.gateways or ()}
    for what, addresses in asked.items():
        for address in addresses:
            if not any(ipaddress.ip_address(address) in network for network in networks):
                raise errors.Refused(
                    f"interface {ifname}: {what} {address} is in none of its subnets "
                    f"({', '.join(cidrs)})"
                )
    if request.gateways == () and not any(subnet.gateway_ip for subnet in subnets):
        raise errors.Refused(
            f"interface {ifname}: default-route: none of its subnets has a gateway "
            f"({', '.join(cidrs)})"
        )
