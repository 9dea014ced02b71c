"""L7 router of Octavia: a load balancer whose L7 policies lead each request to its pool.

Its load balancer is one among those of the LBaaS driver, which finds it by its owner, and changes
it step by step; its floating IP is one of the driver of public addresses. Certificates are stored
in Barbican before a listener or a pool names them, and go after it has left them.
"""

import dataclasses
import functools
import ipaddress
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

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
from kuryr_k8s.drivers.named.names import Names
from kuryr_k8s.model.load_balancer import (
    ACTIVE,
    ERROR,
    HASHING,
    TERMINATED_HTTPS,
    TIMEOUTS,
    FoundLoadBalancer,
    Front,
    L7Policy,
    Listener,
    LoadBalancer,
    Pool,
)
from kuryr_k8s.model.owner import Owner, Role
from kuryr_k8s.model.routes import Forward, Reject, Route

CONFLICTS = 3  # after so many, an address is left to those who have it
PLANS = 32  # of the listeners of all routers
HTTP = Listener(
    name="http",
    protocol="HTTP",
    port=80,
    pool="",
    insert_headers=("X-Forwarded-For", "X-Forwarded-Port", "X-Forwarded-Proto"),
)
COMMON = (*TIMEOUTS, "allowed_cidrs", "connection_limit")  # settings of both listeners
HTTPS = dataclasses.replace(HTTP, name="https", protocol=TERMINATED_HTTPS, port=443)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Hold the desired listeners and pools of a router.

    :param plans: of the routes of each listener, by its key.
    :param listeners: that over TLS comes first: requests in plain HTTP may be led there.
    :param waiting: the names of routes whose certificates cannot be shown yet, or whose members
        cannot be verified.
    :param shown: the secrets with the certificates of routes, by the routes' names.
    :param outdated_certificates: see :class:`FoundL7Router`, like ``outdated_authorities``.
    """

    plans: dict[Front, Plan]
    listeners: tuple[Listener, ...]
    pools: tuple[Pool, ...]
    waiting: frozenset[str] = frozenset()
    shown: Mapping[str, str] = field(default_factory=dict)
    outdated_certificates: frozenset[str] = frozenset()
    outdated_authorities: frozenset[str] = frozenset()

    @property
    def planned(self) -> frozenset[str]:
        """The names of the routes that have policies of any listener."""
        return frozenset(name for made in self.plans.values() for name in made.of_routes)

    @property
    def refused(self) -> dict[str, str]:
        """Why routes are left out of any listener, by their names."""
        return {name: why for made in self.plans.values() for name, why in made.refused.items()}


@dataclass(slots=True)
class _Record:
    """Hold what is known of one router.

    :param wanted: what the last call of ``ensure`` asked for.
    :param vip_address: what it has had.
    :param is_address_known: whether it has a floating IP was found out.
    :param conflicts: creations in a row that were refused for the address.
    """

    wanted: _Wanted | None = None
    vip_address: str | None = None
    floating_ip: str | None = None
    is_address_known: bool = False
    conflicts: int = 0
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
        stored = Stored({})
        certificates = self._certificates_of(router.owner)
        if certificates is not None:
            # Without Barbican nothing is changed: for any change Octavia reads all certificates
            # again, and would end the listener over TLS.
            stored = await certificates.store(router.secrets)
        problem = stored.problem
        wanted = record.wanted = self._wanted_of(router, stored)
        desired = await self._desired(router, wanted)
        before = await self._last_seen(router.owner)
        used: frozenset[str] | None  # secrets that stay; None: all do
        try:
            found = await self._lbaas.ensure(router.owner, desired)
            used = _refs_of(found) | stored.refused
        except errors.KuryrError as error:
            conflict = isinstance(error, errors.Conflict)
            if conflict and not await self._lbaas.exists(router.owner):
                record.conflicts += 1
            if certificates is not None and isinstance(error, errors.Refused):
                if await self._refuse_certificates(router.owner, certificates, error):
                    # it is not on its way: at once users are told what counts instead
                    stored = await certificates.store(router.secrets)
                    wanted = record.wanted = self._wanted_of(router, stored)
                certificates.doubt()  # one may be gone
            # once it has been ACTIVE, the address does not wait for changes
            last = await self._last_seen(router.owner)
            if last is None:
                raise
            found, problem = last, error
            # What was read before this call may lack the secrets of a change under way. Now that
            # it was read anew, and all changes since were refused, no change is.
            is_known = last is not before and not last.is_pending()
            is_known = is_known and isinstance(error, errors.Refused | errors.OverQuota)
            wished = stored.refused.union(stored.refs.values())
            used = _refs_of(last) | wished if is_known else None
        if certificates is not None and used is not None:
            try:
                await certificates.delete_unused(used)
            except errors.CloudError as error:
                problem = problem or error
        record.vip_address, record.conflicts = found.vip_address, 0
        record.floating_ip = await self._floating_ip(router, found)
        record.is_address_known = True
        if problem is not None:
            raise problem
        if router.vip_address not in (None, found.vip_address):
            raise errors.Refused(
                f"another port has {router.vip_address}: the VIP stays {found.vip_address}"
            )
        return self._state_of(router, wanted, found)

    async def _floating_ip(self, router: L7Router, found: FoundLoadBalancer) -> str | None:
        """Return the floating IP of a router, after making it, or removing one that it had."""
        if not router.has_floating_ip:
            record = self._records[router.owner]
            if record.floating_ip is not None or not record.is_address_known:
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
        if found is None or record.wanted is None or not record.is_address_known:
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
                context.barbican, f"{mark.tag}{whose}:", context.clock, context.patience.refused
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
        """Return whether another port has the address that a router's VIP is to have."""
        fixed_ips = [f"ip_address={router.vip_address}", f"subnet_id={subnet.id}"]
        query = {"fixed_ips": fixed_ips, "fields": ("id", "device_id")}
        ours = {f"lb-{each}" for each in await self._lbaas.ids_of(router.owner)}
        return any(
            port["device_id"] not in ours for port in await self._context.neutron.list_ports(query)
        )

    async def _refuse_certificates(
        self, owner: Owner, certificates: StoredCertificates, error: errors.Refused
    ) -> bool:
        """Do without the certificates that Octavia has not taken; return whether there are any."""
        seen = await self._lbaas.last_seen(owner)
        return certificates.refuse(str(error), _refs_of(seen) if seen is not None else ())

    def _wanted_of(self, router: L7Router, stored: Stored) -> _Wanted:
        """Return what the listeners and pools are to be like.

        :param stored: the certificates that can be shown, and those of CAs.
        """
        refs = stored.refs
        unverified = {name for name, each in router.authorities.items() if each.source not in refs}
        closed = _led_to(unverified, router.routes)
        made = self._plan(_rejecting(closed, router.routes))
        settings = router.settings
        common = {name: getattr(settings, name) for name in COMMON}
        plain = dataclasses.replace(HTTP, policies=made.policies, **common)
        pools = tuple(
            dataclasses.replace(each, ca_tls_container_ref=refs[authority.source])
            if (authority := router.authorities.get(each.name)) is not None
            else each
            for each in router.pools
            if each.name not in unverified
        )
        usable = {"", *refs}
        waiting = _led_to(unverified, router.secure_routes) | {
            each.name for each in router.secure_routes if each.certificate not in usable
        }
        outdated = {
            name
            for name, authority in router.authorities.items()
            if authority.source in stored.outdated
        }
        wanted = _Wanted(
            {plain.key: made},
            (plain,),
            pools,
            closed | waiting,
            shown={
                each.name: refs[each.certificate]
                for each in router.secure_routes
                if each.certificate in refs
            },
            outdated_certificates=frozenset(
                each.name for each in router.secure_routes if each.certificate in stored.outdated
            ),
            outdated_authorities=_led_to(outdated, (*router.routes, *router.secure_routes)),
        )
        shown = [refs[each.source] for each in router.certificates if each.source in refs]
        if not shown:
            return wanted
        of_tls = self._plan(_rejecting(waiting, router.secure_routes))
        secure = dataclasses.replace(
            HTTPS,
            policies=of_tls.policies,
            default_tls_container_ref=shown[0],
            sni_container_refs=tuple(sorted({*shown} - {shown[0]})),
            tls_versions=settings.tls_versions,
            tls_ciphers=settings.tls_ciphers,
            **common,
        )
        plans = {plain.key: made, secure.key: of_tls}
        return dataclasses.replace(wanted, plans=plans, listeners=(secure, plain))

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

    async def _desired(self, router: L7Router, wanted: _Wanted) -> LoadBalancer:
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
        )

    def _state_of(
        self, router: L7Router, wanted: _Wanted, found: FoundLoadBalancer
    ) -> FoundL7Router:
        refused = wanted.refused
        return FoundL7Router(
            found=found,
            floating_ip=self._records[router.owner].floating_ip,
            served=_served(wanted, found),
            refused={name: refused[name] for name in refused.keys() - wanted.planned},
            limited={name: refused[name] for name in refused.keys() & wanted.planned},
            waiting=wanted.waiting,
            outdated_certificates=wanted.outdated_certificates,
            outdated_authorities=wanted.outdated_authorities,
        )


def _led_to(pools: Collection[str], routes: Iterable[Route]) -> frozenset[str]:
    """Return the names of the routes that lead to any of these pools."""
    return frozenset(
        each.name
        for each in routes
        if isinstance(each.action, Forward) and each.action.pool in pools
    )


def _rejecting(names: Collection[str], routes: tuple[Route, ...]) -> tuple[Route, ...]:
    """Return the routes, of which those of these names answer 403."""
    return tuple(
        dataclasses.replace(each, action=Reject()) if each.name in names else each
        for each in routes
    )


def _refs_of(found: FoundLoadBalancer) -> frozenset[str]:
    """Return the certificates that clients are shown, and those by which members are verified."""
    listeners = [each.listener for each in found.listeners]
    refs = {each.default_tls_container_ref for each in listeners}
    refs |= {each.pool.ca_tls_container_ref for each in found.pools}
    refs |= {ref for each in listeners for ref in each.sni_container_refs}
    return frozenset(filter(None, refs))


def _served(wanted: _Wanted, found: FoundLoadBalancer) -> frozenset[str]:
    """Return the names of the routes all of which is in place, on each listener.

    That is their policies, the pools to which these lead, and their certificates.
    """
    settings = {pool.name: _settings(pool) for pool in wanted.pools}
    names = {
        each.id: each.pool.name
        for each in found.pools
        if _settings(each.pool) == settings.get(each.pool.name)
    }
    there = {
        (listener.listener.key, each.policy.key): (
            names.get(each.pool_id or ""),
            *_target(each.policy),
        )
        for listener in found.listeners
        for each in listener.policies
        if each.is_enabled and ERROR not in each.statuses()
    }
    missing = {
        name
        for key, made in wanted.plans.items()
        for name, policies in made.of_routes.items()
        if any(
            there.get((key, each.key)) != (each.redirect_pool, *_target(each)) for each in policies
        )
    }
    refs = _refs_of(found)
    missing |= {name for name, ref in wanted.shown.items() if ref not in refs}
    return wanted.planned - missing - wanted.waiting


def _settings(pool: Pool) -> tuple[str | bool | None, ...]:
    """Return what of a pool decides how members get requests, whichever members there are."""
    return (pool.lb_algorithm, pool.persistence, pool.tls_enabled, pool.ca_tls_container_ref)


def _target(policy: L7Policy) -> tuple[str | None, int | None]:
    return policy.redirect_prefix, policy.redirect_http_code


def _is_in(address: str, subnet: Subnet) -> bool:
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(subnet.cidr)
    except ValueError:
        return False
