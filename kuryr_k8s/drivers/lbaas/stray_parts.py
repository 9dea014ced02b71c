"""Listeners and pools whose load balancer is gone: they count against the project's quotas.

With the provider ovn a load balancer could be deleted while parts of it were still being made,
which then stayed. Most of these nobody can delete: Octavia calls them immutable for ever. So what
Octavia lets go is deleted, and the rest is reported to the cloud's administrator.
"""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from prometheus_client.registry import Collector

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import DriverContext, granted
from kuryr_k8s.drivers.lbaas.vip_ports import is_gone
from kuryr_k8s.engine.metrics import gauge
from kuryr_k8s.engine.sweep import Sweep
from kuryr_k8s.k8s.events import Reference

LOG = logging.getLogger(__name__)
FIELDS = ("id", "name", "project_id", "loadbalancers")
SOURCE, REASON = "stray parts", "KuryrLoadBalancerPartsLeft"
NAMED = 5  # ids in a message, at most


class Part(NamedTuple):
    """A listener or a pool.

    :param kind: ``listener`` or ``pool``.
    """

    kind: str
    id: str
    name: str


class StrayPartSweep(Sweep[Part]):
    """Sweep of parts with our tags, in our projects, whose load balancer does not exist.

    A part goes where Octavia itself says (404) that its load balancer does not exist, in two
    searches in a row. A deletion that is under way looks the same, and has ended by the second.
    """

    def __init__(self, context: DriverContext) -> None:
        super().__init__(
            "stray-part-sweeper",
            interval=context.conf.neutron_defaults.sweep_interval,
            patience=context.patience,
            confirm_after=context.patience.unneeded,
            # at the start others have more to ask of Octavia
            first_after=context.conf.neutron_defaults.sweep_interval,
            clock=context.clock,
            observe=context.observe,
        )
        self._octavia = context.octavia
        self._events = context.events
        self._mark = context.neutron.mark
        self._resource_tags = context.conf.neutron_defaults.resource_tags
        self._projects = granted.projects(context.conf)
        self._left: dict[str, Part] = {}  # that Octavia did not let us delete

    def collectors(self) -> Sequence[Collector]:
        """Return the number of parts that stay."""
        return (
            gauge(
                "kuryr_load_balancer_parts_left",
                "Listeners and pools without a load balancer that Octavia does not let us delete",
                lambda: len(self._left),
            ),
        )

    def identity(self, item: Part) -> str:
        """Return the id."""
        return item.id

    async def search(self) -> list[Part]:
        """Return our listeners, then our pools, whose load balancer does not exist."""
        tags = ",".join((*self._resource_tags, self._mark.tag))
        query = {"tags": tags, "fields": FIELDS}
        found: dict[Part, list[str]] = {}
        for kind, rows in (
            ("listener", await self._octavia.list_listeners(query)),
            ("pool", await self._octavia.list_pools(query)),
        ):
            for row in rows:
                if row["project_id"] not in self._projects:
                    continue  # an administrator's account sees it
                owners = [owner["id"] for owner in row["loadbalancers"]]
                found[Part(kind, row["id"], row["name"])] = owners
        # after the parts: a load balancer that is made meanwhile is no reason to ask for it
        known = (await self._octavia.statuses({"tags": tags})).keys()
        unknown = {owner for owners in found.values() for owner in owners} - known
        gone = {owner for owner in unknown if await is_gone(self._octavia, owner)}
        stray = [part for part, owners in found.items() if gone.issuperset(owners)]
        self._left = {part.id: part for part in stray if part.id in self._left}
        await self._report()
        return stray

    async def remove(self, item: Part) -> None:
        """Delete the part, or report that Octavia does not let us."""
        delete = {
            "listener": self._octavia.delete_listener,
            "pool": self._octavia.delete_pool,
        }[item.kind]
        try:
            await delete(item.id)
        except errors.CloudError as error:
            if not error.is_refusal:
                raise
            if item.id not in self._left:
                LOG.warning("%s %s has no load balancer, and stays: %s", item.kind, item.id, error)
            self._left[item.id] = item
            await self._report()
        else:
            LOG.warning("%s %s (%s) has no load balancer; it goes", *item)

    async def _report(self) -> None:
        """Tell of the parts that could not be deleted."""
        cluster = Reference.of_cluster(self._mark.uid)
        if not self._left:
            self._events.well(SOURCE, cluster)
            return
        some = list(self._left.values())[:NAMED]
        named = ", ".join(f"{part.kind} {part.id}" for part in some)
        note = (
            f"{len(self._left)} listeners and pools with our tags have no load balancer, and "
            "Octavia does not let us delete them; they count against the quota "
            f"(docs/troubleshooting.md): {named}"
        )
        await self._events.warn(SOURCE, cluster, REASON, note)
