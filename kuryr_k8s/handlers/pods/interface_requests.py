"""The interfaces that a Pod asks for."""

import ipaddress
import itertools
from collections.abc import Sequence
from dataclasses import replace

from oslo_config import cfg

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import (
    DIRECT,
    DeviceRequest,
    Drivers,
    InterfaceRequest,
    OtherInterface,
    PodSubnetsDriver,
)
from kuryr_k8s.handlers.pods.selection import PodSelection
from kuryr_k8s.model.kuryrport import DEFAULT_IFNAME
from kuryr_k8s.model.pod import Pod


class InterfaceRequests:
    """Collects the requests of the Multi-VIF drivers, and names the interfaces."""

    def __init__(self, drivers: Drivers, conf: cfg.ConfigOpts, selection: PodSelection) -> None:
        self._prefix: str = conf.kubernetes.additional_ifname_prefix
        self._subnets = drivers[PodSubnetsDriver]
        self._selection = selection

    async def of(self, pod: Pod, project_id: str) -> dict[str, InterfaceRequest]:
        """Return the requests for all interfaces of the Pod by name, the default one first.

        A Pod whose default interface is another plugin's may have none.

        :raises errors.Refused: two interfaces have one name, an address or a gateway is in none of
            its interface's subnets, or a driver refuses.
        """
        asked: list[InterfaceRequest | DeviceRequest | OtherInterface] = []
        for driver in self._selection.drivers:
            asked += await driver.request_additional_vifs(pod, project_id)
        taken = [each.ifname for each in asked if isinstance(each, OtherInterface)]
        ours = [each for each in asked if not isinstance(each, OtherInterface)]
        has_default = any(_is_default(each) for each in ours)
        is_others = not has_default and (
            self._selection.default_is_others or DEFAULT_IFNAME in taken
        )
        requests = _with_devices(ours, spare=is_others)
        if is_others:
            if not all(request.delegated for request in requests):
                raise errors.Refused(
                    "the Pod's default interface is another plugin's: it can have no interfaces "
                    "but those of NetworkAttachmentDefinitions that delegate to kuryr-cni"
                )
        elif not has_default:
            pod_network = await self._subnets.pod_network(pod, project_id)
            requests.append(InterfaceRequest(ifname=DEFAULT_IFNAME, pod_network=pod_network))
        port_ids = [request.port_id for request in requests if request.port_id is not None]
        if len(set(port_ids)) < len(port_ids):
            raise errors.Refused(f"two interfaces ask for one port: {', '.join(port_ids)}")
        named = self._named(
            sorted(requests, key=lambda each: each.ifname != DEFAULT_IFNAME), taken
        )
        for ifname, request in named.items():
            _check_addresses(ifname, request)
        return named

    def _named(
        self, requests: Sequence[InterfaceRequest], taken: Sequence[str]
    ) -> dict[str, InterfaceRequest]:
        """Return the requests by name; those without one get the next that is free.

        :param taken: names that other plugins give.
        """
        asked = [*taken] + [request.ifname for request in requests if request.ifname is not None]
        if len(set(asked)) < len(asked):
            raise errors.Refused(f"two interfaces of the Pod have one name: {', '.join(asked)}")
        numbered = (f"{self._prefix}{number}" for number in itertools.count(1))
        free = (name for name in numbered if name not in asked)
        return {request.ifname or next(free): request for request in requests}


def _with_devices(
    requests: Sequence[InterfaceRequest | DeviceRequest], *, spare: bool
) -> list[InterfaceRequest]:
    """Give devices the networks and ports that other requests name.

    Each such request takes the place of the first device that is left on its physical network.
    Where Neutron does not show that network, it is the only one on which the Pod has devices.

    :param spare: whether devices may be left over, as they are other plugins'.

    :raises errors.Refused: there is no such device, or no network for one.
    """
    placed = [each for each in requests if isinstance(each, DeviceRequest) or each.physnet is None]
    physnets = {each.physnet for each in placed if isinstance(each, DeviceRequest)}
    for request in requests:
        if isinstance(request, DeviceRequest) or request.physnet is None:
            continue
        physnet = request.physnet or (min(physnets) if len(physnets) == 1 else "")
        device = next((each for each in placed if _is_device(each, physnet)), None)
        if not isinstance(device, DeviceRequest):
            what = f"port {request.port_id}" if request.port_id else request.network_name
            if not physnet:
                raise errors.Refused(
                    f"{what}: Neutron does not show its physical network, and the Pod requests no "
                    "VFs, or VFs of several"
                )
            raise errors.Refused(
                f"{what}: the Pod requests no further VF of physical network {physnet}"
            )
        at = placed.index(device)
        placed[at] = replace(request, physnet=physnet, vif_driver=device.vif_driver)
    return [
        _of_device(each) if isinstance(each, DeviceRequest) else each
        for each in placed
        if not (spare and isinstance(each, DeviceRequest))
    ]


def _is_default(request: InterfaceRequest | DeviceRequest) -> bool:
    return isinstance(request, InterfaceRequest) and request.ifname == DEFAULT_IFNAME


def _is_device(request: InterfaceRequest | DeviceRequest, physnet: str) -> bool:
    return isinstance(request, DeviceRequest) and request.physnet == physnet


def _of_device(device: DeviceRequest) -> InterfaceRequest:
    """Return the request for a device whose place no other request has taken."""
    if isinstance(device.pod_network, errors.Refused):
        raise device.pod_network
    return InterfaceRequest(
        pod_network=device.pod_network,
        vif_driver=device.vif_driver,
        vnic_type=DIRECT,
        physnet=device.physnet,
    )


def _check_addresses(ifname: str, request: InterfaceRequest) -> None:
    """Check the addresses and gateways that an interface is to have, before any port is made."""
    subnets = request.pod_network.subnets
    cidrs = [subnet.cidr for subnet in subnets]
    networks = [ipaddress.ip_network(cidr) for cidr in cidrs]
    choices = (request.addresses, *request.further_addresses)
    every = tuple(address for choice in choices for address in choice)
    asked = {"address": every, "default-route": request.gateways or ()}
    for what, addresses in asked.items():
        for address in addresses:
            if not any(ipaddress.ip_address(address) in network for network in networks):
                raise errors.Refused(
                    f"interface {ifname}: {what} {address} is in none of its subnets "
                    f"({', '.join(cidrs)})"
                )
    for subnet in subnets:
        if subnet.gateway_ip in every:
            raise errors.Refused(
                f"interface {ifname}: address {subnet.gateway_ip} is the gateway of its subnet"
            )
    if request.gateways == () and not any(subnet.gateway_ip for subnet in subnets):
        raise errors.Refused(
            f"interface {ifname}: default-route: none of its subnets has a gateway "
            f"({', '.join(cidrs)})"
        )
