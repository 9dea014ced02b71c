"""The ports of pools that are found in Neutron, and those that are gone from it."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.cloud.transport import Query
from kuryr_k8s.drivers.base import (
    AVAILABLE,
    POOL_TAG,
    PORT_FIELDS,
    PooledPort,
    PoolKey,
)
from kuryr_k8s.drivers.base.pool import Claim, Phase
from kuryr_k8s.drivers.pools.effects import Effects
from kuryr_k8s.drivers.pools.parts import PoolContext

LOG = logging.getLogger(__name__)
Json = dict[str, Any]
REMEMBERED = 300.0  # seconds for which a deleted port is remembered: longer than any call takes


class Inventory:
    """Takes ports into the pools and out of them.

    :param tags: the tags of this cluster's ports, besides its mark.
    """

    def __init__(self, context: PoolContext, tags: Sequence[str]) -> None:
        self._context = context
        self._state = context.state
        self._tags = tuple(tags)
        self._removed: dict[str, float] = {}  # when each port was found to be gone
        self._named: set[str] = set()  # see note_named
        # Where an earlier leader may still give ports to Pods; None: it may be anywhere
        self._doubtful: frozenset[str] | None = frozenset()

    @property
    def device(self) -> str:
        """The ``device_id`` of a port that no Pod has."""
        return self._context.vif.pooled_marks.get("device_id", "")

    async def list_ports(self, keys: Iterable[PoolKey]) -> list[Json]:
        """List the ports of these pools, perhaps with others, as Neutron shows them."""
        places: defaultdict[str, set[str]] = defaultdict(set)
        for key in keys:
            places[key.network_id].add(key.place)
        found: list[Json] = []
        marks = (*self._tags, POOL_TAG, self._context.neutron.mark.tag)
        tags = {"tags": ",".join(marks), "fields": PORT_FIELDS}
        for network_id, concerned in places.items():
            for query in self._context.vif.queries_of_places(sorted(concerned)):
                where = {**query, "network_id": network_id}
                found += await self._context.neutron.list_ports(where | tags)
                found += await self.tag_ports(where)
        return found

    async def tag_ports(self, query: Query) -> list[Json]:
        """Give ports of pools that have no tags their tags.

        Where Neutron does not take tags in the body of a creation, a creation may have been cut
        off before its ports were tagged.

        :returns: the ports that were tagged.
        """
        neutron = self._context.neutron
        if neutron.keeps_tags:
            return []
        tags = [*self._tags, POOL_TAG, neutron.mark.tag]
        untagged = {**self._context.vif.pooled_marks, "not-tags-any": ",".join(tags)}
        found = await neutron.list_ports({**query, **untagged})
        for port in found:
            await neutron.adopt_port(port, tags)
            port["tags"] = tags
        return found

    async def still_there(self, pooled: Iterable[PooledPort]) -> list[PooledPort]:
        """Leave out ports that are not known and have been deleted since they were listed.

        A long list takes longer than deleted ports are remembered.
        """
        ports = list(pooled)
        unknown = {port.id for port in ports if self._state.record(port.id) is None}
        shown = await self._context.neutron.list_ports_by_id(unknown, ("id",))
        gone = unknown - {port["id"] for port in shown}
        return [port for port in ports if port.id not in gone]

    def note_named(self, port_ids: Iterable[str]) -> None:
        """Note which ports KuryrPorts name although no pool knows them.

        A list of Neutron may lack what exists.
        """
        self._named = {port_id for port_id in port_ids if self._state.record(port_id) is None}

    async def note_doubtful(self, nodes: Iterable[str]) -> None:
        """Note on which nodes an earlier leader may still give ports to Pods.

        At the places of these nodes, no port that it may have known is given to others.
        """
        places = set()
        for name in nodes:
            try:
                if (node := self._context.node(name)) is None:
                    raise errors.NotFound(f"there is no node {name}")
                places.add(await self._context.vif.place(node))
            except errors.KuryrError as error:
                LOG.warning("all unused ports are withheld for node %s: %s", name, error)
                self._doubtful = None
                return
        self._doubtful = frozenset(places)

    def is_doubtful(self, place: str) -> bool:
        """Return whether an earlier leader may still give ports of this place to Pods."""
        return self._doubtful is None or place in self._doubtful

    def adopt(self, ports: Iterable[PooledPort]) -> Effects:
        """Take in ports that a lost answer left behind.

        A port that a KuryrPort names is left alone.

        While ports are being created for their pool, they may be the very ports that were listed,
        and only partly bound. Then the creation's answer or the next list reports them.

        At a doubtful place, the answer was an earlier leader's, perhaps. Such a port is withheld
        until a survey tells whose it is; meanwhile its pool makes none in its place.
        """
        served: list[Claim] = []
        is_doubtful = False
        keys: list[PoolKey] = []
        for port in ports:
            if self._state.is_creating(port.key) or self.was_removed(port.id):
                continue
            if self._state.record(port.id) is not None or port.id in self._named:
                continue
            LOG.info("port %s was created unnoticed; its pool takes it in", port.id)
            if self.is_doubtful(port.key.place):
                self._state.withhold(port, self._context.now(), unnoticed=True)
                is_doubtful = True
            else:
                served += self._take_in(port)
            keys.append(port.key)
            if pool := self._state.pools.get(port.key):
                pool.found_ordered()
        places = tuple(key.place for key in keys)
        return Effects(
            served=tuple(served), changed=places, upkeep=tuple(keys), survey=is_doubtful
        )

    def take_in(self, port: PooledPort) -> Effects:
        """Make a port that no Pod has available.

        A port that looks as if a Pod had used it is checked first.
        """
        return Effects(served=tuple(self._take_in(port)), changed=(port.key.place,))

    def _take_in(self, port: PooledPort) -> list[Claim]:
        now = self._context.now()
        unused = (port.name, port.device_id) == (AVAILABLE, self.device)
        if port.fit and not unused:
            self._state.recover(port, "", now)
            self._state.return_port(port.id, now)
            return []
        served = self._state.adopt(port, now)
        return [served] if served else []

    def remove(self, port_id: str) -> Effects:
        """Forget a deleted port, and ignore late answers about it.

        If others have deleted the last port of a pool, the pool makes another one.
        """
        now = self._context.now()
        self._removed.pop(port_id, None)
        self._removed[port_id] = now  # the latest is the last
        while now - self._removed[first := next(iter(self._removed))] >= REMEMBERED:
            del self._removed[first]
        record = self._state.record(port_id)
        holder = self._state.remove(port_id)
        if holder is not None:
            LOG.warning("port %s of Pod %s is not in Neutron any more", port_id, holder)
        if record is None:
            return Effects()
        key = record.port.key
        is_lost = record.phase is not Phase.LEAVING and self._state.replace_lost(record.pool, now)
        return Effects(
            changed=(key.place,),
            freed=(key,),
            fill=(key,) if is_lost else (),
            survey=holder is not None,
        )

    def was_removed(self, port_id: str) -> bool:
        """Return whether the port was deleted a short while ago."""
        return self._context.now() - self._removed.get(port_id, -REMEMBERED) < REMEMBERED
