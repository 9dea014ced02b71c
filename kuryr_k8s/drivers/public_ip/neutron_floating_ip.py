"""Public addresses of VIPs: floating IPs of Neutron.

The truth is Neutron, and is found again by what stands on each floating IP. It is remembered: what
is unchanged asks nothing. An owner has one; of several, as a lost answer or a change leaves them,
the oldest that fits stays. A new one is there before the old one goes; and of another network it
leads to the VIP before. That it does is also the proof that the network is the project's to use:
a router of the project leads there. (Our account may see more networks than the project does.)
"""

import asyncio
import dataclasses
import logging
from collections.abc import Collection
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron import floating_ips
from kuryr_k8s.cloud.neutron.floating_ips import FloatingIP
from kuryr_k8s.drivers.base import DriverContext, Owned, PublicIPRequest, ServicePublicIPDriver
from kuryr_k8s.drivers.policy import granted
from kuryr_k8s.drivers.public_ip import marks as fip_marks
from kuryr_k8s.drivers.public_ip.marks import FOUND_TAG, Marks
from kuryr_k8s.drivers.public_ip.memory import Memory
from kuryr_k8s.drivers.public_ip.wishes import NoNetwork, Wish, Wishes

LOG = logging.getLogger(__name__)
SOON = 0.1  # seconds until a look at what is other than was thought
FORBIDDEN = 403


class InUse(errors.Refused):
    """Others have the address, or the VIP has another one by hand."""

    reason = "KuryrFloatingIPInUse"


class NotPermitted(errors.Refused):
    """Neutron's policy does not let us choose an address."""

    reason = "KuryrFloatingIPNotPermitted"


class NeutronFloatingIP(ServicePublicIPDriver):
    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        defaults = context.conf.neutron_defaults
        if not defaults.resource_tags:
            raise errors.ConfigError("[neutron_defaults] resource_tags is not set")
        self._marks = Marks(tuple(defaults.resource_tags))
        self._neutron = context.neutron.floating_ips
        self._memory = Memory(self._neutron, self._marks, granted.projects(context.conf))
        self._wishes = Wishes(
            self._neutron, defaults.external_svc_net or None, tuple(defaults.external_svc_subnet)
        )
        self._taking = asyncio.Lock()

    async def start(self) -> None:
        if len(self._marks.cluster[0]) > fip_marks.CLUSTER_LIMIT:
            raise errors.ConfigError(
                "[neutron_defaults] resource_tags: the first one is longer than "
                f"{fip_marks.CLUSTER_LIMIT} characters"
            )
        await self._wishes.check()

    async def ensure(self, request: PublicIPRequest) -> str | None:
        wish = await self._wishes.read(request)
        mine = await self._memory.of(request.owner)
        if wish is None:
            for one in mine:
                await self._let_go(request.owner, one, keep=request.keep)
            return None
        chosen = next((one for one in mine if wish.is_met_by(one)), None)
        rivals = [one for one in mine if one.network_id == wish.network_id]
        if chosen is None:
            chosen = await self._obtain(request, wish, leads=not rivals)
        await self._replace(request, wish, rivals, chosen)
        address = (await self._bring_in_line(request, chosen)).address
        await self._replace(request, wish, await self._memory.of(request.owner), chosen)
        return address

    async def has(self, owner: str) -> bool:
        return bool(await self._memory.of(owner))

    async def detach(self, owner: str, ports: Collection[str] | None = None) -> bool:
        for one in await self._memory.of(owner):
            if one.port_id is not None and (ports is None or one.port_id in ports):
                with self._memory.changing(owner):
                    changed = await self._neutron.update(one.id, {"port_id": None})
                    self._memory.learn(owner, changed)
        mine = await self._memory.of(owner)
        return bool(mine) and all(one.port_id is None for one in mine)

    async def release(self, owner: str, *, keep: bool) -> None:
        for one in await self._memory.of(owner):
            await self._let_go(owner, one, keep=keep)

    async def list_owned(self) -> list[Owned]:
        return await self._memory.list_all()

    async def _replace(
        self, request: PublicIPRequest, wish: Wish, others: list[FloatingIP], stays: FloatingIP
    ) -> None:
        """One that would do as well is what a lost answer left: nobody was told of it."""
        owner = request.owner
        for one in others:
            if one.id != stays.id:
                LOG.info("floating IP %s of %s goes: %s stays", one.address, owner, stays.address)
                await self._let_go(owner, one, keep=request.keep and not wish.is_met_by(one))

    # -- getting one

    async def _obtain(self, request: PublicIPRequest, wish: Wish, *, leads: bool) -> FloatingIP:
        """:param leads: it leads to the VIP at once; the VIP has none yet."""
        await self._wishes.check_network(wish.network_id)
        if wish.address is not None:
            async with self._taking:
                found = await self._find(wish.network_id, wish.address)
                if found is not None:
                    return await self._take_over(request, found)
        body: dict[str, Any] = {
            "floating_network_id": wish.network_id,
            "project_id": request.project_id,
            "description": self._marks.description_of(request.owner),
        }
        if leads:
            body |= _association(request)
        if wish.address is not None:
            return await self._create(request, body | {"floating_ip_address": wish.address})
        for subnet in wish.subnets[:-1]:
            try:
                return await self._create(request, body | {"subnet_id": subnet.id})
            except errors.OverQuota as error:
                if error.kind == floating_ips.QUOTA:
                    raise
        last = {"subnet_id": wish.subnets[-1].id} if wish.subnets else {}
        return await self._create(request, body | last)

    async def _create(self, request: PublicIPRequest, body: dict[str, Any]) -> FloatingIP:
        try:
            with self._memory.changing(request.owner):
                made = await self._neutron.create(body)
                self._memory.learn(request.owner, made)
        except errors.NotFound as error:
            _check_reachable(error, body["floating_network_id"])
            raise
        except errors.Conflict as error:
            if error.kind == floating_ips.ADDRESS_TAKEN:
                raise InUse(
                    f"{body['floating_ip_address']} is another project's, or no floating IP"
                ) from error
            await self._check_single(request, error)
            raise
        except errors.BadRequest as error:
            if error.status == FORBIDDEN and "floating_ip_address" in body:
                raise NotPermitted(
                    "Neutron's policy does not let us choose the address "
                    f"{body['floating_ip_address']}: have an administrator make the floating IP "
                    f"in project {request.project_id}; it will be taken"
                ) from error
            raise
        return made

    async def _find(self, network_id: str, address: str) -> FloatingIP | None:
        query = {"floating_ip_address": address, "floating_network_id": network_id}
        return next(iter(await self._neutron.list_all(query)), None)

    async def _take_over(self, request: PublicIPRequest, found: FloatingIP) -> FloatingIP:
        """Mark it as the owner's, and as not of our making. It leads nowhere yet."""
        if found.project_id != request.project_id:
            raise InUse(f"floating IP {found.address} is of project {found.project_id}")
        if fip_marks.is_any_clusters(found):
            raise InUse(f"floating IP {found.address} is another Service's")
        if found.forwards or found.port_id not in (None, request.port_id):
            user = "port forwardings" if found.forwards else f"port {found.port_id}"
            raise InUse(f"floating IP {found.address} is in use by {user}")
        LOG.info("floating IP %s is there already; it becomes %s's", found.address, request.owner)
        return await self._mark(request, found, (FOUND_TAG,))

    # -- putting in line

    async def _bring_in_line(self, request: PublicIPRequest, one: FloatingIP) -> FloatingIP:
        """It leads to the VIP, and has its tags."""
        if (one.port_id, one.fixed_ip_address) != (request.port_id, request.vip_address):
            one = await self._update(request, one, _association(request))
        if not set(self._tags_of(request)) <= set(one.tags):
            one = await self._mark(request, one)
        return one

    async def _update(
        self, request: PublicIPRequest, one: FloatingIP, fields: dict[str, Any]
    ) -> FloatingIP:
        try:
            with self._memory.changing(request.owner):
                changed = await self._neutron.update(one.id, fields)
                self._memory.learn(request.owner, changed)
        except errors.NotFound as error:
            if error.kind == floating_ips.GONE:
                message = f"floating IP {one.address} is gone"
                raise errors.Wait(message, delay=SOON) from error
            _check_reachable(error, one.network_id)
            raise
        except errors.Conflict as error:
            await self._check_single(request, error)
            raise
        return changed

    async def _mark(
        self, request: PublicIPRequest, one: FloatingIP, more: tuple[str, ...] = ()
    ) -> FloatingIP:
        """Add the owner's tags; those of people stay."""
        tags = tuple(sorted({*one.tags, *self._tags_of(request), *more}))
        with self._memory.changing(request.owner):
            await self._neutron.set_tags(one.id, tags)
            marked = dataclasses.replace(one, tags=tags)
            self._memory.learn(request.owner, marked)
        return marked

    async def _let_go(self, owner: str, one: FloatingIP, *, keep: bool) -> None:
        """Delete it; or leave it to the project, leading nowhere and without a mark of ours."""
        with self._memory.changing(owner):
            if keep or FOUND_TAG in one.tags:
                await self._leave(one)
            else:
                await self._neutron.delete(one.id)
            self._memory.forget(owner, one)

    async def _leave(self, one: FloatingIP) -> None:
        """The tags go last: by them it is found as long as anything is left to do."""
        fields: dict[str, Any] = {"port_id": None}
        if self._marks.describes(one):
            fields["description"] = ""
        try:
            await self._neutron.update(one.id, fields)
            await self._neutron.set_tags(one.id, self._marks.others_of(one))
        except errors.NotFound:
            return

    async def _check_single(self, request: PublicIPRequest, error: errors.Conflict) -> None:
        """:raises errors.Wait: the VIP has a floating IP: a creation of ours came late.
        :raises InUse: it has one that is not of our making.
        """
        if error.kind != floating_ips.PORT_HAS_ONE:
            return
        mine = await self._memory.of(request.owner)
        if any(one.port_id == request.port_id for one in mine):
            raise errors.Wait("the VIP has a floating IP by now", delay=SOON) from error
        raise InUse(
            f"port {request.port_id} of the VIP has a floating IP that is not of our making: "
            "disassociate it"
        ) from error

    def _tags_of(self, request: PublicIPRequest) -> tuple[str, ...]:
        return self._marks.tags_of(request.namespace, request.owner)


def _association(request: PublicIPRequest) -> dict[str, Any]:
    return {"port_id": request.port_id, "fixed_ip_address": request.vip_address}


def _check_reachable(error: errors.NotFound, network_id: str) -> None:
    """:raises NoNetwork: it is the network that was not found, or a way to it."""
    if error.kind in (floating_ips.NO_ROUTER, floating_ips.NO_NETWORK):
        raise NoNetwork(f"network {network_id}: {error.brief}") from error
