"""What a binding is. Third parties ship one as an entry point in ``kuryr_k8s.cni.binding``,
under the name of the class of VIFs that it plugs.
"""

import abc
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from oslo_config import cfg
from stevedore.extension import Extension, ExtensionManager

from kuryr_k8s import errors
from kuryr_k8s.cni.bindings.ovs_parked import Parked
from kuryr_k8s.cni.netlink import Links
from kuryr_k8s.cni.ovs.switch import OpenVSwitch
from kuryr_k8s.cni.result import Result
from kuryr_k8s.model.vif import VIFBase

NAMESPACE = "kuryr_k8s.cni.binding"


class BindingError(errors.KuryrError):
    """An interface cannot be plugged, or is not what it should be; the message is for users."""

    reason = "KuryrPlugFailed"


class NamespaceGone(BindingError):
    """The Pod's network namespace is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """An interface of a Pod's sandbox. It belongs to the container, not to the Pod: a Pod may
    get another sandbox, and the end of the old one is reported after the new one's beginning.

    ``ifname`` is its name in the Pod; ``request_ifname`` the runtime's CNI_IFNAME, by which it
    asks for all interfaces of the Pod at once.
    """

    container_id: str
    ifname: str
    request_ifname: str
    netns: str
    pod_uid: str
    namespace: str
    pod: str


@dataclass(frozen=True, slots=True)
class Stray:
    """A leftover of a ``connect`` that was cut off before it was recorded."""

    container_id: str
    name: str


@dataclass(frozen=True, slots=True)
class Host:
    """What bindings work with on the node."""

    links: Links
    switch: OpenVSwitch
    parked: Parked
    conf: cfg.ConfigOpts


class Binding(abc.ABC):
    """All methods may be repeated, and may be cancelled at any point: ``disconnect`` cleans up
    whatever was done. Calls for one Pod never overlap. The record of what is attached is the
    binding's own, must outlive the daemon, and is read by ``attachments``.
    """

    @abc.abstractmethod
    def __init__(self, host: Host) -> None: ...

    @abc.abstractmethod
    async def connect(self, attachment: Attachment, vif: VIFBase) -> Result:
        """Plug the interface and set it up. It need not carry traffic yet.

        :returns: both ends of it, the node's first; connecting again returns an equal result.
        :raises BindingError: it cannot be done.
        """

    @abc.abstractmethod
    async def ready(self, attachment: Attachment, vif: VIFBase) -> None:
        """Wait until the node forwards its traffic, then announce its addresses. The caller
        sets the deadline.
        """

    @abc.abstractmethod
    def progress(self, vif: VIFBase) -> str:
        """What ``ready`` is waiting for, for users."""

    @abc.abstractmethod
    async def disconnect(self, attachment: Attachment) -> None:
        """Unplug it, or park it for another Pod; what is not there counts as unplugged. Needs no
        namespace.

        When this returns the interface has left its Pod, and its record is gone.
        """

    @abc.abstractmethod
    async def check(self, attachment: Attachment, vif: VIFBase) -> None:
        """Compare with what ``connect`` made; further addresses and routes are tolerated.

        :raises BindingError: something is missing; the message says what.
        """

    @abc.abstractmethod
    def attachments(self) -> Collection[Attachment]:
        """Everything that is attached, from memory."""

    @abc.abstractmethod
    def working(self, attachment: Attachment) -> bool:
        """Is it ready, as far as the node knows?"""

    @abc.abstractmethod
    def vanished(self, attachment: Attachment) -> bool:
        """Has the interface left its Pod without a ``disconnect``?

        It has when it does not exist any more: the kernel removes it with the namespace. That
        the namespace's path is not there proves nothing; we may just not see it.
        """

    @abc.abstractmethod
    async def strays(self) -> Collection[Stray]:
        """What is on the node and no attachment, though certainly this daemon's own doing: not
        that of another daemon on the same machine.
        """

    @abc.abstractmethod
    async def discard(self, stray: Stray) -> None:
        """Remove one of ``strays``; one that is gone, or no stray any more, is left alone."""


def load(host: Host) -> dict[str, Binding]:
    """All bindings that are installed, by the class of VIFs that they plug.

    :raises errors.ConfigError: one of them is broken.
    """
    found: ExtensionManager[Any] = ExtensionManager(NAMESPACE, on_load_failure_callback=_broken)
    return {extension.name: _make(extension, host) for extension in found}


def _make(extension: Extension[Any], host: Host) -> Binding:
    kind = extension.plugin
    if not (isinstance(kind, type) and issubclass(kind, Binding)):
        raise errors.ConfigError(f"binding {extension.name}: {kind!r} is no Binding")
    return kind(host)


def _broken(_manager: object, entry_point: object, error: BaseException) -> None:
    raise errors.ConfigError(f"binding {entry_point}: {error}") from error
