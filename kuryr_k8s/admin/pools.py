"""The pools over HTTP, for ``kuryr-k8s pools``: model/pool_requests.py describes them.

The health server serves what only reads, to everybody who may read metrics; the admin server
serves everything, to root and the controller's own user. Only the controller that leads knows its
pools; a standby answers 503.
"""

import hashlib
import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from kuryr_k8s.admin.server import BadRequest, answering, require_lead
from kuryr_k8s.drivers.base import (
    KeepsPorts,
    PodProjectDriver,
    PodSecurityGroupsDriver,
    PodSubnetsDriver,
    PoolKey,
    PoolView,
    PortRequest,
    VIFPoolDriver,
    keepers,
)
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.k8s.resources import NAMESPACES, NODES, Key
from kuryr_k8s.model.kuryrport import DEFAULT_IFNAME
from kuryr_k8s.model.pod import Node, Pod
from kuryr_k8s.model.pool_requests import NUMBERS

Json = dict[str, Any]
MOST = 1000  # ports of one request


class PoolAdmin:
    """Answers requests about the pools of the controller that leads.

    :param leads: tells whether this controller works, and nobody else can.
    """

    def __init__(self, context: HandlerContext, leads: Callable[[], bool]) -> None:
        self._leads = leads
        self._driver = context.drivers[VIFPoolDriver]
        self._projects = context.drivers[PodProjectDriver]
        self._subnets = context.drivers[PodSubnetsDriver]
        self._groups = context.drivers[PodSecurityGroupsDriver]
        self._nodes = context.informers.of(NODES)
        self._namespaces = context.informers.of(NAMESPACES)

    def reading(self) -> list[web.RouteDef]:
        """Return the routes that change nothing."""
        return [
            web.get("/pools", answering(self._list)),
            web.get("/pools/{id}", answering(self._show)),
        ]

    def changing(self) -> list[web.RouteDef]:
        """Return the routes that change something."""
        return [
            web.post("/pools", answering(self._order)),
            web.post("/pools/{id}/populate", answering(self._populate)),
            web.post("/pools/{id}/free", answering(self._free)),
        ]

    async def _list(self, _request: web.Request) -> Json:
        pools = [pool for keeper in self._keepers() for pool in keeper.pools()]
        return {"pools": [_described(pool) for pool in pools]}

    async def _show(self, request: web.Request) -> Json:
        keeper, pool = self._find(request)
        ports = [
            {
                "id": port.id,
                "mac": port.mac,
                "addresses": [address for _, address in port.fixed_ips],
                "state": state,
            }
            for port, state in keeper.ports(pool.key)
        ]
        return _described(pool) | {"ports": ports}

    async def _populate(self, request: web.Request) -> Json:
        count = _count(await _body(request))
        keeper, pool = self._find(request)  # only now: pools come and go
        keeper.populate(pool.key, count)
        return {"ports": count}

    async def _order(self, request: web.Request) -> Json:
        """Make ports for a node, whether it has a pool already or not."""
        body = await _body(request)
        count = _count(body)
        require_lead(self._leads)
        name, namespace = str(body.get("node")), str(body.get("namespace") or "default")
        node = self._nodes.get(Key("", name))
        if node is None:
            raise BadRequest(f"there is no node {name}")
        if node.foreign:
            raise BadRequest(f"the Pods of node {name} get their network from somebody else")
        if self._namespaces.get(Key("", namespace)) is None:
            raise BadRequest(f"there is no namespace {namespace}")
        keeper = self._driver.part_of(node)
        if not isinstance(keeper, KeepsPorts):
            raise BadRequest(f"the Pods of node {name} have no pools")
        key = await keeper.key_of(await self._request_for(node, namespace))
        keeper.populate(key, count)
        return {"id": id_of(key), "ports": count}

    async def _free(self, request: web.Request) -> Json:
        body = await _body(request)
        count = _count(body) if body.get("count") is not None else None
        keeper, pool = self._find(request)
        return {"ports": keeper.free(pool.key, count)}

    def _keepers(self) -> list[KeepsPorts]:
        require_lead(self._leads)
        return keepers(self._driver)

    def _find(self, request: web.Request) -> tuple[KeepsPorts, PoolView]:
        wanted = request.match_info["id"]
        for keeper in self._keepers():
            for pool in keeper.pools():
                if id_of(pool.key) == wanted:
                    return keeper, pool
        raise web.HTTPNotFound(text=f"there is no pool {wanted}")

    async def _request_for(self, node: Node, namespace: str) -> PortRequest:
        """Make the request that a Pod of that namespace on that node would lead to."""
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
        groups = self._groups
        project = await self._projects.project(pod)
        return PortRequest(
            pod_uid="",
            pod_name="",
            node=node,
            ifname=DEFAULT_IFNAME,
            project_id=project,
            pod_network=await self._subnets.pod_network(pod, project),
            security_groups=await groups.security_groups(pod, project),
            may_exist=False,
        )


def id_of(key: PoolKey) -> str:
    """Compute a short name of a pool that is always the same."""
    return hashlib.sha256(repr(tuple(key)).encode()).hexdigest()[:10]


def _described(pool: PoolView) -> Json:
    numbers = pool.numbers._asdict()
    return {
        "id": id_of(pool.key),
        "project_id": pool.key.project_id,
        "place": pool.key.place,
        "node": pool.node,
        "network_id": pool.key.network_id,
        "network_name": pool.network_name,
        "subnet_ids": list(pool.key.subnet_ids),
        "security_groups": list(pool.key.security_groups),
    } | {name: numbers[name] for name in NUMBERS}


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
