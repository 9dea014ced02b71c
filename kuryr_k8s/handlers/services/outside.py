"""What `type: LoadBalancer` means beyond the ClusterIP: an address outside, and how it is told.

By default the outside address is a floating IP on the VIP of the ClusterIP's load balancer, and
with `internal` the ClusterIP itself. Where that cannot be what is asked (a VIP elsewhere, source
ranges that are not to shut out Pods, something to be seen on the wire), the Service has a further
load balancer, whose owner is the Service's uid with `-external`. The floating IP's owner is the
uid: it stays the same, whichever of them it leads to. Where the user names the load balancer of
another, its address is this one's: see lb_sharing.py.

Order: load balancer ACTIVE → address → status; and back: address → load balancer.
"""

import contextlib
import dataclasses
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import (
    LBaaSDriver,
    NobodyConnects,
    PublicIPRequest,
    ServicePublicIPDriver,
    StillShared,
)
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.handlers.services.addresses import Places
from kuryr_k8s.handlers.services.desired import (
    Given,
    external_of,
    family_of,
    needs_external,
)
from kuryr_k8s.handlers.services.protocols import is_transparent
from kuryr_k8s.handlers.services.requests import Outcome, Requests, ServedPort
from kuryr_k8s.handlers.services.settings import check_container
from kuryr_k8s.handlers.services.sharing import Sharing
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.lbaas import LBaaSServiceSpec
from kuryr_k8s.model.owner import Owner, Role
from kuryr_k8s.model.service import Service
from kuryr_k8s.model.service_annotations import PREFIX, Settings

Json = dict[str, Any]
FORCED_INTERNAL = "KuryrLoadBalancerForcedInternal"
SHARED = StillShared.reason
LISTENER_REFUSED = "kuryr.openstack.org/ListenerRefused"  # error of a port in the status


# what users write for what Octavia refuses (errors.Unsupported.feature)
ASKED_BY = {
    "allowed_cidrs": "loadBalancerSourceRanges",
    "insert_headers": f"annotation {PREFIX}x-forwarded-for",
    "default_tls_container_ref": f"annotation {PREFIX}default-tls-container-ref",
    "protocol": f"annotation {PREFIX}x-forwarded-for, proxy-protocol or default-tls-container-ref",
    "flavor_id": f"annotation {PREFIX}flavor-id",
    "availability_zone": f"annotation {PREFIX}availability-zone",
    "vip_port_id": f"annotation {PREFIX}port-id",
    "vip_network_id": f"annotation {PREFIX}network-id",
    "lb_algorithm": f"annotation {PREFIX}lb-method",
    "health_monitor": f"annotation {PREFIX}enable-health-monitor",
}


class NotOffered(errors.Refused):
    """Octavia, or its provider, cannot do what is asked for outside."""

    reason = errors.Unsupported.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """How a Service is reached from outside.

    :param load_balancer_id: of the one that its first address leads to; empty: the user names it.
    :param refused: ports that are not reached, and why.
    :param notes: reason of an Event → note, as with :func:`lb_settings.unkept`.
    :param problem: why it is not reached at all.
    """

    load_balancer_id: str
    addresses: tuple[str, ...]
    ingress: tuple[Json, ...]
    refused: Mapping[ServedPort, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    problem: errors.KuryrError | None = None


class Outside:
    def __init__(self, context: HandlerContext, requests: Requests) -> None:
        self._context = context
        self._requests = requests
        self._public_ips = context.drivers[ServicePublicIPDriver]
        self._sharing = Sharing(context, requests)
        defaults = context.conf.neutron_defaults
        external = defaults.external_svc_net or None
        lbaas = context.drivers[LBaaSDriver]
        self._places = Places(context.neutron, lbaas, external, defaults.resource_tags)

    async def ensure(self, key: Key, given: Given, inner: Mapping[str, Outcome]) -> Exposure:
        """:param inner: what there is for the ClusterIPs, by them.
        :raises errors.Wait: a cloud is at work.
        :raises errors.Refused: it cannot be so; what there is stays, but nothing that is open to
            more than the source ranges.
        """
        try:
            return await self._ensure(key, given, inner)
        except (errors.Refused, errors.OverQuota) as error:
            if not given.settings.source_ranges or not await self._close(key, given, inner, error):
                raise
            return Exposure(load_balancer_id="", addresses=(), ingress=(), problem=error)

    async def _ensure(self, key: Key, given: Given, inner: Mapping[str, Outcome]) -> Exposure:
        service, settings, specs = given.service, given.settings, given.specs
        owner, front = Owner(service.uid, Role.EXTERNAL), None
        check_container(settings, specs[0].project_id or "", self._context.conf)
        if await self._sharing.names_another(given):
            shared = await self._sharing.ensure(given)
            address = await self._sharing.address_of(key, shared.found, settings)
            await self._release_address(key, service, keep=settings.keep_floating_ip)
            notes = await self._drop_unless_shared(key, owner)
            return Exposure(
                load_balancer_id="",
                addresses=(address,),
                ingress=_ingress(service, (address,), settings, shared.refused),
                refused=shared.refused,
                notes=notes,
            )
        subnets = [one.subnet_id or "" for one in specs]
        needed = needs_external(settings, service.cluster_ips, subnets)
        if needed or await self._requests.is_shared(key, owner):
            place = await self._places.of_vip(owner, settings, specs)
            try:
                front = await self._requests.ensure(service, owner, external_of(given, place))
            except errors.Unsupported as error:
                raise NotOffered(
                    f"{ASKED_BY.get(error.feature, 'load balancer')}: {error.brief}"
                ) from error
            reached = {front.found.vip_address: front}
        else:
            reached = dict(inner)
        exposure = await self._address(key, service, specs[0], reached, settings)
        if front is None:
            await self._drop(key, owner)
        elif not needed:
            note = f"load balancer {front.found.id} and its address stay until others have left it"
            exposure = dataclasses.replace(exposure, notes={**exposure.notes, SHARED: note})
        await self._sharing.withdraw(key, service)
        return exposure

    async def withdraw(self, key: Key, service: Service, *, keep: bool) -> None:
        """Nothing of it is asked for any more; what was never there costs nothing.

        :param keep: the floating IP, for the project.
        :raises errors.Wait: Octavia is at work.
        :raises errors.Refused: something has to stay; all that can go is gone.
        """
        stuck: errors.Refused | None = None
        try:
            await self._sharing.withdraw(key, service)
        except errors.Refused as error:  # another's load balancer may be in ERROR for long
            stuck = error
        await self._release_address(key, service, keep=keep)
        await self._drop(key, Owner(service.uid, Role.EXTERNAL))
        if stuck is not None:
            raise stuck

    async def _close(
        self, key: Key, given: Given, inner: Mapping[str, Outcome], error: errors.KuryrError
    ) -> bool:
        """Have the address lead to nothing without source ranges, as the ClusterIPs' VIPs are;
        whether it is reached no more. What passes leaves alone what has them."""
        driver, owner = self._public_ips, Owner(given.service.uid)
        if _are_ranges_refused(error):
            await driver.detach(owner)
            await self._sharing.withdraw(key, given.service, refused=True)
            with contextlib.suppress(errors.Refused):  # others are on it: what is ours in it goes
                await self._requests.release(
                    key, Owner(given.service.uid, Role.EXTERNAL), refused=True
                )
            return True
        ports = [one.found.vip_port_id for one in inner.values()]
        detached = await driver.detach(owner, ports)
        for one in ports if detached else ():
            self._sharing.leads(None, one)
        return detached

    def forget(self, key: Key) -> None:
        """There is no such Service any more."""
        self._sharing.forget(key)

    async def _release_address(self, key: Key, service: Service, *, keep: bool) -> bool:
        """Whether it is gone: others who have something in the load balancer are reached there
        as well."""
        driver = self._public_ips
        if not await driver.has(Owner(service.uid)):
            return True
        if await self._sharing.is_shared(key, service):
            return False
        await driver.release(Owner(service.uid), keep=keep)
        return True

    async def _drop_unless_shared(self, key: Key, owner: Owner) -> dict[str, str]:
        """Notes, where it has to stay."""
        try:
            await self._drop(key, owner)
        except StillShared as error:
            return {SHARED: str(error)}
        return {}

    async def _drop(self, key: Key, owner: Owner) -> None:
        await self._requests.release(key, owner)
        self._places.forget(owner)

    async def _address(
        self,
        key: Key,
        service: Service,
        spec: LBaaSServiceSpec,
        reached: Mapping[str, Outcome],
        settings: Settings,
    ) -> Exposure:
        """:param reached: load balancers by their VIPs."""
        driver = self._public_ips
        notes: dict[str, str] = {}
        first = next((one for one in reached if family_of(one) == "IPv4"), None)
        addresses: Sequence[str] = tuple(reached)
        if settings.internal:
            if not await self._release_address(key, service, keep=settings.keep_floating_ip):
                notes[SHARED] = (
                    "others are reached at the floating IP of its load balancer: until they have "
                    "left it, so is this Service"
                )
        elif first is None:
            notes[FORCED_INTERNAL] = "floating IPs are of IPv4: the address is the IPv6 VIP itself"
        else:
            found = reached[first].found
            public = await driver.ensure(
                PublicIPRequest(
                    owner=Owner(service.uid),
                    namespace=service.namespace,
                    name=service.name,
                    project_id=spec.project_id or "",
                    port_id=found.vip_port_id,
                    vip_address=found.vip_address,
                    address=settings.address,
                    network_id=settings.floating_network_id,
                    subnet_ids=await self._places.floating_subnets(settings),
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
                routed = [one for one in reached if ipaddress.ip_address(one).is_global]
                addresses = (public, *(one for one in routed if one != first))
        front = reached[first or next(iter(reached))]
        return Exposure(
            load_balancer_id=front.found.id,
            addresses=tuple(addresses),
            ingress=_ingress(service, addresses, settings, front.refused),
            refused=front.refused,
            notes=notes,
        )


def _are_ranges_refused(error: errors.KuryrError) -> bool:
    """Whether there is none that has them."""
    cause = error.__cause__ if isinstance(error, NotOffered) else error
    return isinstance(cause, NobodyConnects) or (
        isinstance(cause, errors.Unsupported) and cause.feature == "allowed_cidrs"
    )


def _ingress(
    service: Service,
    addresses: Sequence[str],
    settings: Settings,
    refused: Mapping[ServedPort, str],
) -> tuple[Json, ...]:
    """As in status.loadBalancer of a Service."""
    ports: list[Json] = [
        {"port": one.port, "protocol": one.protocol}
        | ({"error": LISTENER_REFUSED} if (one.protocol, one.port) in refused else {})
        for one in service.ports
    ]
    if settings.hostname:
        return ({"hostname": settings.hostname, "ports": ports},)
    mode = "VIP" if is_transparent(settings) else "Proxy"
    return tuple({"ip": one, "ipMode": mode, "ports": ports} for one in addresses)
