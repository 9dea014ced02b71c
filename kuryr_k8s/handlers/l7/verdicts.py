"""Verdicts of a router on claims: what users are told of their routes, and how many there are."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kuryr_k8s.drivers.base import FoundL7Router
from kuryr_k8s.handlers.l7.backends import Backends
from kuryr_k8s.handlers.l7.tls import Division
from kuryr_k8s.handlers.routing import Verdict
from kuryr_k8s.model.routes import Claim, Refusal

NOT_TAKEN = "CertificateNotTaken"
WHY_NOT_TAKEN = "tls: Barbican or Octavia does not take its certificate: ask the operator"
OUTDATED_CERTIFICATE = (
    "tls: Barbican or Octavia does not take its new certificate, so that the former one is shown: "
    "ask the operator"
)
OUTDATED_AUTHORITY = (
    "tls: Barbican or Octavia does not take its new destinationCACertificate, so that the former "
    "one counts: ask the operator"
)
STATES = ("served", "pending", "closed", "refused")  # of routes


def verdict_on(
    claim: Claim, backends: Backends, division: Division, state: FoundL7Router
) -> Verdict:
    """Return how far a router serves a claim."""
    told = state.limited | state.refused
    refused = tuple(
        f"{route.name}: {told[route.name]}" for route in claim.routes if route.name in told
    )
    missing = [each for backend in claim.backends for each in backends.problems(backend)]
    names = {route.name for route in claim.routes}
    wanted = names - state.refused.keys()
    # a route that asks for no TLS, on a host of others that do, is served in plain HTTP
    waiting = names & state.waiting if claim.secured else set()
    not_taken = tuple(f"{name}: {WHY_NOT_TAKEN}" for name in sorted(waiting))
    refusal = Refusal(NOT_TAKEN, "; ".join(not_taken)) if not_taken else claim.refusal
    shown = names & state.outdated_certificates if claim.secured else set()
    outdated = [f"{name}: {OUTDATED_CERTIFICATE}" for name in sorted(shown)]
    trusted = names & state.outdated_authorities
    outdated += [f"{name}: {OUTDATED_AUTHORITY}" for name in sorted(trusted)]
    return Verdict(
        address=state.address,
        has_no_routes=not wanted,
        is_served=bool(wanted) and wanted <= state.served - division.closed,
        problems=(
            *refused,
            *dict.fromkeys(missing),
            *division.problems.get(claim.uid, ()),
            *not_taken,
            *outdated,
        ),
        is_closed=any(route.name in division.closed for route in claim.routes),
        version=claim.version,
        refusal=refusal,
    )


def counts_of(claims: Sequence[Claim], division: Division, state: FoundL7Router) -> dict[str, int]:
    """Count the routes of claims by what has become of them."""
    names = {route.name for claim in claims for route in claim.routes}
    refused, closed = names & state.refused.keys(), names & division.closed
    served = (names & state.served) - closed
    return {
        "served": len(served),
        "pending": len(names - refused - served - closed),
        "closed": len(closed - refused),
        "refused": len(refused),
    }


class RoutesMetric(Collector):
    """The metric of routes.

    :param counts: returns the counts of routes by states, by router.
    """

    def __init__(self, counts: Callable[[], Mapping[str, Mapping[str, int]]]) -> None:
        self._counts = counts

    def collect(self) -> Iterable[GaugeMetricFamily]:
        metric = GaugeMetricFamily(
            "kuryr_l7_routes",
            "Routes of L7 routers, by what has become of them",
            labels=["router", "state"],
        )
        for router, counts in self._counts().items():
            for state in STATES:
                metric.add_metric([router, state], counts.get(state, 0))
        yield metric
