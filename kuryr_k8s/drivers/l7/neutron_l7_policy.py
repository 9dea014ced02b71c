"""L7 router of Octavia: a load balancer whose L7 policies lead each request to its pool.

Its load balancer is one among those of the LBaaS driver, which finds it by its owner, and changes
it step by step; its floating IP is one of the driver of public addresses. Certificates are stored
in Barbican before a listener or a pool names them, and go after it has left them.
"""

import dataclasses
import functools
import ipaddress
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.api import Subnet
from kuryr_k8s.drivers.base import (
    DriverContext,
    FoundL7Router,
    L7Router,
    L7RouterDriver,
    LBaaSDriver,
    PublicIPRequest,
    ServicePublicIPDriver,
    ServiceSubnetsDriver,
)
from kuryr_k8s.drivers.l7.certificates import Stored, StoredCertificates
from kuryr_k8s.drivers.l7.plan import Plan, plan
from kuryr_k8s.drivers.l7.wanted import Wanted, refs_of, served, wanted_of
from kuryr_k8s.drivers.named.names import Names
from kuryr_k8s.model.load_balancer import (
    ACTIVE,
    HASHING,
    FoundLoadBalancer,
    LoadBalancer,
)
from kuryr_k8s.model.owner import Owner, Role
from kuryr_k8s.model.routes import Route

CONFLICTS = 3  # after so many, an address is left to those who have it
SOON = 0.1  # seconds
PLANS = 32  # of the listeners of all routers


@dataclass(slots=True)
class _Record:
    """Hold what is known of one router.

    :param wanted: what the last call of ``ensure`` asked for.
    :param vip_address: the VIP's when the router was last ACTIVE.
    :param has_asked_for_floating_ip: whether it has one is known.
    :param conflicts: creations in a row that were refused for the address.
    :param refused_address: the address that it was to have instead, and that others have.
    """

    wanted: Wanted | None = None
    vip_address: str | None = None
    floating_ip: str | None = None
    has_asked_for_floating_ip: bool = False
    conflicts: int = 0
    refused_address: str | None = None
    certificates: StoredCertificates | None = None


class NeutronL7Policy(L7RouterDriver):
    """Driver ``neutron_l7_policy``."""

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        self._lbaas = context.drivers[LBaaSDriver]
        self._public_ips = context.drivers[ServicePublicIPDriver]
        self._subnets = context.drivers[ServiceSubnetsDriver]
        self._names = Names(context)
        self._records: defaultdict[Owner, _Record] = defaultdict(_Record)
        # of the same routes the plan is the same, however often a router is looked at
        self._plan: Callable[[tuple[Route, ...]], Plan] = functools.lru_cache(PLANS)(plan)

    async def start(self) -> None:
        provider = self._context.conf.octavia_defaults.l7_provider
        if provider in HASHING:
            raise errors.ConfigError(
                f"[octavia_defaults] l7_provider: {provider} cannot look into requests"
            )
        subnet, address = await self._default_subnet(), self._context.conf.l7_router.vip_address
        if address and not _is_in(address, subnet):
            raise errors.ConfigError(
                f"[l7_router] vip_address: {address} is not in {subnet.cidr}, where Services are"
            )

    def subscribe(self, woken: Callable[[Owner], None]) -> None:
        def of_router(owner: Owner) -> None:
            if owner.role is Role.L7_ROUTER:
                woken(owner)

        self._lbaas.subscribe(of_router)

    async def ensure(self, router: L7Router) -> FoundL7Router:
        record = self._records[router.owner]
        stored = await self._store(router)
        if stored.is_begun:
            await self._follow(router, stored)
            raise errors.Wait("very many certificates are being stored", delay=SOON)
        wanted = self._want(router, stored)
        desired = await self._desired(router, wanted)
        problem = stored.problem
        before = await self._last_seen(router.owner)
        try:
            found = await self._lbaas.ensure(router.owner, desired)
            is_known = True
        except errors.KuryrError as error:
            stored = await self._learn_from(error, router, stored)
            # once it has been ACTIVE, the address does not wait for changes
            last = await self._last_seen(router.owner)
            if last is None:
                raise
            found, problem = last, error
            # What was read before this call may lack the secrets of a change under way. Now that
            # it was read anew, and all changes since were refused, no change is.
            is_refusal = isinstance(error, errors.Refused | errors.OverQuota)
            is_known = is_refusal and last is not before and not last.is_pending()
        if is_known and (failure := await self._delete_unused(router.owner, stored, found)):
            problem = problem or failure
        record.vip_address, record.conflicts = found.vip_address, 0
        record.floating_ip = await self._floating_ip(router, found)
        record.has_asked_for_floating_ip = True
        if problem is not None:
            raise problem
        if router.vip_address not in (None, found.vip_address):
            raise errors.Refused(
                f"another port has {router.vip_address}: the VIP stays {found.vip_address}"
            )
        return self._state_of(router, wanted, found)

    async def _store(self, router: L7Router) -> Stored:
        """Store the certificates of a router, if there is TLS.

        :raises errors.CloudError: Barbican does not answer. Then nothing is changed: for any
            change Octavia reads all certificates again, and would end the listener over TLS.
        """
        certificates = self._certificates_of(router.owner)
        return Stored() if certificates is None else await certificates.store(router.secrets)

    def _want(self, router: L7Router, stored: Stored) -> Wanted:
        """Note, and return, what a router is to be like."""
        wanted = self._records[router.owner].wanted = wanted_of(router, stored, self._plan)
        return wanted

    async def _follow(self, router: L7Router, stored: Stored) -> None:
        """Change members only, while certificates are being stored.

        :raises errors.KuryrError: see :meth:`LBaaSDriver.follow`.
        """
        found = await self._last_seen(router.owner)
        if found is not None and refs_of(found) <= stored.there:  # see certificates.FRESH
            desired = await self._desired(router, wanted_of(router, stored, self._plan))
            pools = dataclasses.replace(desired, pools=router.pools)
            await self._lbaas.follow(router.owner, lambda _: pools)

    async def _learn_from(
        self, error: errors.KuryrError, router: L7Router, stored: Stored
    ) -> Stored:
        """Note what an error tells of the address and of certificates; return what is stored.

        :raises errors.Wait: those of others can be shown at once, without what was refused.
        """
        record = self._records[router.owner]
        if isinstance(error, errors.Conflict) and not await self._lbaas.exists(router.owner):
            record.conflicts += 1
        certificates = self._certificates_of(router.owner)
        # where something else could be done, that was begun after the refusal
        refusal = error.__cause__ if isinstance(error, errors.Wait) else error
        if certificates is None or not isinstance(refusal, errors.Refused):
            return stored
        seen = await self._lbaas.last_seen(router.owner)
        text = refusal.text if isinstance(refusal, errors.CloudError) else str(refusal)
        is_told = certificates.refuse(text, refs_of(seen) if seen is not None else ())
        if is_told:
            # it is not on its way: at once users are told what counts instead
            stored = await certificates.store(router.secrets)
            self._want(router, stored)
        certificates.doubt()  # one may be gone
        if is_told and refusal is error:
            raise errors.Wait("a certificate is not taken: the others come now", delay=SOON)
        return stored

    async def _delete_unused(
        self, owner: Owner, stored: Stored, found: FoundLoadBalancer
    ) -> errors.CloudError | None:
        """Delete the secrets that nothing names, or is to name; return why some stay."""
        certificates = self._certificates_of(owner)
        if certificates is not None:
            try:
                await certificates.delete_unused(
                    refs_of(found) | stored.offered.union(stored.refs.values())
                )
            except errors.CloudError as error:
                return error
        return None

    async def _floating_ip(self, router: L7Router, found: FoundLoadBalancer) -> str | None:
        """Return the floating IP of a router, after making it, or removing one that it had."""
        if not router.has_floating_ip:
            record = self._records[router.owner]
            if record.floating_ip is not None or not record.has_asked_for_floating_ip:
                await self._public_ips.release(router.owner, keep=None)
            return None
        return await self._public_ips.ensure(
            PublicIPRequest(
                owner=router.owner,
                namespace="",
                name=router.name,
                project_id=router.project_id,
                port_id=found.vip_port_id,
                vip_address=found.vip_address,
                address=router.floating_ip,
            )
        )

    async def state(self, router: L7Router) -> FoundL7Router | None:
        found = await self._last_seen(router.owner)
        record = self._records[router.owner]
        if found is None or record.wanted is None or not record.has_asked_for_floating_ip:
            return None
        return self._state_of(router, record.wanted, found)

    async def release(self, owner: Owner) -> None:
        await self._public_ips.release(owner, keep=None)
        await self._lbaas.release(owner)
        certificates = self._certificates_of(owner)
        if certificates is not None:
            await certificates.delete_unused(())
        self._records.pop(owner, None)

    async def review(self) -> list[Owner]:
        for record in self._records.values():
            if record.certificates is not None:
                record.certificates.doubt()
        listed = [*await self._lbaas.list_owned(), *await self._public_ips.list_owned()]
        ours = {self._context.neutron.mark.uid}
        return list(
            dict.fromkeys(
                each.owner
                for each in listed
                if each.owner.role is Role.L7_ROUTER and each.clusters == ours
            )
        )

    def _certificates_of(self, owner: Owner) -> StoredCertificates | None:
        """Return the certificates of a router; None if there is no TLS."""
        context = self._context
        if not context.conf.l7_router.tls:
            return None
        record = self._records[owner]
        if record.certificates is None:
            mark = context.neutron.mark
            whose = "" if owner.uid == mark.uid else f"/{owner.uid}"
            record.certificates = StoredCertificates(
                context.barbican, f"{mark.tag}{whose}:", context.clock, context.patience
            )
        return record.certificates

    async def _last_seen(self, owner: Owner) -> FoundLoadBalancer | None:
        found = await self._lbaas.last_seen(owner)
        return found if found is not None and found.provisioning_status == ACTIVE else None

    async def _vip_address(self, router: L7Router, subnet: Subnet | None) -> str | None:
        """Return the address that the VIP is to have; None if it may be any.

        Of a load balancer that exists, only Octavia's word counts, which is kept.
        """
        record = self._records[router.owner]
        if router.vip_address is not None:
            if record.vip_address is not None and record.conflicts >= CONFLICTS:
                record.refused_address = router.vip_address
                return record.vip_address
            # for another address it is made anew, which is of no use if others have that
            stays = (
                subnet is not None
                and record.vip_address != router.vip_address
                and await self._lbaas.exists(router.owner)
                and await self._is_taken(router, subnet)
            )
            return None if stays else router.vip_address
        if (found := await self._lbaas.last_seen(router.owner)) is not None:
            record.vip_address = found.vip_address
            return None
        if await self._lbaas.exists(router.owner) or record.conflicts >= CONFLICTS:
            return None
        former = record.vip_address or router.former_vip_address
        return former if former and subnet is not None and _is_in(former, subnet) else None

    async def _is_taken(self, router: L7Router, subnet: Subnet) -> bool:
        """Return whether others have the address that a router's VIP is to have."""
        if self._records[router.owner].refused_address == router.vip_address:
            return True
        fixed_ips = [f"ip_address={router.vip_address}", f"subnet_id={subnet.id}"]
        query = {"fixed_ips": fixed_ips, "fields": ("id", "device_id")}
        ours = {f"lb-{each}" for each in await self._lbaas.ids_of(router.owner)}
        return any(
            port["device_id"] not in ours for port in await self._context.neutron.list_ports(query)
        )

    async def _subnet(self, router: L7Router) -> Subnet | None:
        """Return the subnet of the VIP; None if it stays, whatever has its name by now.

        :raises errors.Refused: there is none of that name, or it is not one of IPv4.
        """
        if router.vip_subnet is None:
            return await self._default_subnet()
        if await self._lbaas.exists(router.owner):
            return None
        neutron, project_id = self._context.neutron, router.project_id
        subnet_id = await self._names.id_of("subnet", project_id, router.vip_subnet)
        subnet = await neutron.get_subnet(subnet_id)
        if subnet.ip_version != 4:
            raise errors.Refused(f"subnet {router.vip_subnet} is not one of IPv4")
        return subnet

    async def _default_subnet(self) -> Subnet:
        """Return the first subnet of Services that is one of IPv4.

        :raises errors.ConfigError: there is none.
        """
        for subnet in await self._subnets.all_subnets():
            if subnet.ip_version == 4:
                return subnet
        raise errors.ConfigError(
            "[neutron_defaults] service_subnet: an L7 router needs an IPv4 subnet"
        )

    async def _desired(self, router: L7Router, wanted: Wanted) -> LoadBalancer:
        subnet = await self._subnet(router)
        used = {
            policy.redirect_pool for listener in wanted.listeners for policy in listener.policies
        }
        return LoadBalancer(
            name=router.name,
            project_id=router.project_id,
            vip_subnet_id=subnet.id if subnet is not None else None,
            vip_address=await self._vip_address(router, subnet),
            provider=self._context.conf.octavia_defaults.l7_provider,
            flavor_id=router.flavor_id,
            availability_zone=router.availability_zone,
            listeners=wanted.listeners,
            pools=tuple(pool for pool in wanted.pools if pool.name in used),
            former_pools=tuple(pool for pool in wanted.pools if pool.name not in used),
        )

    def _state_of(
        self, router: L7Router, wanted: Wanted, found: FoundLoadBalancer
    ) -> FoundL7Router:
        refused = wanted.refused
        return FoundL7Router(
            found=found,
            floating_ip=self._records[router.owner].floating_ip,
            served=served(wanted, found),
            refused={name: refused[name] for name in refused.keys() - wanted.planned},
            limited={name: refused[name] for name in refused.keys() & wanted.planned},
            waiting=wanted.waiting,
            outdated_certificates=wanted.outdated_certificates,
            outdated_authorities=wanted.outdated_authorities,
        )


def _is_in(address: str, subnet: Subnet) -> bool:
    """Return whether a port in a subnet can have an address."""
    network = ipaddress.ip_network(subnet.cidr)
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return found in network and found not in (network.network_address, network.broadcast_address)
