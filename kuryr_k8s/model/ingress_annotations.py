"""Annotations of Ingresses for other controllers: which of them are honoured here. Pure.

Whatever Octavia cannot do is refused by name. An annotation that asks for what is done anyway is
accepted.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from kuryr_k8s.model.ingress import NGINX, OCTAVIA, Ingress

AFFINITY = f"{NGINX}affinity"
BACKEND_PROTOCOL = f"{NGINX}backend-protocol"
SSL_REDIRECT = f"{NGINX}ssl-redirect"
HTTP, HTTPS = "HTTP", "HTTPS"
# these values ask for what is done anyway; others are refused
AS_IT_IS = {
    f"{NGINX}affinity-mode": ("balanced",),
    SSL_REDIRECT: ("true", "false"),
    f"{NGINX}force-ssl-redirect": ("false",),
    f"{NGINX}proxy-ssl-verify": ("off",),
    f"{NGINX}use-regex": ("false",),
    f"{OCTAVIA}internal": ("false",),
}


@dataclass(frozen=True, slots=True)
class Honoured:
    """Hold the requests that an Ingress makes by annotations.

    :param by_cookie: a client stays with a Pod, by a cookie of the router's.
    :param is_plain_too: hosts with TLS are served in plain HTTP as well.
    :param over_tls: Pods get requests over TLS.
    :param refused: what is asked for and cannot be had, in words for users.
    """

    by_cookie: bool
    is_plain_too: bool
    over_tls: bool
    refused: tuple[str, ...]


def honoured(ingress: Ingress) -> Honoured:
    """Return what an Ingress asks for by annotations."""
    named = dict(ingress.annotations)
    return Honoured(
        by_cookie=named.get(AFFINITY) == "cookie",
        is_plain_too=named.get(SSL_REDIRECT) == "false",
        over_tls=_protocol(named.get(BACKEND_PROTOCOL, "")) == HTTPS,
        refused=tuple(_refused(named)),
    )


def _refused(named: dict[str, str]) -> Iterator[str]:
    for name, text in named.items():
        if name == AFFINITY and text == "cookie":
            continue
        if name == BACKEND_PROTOCOL and _protocol(text) in (HTTP, HTTPS):
            continue
        if text not in AS_IT_IS.get(name, ()):
            yield f"annotation {name}: {text[:60]}: not supported"


def _protocol(text: str) -> str:
    """Return a protocol as ingress-nginx reads it."""
    return text.strip().upper()
