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
from collections.abc import Iterable

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import (
    LBaaSDriver,
    ServicePublicIPDriver,
    StillShared,
    granted,
)
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.handlers.services.addresses import SHARED, OutsideAddresses, first_of, ingress_of
from kuryr_k8s.handlers.services.desired import (
    external_of,
    external_owners_of,
    family_of,
    needs_external,
    owners_of,
    shared_of,
)
from kuryr_k8s.handlers.services.external import ExternalLoadBalancers
from kuryr_k8s.handlers.services.limits import are_limits_refused, is_closed, is_limited
from kuryr_k8s.handlers.services.places import Places
from kuryr_k8s.handlers.services.reconcile import Exposure, Outcome, Place, Reconcile
from kuryr_k8s.handlers.services.refusals import ASKED_BY
from kuryr_k8s.handlers.services.requests import Requests
from kuryr_k8s.handlers.services.settings import check_containers
from kuryr_k8s.handlers.services.sharing import NotShared, Sharing
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.load_balancer import FoundLoadBalancer, LoadBalancer
from kuryr_k8s.model.owner import Owner, Role
from kuryr_k8s.model.service import Service


class Outside:
    """Addresses outside, and the load balancers that they need."""

    def __init__(self, context: HandlerContext, requests: Requests) -> None:
        self._context = context
        self._requests = requests
        self._lbaas = context.drivers[LBaaSDriver]
        self._public_ips = context.drivers[ServicePublicIPDriver]
        self._sharing = Sharing(context, requests)
        defaults = context.conf.neutron_defaults
        places = Places(context, self._lbaas, self._public_ips, defaults.resource_tags)
        self._external = ExternalLoadBalancers(context, requests, places)
        self._addresses = OutsideAddresses(context, places, self._sharing)

    async def ensure(self, reconcile: Reconcile) -> Exposure | None:
        """Return how the Service is reached.

        :returns: None if the load balancers of its ClusterIPs are not there yet.
        :raises errors.Wait: a cloud is at work.
        :raises errors.Refused: it cannot be so; what exists stays, but for what is open to more
            than the source ranges or the security groups let in.
        """
        closed = is_limited(reconcile.settings) and await self._close(reconcile)
        try:
            return await self._ensure(reconcile)
        except (errors.Refused, errors.OverQuota) as error:
            if is_limited(reconcile.settings) and are_limits_refused(error):
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
            outcomes = await self._external.ensure(reconcile, both=needed)
            front = outcomes[0]
            reached = {vip: outcome for outcome in outcomes for vip in outcome.found.vips()}
        else:
            reached = await self._inner(reconcile)
            reconcile.outside_settled = True
            if first_of(service.cluster_ips) not in reached:
                return None
        exposure = await self._addresses.ensure(reconcile, reached)
        if front is None:
            await self._external.release(key, service)
        elif not needed:
            note = f"load balancer {front.found.id} and its address stay until others have left it"
            exposure = dataclasses.replace(exposure, notes={**exposure.notes, SHARED: note})
        await self._sharing.release(key, service)
        return exposure

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
        await self._addresses.release(key, service, keep=settings.keep_floating_ip)
        notes = await self._drop_unless_shared(key, service)
        return Exposure(
            load_balancer_id="",
            addresses=(address,),
            ingress=ingress_of(service, (address,), settings, shared.refused),
            refused=shared.refused,
            notes=notes,
        )

    async def _has_own(self, service: Service) -> bool:
        """Return whether the Service has an address or a load balancer outside of its own."""
        if await self._public_ips.has(Owner(service.uid)):
            return True
        return await self._external.exist(service)

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
            return await self._external.with_members(reconcile, owner)
        if owner.role is Role.SHARED and self._sharing.is_leaving(reconcile.key):
            return []

        def wanted(found: FoundLoadBalancer) -> LoadBalancer:
            if owner.role is Role.SHARED:
                return shared_of(reconcile.given)
            place = Place(family=family_of(found.vip_address))
            return external_of(reconcile.given, place, owner.role)

        return list(map(Outcome, await self._requests.follow(reconcile.key, owner, wanted)))

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
        await self._addresses.release(key, service, keep=keep)
        await self._external.release(key, service)
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
        is_safe = found is not None and is_closed(found, reconcile.settings)
        closed = {found.vip_port_id} if found is not None and is_safe else set()
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

    async def _drop_unless_shared(self, key: Key, service: Service) -> dict[str, str]:
        """Release the load balancers outside; return a note if one has to stay."""
        try:
            await self._external.release(key, service)
        except StillShared as error:
            return {SHARED: str(error)}
        return {}
