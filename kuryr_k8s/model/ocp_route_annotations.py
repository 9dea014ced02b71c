"""Annotations of Routes for OpenShift's router: which of them are honoured here. Pure.

Whatever Octavia cannot do for one host alone is refused by name. One that limits who may send
requests is refused together with its Route: it would be open to all otherwise.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from kuryr_k8s.model.ocp_route import HAPROXY, ROUTER, OCPRoute

BALANCE = f"{HAPROXY}balance"
DISABLE_COOKIES = f"{HAPROXY}disable_cookies"
ROUND_ROBIN = "ROUND_ROBIN"
ALGORITHMS = {
    "roundrobin": ROUND_ROBIN,
    "leastconn": "LEAST_CONNECTIONS",
    "source": "SOURCE_IP",
}
COOKIES = {"true": False, "TRUE": False, "false": True, "FALSE": True, "": True}
# these values ask for what is done anyway; others are refused
AS_IT_IS = {
    f"{HAPROXY}rate-limit-connections": ("false", "FALSE"),
    f"{HAPROXY}pod-concurrent-connections": ("0",),
    f"{HAPROXY}set-forwarded-headers": ("append",),
    f"{HAPROXY}h1-adjust-case": ("false", "FALSE"),
    f"{ROUTER}cookie-same-site": ("None",),
}
# nobody is to get in without these
GUARDS = (f"{HAPROXY}ip_allowlist", f"{HAPROXY}ip_whitelist")


@dataclass(frozen=True, slots=True)
class Honoured:
    """Hold the requests that a Route makes by annotations.

    :param by_cookie: a client stays with a Pod, by a cookie of the router's.
    :param algorithm: by which its pool spreads requests.
    :param refused: what is asked for and cannot be had, in words for users.
    :param guards: those of them without which the Route is not served.
    """

    by_cookie: bool
    algorithm: str
    refused: tuple[str, ...]
    guards: tuple[str, ...]


def honoured(route: OCPRoute) -> Honoured:
    """Return what a Route asks for by annotations."""
    named = dict(route.annotations)
    return Honoured(
        by_cookie=COOKIES.get(named.get(DISABLE_COOKIES, ""), True),
        algorithm=ALGORITHMS.get(named.get(BALANCE, ""), ROUND_ROBIN),
        refused=tuple(_refused(named)),
        guards=tuple(
            f"annotation {name}: not supported" for name in GUARDS if named.get(name, "").strip()
        ),
    )


def _refused(named: dict[str, str]) -> Iterator[str]:
    known = {BALANCE: tuple(ALGORITHMS), DISABLE_COOKIES: tuple(COOKIES), **AS_IT_IS}
    for name, text in named.items():
        if name not in GUARDS and text not in known.get(name, ()):
            yield f"annotation {name}: {text[:60]}: not supported"
