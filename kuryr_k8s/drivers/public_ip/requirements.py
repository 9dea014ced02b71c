"""Requirements that a Service's floating IP has to meet: the Service's, and the operator's."""

import ipaddress
from dataclasses import dataclass

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.floating_ips import ExternalSubnet, FloatingIP, FloatingIPs
from kuryr_k8s.drivers.base import PublicIPRequest


class NoNetwork(errors.Refused):
    """The network or the subnet does not exist, is not external, or no router leads to it."""

    reason = "KuryrFloatingNetworkUnfit"


@dataclass(frozen=True, slots=True)
class Requirements:
    """Requirements of one floating IP.

    :param subnets: the address is in one of them; empty if any subnet will do.
    """

    project_id: str
    network_id: str
    address: str | None
    subnets: tuple[ExternalSubnet, ...]

    def are_met_by(self, found: FloatingIP) -> bool:
        """Return whether a floating IP meets them."""
        if (found.project_id, found.network_id) != (self.project_id, self.network_id):
            return False
        if self.address is not None:
            return found.address == self.address
        return not self.subnets or any(_is_in(found.address, subnet) for subnet in self.subnets)


class RequirementsReader:
    """Requirements from requests and options.

    :param network_id: ``external_svc_net``.
    :param subnet_ids: ``external_svc_subnet``.
    """

    def __init__(
        self, floating_ips: FloatingIPs, network_id: str | None, subnet_ids: tuple[str, ...]
    ) -> None:
        self._neutron = floating_ips
        self._network_id = network_id
        self._subnet_ids = subnet_ids
        self._subnets: dict[str, ExternalSubnet] = {}  # what is kept of them never changes

    async def check(self) -> None:
        """Check the options.

        :raises errors.ConfigError: they lack the network.
        :raises errors.Refused: they name what does not exist, or is not external.
        """
        if self._network_id is None:
            if self._subnet_ids:
                raise errors.ConfigError(
                    "[neutron_defaults] external_svc_subnet needs external_svc_net"
                )
            return
        try:
            await self.check_network(self._network_id)
            await self._read_subnets(self._network_id, self._subnet_ids)
        except NoNetwork as error:
            raise errors.Refused(f"[neutron_defaults] external_svc_net: {error}") from error

    async def read(self, request: PublicIPRequest) -> Requirements | None:
        """Return what the request requires.

        :returns: None if the Service is to have no floating IP.
        :raises errors.Refused: a subnet does not exist, or belongs to another network; or the
            address is not in it.
        """
        network_id = request.network_id or self._network_id
        if network_id is None:
            return None
        subnet_ids = request.subnet_ids
        if network_id == self._network_id and request.address is None:
            subnet_ids = subnet_ids or self._subnet_ids
        subnets = await self._read_subnets(network_id, subnet_ids)
        if request.address is None:
            return Requirements(request.project_id, network_id, None, subnets)
        try:
            address = str(ipaddress.IPv4Address(request.address))
        except ValueError:
            raise errors.Refused(
                f"{request.address!r} is no IPv4 address, as floating IPs are"
            ) from None
        if subnets and not any(_is_in(address, subnet) for subnet in subnets):
            raise errors.Refused(f"{address} is in none of the subnets {', '.join(subnet_ids)}")
        return Requirements(request.project_id, network_id, address, subnets)

    async def check_network(self, network_id: str) -> None:
        """Make sure that the network is external.

        :raises NoNetwork: it is not, or does not exist.
        """
        try:
            external = await self._neutron.is_external(network_id)
        except errors.NotFound as error:
            raise NoNetwork(f"no such network in Neutron: {network_id}") from error
        if not external:
            raise NoNetwork(f"network {network_id} is not external")

    async def _read_subnets(
        self, network_id: str, subnet_ids: tuple[str, ...]
    ) -> tuple[ExternalSubnet, ...]:
        for subnet_id in subnet_ids:
            if subnet_id not in self._subnets:
                try:
                    self._subnets[subnet_id] = await self._neutron.get_subnet(subnet_id)
                except errors.NotFound as error:
                    raise NoNetwork(f"no such subnet in Neutron: {subnet_id}") from error
            if self._subnets[subnet_id].network_id != network_id:
                raise NoNetwork(f"subnet {subnet_id} is not of network {network_id}")
        return tuple(self._subnets[subnet_id] for subnet_id in subnet_ids)


def _is_in(address: str, subnet: ExternalSubnet) -> bool:
    return ipaddress.ip_address(address) in ipaddress.ip_network(subnet.cidr)
