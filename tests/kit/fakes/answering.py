"""How a FakeCloud answers: faults, latency, and errors in the shape of the service asked."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

from aiohttp import web

from . import barbican, keystone
from .faults import Answer
from .neutron import errors as neutron_errors
from .observing import Call
from .octavia import errors as octavia_errors
from .octavia.api import ROOT as OCTAVIA

if TYPE_CHECKING:
    from .cloud import FakeCloud


def middleware(cloud: FakeCloud) -> Any:
    """What every request goes through."""

    @web.middleware
    async def answer(request: web.Request, handler: Any) -> web.StreamResponse:
        resource = request.match_info.route.resource
        what = resource.canonical if resource is not None else request.path
        await request.read()  # if its client dies before, the request has never come
        cloud.calls.append(Call(request.method, what, request.path, request.query_string))

        async def proceed() -> web.StreamResponse:
            if request.path.startswith(OCTAVIA):
                cloud.octavia.check_size(await request.read())
            await _take_time(cloud, request)
            try:
                return await handler(request)
            finally:
                cloud.changes.notify()

        try:
            response = await cloud.faults.around(request, proceed)
        except Answer as fault:
            response = _error(request, fault)
        except web.HTTPException as error:
            response = _error(request, Answer(error.status))
        response.headers["x-openstack-request-id"] = f"req-{uuid.uuid4()}"
        cloud.changes.notify()
        return response

    return answer


async def _take_time(cloud: FakeCloud, request: web.Request) -> None:
    if request.path.startswith("/v3"):
        return
    seconds = cloud.latency.get(request.method, 0.0)
    if cloud.latency_per_port and request.method == "POST" and request.path == "/v2.0/ports":
        seconds += cloud.latency_per_port * len((await request.json()).get("ports", [None]))
    if seconds:
        await asyncio.sleep(seconds)


def _error(request: web.Request, fault: Answer) -> web.Response:
    if request.path.startswith("/v3") or fault.status == 401:
        body = keystone.render(fault)
    elif request.path.startswith(barbican.ROOT):
        body = barbican.render(fault)
    elif request.path.startswith(OCTAVIA):
        body = octavia_errors.render(fault)
    else:
        body = neutron_errors.render(fault)
    headers = dict(fault.headers)
    if fault.status == 401:
        headers["WWW-Authenticate"] = f'Keystone uri="{request.url.origin()}"'
    return web.json_response(body, status=fault.status, headers=headers)
