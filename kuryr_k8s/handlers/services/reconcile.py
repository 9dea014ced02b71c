"""One reconcile of a Service: what is asked for, and what has come of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kuryr_k8s import errors
from kuryr_k8s.handlers.services.desired import Given
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.load_balancer import FoundLoadBalancer
from kuryr_k8s.model.owner import Owner, Role
from kuryr_k8s.model.service import Service
from kuryr_k8s.model.service_annotations import Settings

Json = dict[str, Any]


class ServedPort(NamedTuple):
    """A port of the Service."""

    protocol: str
    port: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """A load balancer that was asked for.

    :param refused: why a port has no listener, by port.
    :param note: what else Octavia refused.
    """

    found: FoundLoadBalancer
    refused: Mapping[ServedPort, str] = field(default_factory=dict)
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """How a Service is reached from outside.

    :param load_balancer_id: the one that its first address leads to; empty if the user names it.
    :param refused: why a port is not reached, by port.
    :param notes: notes of Events by reason, as with :func:`settings.unkept`.
    :param problem: why the Service is not reached at all.
    """

    load_balancer_id: str
    addresses: tuple[str, ...]
    ingress: tuple[Json, ...]
    refused: Mapping[ServedPort, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    problem: errors.KuryrError | None = None


@dataclass(slots=True, kw_only=True)
class Reconcile:
    """State of one reconcile.

    :param exposed: the Service is of type LoadBalancer, and its class is ours.
    :param unreadable: what cannot be read of the annotations, in words for users.
    :param inner: outcomes for the ClusterIPs, by address.
    :param exposure: None if the Service has nothing outside.
    :param problems: what went wrong; one problem does not hold up the rest.
    """

    key: Key
    given: Given
    exposed: bool
    unreadable: Sequence[str] = ()
    inner: dict[str, Outcome] = field(default_factory=dict)
    exposure: Exposure | None = None
    problems: list[errors.KuryrError] = field(default_factory=list)

    @property
    def service(self) -> Service:
        """The Service as the caches have it."""
        return self.given.service

    @property
    def settings(self) -> Settings:
        """What the user and the operator ask for."""
        return self.given.settings

    def owner(self, role: Role = Role.FIRST) -> Owner:
        """Return the owner of that role."""
        return Owner(self.service.uid, role)

    def is_waiting(self) -> bool:
        """Tell whether a cloud is still at work: soon there is more to report."""
        return any(isinstance(problem, errors.Wait) for problem in self.problems)
