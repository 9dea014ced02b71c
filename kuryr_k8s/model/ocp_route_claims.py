"""Routes of an OpenShift Route, as the text of its API has them. Pure.

What would be served to others, or in another way, than the Route says is refused as a whole; what
is merely left out is told beside.
"""

import re
from collections.abc import Iterator

from kuryr_k8s.model.authority import Authority, read_authority
from kuryr_k8s.model.certificate import (
    Certificate,
    Fields,
    UnusableCertificate,
    read_certificate,
    read_certificates,
)
from kuryr_k8s.model.ocp_route import LONGEST, SERVICE, TOO_LONG, OCPRoute, RouteTLS
from kuryr_k8s.model.ocp_route_annotations import ROUND_ROBIN, Honoured, honoured
from kuryr_k8s.model.routes import (
    Backend,
    Claim,
    Forward,
    Host,
    Path,
    Refusal,
    Route,
    SecretName,
    Split,
)

KIND = "Route"
FIELDS = Fields(certificate="certificate", key="key")
FOUND = 302  # by which OpenShift's router redirects
EDGE, REENCRYPT, PASSTHROUGH = "edge", "reencrypt", "passthrough"
NONE, ALLOW, REDIRECT, SUBDOMAIN = "None", "Allow", "Redirect", "Subdomain"
INVALID, NOT_ADMITTED = "ExtendedValidationFailed", "RouteNotAdmitted"  # OpenShift's words
MOST_NAME = 255  # characters of a pool's name
MOST_TARGETS = 4  # Services
MOST_WEIGHT = 256
_LABEL = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_HOST = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*")


def host_of(route: OCPRoute, domain: str) -> str:
    """Return the host of a Route: its own one, or else one in the router's domain.

    :returns: empty if there is none.
    """
    if route.host or route.flaw or not domain:
        return route.host
    name = route.subdomain or f"{route.name.replace('.', '-')}-{route.namespace}"
    return f"{name}.{domain}"


def is_generated(route: OCPRoute, domain: str) -> bool:
    """Return whether the host of a Route is to be written into it: nobody has chosen one."""
    return bool(domain) and not (route.host or route.subdomain)


def claim_of(
    route: OCPRoute, *, domain: str = "", with_tls: bool = True, with_wildcards: bool = False
) -> Claim:
    """Return what a Route claims.

    :param domain: of hosts that nobody has chosen; empty if there is none.
    :param with_tls: whether the router serves TLS at all.
    :param with_wildcards: whether a Route may have all hosts of a domain.
    """
    if route.flaw:
        return _claim(route, refusal=Refusal(INVALID, route.flaw))
    asked = honoured(route)
    host = host_of(route, domain)
    refusals = [*_of_host(route, host), *_of_targets(route), *_of_guards(asked)]
    authority: Authority | None = None
    if route.wildcard_policy == SUBDOMAIN and not with_wildcards:
        refusals.append(
            Refusal(
                NOT_ADMITTED,
                "spec.wildcardPolicy: Subdomain: wildcard routes are not allowed: the operator "
                "sets [l7_router] route_wildcards",
            )
        )
    if route.tls is not None:
        refusals += _of_tls(route.tls, with_tls=with_tls)
        try:
            authority = _authority(route, route.tls)
        except UnusableCertificate as error:
            refusals.append(Refusal(INVALID, f"spec.tls: {error}"))
    if refusals:
        return _claim(route, refusal=refusals[0])
    named = Host(_wildcard(host) if route.wildcard_policy == SUBDOMAIN else host)
    pool = _pool(route, asked, authority)
    only = Route(
        name=f"{KIND} {route.namespace}/{route.name} {named.name}{route.path}",
        host=named,
        path=Path.prefix(route.path),
        action=Forward(str(pool)),
        namespace=route.namespace,
        created=route.created,
    )
    insecure = NONE if route.tls is None else route.tls.insecure
    return _claim(
        route,
        routes=(only,),
        backends=(pool,),
        secured=() if route.tls is None else ((named, _certificate(route, route.tls)),),
        is_plain_too=insecure == ALLOW,
        redirect=FOUND if insecure == REDIRECT else None,
        is_of_namespace=True,
        problems=(*asked.refused, *_left_out(route, asked)),
    )


def _claim(route: OCPRoute, **what: object) -> Claim:
    return Claim(
        kind=KIND,
        namespace=route.namespace,
        name=route.name,
        uid=route.uid,
        created=route.created,
        version=hash(route.essence),
        **what,  # type: ignore[arg-type]
    )


def _of_host(route: OCPRoute, host: str) -> Iterator[Refusal]:
    if not host:
        yield Refusal(
            "NoHost", "spec.host is empty, and [l7_router] route_domain, for others, is not set"
        )
    elif not _HOST.fullmatch(host):
        yield Refusal("InvalidHost", f"{host[:253]}: it is no name in DNS")
    if route.wildcard_policy not in (NONE, SUBDOMAIN):
        yield Refusal(INVALID, f"spec.wildcardPolicy: {route.wildcard_policy}: not supported")
    elif route.wildcard_policy == SUBDOMAIN and "." not in host:
        yield Refusal("InvalidHost", f"{host}: it is in no domain, which wildcardPolicy needs")
    elif route.wildcard_policy == SUBDOMAIN and not route.host:
        yield Refusal(INVALID, "spec.wildcardPolicy: it needs spec.host")


def _of_targets(route: OCPRoute) -> Iterator[Refusal]:
    if len(route.targets) > MOST_TARGETS:  # OpenShift's definition says so, others may not
        yield Refusal(INVALID, f"spec.alternateBackends: {MOST_TARGETS - 1} are the most")
        return
    for target in route.targets:
        if target.kind != SERVICE:
            yield Refusal(INVALID, f"{target.kind} {target.name}: only Services can be backends")
        elif not target.name:
            yield Refusal(INVALID, "spec.to: it names no Service")
        elif not 0 <= target.weight <= MOST_WEIGHT:
            yield Refusal(INVALID, f"Service {target.name}: a weight is one of 0 to {MOST_WEIGHT}")


def _of_guards(asked: Honoured) -> Iterator[Refusal]:
    if asked.guards:
        yield Refusal(
            "AnnotationNotSupported",
            f"{'; '.join(asked.guards)}: the Route would be open to all clients",
        )


def _of_tls(tls: RouteTLS, *, with_tls: bool) -> Iterator[Refusal]:
    if tls.termination == PASSTHROUGH:
        yield Refusal(
            "PassthroughNotSupported",
            "spec.tls.termination: passthrough: Octavia cannot lead TLS by the host's name",
        )
    elif tls.termination not in (EDGE, REENCRYPT):
        yield Refusal(INVALID, f"spec.tls.termination: {tls.termination}: not supported")
    elif tls.insecure not in (NONE, ALLOW, REDIRECT):
        yield Refusal(
            INVALID, f"spec.tls.insecureEdgeTerminationPolicy: {tls.insecure}: not supported"
        )
    elif not with_tls:
        yield Refusal(
            "TLSNotEnabled", "spec.tls: TLS is not enabled: the operator sets [l7_router] tls"
        )
    elif tls.termination == REENCRYPT and not tls.destination:
        yield Refusal(
            "NoDestinationCA",
            "spec.tls.destinationCACertificate: reencrypt needs the certificate of the CA that "
            "has signed those of the Pods: there is none for the whole cluster here",
        )


def _certificate(
    route: OCPRoute, tls: RouteTLS
) -> SecretName | Certificate | UnusableCertificate | None:
    """Return the certificate of a Route, where it is, or why it cannot be used.

    :returns: None for the router's.
    """
    if not (tls.certificate or tls.key):
        return SecretName(route.namespace, tls.secret) if tls.secret else None
    texts = {"certificate": tls.certificate, "caCertificate": tls.authorities, "key": tls.key}
    for name, text in texts.items():
        if text == TOO_LONG:
            return UnusableCertificate(f"{name} has more than {LONGEST} characters")
    chain = f"{tls.certificate}\n{tls.authorities}\n".encode()
    try:
        if tls.authorities:
            read_certificates(tls.authorities.encode(), "caCertificate")
        return read_certificate(route.uid, chain, tls.key.encode(), FIELDS)
    except UnusableCertificate as error:
        return UnusableCertificate(str(error))  # what has led to the error is not to be kept


def _authority(route: OCPRoute, tls: RouteTLS) -> Authority | None:
    """Return the CA of the Pods' certificates; None if they get requests in plain HTTP.

    :raises UnusableCertificate: it cannot be used.
    """
    if tls.termination != REENCRYPT:
        return None
    return read_authority(f"{route.uid}-ca", tls.destination.encode(), "destinationCACertificate")


def _pool(route: OCPRoute, asked: Honoured, authority: Authority | None) -> Split:
    # two pools: the Pods of one may have another port, and must get nothing in plain HTTP there
    how = "" if authority is None else " over TLS"
    name, longest = f"{KIND} {route.namespace}/{route.name}", MOST_NAME - len(how)
    if len(name) > longest:
        name = f"{name[: longest - len(route.uid) - 1]} {route.uid}"
    return Split(
        name=name + how,
        shares=tuple(
            (
                Backend(route.namespace, target.name, route.target_port, is_of_pods=True),
                target.weight,
            )
            for target in route.targets
        ),
        algorithm=ROUND_ROBIN if _is_shared(route) else asked.algorithm,
        by_cookie=asked.by_cookie,
        authority=authority,
    )


def _is_shared(route: OCPRoute) -> bool:
    """Return whether several Services get requests: then they get them in turns."""
    return sum(1 for target in route.targets if target.weight) > 1


def _left_out(route: OCPRoute, asked: Honoured) -> Iterator[str]:
    """Yield what is served in another way than the Route says."""
    if _is_shared(route) and asked.algorithm != ROUND_ROBIN:
        yield "annotation haproxy.router.openshift.io/balance: several Services get turns"
    if route.path.rstrip("/") and route.path.endswith("/"):
        yield f"spec.path: {route.path}: it is served without the slash at its end as well"
    if route.has_headers:
        yield "spec.httpHeaders: not supported"
    if route.tls is not None and route.tls.authorities and not route.tls.certificate:
        yield "spec.tls.caCertificate: it has no effect without certificate"
    if route.tls is not None and route.tls.destination and route.tls.termination == EDGE:
        yield "spec.tls.destinationCACertificate: it has no effect with edge"


def _wildcard(host: str) -> str:
    return f"*.{host.partition('.')[2]}"
