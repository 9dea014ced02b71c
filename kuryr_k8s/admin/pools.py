"""The pools over HTTP, for ``kuryr-k8s pools``: what is asked and answered stands in cli/pools.py.

Served by the health server: to whoever may ask it for metrics, changes to this host alone. Only a
controller that leads knows its pools; a standby answers 503.
"""

import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from kuryr_k8s import errors
from kuryr_k8s.cli.pools import NUMBERS
from kuryr_k8s.drivers.base import (
    PodProjectDriver,
    PodSecurityGroupsDriver,
    PodSubnetsDriver,
    PoolKey,
    PortRequest,
    VIFPoolDriver,
)
from kuryr_k8s.drivers.pools.pool import Pool
from kuryr_k8s.drivers.pools.port_pool import PortPool, pools_of
from kuryr_k8s.engine.local_only import refusal
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.k8s.resources import NAMESPACES, NODES, Key
from kuryr_k8s.model.kuryrport import DEFAULT_IFNAME
from kuryr_k8s.model.pod import Node, Pod

Json = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.Response]]
MOST = 1000  # ports of one request


class BadRequest(Exception):
    """What was asked for makes no sense; the message says why."""


class PoolAdmin:
    """Answers requests about the pools of the controller that leads.

    :param leading: whether that is this one.
    """

    def __init__(self, context: HandlerContext, leading: Callable[[], bool]) -> None:
        self._handlers = context
        self._leading = leading
        context.informers.of(NAMESPACES)
        context.informers.of(NODES)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/pools", _answering(self._list)),
            web.post("/pools", _answering(self._order)),
            web.get("/pools/{id}", _answering(self._show)),
            web.post("/pools/{id}/populate", _answering(self._populate)),
            web.post("/pools/{id}/free", _answering(self._free)),
        ]

    async def _list(self, _request: web.Request) -> Json:
        return {
            "pools": [
                _described(driver, pool)
                for driver in self._drivers()
                for pool in driver.pools.state.pools.values()
            ]
        }

    async def _show(self, request: web.Request) -> Json:
        driver, pool = self._find(request)
        state = driver.pools.state
        spares = [spare for port in pool.ports() if (spare := state.spare(port))]
        ports = [
            {
                "id": spare.id,
                "mac": spare.mac,
                "addresses": [address for _, address in spare.fixed_ips],
                "state": state.where(spare.id),
            }
            for spare in spares
        ]
        return _described(driver, pool) | {"ports": ports}

    async def _populate(self, request: web.Request) -> Json:
        count = _count(await _body(request))
        driver, pool = self._find(request)  # no earlier: pools come and go
        driver.populate(pool.key, count)
        return {"ports": count}

    async def _order(self, request: web.Request) -> Json:
        """Make ports for a node, whether it has a pool already or not."""
        body = await _body(request)
        count = _count(body)
        context = self._context()
        name, namespace = str(body.get("node")), str(body.get("namespace") or "default")
        node = context.informers.of(NODES).get(Key("", name))
        if node is None:
            raise BadRequest(f"there is no node {name}")
        if context.informers.of(NAMESPACES).get(Key("", namespace)) is None:
            raise BadRequest(f"there is no namespace {namespace}")
        driver = context.drivers[VIFPoolDriver].part_of(node)
        if not isinstance(driver, PortPool):
            raise BadRequest(f"the Pods of node {name} have no pools")
        key = await driver.key_of(await _request_for(context, node, namespace))
        driver.populate(key, count)
        return {"id": id_of(key), "ports": count}

    async def _free(self, request: web.Request) -> Json:
        body = await _body(request)
        count = _count(body) if body.get("count") is not None else None
        driver, pool = self._find(request)
        return {"ports": driver.free(pool.key, count)}

    def _context(self) -> HandlerContext:
        if not self._leading():
            raise web.HTTPServiceUnavailable(text="this controller does not lead")
        return self._handlers

    def _drivers(self) -> list[PortPool]:
        return pools_of(self._context().drivers[VIFPoolDriver])

    def _find(self, request: web.Request) -> tuple[PortPool, Pool]:
        wanted = request.match_info["id"]
        for driver in self._drivers():
            for key, pool in driver.pools.state.pools.items():
                if id_of(key) == wanted:
                    return driver, pool
        raise web.HTTPNotFound(text=f"there is no pool {wanted}")


def id_of(key: PoolKey) -> str:
    """A short name of a pool, always the same."""
    return hashlib.sha256(repr(tuple(key)).encode()).hexdigest()[:10]


def _described(driver: PortPool, pool: Pool) -> Json:
    numbers = driver.pools.numbers(pool)
    return {
        "id": id_of(pool.key),
        "project_id": pool.key.project_id,
        "place": pool.key.place,
        "network_id": pool.key.network_id,
        "subnet_ids": list(pool.key.subnet_ids),
        "security_groups": list(pool.key.security_groups),
    } | {name: numbers[name] for name in NUMBERS}


async def _request_for(context: HandlerContext, node: Node, namespace: str) -> PortRequest:
    """What a Pod of that namespace, on that node, would ask for."""
    pod = Pod(
        namespace=namespace,
        name="",
        uid="",
        resource_version="",
        node=node.name,
        phase="Pending",
        host_network=False,
        deleting=False,
        config_hash=None,
    )
    drivers = context.drivers
    project = await drivers[PodProjectDriver].project(pod)
    return PortRequest(
        pod_uid="",
        pod_name="",
        node=node,
        ifname=DEFAULT_IFNAME,
        project_id=project,
        pod_network=await drivers[PodSubnetsDriver].pod_network(pod, project),
        security_groups=await drivers[PodSecurityGroupsDriver].security_groups(pod, project),
        may_exist=False,
    )


async def _body(request: web.Request) -> Json:
    try:
        body = await request.json()
    except json.JSONDecodeError as error:
        raise BadRequest(f"the request is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise BadRequest("the request is not a JSON object")
    return body


def _count(body: Json) -> int:
    count = body.get("count")
    if not isinstance(count, int) or isinstance(count, bool) or not 0 < count <= MOST:
        raise BadRequest(f"count must be a number from 1 to {MOST}")
    return count


def _answering(answer: Callable[[web.Request], Awaitable[Json]]) -> Handler:
    async def handler(request: web.Request) -> web.Response:
        try:
            return web.json_response(await answer(request))
        except web.HTTPException as error:
            return refusal(error.status, error.text or "")
        except BadRequest as error:
            return refusal(400, str(error))
        except errors.KuryrError as error:
            return refusal(502, str(error))

    return handler
