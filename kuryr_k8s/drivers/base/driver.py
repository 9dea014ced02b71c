"""The base of all drivers, what each is handed, and the set of those that are in use."""

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar, cast

from oslo_config import cfg
from prometheus_client.registry import Collector

from kuryr_k8s.cloud.barbican.api import Barbican
from kuryr_k8s.cloud.neutron.api import Neutron
from kuryr_k8s.cloud.octavia.api import Octavia
from kuryr_k8s.drivers import registry
from kuryr_k8s.engine.clock import CLOCK, Clock
from kuryr_k8s.engine.controller import Controller, Observer
from kuryr_k8s.k8s.api import KubeApi
from kuryr_k8s.k8s.events import EventRecorder
from kuryr_k8s.k8s.informer import Informers
from kuryr_k8s.patience import PATIENCE, Patience

NAMESPACE = "kuryr_k8s.controller.drivers"


class SlotLookup(Protocol):
    """The drivers that other drivers may ask for, see :class:`Drivers`."""

    def __getitem__(self, slot: "type[D]") -> "D":
        """Return the driver that the slot's option names."""

    def named(self, slot: "type[D]", name: str, option: str = "") -> "D":
        """Return the driver of that name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverContext:
    """The objects that every driver is handed when it is made.

    :param kube: reads of objects that no cache has.
    :param drivers: the other drivers; ask for those that you need in the constructor.
    :param informers: caches of Kubernetes objects; ask for those that you need in the constructor.
    :param events: for Events on objects.
    :param observe: counts reconciles; hand it to the Controllers of :meth:`Driver.loops`.
    """

    conf: cfg.ConfigOpts
    kube: KubeApi
    neutron: Neutron
    octavia: Octavia
    barbican: Barbican
    drivers: SlotLookup
    informers: Informers
    events: EventRecorder
    observe: Observer | None = None
    clock: Clock = CLOCK
    patience: Patience = PATIENCE


class Driver(abc.ABC):
    """Base of all drivers.

    :cvar slot: what the driver decides or does; the option ``[kubernetes] <slot>_driver`` names
        the entry point in ``kuryr_k8s.controller.drivers.<slot>``.
    :cvar asks: whom :meth:`start` asks; the log says so while the program waits for it.
    """

    slot: ClassVar[str]
    asks: ClassVar[str] = "Neutron"

    def __init__(self, context: DriverContext) -> None:
        self._context = context

    async def start(self) -> None:  # noqa: B027 - a hook that few drivers need
        """Check the configuration; called once, before the first reconcile.

        :raises kuryr_k8s.errors.ConfigError: an option is wrong, whatever the cloud shows.
        :raises kuryr_k8s.errors.Refused: an option names something that is not there.
        """

    def loops(self) -> Sequence[Controller[Any]]:
        """Return what the driver runs of its own accord, while this controller leads.

        Workers that make ports ahead, one watch of pending cloud objects, periodic sweeps: each
        is a Controller with a queue of its own. Called once, before the start.
        """
        return ()

    def checks(self) -> Mapping[str, Callable[[], bool]]:
        """Return what must hold for ``/readyz`` to answer 200, by name; a standby asks too."""
        return {}

    def collectors(self) -> Sequence[Collector]:
        """Return the driver's own metrics. Called once, before the start."""
        return ()


D = TypeVar("D", bound=Driver)


class Drivers:
    """The drivers in use, by the class of their slot; each is made when it is first asked for.

    Handlers and drivers ask in their constructors. So a slot that nobody asks for is never
    loaded, and a driver that another one needs is made, and started, before it.

    :param make_context: called once, with this object.
    """

    def __init__(
        self, conf: cfg.ConfigOpts, make_context: "Callable[[Drivers], DriverContext]"
    ) -> None:
        self._options = conf.kubernetes
        self._made: dict[tuple[str, str], Driver] = {}
        self._context = make_context(self)
        self._sealed = False

    def __getitem__(self, slot: type[D]) -> D:
        """Return the driver that the slot's option names.

        :raises errors.ConfigError: there is none of that name.
        """
        return self.named(slot, self._options[f"{slot.slot}_driver"])

    def several(self, slot: type[D]) -> tuple[D, ...]:
        """Return the drivers that the slot's option lists, in its order.

        :raises errors.ConfigError: there is none of such a name.
        """
        option = f"[kubernetes] {slot.slot}_drivers"
        names = self._options[f"{slot.slot}_drivers"]
        return tuple(self.named(slot, name, option) for name in names)

    def named(self, slot: type[D], name: str, option: str = "") -> D:
        """Return the driver with that entry point name, whether or not an option names it.

        :param option: that names it, for the message.
        :raises errors.ConfigError: there is none of that name.
        :raises LookupError: the program has started, and nobody asked for the driver before.
        """
        made = self._made.get((slot.slot, name))
        if made is None:
            if self._sealed:
                raise LookupError(f"ask for the {slot.slot} driver {name!r} before the start")
            option = option or f"[kubernetes] {slot.slot}_driver"
            namespace = f"{NAMESPACE}.{slot.slot}"
            made = registry.load_class(namespace, name, slot, option)(self._context)
            self._made[slot.slot, name] = made
        return cast("D", made)

    def of_slot(self, slot: type[D]) -> tuple[D, ...]:
        """Return all drivers of a slot that are in use."""
        made = self._made.items()
        return tuple(cast("D", driver) for (name, _), driver in made if name == slot.slot)

    def seal(self) -> tuple[Driver, ...]:
        """Return all drivers in use, each after those that it asked for; make no more."""
        self._sealed = True
        return tuple(self._made.values())
