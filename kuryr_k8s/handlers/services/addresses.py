"""Addresses at which a Service is reached from outside: floating IPs, or the VIPs themselves."""

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

from kuryr_k8s.drivers.base import PublicIPRequest, ServicePublicIPDriver, StillShared
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.handlers.services.desired import family_of
from kuryr_k8s.handlers.services.places import Places
from kuryr_k8s.handlers.services.protocols import is_transparent
from kuryr_k8s.handlers.services.reconcile import Exposure, Outcome, Reconcile, ServedPort
from kuryr_k8s.handlers.services.sharing import Sharing
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.owner import Owner
from kuryr_k8s.model.service import Service
from kuryr_k8s.model.service_annotations import Settings

Json = dict[str, Any]
FORCED_INTERNAL = "KuryrLoadBalancerForcedInternal"
SHARED = StillShared.reason
LISTENER_REFUSED = "kuryr.openstack.org/ListenerRefused"  # error of a port in the status


class OutsideAddresses:
    """The addresses of all Services outside."""

    def __init__(self, context: HandlerContext, places: Places, sharing: Sharing) -> None:
        self._public_ips = context.drivers[ServicePublicIPDriver]
        self._places = places
        self._sharing = sharing

    async def ensure(self, reconcile: Reconcile, reached: Mapping[str, Outcome]) -> Exposure:
        """Return the addresses that lead to the load balancers, and make them.

        :param reached: the load balancers by their VIPs.
        """
        key, service, settings = reconcile.key, reconcile.service, reconcile.settings
        notes: dict[str, str] = {}
        first = first_of(tuple(reached))
        addresses: Sequence[str] = tuple(reached)
        if settings.internal:
            if not await self.release(key, service, keep=settings.keep_floating_ip):
                notes[SHARED] = (
                    "others are reached at the floating IP of its load balancer: until they have "
                    "left it, so is this Service"
                )
        elif family_of(first) != "IPv4":
            notes[FORCED_INTERNAL] = "floating IPs are of IPv4: the address is the IPv6 VIP itself"
        else:
            found = reached[first].found
            present = await self._public_ips.networks_by_default(reconcile.owner())
            public = await self._public_ips.ensure(
                PublicIPRequest(
                    owner=reconcile.owner(),
                    namespace=service.namespace,
                    name=service.name,
                    project_id=reconcile.given.specs[0].project_id or "",
                    port_id=found.vip_port_id,
                    vip_address=found.vip_address,
                    address=settings.address,
                    network_id=settings.floating_network_id,
                    subnet_ids=await self._places.floating_subnets(
                        service.namespace, settings, present
                    ),
                    keep=settings.keep_floating_ip,
                )
            )
            self._sharing.leads(public, found.vip_port_id)
            if public is None:
                notes[FORCED_INTERNAL] = (
                    "there is no external network ([neutron_defaults] external_svc_net, or an "
                    "annotation): the address is the VIP itself"
                )
            else:
                routed = [vip for vip in reached if ipaddress.ip_address(vip).is_global]
                addresses = (public, *(vip for vip in routed if vip != first))
        front = reached[first]
        return Exposure(
            load_balancer_id=front.found.id,
            addresses=tuple(addresses),
            ingress=ingress_of(service, addresses, settings, front.refused),
            refused=front.refused,
            note=front.note,
            notes=notes,
        )

    async def release(self, key: Key, service: Service, *, keep: bool) -> bool:
        """Release the floating IP, unless others are reached there as well.

        They have parts in the load balancer that it leads to.

        :returns: whether it is gone.
        """
        owner = Owner(service.uid)
        if not await self._public_ips.has(owner):
            return True
        if await self._sharing.is_shared(key, service):
            return False
        await self._public_ips.release(owner, keep=keep)
        return True


def first_of(vips: Sequence[str]) -> str:
    """Return the VIP to which the first address leads: floating IPs are of IPv4."""
    return next((vip for vip in vips if family_of(vip) == "IPv4"), vips[0])


def ingress_of(
    service: Service,
    addresses: Sequence[str],
    settings: Settings,
    refused: Mapping[ServedPort, str],
) -> tuple[Json, ...]:
    """Return the ingress for status.loadBalancer of the Service."""
    ports: list[Json] = [
        {"port": port.port, "protocol": port.protocol}
        | ({"error": LISTENER_REFUSED} if (port.protocol, port.port) in refused else {})
        for port in service.ports
    ]
    if settings.hostname:
        return ({"hostname": settings.hostname, "ports": ports},)
    mode = "VIP" if is_transparent(settings) else "Proxy"
    return tuple({"ip": address, "ipMode": mode, "ports": ports} for address in addresses)
