"""A filter of HTTP requests: only programs on this host may change something.

There are no accounts: whoever has a shell on the controller's host may send requests. The filter
refuses other hosts, which can connect if the address is open for Prometheus, and pages in a
browser on this host. A page can POST a form anywhere, but JSON only to its own origin; and a page
whose own name resolves to 127.0.0.1 still sends that name as «Host».
"""

import ipaddress

from aiohttp import web
from aiohttp.typedefs import Handler

READS = frozenset({"GET", "HEAD"})


@web.middleware
async def local_only(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse a request other than GET unless it comes from this host (403) as JSON (415)."""
    if request.method not in READS:
        if not (_is_loopback(request.remote or "") and _is_loopback(_host(request))):
            return refusal(403, "only programs on this host may ask for that")
        if request.content_type != "application/json":
            return refusal(415, "the request's Content-Type must be application/json")
    return await handler(request)


def refusal(status: int, error: str) -> web.Response:
    """Return a refusal in the form that all routes use: ``{"error": "..."}``."""
    return web.json_response({"error": error}, status=status)


def _host(request: web.Request) -> str:
    """Return the host that the client has addressed, empty if it is malformed."""
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
