"""Listeners and pools that a router is to have, and which of its routes are served. Pure."""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kuryr_k8s.drivers.base import L7Router
from kuryr_k8s.drivers.l7.certificates import Stored
from kuryr_k8s.drivers.l7.plan import Plan
from kuryr_k8s.model.l7router import ListenerSettings
from kuryr_k8s.model.load_balancer import (
    ERROR,
    TERMINATED_HTTPS,
    TIMEOUTS,
    FoundLoadBalancer,
    Front,
    L7Policy,
    Listener,
    Pool,
)
from kuryr_k8s.model.routes import Forward, Reject, Route

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
class Wanted:
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


def wanted_of(
    router: L7Router, stored: Stored, planned: Callable[[tuple[Route, ...]], Plan]
) -> Wanted:
    """Return what the listeners and pools of a router are to be like.

    :param stored: the certificates that can be shown, and those of CAs.
    :param planned: returns the plan for routes.
    """
    refs = stored.refs
    unverified = {name for name, each in router.authorities.items() if each.source not in refs}
    outdated = {
        name for name, each in router.authorities.items() if each.source in stored.outdated
    }
    usable = {"", *refs}
    unshown = {each.name for each in router.secure_routes if each.certificate not in usable}
    closed = _led_to(unverified, router.routes)
    waiting = _led_to(unverified, router.secure_routes) | unshown
    shown = [refs[each.source] for each in router.certificates if each.source in refs]
    plain = planned(_rejecting(closed, router.routes))
    plans, listeners = {HTTP.key: plain}, [_listener(HTTP, plain, router.settings)]
    if shown:
        secure = planned(_rejecting(waiting, router.secure_routes))
        plans[HTTPS.key] = secure
        over_tls = dataclasses.replace(
            _listener(HTTPS, secure, router.settings),
            default_tls_container_ref=shown[0],
            sni_container_refs=tuple(sorted({*shown} - {shown[0]})),
            tls_versions=router.settings.tls_versions,
            tls_ciphers=router.settings.tls_ciphers,
        )
        listeners.insert(0, over_tls)
    return Wanted(
        plans=plans,
        listeners=tuple(listeners),
        pools=tuple(_pools(router, refs)),
        waiting=closed | waiting,
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


def _listener(kind: Listener, made: Plan, settings: ListenerSettings) -> Listener:
    common = {name: getattr(settings, name) for name in COMMON}
    return dataclasses.replace(kind, policies=made.policies, **common)


def _pools(router: L7Router, refs: Mapping[str, str]) -> Iterator[Pool]:
    """Yield the pools whose members can be verified, where they are to be."""
    for pool in router.pools:
        authority = router.authorities.get(pool.name)
        if authority is None:
            yield pool
        elif authority.source in refs:
            yield dataclasses.replace(pool, ca_tls_container_ref=refs[authority.source])


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


def refs_of(found: FoundLoadBalancer) -> frozenset[str]:
    """Return the certificates that clients are shown, and those by which members are verified."""
    listeners = [each.listener for each in found.listeners]
    refs = {each.default_tls_container_ref for each in listeners}
    refs |= {each.pool.ca_tls_container_ref for each in found.pools}
    refs |= {ref for each in listeners for ref in each.sni_container_refs}
    return frozenset(filter(None, refs))


def served(wanted: Wanted, found: FoundLoadBalancer) -> frozenset[str]:
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
    refs = refs_of(found)
    missing |= {name for name, ref in wanted.shown.items() if ref not in refs}
    return wanted.planned - missing - wanted.waiting


def _settings(pool: Pool) -> tuple[str | bool | None, ...]:
    """Return what of a pool decides how members get requests, whichever members there are."""
    return (pool.lb_algorithm, pool.persistence, pool.tls_enabled, pool.ca_tls_container_ref)


def _target(policy: L7Policy) -> tuple[str | None, int | None]:
    return policy.redirect_prefix, policy.redirect_http_code
