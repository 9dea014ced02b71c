"""Public addresses of VIPs and Pods: floating IPs of Neutron.

The truth is Neutron; floating IPs are found again by their marks. Records remember it, so that
what is unchanged costs no call. An owner has one floating IP; of several, as a lost answer or a
change leaves them, the oldest that fits stays. A new one exists before the old one goes, and if it
is of another network, it leads to the VIP before. That is also the proof that the project may use
the network: a router of the project leads there. (Our account may see more networks than the
project does.)
"""

import asyncio
import dataclasses
import logging
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron import floating_ips
from kuryr_k8s.cloud.neutron.floating_ips import FloatingIP
from kuryr_k8s.drivers.base import (
    DriverContext,
    Owned,
    PublicIPInUse,
    PublicIPRequest,
    ServicePublicIPDriver,
    granted,
)
from kuryr_k8s.drivers.public_ip import marks as fip_marks
from kuryr_k8s.drivers.public_ip.marks import FOUND_TAG, KEEP_TAG, NAMED_TAG, WISH_TAGS, Marks
from kuryr_k8s.drivers.public_ip.records import Records
from kuryr_k8s.drivers.public_ip.requirements import (
    NoNetwork,
    Requirements,
    RequirementsReader,
)
from kuryr_k8s.model.owner import Owner

LOG = logging.getLogger(__name__)
SOON = 0.1  # seconds until a look at what is not as it was thought to be
FORBIDDEN = 403


class NotPermitted(errors.Refused):
    """Neutron's policy does not let us choose an address."""

    reason = "KuryrFloatingIPNotPermitted"


class NeutronFloatingIP(ServicePublicIPDriver):
    """Driver ``neutron_floating_ip``."""

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        defaults = context.conf.neutron_defaults
        if not defaults.resource_tags:
            raise errors.ConfigError("[neutron_defaults] resource_tags is not set")
        self._marks = Marks(tuple(defaults.resource_tags), context.neutron.mark)
        self._neutron = context.neutron.floating_ips
        self._records = Records(self._neutron, self._marks, granted.projects(context.conf))
        self._requirements = RequirementsReader(
            self._neutron, defaults.external_svc_net or None, tuple(defaults.external_svc_subnet)
        )
        self._taking = asyncio.Lock()

    @property
    def default_network(self) -> str | None:
        return self._requirements.network_id

    async def start(self) -> None:
        await self._requirements.check()

    async def ensure(self, request: PublicIPRequest) -> str | None:
        own = await self._records.of(request.owner)
        if request.existing:
            request = await self._located(request, own)
        required = await self._requirements.read(request, own)
        if required is None:
            for floating_ip in own:
                await self._let_go(request.owner, floating_ip, keep=request.keep)
            return None
        chosen = next((each for each in own if required.are_met_by(each)), None)
        network_id = required.network_id if chosen is None else chosen.network_id
        rivals = [each for each in own if each.network_id == network_id]
        if chosen is None:
            chosen = await self._obtain(request, required, leads=not rivals)
        await self._replace(request, required, rivals, chosen)
        address = (await self._bring_in_line(request, chosen)).address
        await self._replace(request, required, await self._records.of(request.owner), chosen)
        return address

    async def _located(self, request: PublicIPRequest, own: list[FloatingIP]) -> PublicIPRequest:
        """Return the request with the address and the network of the floating IP that it names.

        :raises errors.Refused: the project has no such floating IP.
        """
        named = request.existing
        found = next((each for each in own if named in (each.id, each.address)), None)
        if found is None:
            field = "floating_ip_address" if "." in named else "id"
            query = {field: named, "project_id": request.project_id}
            rows = await self._neutron.list_all(query)
            if len(rows) != 1:
                raise errors.Refused(f"project {request.project_id} has no floating IP {named}")
            (found,) = rows
        return dataclasses.replace(request, address=found.address, network_id=found.network_id)

    async def has(self, owner: Owner) -> bool:
        return bool(await self._records.of(owner))

    async def networks_by_default(self, owner: Owner) -> frozenset[str]:
        own = await self._records.of(owner)
        return frozenset(each.network_id for each in own if fip_marks.is_by_default(each))

    async def leads_to(self, owner: Owner) -> frozenset[str]:
        own = await self._records.of(owner)
        return frozenset(each.port_id for each in own if each.port_id is not None)

    async def detach(self, owner: Owner) -> None:
        for each in await self._records.of(owner):
            if each.port_id is not None:
                with self._records.changing(owner):
                    changed = await self._neutron.update(each.id, {"port_id": None})
                    self._records.learn(owner, changed)

    async def release(self, owner: Owner, *, keep: bool | None) -> None:
        for floating_ip in await self._records.of(owner):
            marked = KEEP_TAG in floating_ip.tags
            await self._let_go(owner, floating_ip, keep=marked if keep is None else keep)

    async def list_owned(self) -> list[Owned]:
        return await self._records.list_all()

    async def _replace(
        self,
        request: PublicIPRequest,
        required: Requirements,
        others: list[FloatingIP],
        stays: FloatingIP,
    ) -> None:
        """Let the owner's other floating IPs go.

        One that meets the requirements too was left by a lost answer: nobody was told of it, so
        it need not be kept.
        """
        owner = request.owner
        for other in others:
            if other.id != stays.id:
                LOG.info(
                    "floating IP %s of %s goes: %s stays", other.address, owner, stays.address
                )
                keep = request.keep and not required.are_met_by(other)
                await self._let_go(owner, other, keep=keep)

    # -- creating

    async def _obtain(
        self, request: PublicIPRequest, required: Requirements, *, leads: bool
    ) -> FloatingIP:
        """Take over or create a floating IP.

        :param leads: it leads to the VIP at once, as no other one does.
        """
        await self._requirements.check_network(required.network_id)
        if required.address is not None:
            if request.namespace:  # else operators name it, who need no grant
                conf = self._context.conf
                granted.check_named(conf, "floating_ips", request.namespace, required.address)
            async with self._taking:
                found = await self._find(required.network_id, required.address)
                if found is not None:
                    return await self._take_over(request, found)
        body: dict[str, Any] = {
            "floating_network_id": required.network_id,
            "project_id": request.project_id,
            "description": self._marks.description_of(request.owner),
        }
        if leads:
            body |= _association(request)
        if required.address is not None:
            return await self._create(request, body | {"floating_ip_address": required.address})
        for subnet in required.subnets[:-1]:
            try:
                return await self._create(request, body | {"subnet_id": subnet.id})
            except errors.OverQuota as error:
                if error.kind == floating_ips.QUOTA:
                    raise
        last = {"subnet_id": required.subnets[-1].id} if required.subnets else {}
        return await self._create(request, body | last)

    async def _create(self, request: PublicIPRequest, body: dict[str, Any]) -> FloatingIP:
        try:
            with self._records.changing(request.owner):
                made = await self._neutron.create(body)
                self._records.learn(request.owner, made)
        except errors.NotFound as error:
            _check_reachable(error, body["floating_network_id"])
            raise
        except errors.Conflict as error:
            if error.kind == floating_ips.ADDRESS_TAKEN:
                raise PublicIPInUse(
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
        """Mark a floating IP as the owner's, and as not created by us. It leads nowhere yet."""
        if found.project_id != request.project_id:
            raise PublicIPInUse(f"floating IP {found.address} is of project {found.project_id}")
        if fip_marks.is_marked(found):
            raise PublicIPInUse(
                f"floating IP {found.address} is another Service's, Pod's, NeutronPort's or L7 "
                "router's"
            )
        if found.forwards or found.port_id not in (None, request.port_id):
            user = "port forwardings" if found.forwards else f"port {found.port_id}"
            raise PublicIPInUse(f"floating IP {found.address} is in use by {user}")
        LOG.info("floating IP %s exists already; it becomes %s's", found.address, request.owner)
        return await self._mark(request, found, (FOUND_TAG,))

    # -- putting in line

    async def _bring_in_line(
        self, request: PublicIPRequest, floating_ip: FloatingIP
    ) -> FloatingIP:
        """Let the floating IP lead to the VIP, and give it its marks."""
        destination = (floating_ip.port_id, floating_ip.fixed_ip_address)
        if destination != (request.port_id, request.vip_address):
            floating_ip = await self._update(request, floating_ip, _association(request))
        tags = set(floating_ip.tags)
        if not set(self._tags_of(request)) <= tags or tags & WISH_TAGS != _wishes_of(request):
            floating_ip = await self._mark(request, floating_ip)
        return floating_ip

    async def _update(
        self, request: PublicIPRequest, floating_ip: FloatingIP, fields: dict[str, Any]
    ) -> FloatingIP:
        try:
            with self._records.changing(request.owner):
                changed = await self._neutron.update(floating_ip.id, fields)
                self._records.learn(request.owner, changed)
        except errors.NotFound as error:
            if error.kind == floating_ips.GONE:
                message = f"floating IP {floating_ip.address} is gone"
                raise errors.Wait(message, delay=SOON) from error
            _check_reachable(error, floating_ip.network_id)
            raise
        except errors.Conflict as error:
            await self._check_single(request, error)
            raise
        return changed

    async def _mark(
        self, request: PublicIPRequest, floating_ip: FloatingIP, more: tuple[str, ...] = ()
    ) -> FloatingIP:
        """Add the owner's tags, and say what the Service asks for; tags of people stay."""
        before = set(floating_ip.tags) - WISH_TAGS
        wishes = _wishes_of(request)
        tags = tuple(sorted({*before, *self._tags_of(request), *more, *wishes}))
        with self._records.changing(request.owner):
            await self._neutron.set_tags(floating_ip.id, tags)
            marked = dataclasses.replace(floating_ip, tags=tags)
            self._records.learn(request.owner, marked)
        return marked

    async def _let_go(self, owner: Owner, floating_ip: FloatingIP, *, keep: bool) -> None:
        """Delete a floating IP, or leave it to the project without a mark of ours."""
        with self._records.changing(owner):
            if keep or FOUND_TAG in floating_ip.tags:
                await self._leave(floating_ip)
            else:
                await self._neutron.delete(floating_ip.id)
            self._records.forget(owner, floating_ip)

    async def _leave(self, floating_ip: FloatingIP) -> None:
        """Let a floating IP lead nowhere, and take our marks off.

        The tags go last: by them it is found as long as anything is left to do.
        """
        fields: dict[str, Any] = {}
        if floating_ip.port_id is not None:
            fields["port_id"] = None
        if self._marks.describes(floating_ip):
            fields["description"] = ""
        try:
            if fields:  # else an earlier attempt has done it
                await self._neutron.update(floating_ip.id, fields)
            await self._neutron.set_tags(floating_ip.id, self._marks.others_tags(floating_ip))
        except errors.NotFound:
            return

    async def _check_single(self, request: PublicIPRequest, error: errors.Conflict) -> None:
        """Raise if the VIP's port can have no further floating IP.

        :raises errors.Wait: it has one: a creation of ours came late.
        :raises PublicIPInUse: it has one that we did not create.
        """
        if error.kind != floating_ips.PORT_HAS_ONE:
            return
        own = await self._records.of(request.owner)
        if any(each.port_id == request.port_id for each in own):
            raise errors.Wait("the port has a floating IP by now", delay=SOON) from error
        raise PublicIPInUse(
            f"port {request.port_id} has a floating IP that we did not create: disassociate it"
        ) from error

    def _tags_of(self, request: PublicIPRequest) -> tuple[str, ...]:
        return self._marks.tags_of(request.namespace, request.owner)


def _wishes_of(request: PublicIPRequest) -> frozenset[str]:
    wishes = {KEEP_TAG: request.keep, NAMED_TAG: request.network_id is not None}
    return frozenset(tag for tag, asked in wishes.items() if asked)


def _association(request: PublicIPRequest) -> dict[str, Any]:
    return {"port_id": request.port_id, "fixed_ip_address": request.vip_address}


def _check_reachable(error: errors.NotFound, network_id: str) -> None:
    """Raise if the missing object is the network, or a router to it.

    :raises NoNetwork: Neutron did not find one of them.
    """
    if error.kind in (floating_ips.NO_ROUTER, floating_ips.NO_NETWORK):
        raise NoNetwork(f"network {network_id}: {error.brief}") from error
