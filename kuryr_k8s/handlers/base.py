"""What a handler is: it makes the world match one object, named by its key."""

import abc
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from oslo_config import cfg

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import (
    Driver,
    MultiVIFDriver,
    PodProjectDriver,
    PodSecurityGroupsDriver,
    PodSubnetsDriver,
    PodVIFDriver,
    VIFPoolDriver,
)
from kuryr_k8s.k8s.api import KubeApi
from kuryr_k8s.k8s.events import EventRecorder, Reference
from kuryr_k8s.k8s.informer import Informer, Versioned
from kuryr_k8s.k8s.resources import NODES, Key
from kuryr_k8s.model.kuryrport import KuryrPort
from kuryr_k8s.model.kuryrportpool import KuryrPortPool
from kuryr_k8s.model.pod import Namespace, Node, Pod

T = TypeVar("T", bound=Versioned)
# What a user, or the operator, can mend.
TOLD_AT_ONCE = (errors.Refused, errors.OverQuota, errors.NotFound)
TELL_AFTER = 3  # failures in a row before a user is told of something that may pass by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Informers:
    """The caches, one for each kind, shared by all handlers."""

    pods: Informer[Pod]
    nodes: Informer[Node]
    namespaces: Informer[Namespace]
    kuryrports: Informer[KuryrPort]
    kuryrportpools: Informer[KuryrPortPool]

    def all(self) -> tuple[Informer[Any], ...]:
        return (self.pods, self.nodes, self.namespaces, self.kuryrports, self.kuryrportpools)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drivers:
    """The drivers that the options name, one for each slot."""

    pod_vif: PodVIFDriver
    pod_project: PodProjectDriver
    pod_subnets: PodSubnetsDriver
    pod_security_groups: PodSecurityGroupsDriver
    vif_pool: VIFPoolDriver
    multi_vif: tuple[MultiVIFDriver, ...]

    def all(self) -> tuple[Driver, ...]:
        """In the order in which they start."""
        decide = (self.pod_project, self.pod_subnets, self.pod_security_groups)
        return (*decide, *self.multi_vif, self.pod_vif, self.vif_pool)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerContext:
    """What every handler is handed at its making.

    ``incarnation`` names this life of the process: what it created itself, nobody else can have
    worked on.
    """

    conf: cfg.ConfigOpts
    kube: KubeApi
    events: EventRecorder
    informers: Informers
    drivers: Drivers
    incarnation: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(frozen=True, slots=True)
class Watch(Generic[T]):
    """A kind to follow, and whom a change of an object concerns.

    ``to_keys(key, old, new)`` gives the keys to reconcile; ``old`` or ``new`` may be None.
    """

    informer: Informer[T]
    to_keys: Callable[[Key, T | None, T | None], Iterable[Key]]


class Handler(abc.ABC):
    """One for each kind of work; level-triggered, idempotent, never told what changed."""

    def __init__(self, context: HandlerContext) -> None:
        self._context = context
        self.wake: Callable[[Key], None] = lambda _key: None  # set by whoever runs the handler

    @abc.abstractmethod
    def watches(self) -> Sequence[Watch[Any]]:
        """What to follow."""

    @abc.abstractmethod
    async def reconcile(self, key: Key) -> float | None:
        """Bring the world in line with the object ``key``.

        :return: seconds after which to look again, or None for "when it changes".
        :raises errors.Wait: nothing is wrong, look again later.
        :raises errors.Refused: useless until something is mended.
        """

    @abc.abstractmethod
    def about(self, key: Key) -> Reference | None:
        """The object on which a user looks for what is wrong with ``key``, if there is one."""

    async def report(self, key: Key, error: Exception | None, failures: int) -> None:
        """Tell users by an Event: at once what they can mend, later what may pass by itself."""
        about = self.about(key)
        source = type(self).__name__
        if about is None:
            return
        if error is None:
            self._context.events.well(source, about)
        elif words := words_for_users(error, failures):
            await self._context.events.warn(source, about, *words)


def words_for_users(error: Exception, failures: int) -> tuple[str, str] | None:
    """An Event's reason and note; None for what may still pass by itself.

    :param failures: so many attempts in a row have failed.
    """
    if not isinstance(error, TOLD_AT_ONCE) and failures < TELL_AFTER:
        return None
    reason = getattr(error, "reason", errors.KuryrError.reason)
    return reason, getattr(error, "brief", str(error)) or type(error).__name__


def node_reference(node: Node | None) -> Reference | None:
    """What an Event about the Node points at."""
    if node is None:
        return None
    return Reference(resource=NODES, namespace="", name=node.name, uid=node.uid)
