"""The contract between the daemon and a binding, which plugs one kind of interface.

A third party ships a binding in a package of its own, as an entry point in the group
``kuryr_k8s.cni.binding`` that is named after the class of VIFs that it plugs. The daemon loads it
once, hands it a :class:`BindingContext`, and asks it for everything else: what it runs, its checks
and metrics (:class:`kuryr_k8s.cni.parts.Part`), what is attached, and what is left over.
"""

import abc
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from oslo_config import cfg
from stevedore.extension import Extension, ExtensionManager

from kuryr_k8s import entry_points, errors
from kuryr_k8s.cni.caches import Caches
from kuryr_k8s.cni.netlink import Links
from kuryr_k8s.cni.ovs.switch import OpenVSwitch
from kuryr_k8s.cni.parts import Part
from kuryr_k8s.cni.patience import USUAL, Patience
from kuryr_k8s.cni.result import Result
from kuryr_k8s.k8s.api import KubeApi
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.kuryrport import DEFAULT_IFNAME
from kuryr_k8s.model.vif import VIFBase

ENTRY_POINTS = "kuryr_k8s.cni.binding"
_NOT_INSTALLED = "the metadata of the package kuryr-k8s is missing; install the package again"


class BindingError(errors.KuryrError):
    """An interface cannot be plugged, or is not what it should be; the message is for users."""


class NamespaceGone(BindingError):
    """The Pod's network namespace does not exist."""


class Unusable(BindingError):
    """The binding cannot plug anything on this node; its constructor raises this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """An interface in a Pod's sandbox.

    It belongs to the container, not to the Pod: a Pod may get another sandbox, and the runtime
    may report the end of the old one after the beginning of the new one.

    :param ifname: its name in the Pod.
    :param request_ifname: the runtime's CNI_IFNAME, by which it asks for all interfaces of the
        Pod at once.
    """

    container_id: str
    ifname: str
    request_ifname: str
    netns: str
    pod_uid: str
    namespace: str
    pod: str

    def name_in(self, names: Collection[str]) -> str:
        """Return the interface's name in the KuryrPort that has interfaces of these names.

        The default one has the name that the runtime gives it; another one has its own, also
        where Multus asks for it alone.
        """
        is_default = self.ifname == self.request_ifname and self.ifname not in names
        return DEFAULT_IFNAME if is_default else self.ifname

    def __str__(self) -> str:
        return f"{self.ifname} of Pod {self.namespace}/{self.pod}, container {self.container_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """An interface that a Pod of this node has or will get, by its KuryrPort.

    :param key: of the KuryrPort, with the Pod's name.
    :param name: of the interface in the KuryrPort.
    :param names: of all interfaces in it.
    """

    key: Key
    pod_uid: str
    name: str
    vif: VIFBase
    names: Collection[str] = ()

    def is_of(self, attachment: Attachment) -> bool:
        """Return whether an attachment is this interface."""
        same_pod = attachment.pod_uid == self.pod_uid
        return same_pod and attachment.name_in(self.names) == self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """An attachment of a running Pod that is not whole any more.

    :param what: describes for users what is missing.
    """

    attachment: Attachment
    vif: VIFBase
    what: str


@dataclass(frozen=True, slots=True)
class Stray:
    """A leftover of a ``connect`` that ended before its record was written.

    :param pod_uid: the Pod that it belongs to if its record has been lost; empty if unknown.
    :param request_ifname: the runtime's CNI_IFNAME; empty if unknown.
    """

    container_id: str
    name: str
    pod_uid: str = ""
    request_ifname: str = ""


class AddsUnderWay(Protocol):
    """The ADDs that are being done."""

    def __len__(self) -> int:
        """Return how many there are."""

    def under_way(self, pod_uid: str) -> bool:
        """Return whether the runtime is setting a sandbox of this Pod up."""


class Settled(Protocol):
    """An event that is set once the daemon knows what is attached to this node."""

    def is_set(self) -> bool:
        """Return whether it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingContext:
    """Everything that a binding may use on the node.

    :param conf: the options, ``[binding]`` among them.
    :param node: the key of the Node.
    :param api: the client of Kubernetes, with the permissions of the daemon.
    :param caches: makes a cache of any kind of object; in the constructor only.
    :param links: makes and moves interfaces, and works in the namespaces of Pods.
    :param switch: the node's Open vSwitch; None on a node without one.
    :param adds: the ADDs that are being done. Work that nobody waits for comes after them.
    :param settled: is set once it is known what is attached.
    :param patience: durations that tests shorten.
    """

    conf: cfg.ConfigOpts
    node: Key
    api: KubeApi
    caches: Caches
    links: Links
    switch: OpenVSwitch | None
    adds: AddsUnderWay
    settled: Settled
    patience: Patience = USUAL

    def record_directory(self, name: str) -> Path:
        """Return a directory for a binding's :class:`~kuryr_k8s.cni.bindings.records.Records`.

        It outlives the daemon, and not the node's boot.

        :param name: the binding's own name for it.
        """
        return Path(self.conf.binding.state_dir).with_name(name)


class Binding(Part, abc.ABC):
    """Plugs one kind of interface.

    All methods may be repeated, and may be cancelled at any point: ``disconnect`` cleans up
    whatever was done. Calls for one Pod never overlap. The binding keeps the record of what is
    attached; the record must outlive the daemon, and ``attachments`` reads it.
    """

    @abc.abstractmethod
    def __init__(self, context: BindingContext) -> None:
        """Prepare to plug; nothing runs yet.

        :raises Unusable: this node lacks something that the binding needs.
        """

    @abc.abstractmethod
    async def connect(self, attachment: Attachment, vif: VIFBase) -> Result:
        """Plug an interface and set it up. It need not carry traffic yet.

        :returns: both ends of it, the node's first; connecting again returns an equal result.
        :raises BindingError: it cannot be done.
        """

    @abc.abstractmethod
    async def ready(self, attachment: Attachment, vif: VIFBase) -> None:
        """Wait until the node forwards the interface's traffic, then announce its addresses.

        The caller sets the deadline.
        """

    @abc.abstractmethod
    def progress(self, vif: VIFBase) -> str:
        """Describe for users what ``ready`` is waiting for."""

    @abc.abstractmethod
    async def disconnect(self, attachment: Attachment) -> None:
        """Unplug an interface, or park it for another Pod.

        An interface that does not exist counts as unplugged. The namespace need not exist. When
        this returns the interface has left its Pod, and its record is gone.
        """

    @abc.abstractmethod
    async def check(self, attachment: Attachment, vif: VIFBase) -> None:
        """Compare an interface with what ``connect`` made; additional addresses are tolerated.

        :raises BindingError: something is missing; the message says what.
        """

    @abc.abstractmethod
    def attachments(self) -> Collection[Attachment]:
        """Return everything that is attached, from memory."""

    @abc.abstractmethod
    def working(self, attachment: Attachment) -> bool:
        """Return whether an interface carries traffic, as far as the node knows."""

    @abc.abstractmethod
    def vanished(self, attachment: Attachment) -> bool:
        """Return whether an interface has left its Pod without a ``disconnect``.

        It has when it does not exist any more: the kernel removes it with the namespace. A path
        of a namespace that is missing proves nothing; it may merely be out of sight.
        """

    async def unpark(self, vif: VIFBase) -> None:
        """Unplug a VIF's port if it is parked, so that ``connect`` makes an interface for the Pod.

        It is called before ``connect`` where a chained plugin needs a veth.
        """

    def parked(self, vif: VIFBase) -> bool:  # noqa: ARG002 - a default
        """Return whether a VIF's port carries traffic already, although no Pod has it yet."""
        return False

    def states(self) -> dict[Attachment, bool]:
        """Return everything that is attached, and whether it carries traffic."""
        return {attachment: self.working(attachment) for attachment in self.attachments()}

    def watch(self, changed: Callable[[], None]) -> None:
        """Call a function when an interface may have been lost, or may carry traffic again."""

    def suspects(self) -> Collection[str]:
        """Return the uids of Pods of which an interface may have gone since the last call."""
        return ()

    async def lost(self, claims: Sequence[Claim]) -> list[Lost]:  # noqa: ARG002 - a default
        """Return which of these interfaces were attached, and have lost their record or a link.

        Only what belongs to a namespace that still exists is lost.
        """
        return []

    async def restore(self, lost: Sequence[Lost]) -> None:
        """Make records and links again, except where there is nothing lost any more.

        :raises errors.KuryrError: not all of them could be made.
        """

    def restored(self) -> Collection[Attachment]:
        """Return what was made again, and can be set up by :meth:`finish` now."""
        return ()

    async def finish(self, attachment: Attachment, vif: VIFBase) -> None:
        """Set an interface up that was made again."""

    async def forget(self, lost: Lost) -> None:
        """Remove what is left of an attachment that has lost its record."""

    def trouble(self) -> str:
        """Describe for users why ``attachments`` may be incomplete; empty if it is complete."""
        return ""

    async def reachable(self) -> None:
        """Wait until ``attachments`` is complete."""

    async def strays(self) -> Collection[Stray]:
        """Return what this daemon certainly made, and what has no record.

        What another daemon on the same machine made does not count. The daemon asks at its start,
        once a minute, and when an unknown container is deleted.
        """
        return ()

    async def discard(self, stray: Stray) -> None:
        """Remove a stray, unless it is gone or has a record by now."""


class Bindings:
    """The bindings of this node, by the class of VIFs that they plug.

    :param unusable: why a binding that is installed is not used here, likewise.
    """

    def __init__(
        self, usable: Mapping[str, Binding], unusable: Mapping[str, Unusable] | None = None
    ) -> None:
        self._usable = usable
        self._unusable = unusable or {}

    def __iter__(self) -> Iterator[Binding]:
        return iter(self._usable.values())

    def find(self, vif: VIFBase) -> Binding | None:
        """Return the binding for a VIF; None if none is installed.

        :raises Unusable: there is one, but not for this node.
        """
        kind = type(vif).__name__
        if kind in self._unusable:
            raise self._unusable[kind]
        return self._usable.get(kind)


def load(context: BindingContext) -> Bindings:
    """Load all bindings that are installed.

    :raises errors.ConfigError: one of them is broken, two have the same name, or none can be used.
    """
    found: ExtensionManager[Any] = ExtensionManager(ENTRY_POINTS, on_load_failure_callback=_broken)
    # before any is made: what a binding has subscribed to cannot be taken back
    for name, count in Counter(extension.name for extension in found).items():
        if count > 1:
            raise errors.ConfigError(f"binding {entry_points.ambiguity(ENTRY_POINTS, name)}")
    usable: dict[str, Binding] = {}
    unusable: dict[str, Unusable] = {}
    for extension in found:
        try:
            usable[extension.name] = _make(extension, context)
        except Unusable as error:
            unusable[extension.name] = error
    if not usable:
        reasons = "; ".join(f"{name}: {error}" for name, error in unusable.items())
        raise errors.ConfigError(
            f"there is no binding in {ENTRY_POINTS}: {reasons or _NOT_INSTALLED}"
        )
    return Bindings(usable, unusable)


def _make(extension: Extension[Any], context: BindingContext) -> Binding:
    kind = extension.plugin
    if not (isinstance(kind, type) and issubclass(kind, Binding)):
        raise errors.ConfigError(f"binding {extension.name}: {kind!r} is not a Binding")
    return kind(context)


def _broken(_manager: object, entry_point: object, error: BaseException) -> None:
    raise errors.ConfigError(f"binding {entry_point}: {error}") from error
