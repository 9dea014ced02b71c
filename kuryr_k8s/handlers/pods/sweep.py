"""One list of all ports of the cluster, now and then, held against the KuryrPorts.

Pools recover by the first one, and learn by the later ones what others did to their ports. Of the
other ports, those that no KuryrPort names go: such a port is left by a create whose answer was
lost and that Neutron carried out late, or by hands. It goes when it has been without a name for
the time between two searches, and a live list of the KuryrPorts does not know it either; and the
log says so.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import Holder, Records, VIFPoolDriver, keepers
from kuryr_k8s.drivers.vif import nested_plan
from kuryr_k8s.drivers.vif.neutron_plan import DEVICE_OWNER, DEVICE_OWNERS, POOL_TAG
from kuryr_k8s.engine.sweep import Sweep
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.handlers.pods.interfaces import Interfaces
from kuryr_k8s.handlers.pods.lost_ports import LostPorts
from kuryr_k8s.k8s.resources import KURYRPORTS
from kuryr_k8s.model.kuryrport import KuryrPort

LOG = logging.getLogger(__name__)
Json = dict[str, Any]
FIELDS = (
    "id",
    "name",
    "description",
    "device_id",
    "device_owner",
    "tags",
    "project_id",
    "network_id",
    "fixed_ips",
    "mac_address",
    "security_groups",
    "admin_state_up",
    "port_security_enabled",
    "allowed_address_pairs",
    "qos_policy_id",
    "binding:host_id",
    "binding:vif_type",
    "binding:vif_details",
    "binding:profile",
)


class PortSweep(Sweep[Json]):
    """Held against the KuryrPorts, cached and live.

    :raises errors.ConfigError: nothing marks the ports of this cluster.
    """

    def __init__(self, context: HandlerContext, interfaces: Interfaces) -> None:
        defaults = context.conf.neutron_defaults
        super().__init__(
            "port-sweeper",
            interval=defaults.sweep_interval,
            retry=context.patience.sweep_retry,
            clock=context.clock,
            observe=context.observe,
        )
        if not defaults.resource_tags:
            raise errors.ConfigError("[neutron_defaults] resource_tags is not set")
        self._neutron = context.neutron
        self._kube = context.kube
        self._kuryrports = context.informers.of(KURYRPORTS)
        self._interfaces = interfaces
        self._pool = context.drivers[VIFPoolDriver]
        self._keepers = keepers(self._pool)
        self._pool.on_lost(lambda: self.search_after(context.patience.lost_port))
        self._tags = tuple(defaults.resource_tags)
        self._lost = LostPorts(context)

    async def search(self) -> list[Json]:
        """Have pools compare the ports with what they know; return the nameless of the others."""
        query = {
            "tags": ",".join(self._tags),
            "device_owner": DEVICE_OWNERS,
            "fields": FIELDS,
        }
        known = [keeper.known() for keeper in self._keepers]
        recorded = list(self._kuryrports.values())
        listed = await self._neutron.list_ports(query)
        ports = [port for port in listed if is_ours(port)]
        if self._keepers:
            recorded_live = records(await self._live())
            for keeper, before in zip(self._keepers, known, strict=True):
                ports = await keeper.survey(before, ports, recorded_live)
        await self._lost.tell(recorded, listed)
        return nameless(ports, self._kuryrports.values())

    def identity(self, item: Json) -> str:
        """Return the port's id."""
        return str(item["id"])

    async def confirm(self, items: Sequence[Json]) -> list[Json]:
        """Return those that no KuryrPort of a live list names."""
        return nameless(items, await self._live())

    def still_unwanted(self, items: Sequence[Json]) -> list[Json]:
        """Return those that no KuryrPort has come to name."""
        return nameless(items, self._kuryrports.values())

    async def remove(self, item: Json) -> None:
        """Have the driver that made the port remove it."""
        LOG.warning(
            "port %s (%s, device %s) is named by no KuryrPort; it goes",
            item["id"],
            item["name"],
            pod_uid_of(item),
        )
        await self._interfaces.discard(item)

    async def _live(self) -> list[KuryrPort]:
        pages = self._kube.list_pages(KURYRPORTS, {})
        return [KuryrPort.read(item) async for items, _version in pages for item in items]


def records(kuryrports: Iterable[KuryrPort]) -> Records:
    """What pools need to know of them."""
    holders: dict[str, Holder] = {}
    pods = set()
    # of two that name a port, the one that goes has given it back in an earlier life
    for recorded in sorted(kuryrports, key=lambda one: not one.deleting):
        holder = Holder(recorded.pod_uid, f"{recorded.namespace}/{recorded.name}")
        holders |= dict.fromkeys(recorded.uuids(), holder)
        pods.add(recorded.pod_uid)
    return Records(holders, frozenset(pods))


def is_ours(port: Json) -> bool:
    """Whether a driver made it: the cluster's tag may be on other ports too, those of VMs."""
    made = port["device_owner"] == DEVICE_OWNER or POOL_TAG in port["tags"]
    return made or bool(nested_plan.pod_uid_of(port))


def pod_uid_of(port: Json) -> str:
    """The Pod for which the port was made."""
    return nested_plan.pod_uid_of(port) or str(port["device_id"])


def nameless(ports: Sequence[Json], kuryrports: Iterable[KuryrPort]) -> list[Json]:
    """The ports that no KuryrPort names. One without vifs yet may come to name its Pod's; and one
    whose vifs nobody can read is no word against any of them. Ports that were a pool's are any
    Pod's."""
    recorded_ports = tuple(kuryrports)
    by_pod = {recorded.pod_uid: recorded for recorded in recorded_ports}
    pooled = [port for port in ports if POOL_TAG in port["tags"]]
    holders = records(recorded_ports).holders if pooled else {}

    def named(port: Json) -> bool:
        if POOL_TAG in port["tags"]:
            return port["id"] in holders
        recorded = by_pod.get(pod_uid_of(port))
        return recorded is not None and (not recorded.has_vifs or recorded.may_name(port["id"]))

    return [port for port in ports if not named(port)]
