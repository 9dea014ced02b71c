"""The sweep of Neutron ports that no KuryrPort names, and the survey of pools.

Pools recover from the first list of all ports, and find in later lists what others did to their
ports. Of the other ports, those that no KuryrPort names are removed. Such a port is left behind by
a create whose answer was lost and that Neutron carried out late, or by hands. It is removed after
it had no name for the time between two searches, if a live list of the KuryrPorts does not name it
either; the log reports it.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import (
    PORT_FIELDS,
    Holder,
    PodVIFDriver,
    Records,
    VIFPoolDriver,
    keepers,
    maker_of,
)
from kuryr_k8s.drivers.base.granted import projects
from kuryr_k8s.engine.limit import Priority, prioritized
from kuryr_k8s.engine.sweep import Sweep
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.handlers.pods.adoption import Adoption
from kuryr_k8s.handlers.pods.lost_ports import LostPorts
from kuryr_k8s.handlers.pods.portions import in_portions
from kuryr_k8s.handlers.pods.takeover import sign_late
from kuryr_k8s.k8s.resources import KURYRPORTS, Key
from kuryr_k8s.model.annotations import NODE_FINALIZER
from kuryr_k8s.model.kuryrport import KuryrPort

LOG = logging.getLogger(__name__)
Json = dict[str, Any]


class PortSweep(Sweep[Json]):
    """Held against the KuryrPorts, cached and live.

    :raises errors.ConfigError: nothing marks the ports of this cluster.
    """

    def __init__(self, context: HandlerContext) -> None:
        defaults = context.conf.neutron_defaults
        super().__init__(
            "port-sweeper",
            interval=defaults.sweep_interval,
            patience=context.patience,
            clock=context.clock,
            observe=context.observe,
        )
        if not defaults.resource_tags:
            raise errors.ConfigError("[neutron_defaults] resource_tags is not set")
        self._neutron = context.neutron
        self._kube = context.kube
        self._kuryrports = context.informers.of(KURYRPORTS)
        self._drivers = context.drivers
        self._pool = context.drivers[VIFPoolDriver]
        self._keepers = keepers(self._pool)
        self._pool.on_lost(lambda: self.search_after(context.patience.lost_port))
        self._tags = tuple(defaults.resource_tags)
        self._context = context
        self._lost = LostPorts(context)
        self._strangers = context.strangers
        self._projects = projects(context.conf)
        self._adoption = Adoption(context)
        # (uid, resourceVersion) of the KuryrPorts that do not name what is to be removed
        self._confirmed: set[tuple[str, str]] = set()

    async def search(self) -> list[Json]:
        """Have pools compare the ports with what they know; return the nameless of the others."""
        recovered = all(keeper.recovered for keeper in self._keepers)  # else Pods wait for it
        with prioritized(Priority.REFILL if recovered else Priority.POD):
            return await self._search()

    async def _search(self) -> list[Json]:
        query = {
            "tags": ",".join(self._tags),
            "device_owner": self._device_owners(),
            "fields": PORT_FIELDS,
        }
        known = [keeper.known() for keeper in self._keepers]
        own = self._neutron.own_ports.ids()
        recorded = list(self._kuryrports.values())
        listed = await self._neutron.list_ports(query)
        self._neutron.own_ports.forget(own - {port["id"] for port in listed})
        ports = await self._ours(listed)
        if self._keepers:
            live = [
                await self._signed(kuryrport)
                for kuryrport in await self._kube.list_views(KURYRPORTS)
            ]
            recorded_live = await records(live, self._context.incarnation)
            for keeper, before in zip(self._keepers, known, strict=True):
                ports = await keeper.survey(before, ports, recorded_live)
        await self._lost.help_pods(recorded, listed)
        return await self._nameless(ports, self._kuryrports.values())

    async def reconcile(self, key: str) -> float:
        """Search and remove; then mark some of the ports that were adopted."""
        delay = await super().reconcile(key)
        with prioritized(Priority.CLEANUP):
            is_done = await self._adoption.mark_some()
        return 0.0 if self._adoption.is_pending and is_done else delay

    async def _ours(self, listed: Sequence[Json]) -> list[Json]:
        """Return the ports that we made; report others that have our tags."""
        known = self._neutron.own_ports
        ours: list[Json] = []
        others: list[str] = []
        unmarked: list[Json] = []
        for port in listed:
            is_own = port["id"] in known
            if not is_own and self._neutron.mark.others_on(port["tags"]):
                # a tenant may give its ports any tags
                if port["project_id"] in self._projects:
                    others.append(port["id"])
            elif self._maker_of(port) is not None:
                (ours if is_own else unmarked).append(port)
        adopted: list[Json] = []
        if unmarked:
            live = await self._kube.list_views(KURYRPORTS)
            recorded = await records(live, self._context.incarnation)
            adopted = await self._adoption.adopt(unmarked, recorded)
        left = {port["id"] for port in unmarked} - {port["id"] for port in adopted}
        await self._strangers.listed("ports", others=others, unmarked=left)
        return ours + adopted

    def identity(self, item: Json) -> str:
        """Return the port's id."""
        return str(item["id"])

    async def confirm(self, items: Sequence[Json]) -> list[Json]:
        """Return those that no KuryrPort of a live list names."""
        live = await self._kube.list_views(KURYRPORTS)
        self._confirmed = {(recorded.uid, recorded.resource_version) for recorded in live}
        return await self._nameless(items, live)

    def still_unwanted(self, items: Sequence[Json]) -> list[Json]:
        """Return those that no KuryrPort can have come to name since they were confirmed.

        Only KuryrPorts that have changed are read: there may be thousands of others.
        """
        if self._strangers.overlap:
            return []
        changed = [
            recorded
            for recorded in self._kuryrports.values()
            if (recorded.uid, recorded.resource_version) not in self._confirmed
        ]
        pod_uids = {recorded.pod_uid for recorded in changed}
        held = {port_id for recorded in changed for port_id in recorded.uuids()}
        return [
            item
            for item in items
            if item["id"] not in held and self._pod_uid_of(item) not in pod_uids
        ]

    async def _nameless(
        self, ports: Sequence[Json], kuryrports: Iterable[KuryrPort]
    ) -> list[Json]:
        """Return the ports that no KuryrPort names; none while tags of two clusters overlap."""
        if self._strangers.overlap:
            return []
        return await nameless(ports, kuryrports, self._pod_uid_of, self._is_anothers)

    def _is_anothers(self, port_id: str, pod_uid: str) -> bool:
        """Return whether the Pod cannot have the port: it is not ours, or another Pod's."""
        own = self._neutron.own_ports.get(port_id)
        return own is None or self._pod_uid_of(own) not in (None, "", pod_uid)

    async def remove(self, item: Json) -> None:
        """Have the driver that made the port remove it."""
        LOG.warning(
            "port %s (%s, device %s) is named by no KuryrPort; it goes",
            item["id"],
            item["name"],
            self._pod_uid_of(item),
        )
        maker = self._maker_of(item)
        if maker is not None:  # as with all that a search finds
            with prioritized(Priority.CLEANUP):
                await maker.discard(item)

    def _device_owners(self) -> tuple[str, ...]:
        drivers = self._drivers.of_slot(PodVIFDriver)
        return tuple(dict.fromkeys(owner for driver in drivers for owner in driver.device_owners))

    def _maker_of(self, port: Json) -> PodVIFDriver | None:
        """Return the driver that made the port; other ports may have the cluster's tag, too."""
        return maker_of(port, self._drivers.of_slot(PodVIFDriver))

    def _pod_uid_of(self, port: Json) -> str | None:
        maker = self._maker_of(port)
        return maker.pod_uid_of(port) if maker is not None else str(port["device_id"])

    async def _signed(self, recorded: KuryrPort) -> KuryrPort:
        """Sign a KuryrPort that an earlier leader may still give ports of pools, if possible.

        An earlier leader's late request may have created it.
        """
        if not recorded.may_be_given_vifs_by_another(self._context.incarnation):
            return recorded
        try:
            return await sign_late(self._context, recorded)
        except errors.KubeError:  # the handler of KuryrPorts reports it, or has signed it first
            known = self._kuryrports.get(Key(recorded.namespace, recorded.name))
            return known if known is not None and known.uid == recorded.uid else recorded


async def records(kuryrports: Iterable[KuryrPort], incarnation: str) -> Records:
    """Return what pools need to know about the KuryrPorts.

    :param incarnation: names this leader.
    """
    claims: defaultdict[str, list[Holder]] = defaultdict(list)
    pods: dict[str, str] = {}
    leaving, unplugged, doubtful = set(), set(), set()
    async for recorded in in_portions(kuryrports):
        holder = Holder(recorded.pod_uid, f"{recorded.namespace}/{recorded.name}")
        for port_id in recorded.uuids():
            claims[port_id].append(holder)
        pods[holder.pod_uid] = holder.pod
        if recorded.deleting:
            leaving.add(holder.pod_uid)
            if NODE_FINALIZER not in recorded.finalizers:
                unplugged.add(holder.pod_uid)
        if recorded.may_be_given_vifs_by_another(incarnation):
            doubtful.add(recorded.node)
    return Records(claims, pods, frozenset(leaving), frozenset(unplugged), frozenset(doubtful))


async def nameless(
    ports: Sequence[Json],
    kuryrports: Iterable[KuryrPort],
    pod_uid_of: Callable[[Json], str | None],
    is_anothers: Callable[[str, str], bool] = lambda _port_id, _pod_uid: False,
) -> list[Json]:
    """Return the ports that no KuryrPort names.

    A KuryrPort without vifs may still come to name its Pod's ports. If its vifs cannot be read, or
    name what is not the Pod's, it is no evidence against any port. Ports that belonged to a pool
    may belong to any Pod.

    :param is_anothers: tells of a port's id and a Pod's uid whether the Pod cannot have the port.
    """
    recorded_ports = tuple(kuryrports)
    by_pod = {recorded.pod_uid: recorded for recorded in recorded_ports}
    pod_uids = {port["id"]: pod_uid_of(port) for port in ports}
    held: set[str] = set()
    if None in pod_uids.values():
        async for recorded in in_portions(recorded_ports):
            held |= recorded.uuids()

    def named(port: Json) -> bool:
        pod_uid = pod_uids[port["id"]]
        if pod_uid is None:
            return port["id"] in held
        recorded = by_pod.get(pod_uid)
        if recorded is None:
            return False
        return (
            not recorded.has_vifs
            or recorded.may_name(port["id"])
            or any(
                is_anothers(vif.id, pod_uid)
                for vif in recorded.vifs().values()
                if vif.id not in dict(recorded.specific_ports)
            )
        )

    return [port async for port in in_portions(ports) if not named(port)]
