"""Settle which namespace owns a host, as OpenShift's router does. Pure.

The oldest Route that has a host owns it for its namespace, whatever its path is: Routes of other
namespaces with this host are refused. A Route for all hosts of a domain (``*.``) owns every host
in it, and is refused where another namespace has one of them already. In a namespace, the oldest
Route with a host and a path is served. An Ingress owns nothing, but its hosts are taken.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator

from kuryr_k8s.model.routes import Claim, Host, Path, Refusal

ALREADY_CLAIMED = "HostAlreadyClaimed"  # OpenShift's word


def settled(claims: Iterable[Claim]) -> list[Claim]:
    """Return the claims; those whose host belongs to an older one have no routes any more."""
    in_order = sorted(claims, key=lambda each: each.age)
    if not any(claim.is_of_namespace for claim in in_order):
        return in_order
    holders = _Holders()
    found: list[Claim] = []
    for claim in in_order:
        older = holders.before(claim) if claim.is_of_namespace else None
        if older is None:
            holders.add(claim)
            found.append(claim)
        else:
            found.append(_refused(claim, older))
    return found


def _refused(claim: Claim, older: Claim) -> Claim:
    hosts = ", ".join(dict.fromkeys(route.host.name for route in claim.routes))
    whose = f"{older.kind} {older.namespace}/{older.name}"
    return dataclasses.replace(
        claim,
        routes=(),
        backends=(),
        secured=(),
        refusal=Refusal(ALREADY_CLAIMED, f"{hosts}: {whose} has the host, and is older"),
    )


class _Holders:
    """Claims that have their hosts."""

    def __init__(self) -> None:
        # the oldest one of each namespace, the oldest namespace first
        self._by_host: defaultdict[Host, dict[str, Claim]] = defaultdict(dict)
        self._owners: defaultdict[Host, dict[str, Claim]] = defaultdict(dict)
        self._by_domain: defaultdict[str, dict[str, Claim]] = defaultdict(dict)
        self._paths: dict[tuple[Host, Path], Claim] = {}

    def add(self, claim: Claim) -> None:
        """Add one, after all that are older."""
        for route in claim.routes:
            self._paths.setdefault((route.host, route.path), claim)
        for host in {route.host for route in claim.routes if not route.host.is_any}:
            self._by_host[host].setdefault(claim.namespace, claim)
            if claim.is_of_namespace:
                self._owners[host].setdefault(claim.namespace, claim)
                self._by_domain[host.domain].setdefault(claim.namespace, claim)

    def before(self, claim: Claim) -> Claim | None:
        """Return the oldest claim that keeps this one from its hosts, if there is one."""
        for route in claim.routes:
            others = (each for each in self._of(route.host) if each.namespace != claim.namespace)
            if (other := next(others, None)) is not None:
                return other
            if (same := self._paths.get((route.host, route.path))) is not None:
                return same
        return None

    def _of(self, host: Host) -> Iterator[Claim]:
        """Yield the claims that have a host in common with this one, one of each namespace."""
        yield from self._by_host.get(host, {}).values()
        domain = host.domain
        if host.is_wildcard:
            yield from self._by_domain.get(domain, {}).values()
        else:
            yield from self._owners.get(Host(f"*.{domain}"), {}).values()
