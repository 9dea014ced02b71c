"""Routes of an Ingress, as the text of Kubernetes has them. Pure.

https://kubernetes.io/docs/concepts/services-networking/ingress/#the-ingress-resource
"""

from collections.abc import Iterable, Iterator

from kuryr_k8s.model.ingress import EXACT, Ingress, ServiceBackend
from kuryr_k8s.model.ingress_annotations import Honoured, honoured
from kuryr_k8s.model.routes import Backend, Claim, Forward, Host, Path, Route, SecretName

KIND = "Ingress"


def claim_of(ingress: Ingress) -> Claim:
    """Return what an Ingress claims.

    The default backend takes what the rules leave of requests to their hosts; without rules it
    takes all requests that no other Ingress asks for.
    """
    asked = honoured(ingress)
    problems = list(asked.refused)
    led: dict[tuple[Host, Path], tuple[Backend, str]] = {}
    for host, path, backend, what in _asked(ingress):
        if backend is None:
            problems.append(f"{what}: only Services can be backends")
            continue
        to = _backend(ingress, backend, asked)
        if led.setdefault((host, path), (to, what))[0] != to:
            problems.append(f"{what}: it is there twice; the first one counts")
    if (rest := ingress.default_backend) is not None:
        to = _backend(ingress, rest, asked)
        for host in _hosts(ingress):
            led.setdefault((host, Path.prefix("/")), (to, f"{host.name or '*'} defaultBackend"))
    elif ingress.has_default:
        problems.append("defaultBackend: only Services can be backends")
    routes = tuple(
        Route(
            name=f"{KIND} {ingress.namespace}/{ingress.name} {what}",
            host=host,
            path=path,
            action=Forward(str(to)),
            namespace=ingress.namespace,
            created=ingress.created,
        )
        for (host, path), (to, what) in led.items()
    )
    return Claim(
        kind=KIND,
        namespace=ingress.namespace,
        name=ingress.name,
        uid=ingress.uid,
        created=ingress.created,
        routes=routes,
        backends=tuple(dict.fromkeys(to for to, _ in led.values())),
        secured=tuple(_secured(ingress, dict.fromkeys(host for host, _ in led))),
        is_plain_too=asked.is_plain_too,
        problems=tuple(problems),
    )


def _backend(ingress: Ingress, named: ServiceBackend, asked: Honoured) -> Backend:
    return Backend(
        ingress.namespace,
        named.service,
        named.port,
        by_cookie=asked.by_cookie,
        over_tls=asked.over_tls,
    )


def _asked(ingress: Ingress) -> Iterator[tuple[Host, Path, ServiceBackend | None, str]]:
    """Yield the routes of the rules: host, path, backend, and what to call it."""
    for rule in ingress.rules:
        host = Host(rule.host.lower())
        for each in rule.paths:
            path = Path.exact(each.path) if each.path_type == EXACT else Path.prefix(each.path)
            yield host, path, each.backend, f"{rule.host or '*'} {each.path_type} {each.path}"


def _secured(ingress: Ingress, hosts: Iterable[Host]) -> Iterator[tuple[Host, SecretName | None]]:
    """Yield the hosts of its routes that are served over TLS, and where their certificates are.

    :param hosts: of its routes. Others, which ``tls`` may name as well, have no requests.
    """
    for host in hosts:
        for tls in ingress.tls:
            if not tls.hosts or host.name in tls.hosts:
                yield host, SecretName(ingress.namespace, tls.secret) if tls.secret else None
                break


def _hosts(ingress: Ingress) -> list[Host]:
    """Return the hosts whose other requests are the default backend's."""
    if not ingress.rules:
        return [Host("")]
    return list(dict.fromkeys(Host(rule.host.lower()) for rule in ingress.rules))
