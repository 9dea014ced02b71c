"""Our account in Keystone: whether it is accepted, for readiness, metrics and log."""

import logging
import threading
from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

LOG = logging.getLogger(__name__)


class Account(Collector):
    """The last word of Keystone about the account; each change is logged once.

    The threads of calls use it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._refused = False

    def refuse(self, reason: Exception) -> None:
        """Note that Keystone refuses the account."""
        if self._changes(refused=True):
            LOG.error("nothing can be done in OpenStack: %s", reason)

    def accept(self) -> None:
        """Note that there is a token."""
        if self._changes(refused=False):
            LOG.info("Keystone accepts us again")

    def _changes(self, *, refused: bool) -> bool:
        with self._lock:
            before, self._refused = self._refused, refused
            return before != refused

    def is_accepted(self) -> bool:
        """Return whether nothing is known to be wrong with it."""
        return not self._refused

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Tell when Prometheus asks."""
        yield GaugeMetricFamily(
            "kuryr_keystone_refused", "1 while Keystone refuses us", value=self._refused
        )
