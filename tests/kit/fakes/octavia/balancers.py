"""The life of a load balancer: its VIP's port, and what is made together with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.kit.fakes.faults import Answer
from tests.kit.fakes.neutron.api import NeutronAPI

from . import errors, providers, vips
from .kinds import (
    HEALTH_MONITOR,
    L7POLICY,
    L7RULE,
    LISTENER,
    LOAD_BALANCER,
    MEMBER,
    POOL,
    Kind,
)
from .listening import check_created, check_protocols
from .monitors import check_requests, check_type, with_defaults
from .policies import check_rule, complete, place
from .progress import Progress
from .store import OWNER, Store
from .tls import check_named, check_pool, with_choices

Json = dict[str, Any]


class Balancers:
    """What Octavia does with load balancers; every method is complete before anybody else runs."""

    def __init__(
        self,
        store: Store,
        neutron: NeutronAPI,
        check_quota: Callable[[Kind, str, int], None],
        newest: Callable[[], int],
    ) -> None:
        self._newest = newest
        self.default_provider = "amphora"
        self._store = store
        self._neutron = neutron
        self._check_quota = check_quota

    def create(self, body: Json, progress: Progress) -> Json:
        """A load balancer with all that stands in the body.

        What is refused after its port was made leaves the port behind, as in Octavia.
        """
        body = LOAD_BALANCER.check_create(body)
        for pool in body["pools"]:
            check_named(pool, self._newest())
        listeners = [_inside(LISTENER, listener) for listener in body.pop("listeners")]
        pools = [_inside(POOL, pool) for pool in body.pop("pools")]
        provider = body.setdefault("provider", self.default_provider)
        vips.choose(self._neutron.store, body)
        self._check_choices(body)
        if provider not in providers.PROVIDERS:
            raise Answer(400, message=f"Provider '{provider}' is not enabled.")
        self._check_quota(LOAD_BALANCER, body["project_id"], 1)
        load_balancer = self._store.add(LOAD_BALANCER, body | {OWNER: ""})
        try:
            vips.plug(self._neutron, load_balancer)
            made = self._populate(load_balancer, listeners, pools)
        except Answer:
            self._store.remove(load_balancer["id"])
            raise
        progress.begin(load_balancer, made)
        return load_balancer

    def discard(self, resource_id: str) -> None:
        """Forget what was deleted; the port that was made for a load balancer goes too."""
        load_balancer = self._store.of(LOAD_BALANCER).get(resource_id)
        if load_balancer is not None:
            vips.unplug(self._neutron, load_balancer)
        self._store.remove(resource_id)

    def strand(self, resource_id: str, *, immutable: bool) -> None:
        """Forget the load balancer and its port, and keep what is in it."""
        vips.unplug(self._neutron, self._store.get(LOAD_BALANCER, resource_id))
        self._store.strand(resource_id, immutable=immutable)

    def update(self, load_balancer: Json, changes: Json, progress: Progress) -> None:
        """Change what was given."""
        changes = LOAD_BALANCER.check_update(changes)
        self._check_groups(changes)
        self._begin(load_balancer, "PENDING_UPDATE", "ACTIVE")
        self._store.change(load_balancer, changes)
        progress.begin(load_balancer, [])

    def delete(self, load_balancer: Json, progress: Progress, *, cascade: bool) -> None:
        """Begin to delete, if there is nothing in it or all of it may go."""
        inside = self._store.ids_inside(load_balancer["id"])
        if inside and not cascade:
            text = f"Cannot delete Load Balancer {load_balancer['id']} - it has children"
            raise errors.invalid(text)
        self._begin(load_balancer, "PENDING_DELETE", "ACTIVE", "ERROR")
        if load_balancer["provider"] == "ovn":  # it never ends what it was making inside
            parts = [self._store.part(part_id) for part_id in inside]
            self._store.leaked += [
                part["id"]
                for part in parts
                if part is not None and part["provisioning_status"] == "PENDING_CREATE"
            ]
        progress.begin(load_balancer, [])

    def _check_choices(self, body: Json) -> None:
        self._check_groups(body)
        flavor, zone = body["flavor_id"], body["availability_zone"]
        if flavor is not None and flavor not in self._store.flavors:
            raise errors.invalid("Invalid flavor_id.")
        if zone is not None and zone not in self._store.zones:
            raise errors.invalid("Invalid availability zone.")
        if flavor is not None and self._store.flavors[flavor] != body["provider"]:
            text = f"Flavor '{flavor}' is not compatible with provider '{body['provider']}'"
            raise Answer(400, message=text)

    def _check_groups(self, body: Json) -> None:
        for group_id in body.get("vip_sg_ids") or ():
            if group_id not in self._neutron.store.security_groups:
                raise Answer(400, message=f"Security Group {group_id} not found.")

    def _begin(self, load_balancer: Json, status: str, *allowed: str) -> None:
        if load_balancer["provisioning_status"] not in allowed:
            raise errors.pending(load_balancer["provisioning_status"], load_balancer["id"])
        self._store.set_status(load_balancer, status)

    def _populate(
        self, load_balancer: Json, listeners: list[Json], pools: list[Json]
    ) -> list[str]:
        """Make what is in it, pools first; the ids."""
        references = []
        policies = [listener.pop("l7policies", []) for listener in listeners]
        for listener in listeners:
            inner = listener.pop("default_pool", None)
            references.append(inner["name"] if inner else None)
            if inner and inner.keys() != {"name"}:
                pools.append(inner)
        if any(not pool.get("name") for pool in pools) or "" in references:
            text = "Pools must be named when creating a fully populated loadbalancer."
            raise errors.invalid(text)
        by_name = {pool["name"]: pool for pool in pools}
        if len(by_name) < len(pools):
            text = "Pool names must be unique when creating a fully populated loadbalancer."
            raise errors.invalid(text)
        led_to = [
            policy["redirect_pool"]["name"]
            for some in policies
            for policy in some
            if policy.get("redirect_pool")
        ]
        for name in (*references, *led_to):
            if name is not None and name not in by_name:
                text = f"Pool '{name}' was referenced but no full definition was found."
                raise errors.invalid(text)
        ids, made = self._make_pools(load_balancer, pools)
        self._check_quota(LISTENER, load_balancer["project_id"], len(listeners))
        for listener, name, some in zip(listeners, references, policies, strict=True):
            others = self._store.parts(LISTENER, load_balancer["id"])
            check_created(load_balancer, others, listener, self._store.references())
            if name is not None:
                check_protocols(listener["protocol"], by_name[name]["protocol"])
            listener["default_pool_id"] = ids.get(name)
            listener_id = self._add(LISTENER, load_balancer, with_choices(listener))["id"]
            made += [listener_id, *self._make_policies(load_balancer, listener_id, some, ids)]
        providers.check_populated(load_balancer["provider"], listeners, pools)
        return made

    def _make_pools(
        self, load_balancer: Json, pools: list[Json]
    ) -> tuple[dict[str | None, str], list[str]]:
        """The pools' ids by their names, and the ids of them and of their members."""
        project_id = load_balancer["project_id"]
        ids: dict[str | None, str] = {}
        made = []
        self._check_quota(POOL, project_id, len(pools))
        for pool in pools:
            for name in ("protocol", "lb_algorithm"):
                if name not in pool:
                    text = f"Pool definition for '{pool['name']}' missing required attribute: "
                    raise errors.invalid(text + name)
            check_pool({}, pool, self._store)
            members = pool.pop("members", [])
            monitor = pool.get("healthmonitor")
            own = {name: value for name, value in pool.items() if name != "healthmonitor"}
            pool_id = ids[pool["name"]] = self._add(POOL, load_balancer, own)["id"]
            if monitor is not None:
                self._check_quota(HEALTH_MONITOR, project_id, 1)
                check_type(pool["protocol"], monitor)
                check_requests(monitor["type"], monitor)
                complete = with_defaults(monitor) | {"pool_id": pool_id}
                made.append(self._add(HEALTH_MONITOR, load_balancer, complete)["id"])
            self._check_quota(MEMBER, project_id, len(members))
            owned = [member | {"pool_id": pool_id} for member in members]
            made += [
                pool_id,
                *(self._add(MEMBER, load_balancer, member)["id"] for member in owned),
            ]
        return ids, made

    def _make_policies(
        self,
        load_balancer: Json,
        listener_id: str,
        policies: list[Json],
        pools: dict[str | None, str],
    ) -> list[str]:
        """A listener's policies with their rules; the ids of all.

        :param pools: ids by names.
        """
        made = []
        self._check_quota(L7POLICY, load_balancer["project_id"], len(policies))
        for body in policies:
            rules, position = body.pop("rules", []), body.pop("position")
            if (named := body.pop("redirect_pool", None)) is not None:
                body["redirect_pool_id"] = pools[named["name"]]
            owned = complete(body) | {"listener_id": listener_id}
            policy = self._add(L7POLICY, load_balancer, owned)
            place(self._store, policy, position)
            made.append(policy["id"])
            self._check_quota(L7RULE, load_balancer["project_id"], len(rules))
            for rule in rules:
                check_rule(rule)
                of_policy = rule | {"l7policy_id": policy["id"]}
                made.append(self._add(L7RULE, load_balancer, of_policy)["id"])
        return made

    def _add(self, kind: Kind, load_balancer: Json, body: Json) -> Json:
        owner = {OWNER: load_balancer["id"], "project_id": load_balancer["project_id"]}
        return self._store.add(kind, body | owner)


def _inside(kind: Kind, body: Json) -> Json:
    """A body within another, and those within it, with their defaults."""
    checked = kind.check_create(body, inside=True)
    for name in ("protocol", "protocol_port") if kind is LISTENER else ():
        if name not in checked:
            raise errors.bad_input(name, "None", "Mandatory field missing.")
    for policy in checked.get("l7policies") or () if kind is LISTENER else ():
        policy |= L7POLICY.check_create(policy, inside=True)
        policy["rules"] = [L7RULE.check_create(rule) for rule in policy.get("rules", [])]
    inner = checked.get("default_pool")
    if inner and inner.keys() != {"name"}:
        checked["default_pool"] = _inside(POOL, inner)
    if kind is POOL and "members" in checked:
        checked["members"] = [MEMBER.check_create(member) for member in checked["members"]]
    if kind is POOL and "healthmonitor" in checked:
        checked["healthmonitor"] = HEALTH_MONITOR.check_create(
            checked["healthmonitor"], inside=True
        )
    return checked
