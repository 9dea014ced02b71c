"""Requests that the API server refuses because of our account: credentials and permissions."""

import logging
from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kuryr_k8s import errors
from kuryr_k8s.engine.clock import CLOCK, Clock

LOG = logging.getLogger(__name__)
SAID = 60.0  # seconds from one log line about a refusal to the next
LONGEST = 300.0  # seconds; a permission that was missed longer ago is perhaps needed no more


class Refusals(Collector):
    """The refusals that last, each logged at its first request and at its end.

    Credentials are refused (401), or missing, until a request is answered otherwise. A permission
    is missing (403 of the authorizer) until a request of that kind is answered otherwise. A 403 of
    a quota, an admission webhook or a policy is about one object: its reconcile reports it.
    """

    def __init__(self, clock: Clock = CLOCK) -> None:
        self._clock = clock
        self._unknown = False
        self._forbidden: dict[str, float] = {}  # when requests were last refused, by their kinds
        self._said: dict[str, float] = {}  # when what was logged

    def answered(self, kind: str, problem: errors.KubeError | None) -> None:
        """Note the answer to a request of this kind; None: it was granted.

        :param kind: its method, and the resource.
        """
        status = problem.status if problem is not None else 200
        if status == 401 or isinstance(problem, errors.NoCredentials):
            if not self._unknown:
                self._say("our credentials for the API server are refused or missing", problem)
            self._unknown = True
            return
        if status == 0:
            return  # nobody has answered
        if self._unknown:
            self._unknown = False
            LOG.info("the API server accepts our credentials")
        if isinstance(problem, errors.KubeForbidden):
            if kind not in self._current():
                self._say(f"{kind}: refused, check our permissions (etc/rbac)", problem)
            self._forbidden[kind] = self._clock.now()
        elif self._forbidden.pop(kind, None) is not None:
            LOG.info("%s: is granted", kind)

    def _say(self, what: str, problem: errors.KubeError | None) -> None:
        """Log an error, not more than once a minute: one of several servers may refuse us."""
        now = self._clock.now()
        recently = now - self._said.get(what, -SAID) < SAID
        LOG.log(logging.DEBUG if recently else logging.ERROR, "%s: %s", what, problem)
        if not recently:
            self._said[what] = now

    def _current(self) -> list[str]:
        """List the kinds of requests that are refused at present."""
        now = self._clock.now()
        return [kind for kind, last in self._forbidden.items() if now - last <= LONGEST]

    def none(self) -> bool:
        """Return whether nothing is refused at present."""
        return not self._unknown and not self._current()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Count what is refused, when Prometheus asks."""
        refused = GaugeMetricFamily(
            "kuryr_kubernetes_refused",
            "Kinds of requests for which we lack the permission (403) at present; "
            "with 401: 1 while it does not accept our credentials, or there are none",
            labels=["status"],
        )
        refused.add_metric(["401"], self._unknown)
        refused.add_metric(["403"], len(self._current()))
        yield refused
