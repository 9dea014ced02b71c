"""The base of all handlers, and what they are given."""

import abc
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from oslo_config import cfg
from prometheus_client.registry import Collector

from kuryr_k8s.cloud.neutron.api import Neutron
from kuryr_k8s.drivers.base import Drivers
from kuryr_k8s.engine.clock import CLOCK, Clock
from kuryr_k8s.engine.controller import Controller, Observer
from kuryr_k8s.engine.workqueue import WorkQueue
from kuryr_k8s.handlers.routing import Routing
from kuryr_k8s.handlers.strangers import Strangers
from kuryr_k8s.k8s.api import KubeApi
from kuryr_k8s.k8s.events import EventRecorder, Reference, words_for_users
from kuryr_k8s.k8s.informer import Informer, Informers
from kuryr_k8s.k8s.resources import Key, Versioned
from kuryr_k8s.patience import PATIENCE, Patience

T = TypeVar("T", bound=Versioned)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerContext:
    """The clients, caches and drivers that every handler is given.

    :param drivers: Ask for those that you need in the constructor.
    :param informers: Caches of Kubernetes objects; ask for those that you need in the constructor
        or in :meth:`Handler.watches`.
    :param observe: Counts reconciles; pass it to the Controllers of :meth:`Handler.loops`.
    :param strangers: Reports what has our tags, or is named by a KuryrPort, and is not ours.
    :param confirm_lease: Returns when the Lease was renewed after the call; for what only the
        leader may do, where something suggests that it is another. See :meth:`Lease.confirm`.
    :param routing: What is asked of the L7 router, and by whom.
    :param incarnation: Names this life of the process: nobody else can have worked on what it
        created itself.
    """

    conf: cfg.ConfigOpts
    kube: KubeApi
    neutron: Neutron
    events: EventRecorder
    informers: Informers
    drivers: Drivers
    strangers: Strangers
    confirm_lease: Callable[[], Awaitable[None]]
    observe: Observer | None = None
    clock: Clock = CLOCK
    patience: Patience = PATIENCE
    routing: Routing = field(default_factory=Routing)
    incarnation: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(frozen=True, slots=True)
class Watch(Generic[T]):
    """A kind to follow, and the keys that a change of an object concerns.

    ``to_keys(key, old, new)`` returns the keys to reconcile; ``old`` or ``new`` may be None.
    """

    informer: Informer[T]
    to_keys: Callable[[Key, T | None, T | None], Iterable[Key]]


class Handler(abc.ABC):
    """Makes the world match one kind of object; level-triggered and idempotent.

    ``queue`` holds the keys to reconcile. No handler is told what changed.
    """

    def __init__(self, context: HandlerContext) -> None:
        self._context = context
        self.queue = WorkQueue[Key](context.clock, base=context.patience.first_retry)

    def wake(self, key: Key) -> None:
        """Queue the key."""
        self.queue.add(key)

    def is_urgent(self, key: Key) -> bool | None:  # noqa: ARG002 - for those that know better
        """Return whether somebody waits for the outcome, so that the key goes before others.

        :returns: None if that is not known: then what changes is urgent, and what was there when
            the controller began to work is not.
        """
        return None

    @abc.abstractmethod
    def watches(self) -> Sequence[Watch[Any]]:
        """Return the kinds to follow."""

    async def start(self) -> None:  # noqa: B027 - a hook that few handlers need
        """Check the world; called once, before the first reconcile.

        :raises kuryr_k8s.errors.ConfigError: something must be mended first.
        """

    def loops(self) -> Sequence[Controller[Any]]:
        """Return what the handler runs besides reconciling, while this controller leads.

        For example periodic sweeps. Called once, before the start.
        """
        return ()

    def collectors(self) -> Sequence[Collector]:
        """Return the handler's own metrics."""
        return ()

    @abc.abstractmethod
    async def reconcile(self, key: Key) -> float | None:
        """Bring the world in line with the object ``key``.

        :returns: seconds after which to look again, or None for "when it changes".
        :raises kuryr_k8s.errors.Wait: nothing is wrong, look again later.
        :raises kuryr_k8s.errors.Refused: useless until something is mended.
        """

    @abc.abstractmethod
    def about(self, key: Key) -> Reference | None:
        """Return the object on which a user looks for problems with ``key``, if there is one."""

    async def report(self, key: Key, error: Exception | None, failures: int) -> None:
        """Report by an Event: at once what users can mend, later what may pass by itself."""
        about = self.about(key)
        source = type(self).__name__
        if about is None:
            return
        if error is None:
            self._context.events.well(source, about)
        elif words := words_for_users(error, failures):
            await self._context.events.warn(source, about, *words)
