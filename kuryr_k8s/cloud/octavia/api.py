"""The calls of the Octavia API v2 that we need.

https://docs.openstack.org/api-ref/load-balancer/v2/

Any change turns the whole load balancer PENDING_UPDATE, and what is asked of it meanwhile is
answered 409 (:class:`errors.Immutable`). A change has come to its end when nothing of the whole
tree is PENDING: with the provider ``ovn`` the load balancer is ACTIVE before what is in it is.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from kuryr_k8s import errors
from kuryr_k8s.cloud.octavia import bodies as octavia_bodies
from kuryr_k8s.cloud.octavia import found as octavia_found
from kuryr_k8s.cloud.octavia import refusals as octavia_refusals
from kuryr_k8s.cloud.octavia.found import Parts
from kuryr_k8s.cloud.transport import Query, Transport
from kuryr_k8s.model.load_balancer import FoundLoadBalancer, Member

Json = dict[str, Any]
T = TypeVar("T")
PAGE = 500
LOAD_BALANCERS = "/lbaas/loadbalancers"
LISTENERS = "/lbaas/listeners"
POOLS = "/lbaas/pools"
MONITORS = "/lbaas/healthmonitors"
UNKNOWN: Json = {"members": [], "healthmonitor_id": None}  # of a pool that does not matter
ABOVE = "/../"  # the address that we have ends with the version


class Octavia:
    """Typed calls; every error is a :class:`kuryr_k8s.errors.CloudError`.

    Bodies are those of :mod:`kuryr_k8s.cloud.octavia.bodies`. Whatever makes or changes something
    raises :class:`errors.Unsupported` where Octavia, its configuration or the provider of the load
    balancer cannot do what the body asks for.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def microversions(self) -> frozenset[tuple[int, int]]:
        """The API's versions, for example (2, 11): each has brought something."""
        answer = await self._transport.call("GET", ABOVE)
        numbers = (one["id"].removeprefix("v").split(".") for one in answer["versions"])
        return frozenset((int(major), int(minor)) for major, minor in numbers)

    async def providers(self) -> frozenset[str]:
        """Names of the providers that Octavia has."""
        answer = await self._transport.call("GET", "/lbaas/providers")
        return frozenset(one["name"] for one in answer["providers"])

    async def list_load_balancers(self, query: Query) -> list[Json]:
        """All load balancers that match, read page by page: themselves, not what is in them.

        ``tags`` in the query are all on it (joined by commas). Only one value can be given of
        anything else, ids too. Without ``project_id``, an administrator gets those of everybody.
        """
        return await self._list(LOAD_BALANCERS, query)

    async def survey(self, query: Query) -> list[Parts]:
        """As :meth:`list_load_balancers`, with what is in them: by as few lists."""
        load_balancers = await self._list(LOAD_BALANCERS, query)
        projects = sorted({one["project_id"] for one in load_balancers})
        listeners, pools = await _together(
            [self._list_by(kind, "loadbalancers", projects) for kind in (LISTENERS, POOLS)]
        )
        every = (pool for some in pools.values() for pool in some)
        monitored = sorted({one["project_id"] for one in every if one.get("healthmonitor_id")})
        monitors = await self._list_by(MONITORS, "pools", monitored)
        found = []
        for one in load_balancers:
            own = pools[one["id"]]
            of_pools = {pool["id"]: each for pool in own for each in monitors[pool["id"]]}
            found.append(Parts(one, listeners[one["id"]], own, of_pools))
        return found

    async def _list_by(
        self, path: str, whose: str, projects: Iterable[str]
    ) -> defaultdict[str, list[Json]]:
        """By the ids of what they are in."""
        found = defaultdict(list)
        for project in projects:
            for one in await self._list(path, {"project_id": project}):
                for other in one[whose]:
                    found[other["id"]].append(one)
        return found

    async def statuses(self, query: Query) -> dict[str, str]:
        """The provisioning status by id, of all load balancers that match.

        See above for what the status of a load balancer alone is worth.
        """
        fields = {"fields": ("id", "provisioning_status")}
        found = await self._list(LOAD_BALANCERS, {**query, **fields})
        return {one["id"]: one["provisioning_status"] for one in found}

    async def list_parts(self, query: Query) -> list[Json]:
        """All listeners and pools that match; each tells in ``loadbalancers`` whose it is."""
        return [*await self._list(LISTENERS, query), *await self._list(POOLS, query)]

    async def tree_statuses(self, load_balancer_id: str) -> frozenset[str]:
        """The provisioning statuses of everything in the load balancer, by one call.

        Pools that are no listener's are not among them.

        :raises errors.NotFound: there is none that we may see, or it is deleted.
        """
        path = f"{LOAD_BALANCERS}/{load_balancer_id}/status"
        tree = (await self._transport.call("GET", path))["statuses"]["loadbalancer"]
        pools = [pool for listener in tree["listeners"] for pool in listener["pools"]]
        members = [member for pool in pools for member in pool["members"]]
        monitors = [monitor for pool in pools if (monitor := pool.get("health_monitor"))]
        every = [tree, *tree["listeners"], *pools, *members, *monitors]
        return frozenset(one["provisioning_status"] for one in every)

    async def read(
        self, load_balancer_id: str, concerns: Callable[[Json, Json], bool] | None = None
    ) -> FoundLoadBalancer:
        """The load balancer with all that it has.

        No call tells everything: the status tree has neither weights nor what listeners are like,
        and lists of pools have only the ids of members and health monitors. So three calls at
        once, and then one for each pool that has members, and one for each monitor.

        :param concerns: whether this pool, of this load balancer, matters: others are without
            members and monitors. None: all do.
        :raises errors.NotFound: there is none that we may see, or it is deleted.
        """
        query = {"loadbalancer_id": load_balancer_id}
        [load_balancer], listeners, pools = await _together(
            [
                self._get(LOAD_BALANCERS, load_balancer_id, "loadbalancer"),
                self._list(LISTENERS, query),
                self._list(POOLS, query),
            ]
        )
        if concerns is not None:
            pools = [one if concerns(load_balancer, one) else one | UNKNOWN for one in pools]
        return await self.complete(Parts(load_balancer, listeners, pools, {}))

    async def complete(self, parts: Parts) -> FoundLoadBalancer:
        """The load balancer with all that it has: one call for each pool that has members, and
        for each monitor that is not known.

        :raises errors.NotFound: a part is gone.
        """
        peopled = [pool["id"] for pool in parts.pools if pool["members"]]
        unknown = {
            pool["id"]: one
            for pool in parts.pools
            if (one := pool.get("healthmonitor_id")) and pool["id"] not in parts.monitors
        }
        lists = await _together(
            [
                *(self._list(f"{POOLS}/{one}/members", {}) for one in peopled),
                *(self._get(MONITORS, one, "healthmonitor") for one in unknown.values()),
            ]
        )
        members = dict(zip(peopled, lists[: len(peopled)], strict=True))
        read = zip(unknown, lists[len(peopled) :], strict=True)
        monitors = {**parts.monitors, **{pool_id: one for pool_id, [one] in read}}
        return octavia_found.found(*parts[:3], members, monitors)

    async def _get(self, path: str, resource_id: str, kind: str) -> list[Json]:
        answer = await self._transport.call("GET", f"{path}/{resource_id}")
        return [answer[kind]]

    async def create_load_balancer(self, body: Json) -> FoundLoadBalancer:
        """Make it with everything that is in the body; all of it is PENDING_CREATE at first.

        Where Octavia refuses after it has made the VIP's port, the port stays, with ``device_id``
        ``lb-`` and an id that is no load balancer's, and has the address.

        :raises errors.OverQuota: the project's quota of load balancers or of what is in them.
        :raises errors.Conflict: the VIP's address is taken.
        """
        made = await self._write("POST", LOAD_BALANCERS, "loadbalancer", body)
        members = {pool["id"]: pool["members"] for pool in made["pools"]}
        monitors = {
            pool["id"]: one for pool in made["pools"] if (one := pool.get("healthmonitor"))
        }
        return octavia_found.found(made, made["listeners"], made["pools"], members, monitors)

    async def delete_load_balancer(self, load_balancer_id: str, *, cascade: bool = True) -> None:
        """Begin to delete; gone already is as good. It is gone once it is not found any more.

        :param cascade: with all that is in it; else Octavia refuses while something is.
        :raises errors.Immutable: it is PENDING, perhaps PENDING_DELETE. (ERROR is no hindrance.)
        """
        query = {"cascade": "true"} if cascade else {}
        await self._delete(f"{LOAD_BALANCERS}/{load_balancer_id}", query)

    async def create_listener(self, body: Json) -> str:
        """Make a listener; its id.

        :raises errors.Immutable: the load balancer is PENDING or in ERROR (so with what follows).
        :raises errors.Conflict: the load balancer has one for this protocol and port.
        """
        return str((await self._write("POST", LISTENERS, "listener", body))["id"])

    async def update_listener(self, listener_id: str, changes: Json) -> None:
        """:raises errors.NotFound: the listener is gone."""
        await self._write("PUT", f"{LISTENERS}/{listener_id}", "listener", changes)

    async def delete_listener(self, listener_id: str) -> None:
        """Begin to delete; its pool stays. Gone already is as good."""
        await self._delete(f"{LISTENERS}/{listener_id}", {})

    async def create_pool(self, body: Json) -> str:
        """Make a pool; its id.

        :raises errors.Conflict: the listener has a default pool already.
        """
        return str((await self._write("POST", POOLS, "pool", body))["id"])

    async def update_pool(self, pool_id: str, changes: Json) -> None:
        """:raises errors.NotFound: the pool is gone."""
        await self._write("PUT", f"{POOLS}/{pool_id}", "pool", changes)

    async def delete_pool(self, pool_id: str) -> None:
        """Begin to delete, with its members and health monitor. Gone already is as good."""
        await self._delete(f"{POOLS}/{pool_id}", {})

    async def create_monitor(self, body: Json) -> str:
        """Make a pool's health monitor; its id.

        :raises errors.NotFound: the pool is gone.
        :raises errors.Conflict: the pool has one already.
        """
        return str((await self._write("POST", MONITORS, "healthmonitor", body))["id"])

    async def update_monitor(self, monitor_id: str, changes: Json) -> None:
        """:raises errors.NotFound: the monitor is gone."""
        await self._write("PUT", f"{MONITORS}/{monitor_id}", "healthmonitor", changes)

    async def delete_monitor(self, monitor_id: str) -> None:
        """Begin to delete. Gone already is as good."""
        await self._delete(f"{MONITORS}/{monitor_id}", {})

    async def set_members(
        self, pool_id: str, members: Sequence[Member], *, additive: bool = False
    ) -> None:
        """Have these members, by one call.

        :param additive: those that it has and that are not given stay (API 2.11); else they go.
        :raises errors.NotFound: the pool is gone.
        :raises errors.Immutable: among others where the pool alone is PENDING or in ERROR.
        """
        query = {"additive_only": "true"} if additive else {}
        body = {"members": [octavia_bodies.member_body(member) for member in members]}
        with octavia_refusals.named():
            await self._transport.call("PUT", f"{POOLS}/{pool_id}/members", body=body, query=query)

    async def _write(self, method: str, path: str, kind: str, body: Json) -> Json:
        """What it answers, without the object's name around it."""
        with octavia_refusals.named():
            answer = await self._transport.call(method, path, body={kind: body})
        return dict(answer[kind])

    async def _delete(self, path: str, query: Query) -> None:
        try:
            await self._transport.call("DELETE", path, query=query)
        except errors.NotFound:
            return

    async def _list(self, path: str, query: Query) -> list[Json]:
        """All, page by page; Octavia's own limit of a page may be less than ours."""
        kind = path.rpartition("/")[2]
        found: list[Json] = []
        page = {"limit": str(PAGE)}
        while True:
            try:
                answer = await self._transport.call("GET", path, query={**query, **page})
            except errors.BadRequest as error:
                if "marker" not in page:
                    raise
                raise errors.CloudError(f"{path} has changed while it was read") from error
            found += answer[kind]
            if not any(link["rel"] == "next" for link in answer.get(f"{kind}_links", ())):
                return found
            page["marker"] = found[-1]["id"]


async def _together(calls: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """The answers to calls that are under way at the same time; or the first error."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]
