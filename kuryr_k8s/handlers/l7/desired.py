"""Desired state of an L7 router, from what operators and users ask for. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from kuryr_k8s.drivers.base import L7Router
from kuryr_k8s.handlers.l7.tls import Division
from kuryr_k8s.model.l7router import RouterSpec
from kuryr_k8s.model.load_balancer import Pool
from kuryr_k8s.model.owner import Owner
from kuryr_k8s.model.routes import (
    Backend,
    Claim,
    Forward,
    Host,
    Path,
    Route,
    SecretName,
    Split,
)

DEFAULT_ROUTE = "default backend"
ANYTIME = "9"  # later than every time of a creation: others come first


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """Hold what an operator asks for, and where the router is said to be.

    :param name: as claims name it.
    :param load_balancer: the name of its load balancer.
    :param former_vip_address: the one that it is said to have had.
    :param is_leaving: people do not want it any more.
    :param generation: of the specification; 0 without one.
    """

    name: str
    owner: Owner
    load_balancer: str
    spec: RouterSpec
    former_vip_address: str | None = None
    is_leaving: bool = False
    generation: int = 0


def backends_of(router: Router, claims: Iterable[Claim]) -> list[Backend | Split]:
    """Return the backends to which any routes of a router lead."""
    found: list[Backend | Split] = [backend for claim in claims for backend in claim.backends]
    if router.spec.default_backend is not None:
        found.append(router.spec.default_backend)
    return found


def secrets_of(router: Router, claims: Iterable[Claim]) -> set[SecretName]:
    """Return the Secrets that the claims and the router name for certificates."""
    found = {
        secret for claim in claims for _, secret in claim.secured if isinstance(secret, SecretName)
    }
    if router.spec.default_certificate is not None:
        found.add(router.spec.default_certificate)
    return found


def desired(
    router: Router,
    project_id: str,
    division: Division,
    backends: Iterable[Backend | Split],
    pools: tuple[Pool, ...],
) -> L7Router:
    """Return the desired state of a router.

    :param backends: all of its backends.
    :param pools: those of them, and of some that it had.
    """
    spec = router.spec
    routes, secure_routes = list(division.plain), list(division.secure)
    if spec.default_backend is not None:
        rest = Route(
            name=DEFAULT_ROUTE,
            host=Host(""),
            path=Path.prefix("/"),
            action=Forward(str(spec.default_backend)),
            created=ANYTIME,
        )
        routes.append(rest)
        secure_routes.append(rest)
    return L7Router(
        owner=router.owner,
        name=router.load_balancer,
        project_id=project_id,
        routes=tuple(routes),
        secure_routes=tuple(secure_routes),
        certificates=division.certificates,
        pools=pools,
        authorities={
            str(each): each.authority
            for each in backends
            if isinstance(each, Split) and each.authority is not None
        },
        vip_subnet=spec.subnet,
        vip_address=spec.vip_address,
        former_vip_address=router.former_vip_address,
        floating_ip=spec.floating_ip,
        has_floating_ip=spec.has_floating_ip,
        flavor_id=spec.flavor_id,
        availability_zone=spec.availability_zone,
        settings=spec.listeners,
    )
