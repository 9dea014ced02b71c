"""Places of a Service's VIP and floating IP: subnets, networks and ports that users name.

Users can write ids of other projects, and our account may see those. So what is named must be the
project's own, or shared with it, as Neutron says, and ``[policy]`` must grant it to the namespace;
or it must be granted by its id. A network of floating IPs may be any that is granted: a router of
the project must lead there. What a class names is the operator's word. A port must be nobody's:
Octavia checks only its device_id.
"""

import ipaddress
from collections.abc import Collection, Sequence
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.api import Subnet
from kuryr_k8s.drivers.base import (
    LBaaSDriver,
    NobodyConnects,
    ServicePublicIPDriver,
    granted,
)
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.handlers.services.desired import family_of, ranges_of
from kuryr_k8s.handlers.services.reconcile import Place
from kuryr_k8s.model import subnet_patterns
from kuryr_k8s.model.lbaas import LBaaSServiceSpec
from kuryr_k8s.model.owner import Owner
from kuryr_k8s.model.service_annotations import PREFIX, Settings

Json = dict[str, Any]
REFRESH = 600.0  # seconds after which Neutron is asked again


class Places:
    """Checks of places, remembered for a while.

    :param public_ips: its network is that of floating IPs, if the user names none.
    :param tags: the tags of everything in this cluster, such as ports of Pods that have no device.
    """

    def __init__(
        self,
        context: HandlerContext,
        lbaas: LBaaSDriver,
        public_ips: ServicePublicIPDriver,
        tags: Sequence[str],
    ) -> None:
        self._conf = context.conf
        self._neutron = context.neutron
        self._clock = context.clock
        self._lbaas = lbaas
        self._tags = frozenset(tags)
        self._public_ips = public_ips
        self._known: dict[Owner, tuple[float, object, tuple[Place, ...]]] = {}  # of each owner

    async def of_vips(
        self,
        owner: Owner,
        namespace: str,
        settings: Settings,
        specs: Sequence[LBaaSServiceSpec],
    ) -> tuple[Place, ...]:
        """Return the place of the owner's VIP; check what its security groups are to be.

        For a dual-stack Service, the place of a VIP of its other address family follows, if there
        is a subnet for it, and somebody would reach it there.

        :param namespace: of the Service.
        :param specs: specs of the ClusterIPs: where nothing is named, the VIP is beside them.
        :raises errors.Refused: the project has no such subnet, network, port, address or security
            group, or it is not granted.
        :raises NobodyConnects: none of the source ranges is of the first VIP's family.
        """
        now, wanted = self._clock.now(), (settings, tuple(specs))
        known = self._known.get(owner)
        if known is not None and known[1] == wanted and now - known[0] < REFRESH:
            return known[2]
        try:
            place = await self._place(namespace, settings, specs)
            if settings.source_ranges and not ranges_of(settings, place.family):
                raise NobodyConnects(settings.source_ranges, place.family)
            second = await self._second_place(settings, specs, place.family)
        except errors.NotFound as error:
            raise errors.Refused(f"what an annotation names does not exist: {error}") from error
        places = (place,) if second is None else (place, second)
        self._known[owner] = (now, wanted, places)
        return places

    async def _second_place(
        self, settings: Settings, specs: Sequence[LBaaSServiceSpec], family: str
    ) -> Place | None:
        """Return the place of a VIP of the other address family, at any address of a subnet."""
        spec = next((spec for spec in specs if family_of(spec.ip or "") != family), None)
        # a port and a subnet that are named are of one family
        if spec is None or settings.port_id or settings.subnet_id:
            return None
        other = family_of(spec.ip or "")
        if settings.source_ranges and not ranges_of(settings, other):
            return None
        if settings.network_id:
            subnets = await self._neutron.list_subnets(settings.network_id)
        else:
            subnets = [await self._neutron.get_subnet(spec.subnet_id or "")]
        fitting = sorted(each.id for each in subnets if self._fits(settings, each, other))
        return Place(family=other, subnet_id=fitting[0]) if fitting else None

    def _fits(self, settings: Settings, subnet: Subnet, family: str) -> bool:
        """Return whether a second VIP in the subnet is an address of that family outside.

        A Service that is not internal is reached by a floating IP, and there are none of IPv6.
        """
        public = settings.floating_network_id or self._public_ips.default_network
        routed = ipaddress.ip_network(subnet.cidr).is_global
        within = settings.internal or public is None
        return f"IPv{subnet.ip_version}" == family and (within or routed)

    def forget(self, owner: Owner) -> None:
        """Forget the place of the owner's VIP."""
        self._known.pop(owner, None)

    async def floating_subnets(
        self, namespace: str, settings: Settings, present: Collection[str] = ()
    ) -> tuple[str, ...]:
        """Return the ids of the subnets that the floating IP may be of; empty if any will do.

        :param namespace: of the Service.
        :param present: networks in which the Service has a floating IP by default.
        :raises errors.Refused: a pattern is wrong, or no subnet matches it; or the network is not
            granted.
        """
        named = settings.floating_network_id
        if named and "floating_network_id" not in settings.of_class:
            granted.check_named(self._conf, "networks", namespace, named)
        if settings.floating_subnet_id:
            return (settings.floating_subnet_id,)
        name, tags = settings.floating_subnet, settings.floating_subnet_tags
        network_id = settings.floating_network_id or self._public_ips.default_network
        if network_id is None or not (name or tags):
            return ()
        try:
            of_name = subnet_patterns.by_name(name) if name else None
            of_tags = subnet_patterns.by_tags(tags) if tags else None
        except ValueError as error:
            raise errors.Refused(f"annotation {PREFIX}floating-subnet: {error}") from error
        networks = sorted({network_id, *(present if named is None else ())})
        found = [
            subnet.id
            for each in networks
            for subnet in await self._neutron.floating_ips.subnets_of(each)
            if (of_name is None or of_name(subnet.name))
            and (of_tags is None or of_tags(subnet.tags))
        ]
        if not found:
            raise errors.Refused(
                f"network {network_id} has no subnet of name {name or '*'} and tags {tags or '*'} "
                f"(annotations {PREFIX}floating-subnet, floating-subnet-tags)"
            )
        return tuple(found)

    async def _place(
        self, namespace: str, settings: Settings, specs: Sequence[LBaaSServiceSpec]
    ) -> Place:
        address = settings.address if settings.internal else None
        family = family_of(address) if address else "IPv4"
        first = next((spec for spec in specs if family_of(spec.ip or "") == family), specs[0])
        project_id = first.project_id or ""
        elsewhere = settings.port_id or (settings.network_id and not settings.subnet_id)
        if settings.additional_vip_subnet_ids and elsewhere:
            raise errors.Refused(
                f"annotation {PREFIX}additional-vip-subnet-ids: the place of the first VIP is to "
                "be named by subnet-id, or not at all"
            )
        for group_id in settings.vip_sg_ids:
            granted.check_named(self._conf, "security_groups", namespace, group_id)
            await granted.check_security_group(self._neutron, group_id, project_id)
        if settings.port_id:
            by_id = granted.check_named(self._conf, "ports", namespace, settings.port_id)
            address = await self._of_port(settings.port_id, address, None if by_id else project_id)
            return Place(family=family_of(address), port_id=settings.port_id, address=address)
        if settings.subnet_id or not settings.network_id:
            subnet_id = settings.subnet_id or first.subnet_id or ""
            subnet = await self._neutron.get_subnet(subnet_id)
            named = bool(settings.subnet_id) and "subnet_id" not in settings.of_class
            # additional VIPs are in the same network, and no class names them
            asking = namespace if named or settings.additional_vip_subnet_ids else None
            await self._check_network(subnet.network_id, project_id, asking)
            family = await self._of_subnet(subnet, address, specs)
            further = await self._additional_vips(settings, subnet)
            return Place(
                family=family, subnet_id=subnet_id, address=address, additional_vips=further
            )
        asking = namespace if "network_id" not in settings.of_class else None
        await self._check_network(settings.network_id, project_id, asking)
        family = "IPv4"  # Octavia chooses a subnet of it where there is one
        if address is not None:
            subnet = await self._with(address, settings.network_id)
            family = await self._of_subnet(subnet, address, specs)
        return Place(family=family, network_id=settings.network_id, address=address)

    async def _additional_vips(self, settings: Settings, subnet: Subnet) -> tuple[str, ...]:
        """Return the subnets of further VIPs.

        :param subnet: the VIP's.
        :raises errors.Refused: one of them is of another network or address family.
        """
        for subnet_id in settings.additional_vip_subnet_ids:
            other = await self._neutron.get_subnet(subnet_id)
            alike = (other.network_id, other.ip_version) == (subnet.network_id, subnet.ip_version)
            if other.id == subnet.id or not alike:
                raise errors.Refused(
                    f"annotation {PREFIX}additional-vip-subnet-ids: {subnet_id} is not another "
                    f"IPv{subnet.ip_version} subnet of the VIP's network {subnet.network_id}"
                )
        return settings.additional_vip_subnet_ids

    async def _of_port(self, port_id: str, address: str | None, project_id: str | None) -> str:
        """Return the address of a port.

        :param project_id: None if the port may be any project's.
        :raises errors.Refused: the port is not for the Service.
        """
        port = await self._neutron.get_port(port_id)
        if project_id not in (None, port["project_id"]):
            raise errors.Refused(f"port {port_id} is not of project {project_id}")
        if self._tags <= set(port["tags"]) or not self._is_free(port):
            user = port["device_id"] or port["device_owner"] or "a Pod"
            raise errors.Refused(f"port {port_id} is in use by {user}")
        addresses = sorted((ip["ip_address"] for ip in port["fixed_ips"]), key=family_of)
        if not addresses or address not in (None, *addresses):
            raise errors.Refused(f"port {port_id} has the addresses {addresses}, not {address}")
        return address or str(addresses[0])

    async def _with(self, address: str, network_id: str) -> Subnet:
        """Return the network's subnet that contains the address.

        :raises errors.Refused: there is none.
        """
        for subnet in await self._neutron.list_subnets(network_id):
            if _is_in(address, subnet):
                return subnet
        raise errors.Refused(f"{address} is in no subnet of network {network_id}")

    async def _of_subnet(
        self,
        subnet: Subnet,
        address: str | None,
        specs: Sequence[LBaaSServiceSpec],
    ) -> str:
        """Return the address family of a subnet.

        :raises errors.Refused: the address is not for the Service.
        """
        if address is not None and not _is_in(address, subnet):
            raise errors.Refused(
                f"{address} is not in subnet {subnet.id} ({subnet.cidr}): name another one by "
                f"the annotation {PREFIX}subnet-id"
            )
        if address is not None and not _is_in_pools(address, subnet):
            services = [await self._neutron.get_subnet(spec.subnet_id or "") for spec in specs]
            if subnet.network_id in {service.network_id for service in services}:
                raise errors.Refused(
                    f"{address} may become another Service's ClusterIP: of subnet {subnet.id} "
                    "addresses in its allocation pools can be had"
                )
        return f"IPv{subnet.ip_version}"

    async def _check_network(self, network_id: str, project_id: str, asking: str | None) -> None:
        """Check that a VIP may be in the network.

        :param asking: the namespace whose users name it; None if the operator does.
        """
        if asking and granted.check_named(self._conf, "networks", asking, network_id):
            return
        network = await self._neutron.get_network(network_id)
        await granted.check_network(self._neutron, network, project_id)

    def _is_free(self, port: Json) -> bool:
        """Return whether nobody but a load balancer has the port.

        If that is not ours, Octavia refuses the port.
        """
        return self._lbaas.made(port) or not (port["device_owner"] or port["device_id"])


def _is_in(address: str, subnet: Subnet) -> bool:
    return ipaddress.ip_address(address) in ipaddress.ip_network(subnet.cidr)


def _is_in_pools(address: str, subnet: Subnet) -> bool:
    """Return whether the address is in an allocation pool; ClusterIPs never are (ranges.py)."""
    where = ipaddress.ip_address(address)
    return any(
        ipaddress.ip_address(first) <= where <= ipaddress.ip_address(last)  # type: ignore[operator]
        for first, last in subnet.allocation_pools
    )
