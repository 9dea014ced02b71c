"""Access from outside, as `type: LoadBalancer` asks for it: an address beyond the ClusterIP.

By default the outside address is a floating IP on the VIP of the ClusterIP's load balancer, and
with `internal` the ClusterIP itself. Where that cannot be what is asked for (a VIP elsewhere,
source ranges that must not shut out Pods, something that shows on the wire), the Service has a
further load balancer, with the role EXTERNAL. The floating IP stays the same, whichever of them it
leads to. Where the user names the load balancer of another owner, its address is the Service's:
see sharing.py.

Order: load balancer ACTIVE → address → status; and back: address → load balancer. Source ranges
and security groups of the VIP come before the address: until the load balancer has them, the
address leads nowhere, whatever Octavia answers. Where a load balancer has been ACTIVE once, the
address does not wait for what is being changed in it.
"""

import contextlib
import dataclasses
import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import (
    LBaaSDriver,
    NobodyConnects,
    PublicIPRequest,
    ServicePublicIPDriver,
    StillShared,
    granted,
)
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.handlers.services.addresses import Places
from kuryr_k8s.handlers.services.desired import (
    external_of,
    external_owners_of,
    family_of,
    needs_external,
    owners_of,
    shared_of,
)
from kuryr_k8s.handlers.services.protocols import is_transparent
from kuryr_k8s.handlers.services.reconcile import Exposure, Outcome, Place, Reconcile, ServedPort
from kuryr_k8s.handlers.services.refusals import LIMITS
from kuryr_k8s.handlers.services.requests import Requests
from kuryr_k8s.handlers.services.settings import check_containers
from kuryr_k8s.handlers.services.sharing import NotShared, Sharing
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.load_balancer import ACTIVE, Address, FoundLoadBalancer, LoadBalancer
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
    "default_tls_container_ref": f"annotation {PREFIX}default-tls-container-ref, or of another "
    "container of certificates",
    "tls_versions": f"annotation {PREFIX}tls-versions",
    "tls_ciphers": f"annotation {PREFIX}tls-ciphers",
    "client_authentication": f"annotation {PREFIX}client-ca-tls-container-ref, "
    "client-authentication or client-crl-container-ref",
    "protocol": f"annotation {PREFIX}x-forwarded-for, proxy-protocol or default-tls-container-ref",
    "flavor_id": f"annotation {PREFIX}flavor-id",
    "availability_zone": f"annotation {PREFIX}availability-zone",
    "vip_sg_ids": f"annotation {PREFIX}vip-sg-ids",
    "additional_vips": f"annotation {PREFIX}additional-vip-subnet-ids",
    "vip_port_id": f"annotation {PREFIX}port-id",
    "vip_network_id": f"annotation {PREFIX}network-id",
    "lb_algorithm": f"annotation {PREFIX}lb-method",
    "health_monitor": f"annotation {PREFIX}enable-health-monitor or health-monitor-type",
}


class NotOffered(errors.Refused):
    """Octavia, or its provider, cannot do what is asked for outside."""

    reason = errors.Unsupported.reason


class Outside:
    """Addresses outside, and the load balancers that they need."""

    def __init__(self, context: HandlerContext, requests: Requests) -> None:
        self._context = context
        self._requests = requests
        self._lbaas = context.drivers[LBaaSDriver]
        self._public_ips = context.drivers[ServicePublicIPDriver]
        self._sharing = Sharing(context, requests)
        defaults = context.conf.neutron_defaults
        external = defaults.external_svc_net or None
        self._places = Places(context, self._lbaas, external, defaults.resource_tags)

    async def ensure(self, reconcile: Reconcile) -> Exposure | None:
        """Return how the Service is reached.

        :returns: None if the load balancers of its ClusterIPs are not there yet.
        :raises errors.Wait: a cloud is at work.
        :raises errors.Refused: it cannot be so; what exists stays, but for what is open to more
            than the source ranges or the security groups let in.
        """
        closed = _is_limited(reconcile.settings) and await self._close(reconcile)
        try:
            return await self._ensure(reconcile)
        except (errors.Refused, errors.OverQuota) as error:
            if _is_limited(reconcile.settings) and _are_limits_refused(error):
                await self._release_refused(reconcile)
                reconcile.further, reconcile.outside_settled = [], True
            elif not closed:
                raise
            return Exposure(load_balancer_id="", addresses=(), ingress=(), problem=error)

    async def _ensure(self, reconcile: Reconcile) -> Exposure | None:
        key, service, settings = reconcile.key, reconcile.service, reconcile.settings
        specs, owner = reconcile.given.specs, reconcile.owner(Role.EXTERNAL)
        project_id = specs[0].project_id or ""
        check_containers(settings, service.namespace, project_id, self._context.conf)
        if await self._sharing.names_another(reconcile):
            return await self._share(reconcile)
        subnets = [spec.subnet_id or "" for spec in specs]
        needed = needs_external(settings, service.cluster_ips, subnets)
        front: Outcome | None = None
        if needed or await self._requests.is_shared(key, owner):
            outcomes = await self._ensure_external(reconcile, both=needed)
            front = outcomes[0]
            reached = {vip: outcome for outcome in outcomes for vip in outcome.found.vips()}
        else:
            reached = await self._inner(reconcile)
            reconcile.outside_settled = True
            if _first_of(service.cluster_ips) not in reached:
                return None
        exposure = await self._address(reconcile, reached)
        if front is None:
            await self._drop_external(key, service)
        elif not needed:
            note = f"load balancer {front.found.id} and its address stay until others have left it"
            exposure = dataclasses.replace(exposure, notes={**exposure.notes, SHARED: note})
        await self._sharing.release(key, service)
        return exposure

    async def _ensure_external(self, reconcile: Reconcile, *, both: bool) -> list[Outcome]:
        """Return the load balancers with VIPs of their own: the first, and perhaps a second one.

        :param both: a second one is wanted, if there is a place for it.
        """
        owner = reconcile.owner(Role.EXTERNAL)
        namespace, specs = reconcile.service.namespace, reconcile.given.specs
        place, *others = await self._places.of_vips(owner, namespace, reconcile.settings, specs)
        outcomes: list[Outcome] = []
        problem: errors.KuryrError | None = None
        try:
            outcomes.append(await self._ensure_at(reconcile, owner, place))
        except errors.KuryrError as error:
            problem = error  # Octavia can make both at a time
        second = others[0] if both and others else None
        outcomes += await self._ensure_second(reconcile, second)
        reconcile.outside_settled = len(reconcile.further) == (1 if second is None else 2)
        if problem is not None:
            raise problem
        return outcomes

    async def _ensure_second(self, reconcile: Reconcile, place: Place | None) -> list[Outcome]:
        """Return the load balancer of a dual-stack Service's other family, if there is one.

        What is wrong with it holds up nothing else.
        """
        owner = reconcile.owner(Role.EXTERNAL_SECOND)
        try:
            if place is not None:
                return [await self._ensure_at(reconcile, owner, place)]
            await self._requests.release(reconcile.key, owner)
        except errors.KuryrError as error:
            reconcile.problems.append(error)
        found = await self._lbaas.last_seen(owner) if place is not None else None
        return [] if found is None else [Outcome(found)]

    async def _ensure_at(self, reconcile: Reconcile, owner: Owner, place: Place) -> Outcome:
        """Return a load balancer outside; if it was ACTIVE once, also while it is being changed.

        :raises NotOffered: Octavia, or its provider, cannot do what is asked for.
        """
        given, settings = reconcile.given, reconcile.settings
        reconcile.asked.add(owner)
        try:
            outcome = await self._requests.ensure(
                reconcile.service, owner, external_of(given, place, owner.role)
            )
        except errors.Unsupported as error:
            raise NotOffered(
                f"{ASKED_BY.get(error.feature, 'load balancer')}: {error.brief}"
            ) from error
        except errors.Wait as error:
            found = await self._lbaas.last_seen(owner)
            if found is None or (_is_limited(settings) and not _is_closed(found, settings)):
                raise
            reconcile.problems.append(error)
            return Outcome(found)
        reconcile.further.append(outcome)
        return outcome

    async def _inner(self, reconcile: Reconcile) -> dict[str, Outcome]:
        """Return the load balancers of the ClusterIPs, those too that are being changed."""
        inner = {}
        for owner, vip in zip(
            owners_of(reconcile.service), reconcile.service.cluster_ips, strict=False
        ):
            if vip in reconcile.inner:
                inner[vip] = reconcile.inner[vip]
            elif (found := await self._lbaas.last_seen(owner)) is not None:
                inner[vip] = Outcome(found)
        return inner

    async def _share(self, reconcile: Reconcile) -> Exposure:
        """Have the Service reached at the load balancer of another owner."""
        key, service, settings = reconcile.key, reconcile.service, reconcile.settings
        if settings.vip_sg_ids:
            raise errors.Refused(
                f"{ASKED_BY['vip_sg_ids']}: the load balancer that load-balancer-id names is "
                "another owner's, who decides on its VIP"
            )
        try:
            shared = await self._sharing.ensure(reconcile)
        except (NotShared, granted.NotGranted) as error:
            if await self._has_own(service):
                raise  # what the Service has of its own stays
            return Exposure(load_balancer_id="", addresses=(), ingress=(), problem=error)
        reconcile.further, reconcile.outside_settled = [shared], True
        address = await self._sharing.address_of(key, shared.found, settings)
        await self._release_address(key, service, keep=settings.keep_floating_ip)
        notes = await self._drop_unless_shared(key, service)
        return Exposure(
            load_balancer_id="",
            addresses=(address,),
            ingress=_ingress(service, (address,), settings, shared.refused),
            refused=shared.refused,
            notes=notes,
        )

    async def _has_own(self, service: Service) -> bool:
        """Return whether the Service has an address or a load balancer outside of its own."""
        if await self._public_ips.has(Owner(service.uid)):
            return True
        return any([await self._lbaas.ids_of(owner) for owner in external_owners_of(service)])

    async def settle_refused(
        self, reconcile: Reconcile, problem: errors.KuryrError | None
    ) -> None:
        """Have what is outside follow the Pods after a refusal; note whether all of it does.

        What Octavia was asked for is as desired as far as that can be had. Of the rest only the
        members change: nothing that is refused may leave connections to addresses that others
        have by now. Members are not waited for in load balancers that there are not. Whatever is
        refused, no address stays published of a load balancer that the Service had to leave.

        :param problem: what is wrong outside; None if something else is.
        """
        there: list[Outcome] = []
        settled = True
        for owner in (*external_owners_of(reconcile.service), reconcile.owner(Role.SHARED)):
            try:
                followed = await self._following(reconcile, owner)
            except errors.KuryrError as error:
                reconcile.problems.append(error)
                followed = None
            settled = settled and followed is not None
            there += followed or ()
        if settled and not reconcile.outside_settled:
            reconcile.further, reconcile.outside_settled = there, True
        unserved = problem is not None and reconcile.exposure is None
        if unserved and await self._sharing.had_to_leave(reconcile):
            reconcile.exposure = Exposure(
                load_balancer_id="", addresses=(), ingress=(), problem=problem
            )

    async def _following(self, reconcile: Reconcile, owner: Owner) -> list[Outcome] | None:
        """Return the load balancers in which the owner has what follows the Pods.

        :returns: None if something that Octavia was asked for lacks members.
        :raises errors.Wait: Octavia is at work on members.
        """
        if owner in reconcile.asked:
            return await self._with_members(reconcile, owner)
        if owner.role is Role.SHARED and self._sharing.is_leaving(reconcile.key):
            return []

        def wanted(found: FoundLoadBalancer) -> LoadBalancer:
            if owner.role is Role.SHARED:
                return shared_of(reconcile.given)
            place = Place(family=family_of(found.vip_address))
            return external_of(reconcile.given, place, owner.role)

        return list(map(Outcome, await self._requests.follow(reconcile.key, owner, wanted)))

    async def _with_members(self, reconcile: Reconcile, owner: Owner) -> list[Outcome] | None:
        """Return what the owner has that Octavia was asked for; None if it lacks members."""
        if await self._lbaas.places_of(owner):
            return None
        if not await self._lbaas.ids_of(owner):
            return []
        found = await self._lbaas.last_seen(owner)
        if found is None or not _has_members(found, reconcile.inner):
            return None
        return [Outcome(found)]

    async def release(self, key: Key, service: Service, *, keep: bool) -> None:
        """Remove everything; what never existed costs nothing.

        :param keep: leave the floating IP to the project.
        :raises errors.Wait: Octavia is at work.
        :raises errors.Refused: something has to stay; all that can go is gone.
        """
        stuck: errors.Refused | None = None
        try:
            await self._sharing.release(key, service)
        except errors.Refused as error:  # another's load balancer may be in ERROR for long
            stuck = error
        await self._release_address(key, service, keep=keep)
        await self._drop_external(key, service)
        if stuck is not None:
            raise stuck

    async def withdraw(self, key: Key, service: Service) -> None:
        """Remove what the Service has where it may have nothing any more.

        :raises errors.Wait: Octavia is at work.
        """
        await self._sharing.withdraw(key, service)

    def concerned(self, old: Service | None, new: Service | None) -> Iterable[Key]:
        """Return the Services that are to be looked at again when another one has changed."""
        return self._sharing.concerned(old, new)

    def forget(self, key: Key) -> None:
        """Note that there is no such Service any more."""
        self._sharing.forget(key)

    async def _close(self, reconcile: Reconcile) -> bool:
        """Let the address lead to nothing that is open to more than ranges or groups let in.

        The VIPs of ClusterIPs are. A load balancer that exists and has not been read since the
        start got its address when it had them.

        :returns: whether there is an address, and it leads nowhere.
        """
        owner, external = reconcile.owner(), reconcile.owner(Role.EXTERNAL)
        found = await self._lbaas.last_seen(external)
        unread = found is None and bool(await self._lbaas.ids_of(external))
        is_closed = found is not None and _is_closed(found, reconcile.settings)
        closed = {found.vip_port_id} if found is not None and is_closed else set()
        led = await self._public_ips.leads_to(owner)
        if led - closed and not unread:
            await self._public_ips.detach(owner)
            for port_id in led:
                self._sharing.leads(None, port_id)
            led = frozenset()
        return not led and await self._public_ips.has(owner)

    async def _release_refused(self, reconcile: Reconcile) -> None:
        """Release what cannot be limited as it should be, however it is asked for."""
        key, service = reconcile.key, reconcile.service
        await self._public_ips.detach(reconcile.owner())
        await self._sharing.release(key, service, refused=True)
        for owner in reversed(external_owners_of(service)):
            with contextlib.suppress(errors.Refused):  # others use it: our parts of it go
                await self._requests.release(key, owner, refused=True)

    async def _release_address(self, key: Key, service: Service, *, keep: bool) -> bool:
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

    async def _drop_unless_shared(self, key: Key, service: Service) -> dict[str, str]:
        """Release the load balancers outside; return a note if one has to stay."""
        try:
            await self._drop_external(key, service)
        except StillShared as error:
            return {SHARED: str(error)}
        return {}

    async def _drop_external(self, key: Key, service: Service) -> None:
        for owner in reversed(external_owners_of(service)):
            await self._requests.release(key, owner)
            self._places.forget(owner)

    async def _address(self, reconcile: Reconcile, reached: Mapping[str, Outcome]) -> Exposure:
        """Return the addresses that lead to the load balancers, and make them.

        :param reached: the load balancers by their VIPs.
        """
        key, service, settings = reconcile.key, reconcile.service, reconcile.settings
        notes: dict[str, str] = {}
        first = _first_of(tuple(reached))
        addresses: Sequence[str] = tuple(reached)
        if settings.internal:
            if not await self._release_address(key, service, keep=settings.keep_floating_ip):
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
            ingress=_ingress(service, addresses, settings, front.refused),
            refused=front.refused,
            note=front.note,
            notes=notes,
        )


def _first_of(vips: Sequence[str]) -> str:
    """Return the VIP to which the first address leads: floating IPs are of IPv4."""
    return next((vip for vip in vips if family_of(vip) == "IPv4"), vips[0])


def _has_members(found: FoundLoadBalancer, inner: Mapping[str, Outcome]) -> bool:
    """Return whether a load balancer has the members of that of a ClusterIP of its family."""
    family = family_of(found.vip_address)
    alike = [outcome.found for vip, outcome in inner.items() if family_of(vip) == family]
    if not alike or found.statuses() != {ACTIVE}:
        return False
    return all(_members_of(each) <= _members_of(found) for each in alike)


def _members_of(found: FoundLoadBalancer) -> set[Address]:
    return {member.key for pool in found.pools for member in pool.pool.members}


def _is_limited(settings: Settings) -> bool:
    """Return whether not everybody may connect."""
    return bool(settings.source_ranges or settings.vip_sg_ids)


def _is_closed(found: FoundLoadBalancer, settings: Settings) -> bool:
    """Return whether the VIP has security groups, or all listeners have source ranges."""
    if settings.vip_sg_ids:
        return bool(found.vip_sg_ids)
    return all(each.listener.allowed_cidrs for each in found.listeners)


def _are_limits_refused(error: errors.KuryrError) -> bool:
    """Return whether no load balancer can have the source ranges or the security groups."""
    cause = error.__cause__ if isinstance(error, NotOffered) else error
    return isinstance(cause, NobodyConnects) or (
        isinstance(cause, errors.Unsupported) and cause.feature in LIMITS
    )


def _ingress(
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
