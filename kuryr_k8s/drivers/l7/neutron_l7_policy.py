"""L7 router of Octavia: a load balancer whose L7 policies lead each request to its pool.

Its load balancer is one among those of the LBaaS driver, which finds it by its owner, and changes
it step by step; its floating IP is one of the driver of public addresses.
"""

import dataclasses
import functools
import ipaddress
from collections import Counter
from collections.abc import Callable

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
from kuryr_k8s.drivers.l7.plan import Plan, plan
from kuryr_k8s.model.load_balancer import (
    ACTIVE,
    ERROR,
    HASHING,
    FoundLoadBalancer,
    L7Policy,
    Listener,
    LoadBalancer,
)
from kuryr_k8s.model.owner import Owner, Role
from kuryr_k8s.model.routes import Route

CONFLICTS = 3  # after so many, an address is left to those who have it
HTTP = Listener(
    name="http",
    protocol="HTTP",
    port=80,
    pool="",
    insert_headers=("X-Forwarded-For", "X-Forwarded-Port", "X-Forwarded-Proto"),
)


class NeutronL7Policy(L7RouterDriver):
    """Driver ``neutron_l7_policy``."""

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        self._lbaas = context.drivers[LBaaSDriver]
        self._public_ips = context.drivers[ServicePublicIPDriver]
        self._subnets = context.drivers[ServiceSubnetsDriver]
        self._floating_ips: dict[Owner, str | None] = {}
        self._vips: dict[Owner, str] = {}  # what each has had
        self._conflicts: Counter[Owner] = Counter()  # creations in a row refused for the address
        # of the same routes the plan is the same, however often a router is looked at
        self._plan: Callable[[tuple[Route, ...]], Plan] = functools.lru_cache(8)(plan)

    async def start(self) -> None:
        provider = self._context.conf.octavia_defaults.l7_provider
        if provider in HASHING:
            raise errors.ConfigError(
                f"[octavia_defaults] l7_provider: {provider} cannot look into requests"
            )
        if not any(each.ip_version == 4 for each in await self._subnets.all_subnets()):
            raise errors.ConfigError(
                "[neutron_defaults] service_subnet: an L7 router needs an IPv4 subnet"
            )

    def subscribe(self, woken: Callable[[Owner], None]) -> None:
        def of_router(owner: Owner) -> None:
            if owner.role is Role.L7_ROUTER:
                woken(owner)

        self._lbaas.subscribe(of_router)

    async def ensure(self, router: L7Router) -> FoundL7Router:
        made = self._plan(router.routes)
        desired = await self._desired(router, made)
        problem: errors.KuryrError | None = None
        try:
            found = await self._lbaas.ensure(router.owner, desired)
        except errors.KuryrError as error:
            conflict = isinstance(error, errors.Conflict)
            if conflict and not await self._lbaas.exists(router.owner):
                self._conflicts[router.owner] += 1
            # once it has been ACTIVE, the address does not wait for changes
            last = await self._last_seen(router.owner)
            if last is None:
                raise
            found, problem = last, error
        self._vips[router.owner] = found.vip_address
        self._conflicts.pop(router.owner, None)
        self._floating_ips[router.owner] = await self._public_ips.ensure(
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
        if problem is not None:
            raise problem
        return self._state_of(router, made, found)

    async def state(self, router: L7Router) -> FoundL7Router | None:
        found = await self._last_seen(router.owner)
        if found is None or router.owner not in self._floating_ips:
            return None
        return self._state_of(router, self._plan(router.routes), found)

    async def release(self, owner: Owner) -> None:
        await self._public_ips.release(owner, keep=None)
        await self._lbaas.release(owner)
        self._floating_ips.pop(owner, None)
        self._vips.pop(owner, None)

    async def review(self) -> None:
        await self._lbaas.list_owned()
        await self._public_ips.list_owned()

    async def _last_seen(self, owner: Owner) -> FoundLoadBalancer | None:
        found = await self._lbaas.last_seen(owner)
        return found if found is not None and found.provisioning_status == ACTIVE else None

    async def _vip_address(self, router: L7Router, subnet: Subnet) -> str | None:
        """Return the address of the VIP; None if it may be any.

        Nobody is believed who says that a load balancer that exists has another one.
        """
        owner = router.owner
        if router.vip_address is not None:
            return router.vip_address
        if (found := await self._lbaas.last_seen(owner)) is not None:
            self._vips[owner] = found.vip_address
            return None
        if await self._lbaas.exists(owner) or self._conflicts[owner] >= CONFLICTS:
            return None
        former = self._vips.get(owner) or router.former_vip_address
        return former if former is not None and _is_in(former, subnet) else None

    async def _desired(self, router: L7Router, made: Plan) -> LoadBalancer:
        subnets = await self._subnets.all_subnets()
        subnet = next(each for each in subnets if each.ip_version == 4)
        used = {policy.redirect_pool for policy in made.policies}
        return LoadBalancer(
            name=router.name,
            project_id=router.project_id,
            vip_subnet_id=subnet.id,
            vip_address=await self._vip_address(router, subnet),
            provider=self._context.conf.octavia_defaults.l7_provider,
            listeners=(dataclasses.replace(HTTP, policies=made.policies),),
            pools=tuple(pool for pool in router.pools if pool.name in used),
        )

    def _state_of(self, router: L7Router, made: Plan, found: FoundLoadBalancer) -> FoundL7Router:
        return FoundL7Router(
            found=found,
            floating_ip=self._floating_ips.get(router.owner),
            served=_served(made, found),
            refused=made.refused,
        )


def _served(made: Plan, found: FoundLoadBalancer) -> frozenset[str]:
    """Return the names of the routes all of whose policies are in place."""
    names = {pool.id: pool.pool.name for pool in found.pools}
    there = {
        each.policy.key: (names.get(each.pool_id or ""), *_target(each.policy))
        for listener in found.listeners
        if listener.listener.key == HTTP.key
        for each in listener.policies
        if each.is_enabled and ERROR not in each.statuses()
    }
    return frozenset(
        name
        for name, policies in made.of_routes.items()
        if all(there.get(each.key) == (each.redirect_pool, *_target(each)) for each in policies)
    )


def _target(policy: L7Policy) -> tuple[str | None, int | None]:
    return policy.redirect_prefix, policy.redirect_http_code


def _is_in(address: str, subnet: Subnet) -> bool:
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(subnet.cidr)
    except ValueError:
        return False
