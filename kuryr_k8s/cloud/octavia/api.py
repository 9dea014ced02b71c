"""Calls of the Octavia API v2.

https://docs.openstack.org/api-ref/load-balancer/v2/

Any change turns the whole load balancer PENDING_UPDATE, and Octavia answers further changes with
409 (:class:`errors.Immutable`). A change has ended when nothing in the whole tree is PENDING: with
the provider ``ovn`` the load balancer is ACTIVE before its parts are.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from kuryr_k8s import errors
from kuryr_k8s.cloud.octavia import bodies as octavia_bodies
from kuryr_k8s.cloud.octavia import found as octavia_found
from kuryr_k8s.cloud.octavia import refusals as octavia_refusals
from kuryr_k8s.cloud.octavia.found import Parts, StatusTree
from kuryr_k8s.cloud.page_size import PAGE
from kuryr_k8s.cloud.paging import Reading, read_all
from kuryr_k8s.cloud.transport import Query, Transport
from kuryr_k8s.model.load_balancer import (
    FoundL7Policy,
    FoundListener,
    FoundLoadBalancer,
    FoundPool,
    Member,
)

Json = dict[str, Any]
T = TypeVar("T")
LOAD_BALANCERS = "/lbaas/loadbalancers"
LISTENERS = "/lbaas/listeners"
POOLS = "/lbaas/pools"
MONITORS = "/lbaas/healthmonitors"
POLICIES = "/lbaas/l7policies"
UNKNOWN: Json = {"members": [], "healthmonitor_id": None}  # of a pool that does not matter
ABOVE = "/../"  # the address that we have ends with the version


class Octavia:
    """Client with typed calls; every error is a :class:`kuryr_k8s.errors.CloudError`.

    Bodies are those of :mod:`kuryr_k8s.cloud.octavia.bodies`. Whatever makes or changes something
    raises :class:`errors.Unsupported` where Octavia, its configuration or the provider of the load
    balancer cannot do what the body asks for.

    :param page: the most objects of a list that are asked for at once.
    """

    def __init__(self, transport: Transport, *, page: int = PAGE) -> None:
        self._transport = transport
        self._page = page

    async def microversions(self) -> frozenset[tuple[int, int]]:
        """Return the versions of the API, for example (2, 11)."""
        answer = await self._transport.call("GET", ABOVE)
        numbers = (version["id"].removeprefix("v").split(".") for version in answer["versions"])
        return frozenset((int(major), int(minor)) for major, minor in numbers)

    async def providers(self) -> frozenset[str]:
        """Return the names of Octavia's providers."""
        answer = await self._transport.call("GET", "/lbaas/providers")
        return frozenset(provider["name"] for provider in answer["providers"])

    async def list_load_balancers(self, query: Query) -> list[Json]:
        """Return all load balancers that match, without what is in them.

        ``tags`` in the query (joined by commas) must all match. Anything else, ids too, can have
        only one value. Without ``project_id``, an administrator gets those of all projects.
        """
        return await self._list(LOAD_BALANCERS, query)

    async def survey(
        self, query: Query, concerns: Callable[[Json], bool], reading: Reading | None = None
    ) -> list[Parts]:
        """Return all load balancers that match, with what is in them, by few lists.

        :param concerns: tells whether a load balancer matters; others come without their parts.
        :param reading: where the lists stay as far as they were read, for the next attempt.
        """
        reading = reading or Reading()
        listed = await self._list(LOAD_BALANCERS, query, reading)
        projects = sorted({row["project_id"] for row in listed if concerns(row)})
        lists = (
            self._list_by(kind, "loadbalancers", projects, reading) for kind in (LISTENERS, POOLS)
        )
        # each to its end: what one has read is not lost because the other has failed
        listeners, pools = map(_answered, await _together([_outcome(each) for each in lists]))
        every = (pool for some in pools.values() for pool in some)
        monitored = sorted({pool["project_id"] for pool in every if pool.get("healthmonitor_id")})
        monitors = await self._list_by(MONITORS, "pools", monitored, reading)
        fronts = (listener for some in listeners.values() for listener in some)
        routed = sorted({each["project_id"] for each in fronts if each.get("l7policies")})
        policies = defaultdict(list)
        for project in routed:
            for policy in await self._list(POLICIES, {"project_id": project}, reading):
                policies[policy["listener_id"]].append(policy)
        found = []
        for load_balancer in listed:
            own, of_it = pools[load_balancer["id"]], listeners[load_balancer["id"]]
            of_pools = {pool["id"]: monitor for pool in own for monitor in monitors[pool["id"]]}
            of_listeners = [policy for each in of_it for policy in policies[each["id"]]]
            found.append(Parts(load_balancer, of_it, own, of_pools, of_listeners))
        return found

    async def _list_by(
        self, path: str, containers: str, projects: Iterable[str], reading: Reading
    ) -> defaultdict[str, list[Json]]:
        """Return parts by the ids of the objects that contain them."""
        found = defaultdict(list)
        for project in projects:
            for part in await self._list(path, {"project_id": project}, reading):
                for container in part[containers]:
                    found[container["id"]].append(part)
        return found

    async def statuses(self, query: Query) -> dict[str, str]:
        """Return the provisioning statuses of all load balancers that match, by id.

        The module says what the status of a load balancer alone means.
        """
        fields = {"fields": ("id", "provisioning_status")}
        found = await self._list(LOAD_BALANCERS, {**query, **fields})
        return {row["id"]: row["provisioning_status"] for row in found}

    async def list_listeners(self, query: Query, reading: Reading | None = None) -> list[Json]:
        """Return all listeners that match; ``loadbalancers`` names what each is in.

        :param reading: as with :meth:`survey`.
        """
        return await self._list(LISTENERS, query, reading)

    async def list_pools(self, query: Query, reading: Reading | None = None) -> list[Json]:
        """Return all pools that match; ``loadbalancers`` names what each is in.

        :param reading: as with :meth:`survey`.
        """
        return await self._list(POOLS, query, reading)

    async def status_tree(self, load_balancer_id: str) -> StatusTree:
        """Return the statuses of everything in the load balancer, by one call.

        :raises errors.NotFound: there is none that we may see, or it is deleted.
        """
        path = f"{LOAD_BALANCERS}/{load_balancer_id}/status"
        answer = await self._transport.call("GET", path)
        return octavia_found.status_tree(answer["statuses"]["loadbalancer"])

    async def read(
        self, load_balancer_id: str, concerns: Callable[[Json, Json], bool] | None = None
    ) -> FoundLoadBalancer:
        """Return the load balancer with all that it contains.

        No call tells everything: the status tree has neither weights nor attributes of listeners,
        and lists of pools have only the ids of members and health monitors. So there are three
        calls at once, and then one for each pool that has members, one for each monitor, and one
        for each L7 policy.

        :param concerns: tells whether a pool of the load balancer matters; members and monitors
            of other pools are not read. None if all matter.
        :raises errors.NotFound: there is none that we may see, or it is deleted.
        :raises errors.CloudError: among others, if a part of it went while it was read.
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
            pools = [pool if concerns(load_balancer, pool) else pool | UNKNOWN for pool in pools]
        routed = [listener["id"] for listener in listeners if listener.get("l7policies")]
        policies = await _together(
            [self._list(POLICIES, {"listener_id": each}) for each in routed]
        )
        flat = [policy for some in policies for policy in some]
        try:
            return await self.complete(Parts(load_balancer, listeners, pools, {}, flat))
        except errors.NotFound as error:
            raise errors.CloudError(
                f"load balancer {load_balancer_id} has changed while it was read"
            ) from error

    async def complete(self, parts: Parts) -> FoundLoadBalancer:
        """Return the load balancer with all that it contains.

        That takes one call for each pool that has members, for each L7 policy that has rules, and
        for each monitor that is not known.

        :raises errors.NotFound: a part is gone.
        """
        peopled = [pool["id"] for pool in parts.pools if pool["members"]]
        unknown = {
            pool["id"]: monitor
            for pool in parts.pools
            if (monitor := pool.get("healthmonitor_id")) and pool["id"] not in parts.monitors
        }
        ruled = [policy["id"] for policy in parts.policies if policy["rules"]]
        lists = iter(
            await _together(
                [
                    *(self._list(f"{POOLS}/{pool_id}/members", {}) for pool_id in peopled),
                    *(self._list(f"{POLICIES}/{policy_id}/rules", {}) for policy_id in ruled),
                    *(self._get(MONITORS, each, "healthmonitor") for each in unknown.values()),
                ]
            )
        )
        members = dict(zip(peopled, lists, strict=False))
        rules = dict(zip(ruled, lists, strict=False))
        read = zip(unknown, lists, strict=True)
        monitors = {**parts.monitors, **{pool_id: monitor for pool_id, [monitor] in read}}
        return octavia_found.found(parts._replace(monitors=monitors), members, rules)

    async def read_pool(self, pool_id: str) -> FoundPool:
        """Return a pool with its members and its health monitor, by up to three calls.

        :raises errors.NotFound: it is gone.
        """
        [shown] = await self._get(POOLS, pool_id, "pool")
        members = await self._list(f"{POOLS}/{pool_id}/members", {}) if shown["members"] else []
        monitor = None
        if monitor_id := shown.get("healthmonitor_id"):
            [monitor] = await self._get(MONITORS, monitor_id, "healthmonitor")
        return octavia_found.found_pool(shown, members, monitor)

    async def read_listener(
        self, listener_id: str, pool_names: Mapping[str, str], policies: Sequence[FoundL7Policy]
    ) -> FoundListener:
        """Return a listener, by one call.

        :param pool_names: names of the pools that may be its default pool, by their ids.
        :param policies: its policies, which are known.
        :raises errors.NotFound: it is gone.
        """
        [shown] = await self._get(LISTENERS, listener_id, "listener")
        return octavia_found.found_listener(shown, pool_names, policies)

    async def read_policy(self, policy_id: str, pool_names: Mapping[str, str]) -> FoundL7Policy:
        """Return an L7 policy with its rules, by up to two calls.

        :param pool_names: names of the pools to which it may lead, by their ids.
        :raises errors.NotFound: it is gone.
        """
        [shown] = await self._get(POLICIES, policy_id, "l7policy")
        rules = await self._list(f"{POLICIES}/{policy_id}/rules", {}) if shown["rules"] else []
        return octavia_found.found_policy(shown, rules, pool_names)

    async def _get(self, path: str, resource_id: str, kind: str) -> list[Json]:
        answer = await self._transport.call("GET", f"{path}/{resource_id}")
        return [answer[kind]]

    async def create_load_balancer(self, body: Json) -> FoundLoadBalancer:
        """Begin to create a load balancer with everything in the body; return it, PENDING_CREATE.

        Where Octavia refuses after it has created the VIP's port, the port stays and has the
        address. Its ``device_id`` is ``lb-`` and an id that no load balancer has.

        :raises errors.OverQuota: the project's quota of load balancers or of what is in them.
        :raises errors.Conflict: the VIP's address is taken.
        """
        made = await self._write("POST", LOAD_BALANCERS, "loadbalancer", body)
        members = {pool["id"]: pool["members"] for pool in made["pools"]}
        monitors = {
            pool["id"]: monitor for pool in made["pools"] if (monitor := pool.get("healthmonitor"))
        }
        policies = [
            policy | {"listener_id": listener["id"]}
            for listener in made["listeners"]
            for policy in listener.get("l7policies") or ()
        ]
        rules = {policy["id"]: policy["rules"] for policy in policies}
        parts = Parts(made, made["listeners"], made["pools"], monitors, policies)
        return octavia_found.found(parts, members, rules)

    async def delete_load_balancer(self, load_balancer_id: str, *, cascade: bool = True) -> None:
        """Begin to delete a load balancer; it is no error if it does not exist.

        It is gone once it is not found any more.

        :param cascade: delete everything in it; else Octavia refuses while there is something.
        :raises errors.Immutable: it is PENDING, perhaps PENDING_DELETE. (ERROR is no hindrance.)
        """
        query = {"cascade": "true"} if cascade else {}
        await self._delete(f"{LOAD_BALANCERS}/{load_balancer_id}", query)

    async def set_tags(self, load_balancer_id: str, tags: Sequence[str]) -> None:
        """Begin to give a load balancer these tags, and no others.

        :raises errors.Immutable: it is PENDING or in ERROR.
        """
        path = f"{LOAD_BALANCERS}/{load_balancer_id}"
        await self._write("PUT", path, "loadbalancer", {"tags": list(tags)})

    async def set_security_groups(self, load_balancer_id: str, group_ids: Sequence[str]) -> None:
        """Begin to give a load balancer's VIP these security groups, and no others (API 2.29).

        The provider ovn ignores them.

        :raises errors.Immutable: it is PENDING or in ERROR.
        """
        path = f"{LOAD_BALANCERS}/{load_balancer_id}"
        await self._write("PUT", path, "loadbalancer", {"vip_sg_ids": list(group_ids)})

    async def create_listener(self, body: Json) -> str:
        """Begin to create a listener; return its id.

        :raises errors.Immutable: the load balancer is PENDING or in ERROR (as below).
        :raises errors.Conflict: the load balancer has one for this protocol and port.
        """
        return str((await self._write("POST", LISTENERS, "listener", body))["id"])

    async def update_listener(self, listener_id: str, changes: Json) -> None:
        """Begin to change a listener.

        :raises errors.NotFound: the listener is gone.
        """
        await self._write("PUT", f"{LISTENERS}/{listener_id}", "listener", changes)

    async def delete_listener(self, listener_id: str) -> None:
        """Begin to delete a listener, but not its pool; it is no error if it does not exist."""
        await self._delete(f"{LISTENERS}/{listener_id}", {})

    async def create_policy(self, body: Json) -> str:
        """Begin to create an L7 policy of a listener; return its id.

        Those at its position and after it move on by one.

        :raises errors.NotFound: the listener, or the pool where it leads, is gone.
        """
        return str((await self._write("POST", POLICIES, "l7policy", body))["id"])

    async def update_policy(self, policy_id: str, changes: Json) -> None:
        """Begin to change an L7 policy.

        :raises errors.NotFound: the policy is gone.
        """
        await self._write("PUT", f"{POLICIES}/{policy_id}", "l7policy", changes)

    async def delete_policy(self, policy_id: str) -> None:
        """Begin to delete an L7 policy with its rules; it is no error if it does not exist."""
        await self._delete(f"{POLICIES}/{policy_id}", {})

    async def create_rule(self, policy_id: str, body: Json) -> str:
        """Begin to create a rule of an L7 policy; return its id.

        :raises errors.NotFound: the policy is gone.
        """
        return str(
            (await self._write("POST", f"{POLICIES}/{policy_id}/rules", "rule", body))["id"]
        )

    async def update_rule(self, policy_id: str, rule_id: str, changes: Json) -> None:
        """Begin to change a rule of an L7 policy.

        :raises errors.NotFound: the rule is gone.
        """
        await self._write("PUT", f"{POLICIES}/{policy_id}/rules/{rule_id}", "rule", changes)

    async def delete_rule(self, policy_id: str, rule_id: str) -> None:
        """Begin to delete a rule of an L7 policy; it is no error if it does not exist."""
        await self._delete(f"{POLICIES}/{policy_id}/rules/{rule_id}", {})

    async def create_pool(self, body: Json) -> str:
        """Begin to create a pool; return its id.

        :raises errors.Conflict: the listener has a default pool already.
        """
        return str((await self._write("POST", POOLS, "pool", body))["id"])

    async def update_pool(self, pool_id: str, changes: Json) -> None:
        """Begin to change a pool.

        :raises errors.NotFound: the pool is gone.
        """
        await self._write("PUT", f"{POOLS}/{pool_id}", "pool", changes)

    async def delete_pool(self, pool_id: str) -> None:
        """Begin to delete a pool with its members and health monitor, if it exists."""
        await self._delete(f"{POOLS}/{pool_id}", {})

    async def create_monitor(self, body: Json) -> str:
        """Begin to create the health monitor of a pool; return its id.

        :raises errors.NotFound: the pool is gone.
        :raises errors.Conflict: the pool has one already.
        """
        return str((await self._write("POST", MONITORS, "healthmonitor", body))["id"])

    async def update_monitor(self, monitor_id: str, changes: Json) -> None:
        """Begin to change a health monitor.

        :raises errors.NotFound: the monitor is gone.
        """
        await self._write("PUT", f"{MONITORS}/{monitor_id}", "healthmonitor", changes)

    async def delete_monitor(self, monitor_id: str) -> None:
        """Begin to delete a health monitor; it is no error if it does not exist."""
        await self._delete(f"{MONITORS}/{monitor_id}", {})

    async def set_members(
        self, pool_id: str, members: Sequence[Member], *, additive: bool = False
    ) -> None:
        """Replace the members of a pool, by one call.

        :param additive: members that are not given stay (API 2.11); else they go.
        :raises errors.NotFound: the pool is gone.
        :raises errors.Immutable: among others where the pool alone is PENDING or in ERROR.
        """
        query = {"additive_only": "true"} if additive else {}
        body = {"members": [octavia_bodies.member_body(member) for member in members]}
        with octavia_refusals.named():
            await self._transport.call("PUT", f"{POOLS}/{pool_id}/members", body=body, query=query)

    async def _write(self, method: str, path: str, kind: str, body: Json) -> Json:
        """Write an object; return the answer without the object's name around it."""
        with octavia_refusals.named():
            answer = await self._transport.call(method, path, body={kind: body})
        return dict(answer[kind])

    async def _delete(self, path: str, query: Query) -> None:
        try:
            await self._transport.call("DELETE", path, query=query)
        except errors.NotFound:
            return

    async def _list(self, path: str, query: Query, reading: Reading | None = None) -> list[Json]:
        """Return everything that matches."""
        return await read_all(self._transport, path, query, page=self._page, reading=reading)


async def _together(calls: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Make calls at the same time; return the answers, or raise the first error.

    Calls that wait for a slot then are not made any more.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


async def _outcome(call: Coroutine[Any, Any, T]) -> T | errors.CloudError:
    """Return the answer, or the error that the call has raised."""
    try:
        return await call
    except errors.CloudError as error:
        return error


def _answered(outcome: T | errors.CloudError) -> T:
    """Return the answer, or raise the error."""
    if isinstance(outcome, errors.CloudError):
        raise outcome
    return outcome
