"""Whose word counts: what changes something is taken from programs on this host alone.

There are no accounts here: whoever has a shell on the controller's host may ask. What must not
get through is another host, where the address was opened for Prometheus, and a page in a browser
on this host. A page may POST a form, but JSON only to where it came from; and one that has its own
name point to 127.0.0.1 still says that name in «Host».
"""

import ipaddress

from aiohttp import web
from aiohttp.typedefs import Handler

READS = frozenset({"GET", "HEAD"})


@web.middleware
async def local_only(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse a request that is no GET unless it comes from this host (403) as JSON (415)."""
    if request.method not in READS:
        if not (_is_loopback(request.remote or "") and _is_loopback(_host(request))):
            return refusal(403, "only programs on this host may ask for that")
        if request.content_type != "application/json":
            return refusal(415, "the request's Content-Type must be application/json")
    return await handler(request)


def refusal(status: int, error: str) -> web.Response:
    """An answer that says no, in the form that all routes use: ``{"error": "..."}``."""
    return web.json_response({"error": error}, status=status)


def _host(request: web.Request) -> str:
    """What the client takes us for; empty for nonsense."""
    try:
        return request.url.host or ""
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
