"""The controller's own state: ``GET /status``, and metrics that tell which controller leads.

``GET /status`` answers, whether the controller leads or not::

    {"identity": "host_...", "leading": true,
     "lease": {"namespace": "kube-system", "name": "kuryr-k8s-controller",
               "holder": "host_...", "expires_in": 41.2, "transitions": 3},
     "caches": {"pods": {"synced": true, "objects": 812, "age": 12.5}, ...},
     "queues": {"vif": {"waiting": 0, "active": 2}, ...},
     "calls": {"neutron": 3}}

``expires_in`` is in seconds by this host's clock, ``age`` those since the API server last told a
cache anything. An identity begins with the host's name;
``holder`` is empty where the Lease was released. ``calls`` are those in flight.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from aiohttp import web
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kuryr_k8s.engine.workqueue import WorkQueue
from kuryr_k8s.k8s.informer import Informer
from kuryr_k8s.k8s.leader import Lease


class Status(Collector):
    """Answers from the objects that it is given, without asking any API.

    :param leads: tells whether this controller works, and nobody else can.
    :param calls: return the number of calls in flight, by the name of the API.
    :param caches: the caches that must be synced before the controller is ready.
    :param queues: the queues, by the names of the loops that work on them.
    """

    def __init__(
        self,
        lease: Lease,
        leads: Callable[[], bool],
        calls: Mapping[str, Callable[[], int]],
        caches: Sequence[Informer[Any]],
        queues: Mapping[str, WorkQueue[Any]],
    ) -> None:
        self._caches = caches
        self._queues = queues
        self._lease = lease
        self._leads = leads
        self._calls = calls

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/status", self._get)]

    def synced(self) -> bool:
        return all(cache.synced.is_set() for cache in self._caches)

    def followed(self) -> bool:
        """Return whether the API server tells each cache of its objects, and has lately."""
        return all(cache.contact.is_alive for cache in self._caches)

    async def _get(self, _request: web.Request) -> web.Response:
        return web.json_response(self.as_json())

    def as_json(self) -> dict[str, Any]:
        """Return the status as the module describes it."""
        lease = self._lease
        return {
            "identity": lease.identity,
            "leading": self._leads(),
            "lease": {
                "namespace": lease.key.namespace,
                "name": lease.key.name,
                "holder": lease.holder,
                "expires_in": round(lease.expires_in, 1),
                "transitions": lease.transitions,
            },
            "caches": {
                cache.resource.plural: {
                    "synced": cache.synced.is_set(),
                    "objects": len(cache),
                    "age": round(cache.contact.age, 1),
                }
                for cache in self._caches
            },
            "queues": {
                name: {"waiting": len(queue), "active": queue.active}
                for name, queue in self._queues.items()
            },
            "calls": {name: in_flight() for name, in_flight in self._calls.items()},
        }

    def collect(self) -> Iterable[GaugeMetricFamily]:
        yield GaugeMetricFamily(
            "kuryr_leader", "1: this controller leads, 0: it stands by", value=self._leads()
        )
        yield GaugeMetricFamily(
            "kuryr_lease_transitions",
            "How often the Lease went to another controller, as last seen",
            value=self._lease.transitions,
        )
