"""A proxy in front of the API server that makes watches and writes go wrong.

    async with KubeProxy(server) as proxy:
        kubeconfig = proxy.kubeconfig_for("controller")
        proxy.faults.at_write(2, lose_reply())            # applied, but nobody hears of it
        proxy.events.drop(1, "pods")                      # the next event of Pods is lost
        proxy.faults.add(action=answer(410, "Expired"), when=is_watch)
        proxy.cut_watches()
        assert proxy.calls.count("list", "pods") == 1

It speaks plain HTTP and passes the client's token on, so RBAC is the server's as ever.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web
from yarl import URL

from tests.kit.fakes import serving
from tests.kit.fakes.faults import Answer, Faults, drop
from tests.kit.fakes.observing import PATIENCE, Call, Calls, Changes

from .server import KubeServer
from .streams import Events, Stream

_PASSED_ON = ("Authorization", "Accept", "Content-Type", "User-Agent", "Impersonate-User")
CLUSTER_UID = "c1a57e40-0000-4000-8000-000000000001"
_IDENTITY = "/api/v1/namespaces/kube-system"
FLOW_SCHEMA = "X-Kubernetes-PF-FlowSchema-UID"  # which decided how urgent a request is
_PASSED_BACK = (
    "Content-Type", "Content-Encoding", "Retry-After", "Audit-Id", "Warning", FLOW_SCHEMA
)  # fmt: skip
_NARROWED = (
    "pods",
    "kuryrports",
    "neutronportpools",
    "neutronports",
    "services",
    "endpoints",
    "endpointslices",
    "ingresses",
    "routes",
    "secrets",
)
_WRITES = ("create", "update", "patch", "delete", "deletecollection")
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def is_watch(request: web.Request) -> bool:
    """Whether the request asks for a stream of events."""
    return request.query.get("watch") in ("true", "1")


def kind_of(request: web.Request) -> tuple[str, str]:
    """Verb and resource as in RBAC: ("patch", "kuryrports/status")."""
    parts = [part for part in request.path.split("/") if part]
    rest = parts[2:] if parts[:1] == ["api"] else parts[3:]
    if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        rest = rest[2:]
    if not rest:
        return request.method.lower(), request.path
    resource = "/".join([rest[0], *rest[2:]])
    named = len(rest) > 1
    if request.method == "GET":
        verb = "watch" if is_watch(request) else "get" if named else "list"
    else:
        verb = _VERBS[request.method]
    return ("deletecollection" if verb == "delete" and not named else verb), resource


def session_for(server: KubeServer) -> aiohttp.ClientSession:
    """Open connections to the server for proxies."""
    trust = ssl.create_default_context(cafile=str(server.ca_file))
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=trust, limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
        read_bufsize=2**22,
    )


class KubeProxy:
    """The proxy; `faults` is for single requests, `events` for what comes in watches.

    Renewing a Lease is not counted as a write, so that `at_write` finds the same write each time;
    set `faults.counts` for something else.

    With `namespace`, lists and watches show that namespace alone, and the L7Router of its name;
    with `node` that node alone:
    so several controllers can work on one server and not see each other's Pods. Proxies that have
    a session in common share its connections to the server. The namespace kube-system has the uid
    `cluster_uid`: so several proxies show several clusters, and tests know it beforehand.
    """

    def __init__(
        self,
        server: KubeServer,
        *,
        namespace: str = "",
        node: str = "",
        session: aiohttp.ClientSession | None = None,
        cluster_uid: str = CLUSTER_UID,
    ) -> None:
        self._server = server
        self._cluster_uid = cluster_uid
        self._shared = session
        self._namespace = namespace
        # lists and watches of these paths show the object of that name alone
        self.alone = {
            "/api/v1/namespaces": namespace,
            "/api/v1/nodes": node,
            "/apis/openstack.org/v1/kuryrportpools": node,
            "/apis/openstack.org/v1/l7routers": namespace,
        }
        self.faults = Faults(counts=lambda request: kind_of(request)[1] != "leases")
        self.events = Events()
        self.calls = Calls()
        self.answered = 0  # writes, whatever came of them
        self.found_nothing: Counter[str] = Counter()  # patches of what is gone, by resource
        self.asking = 0  # requests that the server has not answered
        self.changes = Changes()
        self.streams: set[Stream] = set()
        self.url = ""
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = self._shared or session_for(self._server)
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.events.release()
        self.cut_watches()
        if self._runner is not None:
            await serving.close(self._runner)
        if self._session is not None and self._session is not self._shared:
            await self._session.close()

    def kubeconfig_for(self, user: str, url: str = "") -> Path:
        """A kubeconfig of one of the server's users that goes through this proxy; `url` is for a
        wire to it."""
        return self._server.kubeconfig_for(user, url or self.url)

    def watching(self, resource: str) -> int:
        """How many watches of the resource are open."""
        return sum(stream.resource == resource for stream in self.streams)

    def cut_watches(self, resource: str | None = None) -> None:
        """Close the connections of all watches, or of those of one resource."""
        self._end(resource, "cut")

    def expire_watches(self, resource: str | None = None) -> None:
        """Send ERROR 410 into the open watches and end them, as after a compaction."""
        self._end(resource, "expired")

    async def bookmark(self, resource: str) -> None:
        """Send a bookmark into the open watches of a resource."""
        for stream in list(self.streams):
            if stream.resource == resource:
                await stream.bookmark()

    async def wait_for(self, predicate: Callable[[], object], *, within: float = PATIENCE) -> None:
        """Wait until the predicate is true; asked after every request, event and watch."""
        await self.changes.wait_for(predicate, within=within)

    def _end(self, resource: str | None, how: str) -> None:
        for stream in list(self.streams):
            if resource in (None, stream.resource):
                stream.end(how)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        await request.read()  # if its client dies before, the request has never come
        verb, resource = kind_of(request)
        self.calls.append(Call(verb, resource, request.path, request.query_string))
        forward = self._stream if verb == "watch" else self._forward
        try:
            return await self.faults.around(request, lambda: forward(request, resource))
        except Answer as fault:
            return web.json_response(_status(fault), status=fault.status, headers=fault.headers)
        except (aiohttp.ClientError, ConnectionError):
            return drop(request)
        finally:
            self.answered += verb in _WRITES and resource != "leases"
            self.changes.notify()

    async def _forward(self, request: web.Request, resource: str) -> web.StreamResponse:
        """One request, to its end, even if the client is gone meanwhile."""
        body = await request.read()
        response = await asyncio.shield(self._exchange(request, body))
        self.found_nothing[resource] += (request.method, response.status) == ("PATCH", 404)
        return response

    async def _exchange(self, request: web.Request, body: bytes) -> web.Response:
        self.asking += 1
        try:
            async with self._ask(request, body) as answer:
                if request.path == _IDENTITY and answer.status == 200:
                    return self._identified(await answer.read())
                return web.Response(
                    status=answer.status, body=await answer.read(), headers=_headers(answer)
                )
        finally:
            self.asking -= 1
            self.changes.notify()

    def _identified(self, body: bytes) -> web.Response:
        namespace = json.loads(body)
        namespace["metadata"]["uid"] = self._cluster_uid
        return web.json_response(namespace)

    async def _stream(self, request: web.Request, resource: str) -> web.StreamResponse:
        async with self._ask(request, b"") as answer:
            if answer.status != 200:
                return web.Response(
                    status=answer.status, body=await answer.read(), headers=_headers(answer)
                )
            response = web.StreamResponse(headers=_headers(answer))
            await response.prepare(request)
            stream = Stream(resource, request, response, answer, self.events, self.changes)
            self.streams.add(stream)
            self.changes.notify()
            try:
                await stream.run()
            finally:
                self.streams.discard(stream)
            return response

    def _ask(self, request: web.Request, body: bytes) -> Any:
        assert self._session is not None
        passed = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        url = URL(f"{self._server.base_url}{self._narrowed(request.raw_path)}", encoded=True)
        return self._session.request(request.method, url, data=body or None, headers=passed)

    def _narrowed(self, raw_path: str) -> str:
        """The same question about our own namespace and node alone, if it is about all."""
        if not self._namespace:
            return raw_path
        path, _, query = raw_path.partition("?")
        head, _, plural = path.rpartition("/")
        if self.alone.get(path):
            query = f"{query}&fieldSelector=metadata.name%3D{self.alone[path]}"
        elif plural in _NARROWED and "/namespaces/" not in head:
            path = f"{head}/namespaces/{self._namespace}/{plural}"
        return f"{path}?{query}" if query else path


def _headers(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {name: answer.headers[name] for name in _PASSED_BACK if name in answer.headers}


def _status(fault: Answer) -> dict[str, Any]:
    reasons = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError"}
    reason = fault.kind or reasons.get(fault.status, "Unknown")
    message = fault.message or f"{reason}, says the proxy"
    if fault.status == 403 and not fault.message:  # as an authorizer says it
        message = 'forbidden: User "tests" cannot do this, says the proxy'
    head = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return head | {"message": message, "reason": reason, "code": fault.status}
