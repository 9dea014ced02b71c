"""What a Service's floating IP has to be like: what the Service asks for, and the operator's word
where it says nothing."""

import ipaddress
from dataclasses import dataclass

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.floating_ips import ExternalSubnet, FloatingIP, FloatingIPs
from kuryr_k8s.drivers.base import PublicIPRequest


class NoNetwork(errors.Refused):
    """The network or the subnet is not there, is not external, or no router leads to it."""

    reason = "KuryrFloatingNetworkUnfit"


@dataclass(frozen=True, slots=True)
class Wish:
    """What a floating IP has to be like. ``subnets``: in one of them; empty: anywhere."""

    project_id: str
    network_id: str
    address: str | None
    subnets: tuple[ExternalSubnet, ...]

    def is_met_by(self, one: FloatingIP) -> bool:
        if (one.project_id, one.network_id) != (self.project_id, self.network_id):
            return False
        if self.address is not None:
            return one.address == self.address
        return not self.subnets or any(_is_in(one.address, subnet) for subnet in self.subnets)


class Wishes:
    """:param network_id: ``external_svc_net``.
    :param subnet_ids: ``external_svc_subnet``.
    """

    def __init__(
        self, floating_ips: FloatingIPs, network_id: str | None, subnet_ids: tuple[str, ...]
    ) -> None:
        self._neutron = floating_ips
        self._network_id = network_id
        self._subnet_ids = subnet_ids
        self._subnets: dict[str, ExternalSubnet] = {}  # what we keep of them never changes

    async def check(self) -> None:
        """:raises errors.ConfigError: the options name what is not there, or not external."""
        if self._network_id is None:
            if self._subnet_ids:
                raise errors.ConfigError(
                    "[neutron_defaults] external_svc_subnet needs external_svc_net"
                )
            return
        try:
            await self.check_network(self._network_id)
            await self._subnets_of(self._network_id, self._subnet_ids)
        except NoNetwork as error:
            raise errors.ConfigError(f"[neutron_defaults] external_svc_net: {error}") from error

    async def read(self, request: PublicIPRequest) -> Wish | None:
        """None: the Service is to have none.

        :raises errors.Refused: a subnet is not there, or is of another network; or the address is
            not in it.
        """
        network_id = request.network_id or self._network_id
        if network_id is None:
            return None
        subnet_ids = request.subnet_ids
        if network_id == self._network_id and request.address is None:
            subnet_ids = subnet_ids or self._subnet_ids
        subnets = await self._subnets_of(network_id, subnet_ids)
        if request.address is None:
            return Wish(request.project_id, network_id, None, subnets)
        try:
            address = str(ipaddress.IPv4Address(request.address))
        except ValueError:
            raise errors.Refused(
                f"{request.address!r} is no IPv4 address, as floating IPs are"
            ) from None
        if subnets and not any(_is_in(address, subnet) for subnet in subnets):
            raise errors.Refused(f"{address} is in none of the subnets {', '.join(subnet_ids)}")
        return Wish(request.project_id, network_id, address, subnets)

    async def check_network(self, network_id: str) -> None:
        """:raises NoNetwork: there is none, or it is not external."""
        try:
            external = await self._neutron.is_external(network_id)
        except errors.NotFound as error:
            raise NoNetwork(f"no such network in Neutron: {network_id}") from error
        if not external:
            raise NoNetwork(f"network {network_id} is not external")

    async def _subnets_of(
        self, network_id: str, subnet_ids: tuple[str, ...]
    ) -> tuple[ExternalSubnet, ...]:
        for one in subnet_ids:
            if one not in self._subnets:
                try:
                    self._subnets[one] = await self._neutron.get_subnet(one)
                except errors.NotFound as error:
                    raise NoNetwork(f"no such subnet in Neutron: {one}") from error
            if self._subnets[one].network_id != network_id:
                raise NoNetwork(f"subnet {one} is not of network {network_id}")
        return tuple(self._subnets[one] for one in subnet_ids)


def _is_in(address: str, subnet: ExternalSubnet) -> bool:
    return ipaddress.ip_address(address) in ipaddress.ip_network(subnet.cidr)
