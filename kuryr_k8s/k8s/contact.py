"""When an informer last heard from the API server."""

import logging
from collections.abc import Iterable, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kuryr_k8s.engine.clock import Clock

LOG = logging.getLogger(__name__)
LONGEST = 300.0  # seconds without a sign of life; the server sends a bookmark every minute


class Contact:
    """The contact of one informer with the server.

    An event, a bookmark and a whole list are signs of life. That a connection is open is none, nor
    is the answer to any other request.

    :param name: what the informer follows, for the log.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._heard = clock.now()
        self._silent = False

    @property
    def age(self) -> float:
        """Seconds since the last sign of life."""
        return self._clock.now() - self._heard

    @property
    def is_alive(self) -> bool:
        """True if the server has given a sign of life lately."""
        return self.age <= LONGEST

    def begin(self) -> None:
        """Note that the server is asked from now on; until now it had no reason to tell."""
        self._heard = self._clock.now()

    def hear(self) -> None:
        """Note a sign of life."""
        if self._silent:
            LOG.info("%s: the API server tells of them again", self._name)
        self._heard = self._clock.now()
        self._silent = False

    async def report_silence(self) -> None:
        """Log once whenever there has been no sign of life for too long."""
        while True:
            await self._clock.sleep(max(1.0, LONGEST - self.age))
            if self.age >= LONGEST and not self._silent:
                self._silent = True
                LOG.error("%s: the API server has told nothing for %.0f s", self._name, self.age)


class ContactMetrics(Collector):
    """The age of each informer, read when Prometheus asks.

    :param contacts: by the resources that the informers follow; may grow until the first request.
    """

    def __init__(self, contacts: Mapping[str, Contact]) -> None:
        self._contacts = contacts

    def collect(self) -> Iterable[GaugeMetricFamily]:
        ages = GaugeMetricFamily(
            "kuryr_informer_age_seconds",
            "Seconds since the last sign of life of the watch that a cache follows",
            labels=["resource"],
        )
        for resource, contact in self._contacts.items():
            ages.add_metric([resource], contact.age)
        yield ages
