"""Objects in the cloud that have our tags and are not ours: reported, and never touched.

Those that bear the mark of another cluster show that ``resource_tags`` overlap, for example by a
copied ``kuryr.conf``. Then no sweep removes anything, since its lists are of two clusters; Pods
and Services are served as ever. Those without any mark were made by hand or by a version that had
no marks, and no object of this cluster names them. Those with our own mark in projects that
Services cannot belong to are what a narrower ``[policy] projects`` has left there.
"""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from kuryr_k8s.cloud.mark import ClusterMark
from kuryr_k8s.k8s.events import EventRecorder, Reference

LOG = logging.getLogger(__name__)
OVERLAP = "KuryrTagsOverlap"
UNMARKED = "KuryrUnmarked"
ELSEWHERE = "KuryrProjectUnknown"
NAMED = 5  # ids in a message, at most


class Found(NamedTuple):
    """The strangers among all objects of a kind, by their ids."""

    others: frozenset[str] = frozenset()
    unmarked: frozenset[str] = frozenset()
    elsewhere: frozenset[str] = frozenset()


class Strangers(Collector):
    """Objects that are not ours, by the last list of their kind, and requests of nodes for them.

    :param mark: Of this cluster.
    """

    def __init__(self, events: EventRecorder, mark: ClusterMark) -> None:
        self._events = events
        self._mark = mark
        self._found: dict[str, Found] = {}
        self._logged: defaultdict[str, set[str]] = defaultdict(set)  # ports, by their KuryrPorts
        self._refused = 0
        self._forged = 0

    @property
    def overlap(self) -> bool:
        """True while objects with our tags bear the mark of another cluster."""
        return any(found.others for found in self._found.values())

    async def listed(
        self,
        kind: str,
        *,
        others: Iterable[str],
        unmarked: Iterable[str],
        elsewhere: Iterable[str] = (),
    ) -> None:
        """Report the strangers of a kind.

        :param kind: In words, in the plural.
        :param others: The ids of those that bear the mark of another cluster.
        :param unmarked: The ids of those that bear no mark, and that nothing of ours names.
        :param elsewhere: The ids of those with our mark in projects that are not ours.
        """
        before = self._found.get(kind, Found())
        found = Found(frozenset(others), frozenset(unmarked), frozenset(elsewhere))
        self._found[kind] = found
        await self._report(
            kind,
            OVERLAP,
            before.others,
            found.others,
            "bear the mark of another cluster; until that is mended, nothing is swept",
        )
        await self._report(
            kind,
            UNMARKED,
            before.unmarked,
            found.unmarked,
            "bear no mark of a cluster, and nothing of this cluster names them; they are left "
            "alone",
        )
        await self._report(
            kind,
            ELSEWHERE,
            before.elsewhere,
            found.elsewhere,
            "bear the mark of this cluster, in projects that kuryr.conf does not name; they are "
            "left alone",
        )

    async def _report(
        self, kind: str, reason: str, before: Collection[str], ids: Collection[str], what: str
    ) -> None:
        source, about = f"{kind}: {reason}", Reference.of_cluster(self._mark.uid)
        if not ids:
            self._events.well(source, about)
            return
        named = ", ".join(sorted(ids)[:NAMED])
        note = f"{len(ids)} {kind} with our tags {what} (docs/operations.md): {named}"
        if not set(ids) <= set(before):
            LOG.warning("%s", note)
        await self._events.warn(source, about, reason, note)

    async def refused(self, about: Reference, port_id: str) -> None:
        """Report a port that a KuryrPort names and that its Pod does not have."""
        self._refused += 1
        note = f"port {port_id} is not this Pod's: it is neither changed nor released"
        self._log(about, port_id, note)
        await self._events.warn("ports of others", about, "KuryrNotOurs", note)

    async def forged(self, about: Reference) -> None:
        """Report a KuryrPort whose interfaces others have changed; they are restored."""
        self._forged += 1
        note = "status.vifs was changed by others than the controller; it is restored"
        self._log(about, "", note)
        await self._events.warn("changes by others", about, "KuryrPortForged", note)

    def _log(self, about: Reference, port_id: str, note: str) -> None:
        if port_id not in self._logged[about.uid]:
            self._logged[about.uid].add(port_id)
            LOG.warning("KuryrPort %s/%s: %s", about.namespace, about.name, note)

    def forget(self, uid: str) -> None:
        """Forget what was logged about a KuryrPort."""
        self._logged.pop(uid, None)

    def collect(self) -> Iterator[Metric]:
        """Count strangers by kind, and refusals."""
        others = GaugeMetricFamily(
            "kuryr_other_clusters_objects",
            "Objects with our tags and the mark of another cluster",
            labels=["kind"],
        )
        unmarked = GaugeMetricFamily(
            "kuryr_unmarked_objects",
            "Objects with our tags and no mark, which nothing of this cluster names",
            labels=["kind"],
        )
        elsewhere = GaugeMetricFamily(
            "kuryr_other_projects_objects",
            "Objects with our mark in projects that kuryr.conf does not name",
            labels=["kind"],
        )
        for kind, found in self._found.items():
            others.add_metric([kind], len(found.others))
            unmarked.add_metric([kind], len(found.unmarked))
            elsewhere.add_metric([kind], len(found.elsewhere))
        yield others
        yield unmarked
        yield elsewhere
        yield CounterMetricFamily(
            "kuryr_refused_ports",
            "Ports that KuryrPorts named and that their Pods did not have",
            self._refused,
        )
        yield CounterMetricFamily(
            "kuryr_restored_kuryrports",
            "KuryrPorts whose interfaces others had changed, and that were restored",
            self._forged,
        )
