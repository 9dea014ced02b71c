"""Requirements that a Service's floating IP has to meet: the Service's, and the operator's."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.floating_ips import ExternalSubnet, FloatingIP, FloatingIPs
from kuryr_k8s.drivers.base import PublicIPRequest
from kuryr_k8s.drivers.public_ip.marks import is_by_default
from kuryr_k8s.model.owner import Role


class NoNetwork(errors.Refused):
    """The network or the subnet does not exist, is not external, or no router leads to it."""

    reason = "KuryrFloatingNetworkUnfit"


@dataclass(frozen=True, slots=True)
class Requirements:
    """Requirements of one floating IP.

    The operator's options count where one is made, and not against one that the Service has.

    :param network_id: the network of a new one.
    :param subnets: a new one is in one of them; empty if any subnet will do.
    :param named_network: the Service names the network.
    :param named_subnets: the Service names the subnets.
    """

    project_id: str
    network_id: str
    address: str | None
    subnets: tuple[ExternalSubnet, ...]
    named_network: bool
    named_subnets: bool

    def are_met_by(self, found: FloatingIP) -> bool:
        """Return whether a floating IP that the Service has meets them."""
        if found.project_id != self.project_id:
            return False
        if self.address is not None and found.address != self.address:
            return False
        if found.network_id != self.network_id:
            return is_by_default(found) and not (self.named_network or self.named_subnets)
        if self.address is not None or not self.named_subnets:
            return True
        return any(_is_in(found.address, subnet) for subnet in self.subnets)


class RequirementsReader:
    """Requirements from requests and options.

    ``network_id`` is the network that is the operator's choice, if there is one.

    :param network_id: ``external_svc_net``; None: that of the subnets, if there are any.
    :param subnet_ids: ``external_svc_subnet``.
    """

    def __init__(
        self, floating_ips: FloatingIPs, network_id: str | None, subnet_ids: tuple[str, ...]
    ) -> None:
        self._neutron = floating_ips
        self.network_id = network_id
        self._subnet_ids = subnet_ids
        self._subnets: dict[str, ExternalSubnet] = {}  # what is kept of them never changes

    async def check(self) -> None:
        """Check the options; without a network, it is that of the subnets.

        :raises errors.Refused: they name what does not exist, or is not external.
        """
        if self.network_id is None and not self._subnet_ids:
            return
        try:
            if self.network_id is None:
                self.network_id = (await self._subnet(self._subnet_ids[0])).network_id
            await self.check_network(self.network_id)
            await self._read_subnets(self.network_id, self._subnet_ids)
        except NoNetwork as error:
            raise errors.Refused(f"[neutron_defaults] external_svc_net: {error}") from error

    async def read(
        self, request: PublicIPRequest, own: Sequence[FloatingIP]
    ) -> Requirements | None:
        """Return what the request requires.

        The network of an address that the Service has by default, and that is in a subnet that it
        names, is required as the default network would be.

        :param own: what the Service has.
        :returns: None if the Service is to have no floating IP. An L7 router keeps the one that it
            has, though there is no default network any more.
        :raises errors.Refused: a subnet does not exist, or belongs to another network; or the
            address is not in it.
        """
        network_id = request.network_id or self.network_id
        if network_id is None and request.owner.role is Role.L7_ROUTER:
            network_id = _of_router(request, own)
        if network_id is None:
            return None
        subnet_ids = request.subnet_ids
        if subnet_ids and request.network_id is None:
            named = [await self._subnet(subnet_id) for subnet_id in subnet_ids]
            fitting = (each.network_id for each in own if _is_by_default_in(each, named))
            network_id = next(fitting, network_id)
            of_network = (subnet.id for subnet in named if subnet.network_id == network_id)
            subnet_ids = tuple(of_network) or subnet_ids
        if network_id == self.network_id and request.address is None:
            subnet_ids = subnet_ids or self._subnet_ids
        subnets = await self._read_subnets(network_id, subnet_ids)
        address = None if request.address is None else _read_address(request.address)
        if address and subnets and not any(_is_in(address, subnet) for subnet in subnets):
            raise errors.Refused(f"{address} is in none of the subnets {', '.join(subnet_ids)}")
        return Requirements(
            project_id=request.project_id,
            network_id=network_id,
            address=address,
            subnets=subnets,
            named_network=request.network_id is not None,
            named_subnets=bool(request.subnet_ids),
        )

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
        subnets = []
        for subnet_id in subnet_ids:
            subnets.append(await self._subnet(subnet_id))
            if subnets[-1].network_id != network_id:
                raise NoNetwork(f"subnet {subnet_id} is not of network {network_id}")
        return tuple(subnets)

    async def _subnet(self, subnet_id: str) -> ExternalSubnet:
        if subnet_id not in self._subnets:
            try:
                self._subnets[subnet_id] = await self._neutron.get_subnet(subnet_id)
            except errors.NotFound as error:
                raise NoNetwork(f"no such subnet in Neutron: {subnet_id}") from error
        return self._subnets[subnet_id]


def _of_router(request: PublicIPRequest, own: Sequence[FloatingIP]) -> str | None:
    """Return the network of the address that an L7 router has, as names in DNS point at it.

    :raises NoNetwork: an operator names one that it does not have yet.
    """
    if request.address is not None and not own:
        raise NoNetwork(
            f"floating IP {request.address}: [neutron_defaults] external_svc_net is not set"
        )
    return next((each.network_id for each in own), None)


def _read_address(text: str) -> str:
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        raise errors.Refused(f"{text!r} is no IPv4 address, as floating IPs are") from None


def _is_in(address: str, subnet: ExternalSubnet) -> bool:
    return ipaddress.ip_address(address) in ipaddress.ip_network(subnet.cidr)


def _is_by_default_in(found: FloatingIP, subnets: Sequence[ExternalSubnet]) -> bool:
    """Return whether a floating IP of the operator's choice is of one of the subnets."""
    return is_by_default(found) and any(
        found.network_id == subnet.network_id and _is_in(found.address, subnet)
        for subnet in subnets
    )
