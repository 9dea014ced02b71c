"""The attachments of the node: how they come, go, and are told apart.

A Pod may have had several sandboxes, and their requests come in any order. An attachment belongs
to its container: only the newest sandbox of a Pod is attached, a DEL of another sandbox leaves it
alone, and no two requests work on one Pod at the same time.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from prometheus_client import Gauge

from kuryr_k8s import errors
from kuryr_k8s.cni.bindings.base import (
    Attachment,
    Binding,
    BindingError,
    Bindings,
    Claim,
    Stray,
    Unusable,
)
from kuryr_k8s.cni.parts import Part
from kuryr_k8s.cni.pods.adds import Add, Adds
from kuryr_k8s.cni.pods.kuryrports import KuryrPorts
from kuryr_k8s.cni.protocol import (
    BAD_CONFIG,
    CHECK_FAILED,
    NOT_AVAILABLE,
    TRY_LATER,
    Attached,
    CNIError,
    Request,
)
from kuryr_k8s.cni.result import Result
from kuryr_k8s.cni.serial import Serial
from kuryr_k8s.engine.metrics import gauge
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.codec import DecodeError
from kuryr_k8s.model.kuryrport import DEFAULT_IFNAME, KuryrPort
from kuryr_k8s.model.vif import VIFBase

LOG = logging.getLogger(__name__)


class Plug(NamedTuple):
    """An interface to plug, and the binding that plugs it."""

    binding: Binding
    attachment: Attachment
    vif: VIFBase


class Attachments(Part):
    """The attachments of the node.

    :param adds: the ADDs that are being done.
    :param settled: set once the leftovers of an earlier daemon are dealt with.
    :param add_timeout: seconds that an ADD may take.
    """

    def __init__(
        self,
        bindings: Bindings,
        kuryrports: KuryrPorts,
        *,
        adds: Adds,
        settled: asyncio.Event,
        add_timeout: float,
    ) -> None:
        self.adds = adds
        self.settled = settled
        self._bindings = bindings
        self._kuryrports = kuryrports
        self._add_timeout = add_timeout
        self._serial = Serial()
        self._subscribers: list[Callable[[Key], None]] = []

    def checks(self) -> Mapping[str, Callable[[], bool]]:
        """Return the check whether the daemon serves requests."""
        return {"settled": self.settled.is_set}

    def collectors(self) -> Sequence[Gauge]:
        """Return the metrics of attachments and ADDs."""
        return [
            gauge("kuryr_cni_attachments", "Interfaces plugged", lambda: len(self.all())),
            gauge("kuryr_cni_adds_in_flight", "ADDs being done", lambda: len(self.adds)),
        ]

    async def started(self) -> None:
        """Wait until requests are served."""
        await self.settled.wait()

    def awaited(self) -> str:
        """Describe for users what :meth:`started` waits for."""
        return "the KuryrPorts of the node, and the interfaces that are there already"

    def subscribe(self, subscriber: Callable[[Key], None]) -> None:
        """Call a function after each change with the key of the Pod's KuryrPort."""
        self._subscribers.append(subscriber)

    def trouble(self) -> str:
        """Describe for users why it is not known what is attached; empty if it is."""
        return next(filter(None, (binding.trouble() for binding in self._bindings)), "")

    async def reachable(self) -> None:
        """Wait until all bindings know what is attached."""
        for binding in self._bindings:
            await binding.reachable()

    def all(self) -> list[tuple[Binding, Attachment]]:
        """Return all attachments with their bindings."""
        return [(b, attachment) for b in self._bindings for attachment in b.attachments()]

    def of_pod(self, pod_uid: str) -> list[tuple[Binding, Attachment]]:
        """Return the attachments of a Pod with their bindings."""
        return [(b, attachment) for b, attachment in self.all() if attachment.pod_uid == pod_uid]

    def parked(self, vif: VIFBase) -> bool:
        """Return whether a VIF's port carries traffic already, although no Pod has it yet."""
        return any(binding.parked(vif) for binding in self._bindings)

    async def add(self, request: Request) -> Result:
        """Plug all interfaces of the request's Pod, and wait until traffic can flow.

        :raises CNIError: for example 11 if it took too long; the message says what for. The node
            is then as it was before.
        """
        request.require_pod()
        deadline = asyncio.get_running_loop().time() + self._add_timeout
        async with self.adds.admitted(request, deadline) as add:
            progress = ["kuryr-k8s-daemon is starting"]
            try:
                async with add.limited(deadline):
                    await self.settled.wait()
                    return await self._add(add, progress)
            except TimeoutError as error:
                await self._undo(add)
                reason = add.called_off or self._describe(request, progress)
                raise CNIError(TRY_LATER, f"Pod {request.pod}: {reason}") from error
            except Exception:
                await self._undo(add)
                raise
            finally:
                add.plugging = False
                self.notify(_key(request))

    async def _add(self, add: Add, progress: list[str]) -> Result:
        request = add.request
        progress.clear()
        while True:
            await self._kuryrports.wait(_key(request), request.pod_uid)
            async with self._serial.held(request.pod_uid):
                port = self._kuryrports.usable(_key(request), request.pod_uid)
                if port is None:
                    continue
                add.plugging = True  # before anything is awaited: from here on the port is ours
                plugs = self._plugs(request, port)
                await self._take_over(request)
                result = Result()
                for plug in plugs:
                    progress[:] = [f"plugging {plug.attachment.ifname} ({plug.vif.id})"]
                    if request.config.limited:
                        await plug.binding.unpark(plug.vif)
                    result += await plug.binding.connect(plug.attachment, plug.vif)
            for plug in plugs:
                try:
                    await plug.binding.ready(plug.attachment, plug.vif)
                except asyncio.CancelledError:
                    progress[:] = [plug.binding.progress(plug.vif)]
                    raise
            return result

    async def delete(self, request: Request) -> None:
        """Unplug everything that the request's container has.

        :raises CNIError: 11, it cannot be done now.
        """
        attached = Attached(container_id=request.container_id, ifname=request.ifname)
        if add := self.adds.find(attached):
            await add.call_off("the runtime sent DEL")
        async with self._serial.held(_lock(request.container_id)):
            found = [pair for pair in self.all() if _attached(pair[1]) == attached]
            for binding, attachment in found:
                await self.unplug(binding, attachment)
            await self._forget(request, len(found))
            if not found:
                await self._discard(
                    lambda stray: (
                        stray.container_id == request.container_id
                        and stray.request_ifname in ("", request.ifname)
                    )
                )

    async def _forget(self, request: Request, found: int) -> None:
        """Remove what has lost its record, if less was found than the Pod should have."""
        port = self._kuryrports.of_pod(request.pod_uid)
        if port is None:
            return
        if len(_asked_for(request, port.vifs_json(), port.delegated())) <= found:
            return
        attached = Attached(container_id=request.container_id, ifname=request.ifname)
        for binding, claims in self.claims([port]).items():
            for lost in await binding.lost(claims):
                if _attached(lost.attachment) == attached:
                    await binding.forget(lost)

    def claims(self, ports: Iterable[KuryrPort]) -> dict[Binding, list[Claim]]:
        """Return the interfaces that these KuryrPorts name, by their bindings."""
        found: dict[Binding, list[Claim]] = {}
        for port in ports:
            key = Key(port.namespace, port.name)
            with contextlib.suppress(DecodeError, Unusable):  # an ADD tells
                vifs = port.vifs()
                for name, vif in vifs.items():
                    if (binding := self._bindings.find(vif)) is not None:
                        claim = Claim(
                            key=key, pod_uid=port.pod_uid, name=name, vif=vif, names=tuple(vifs)
                        )
                        found.setdefault(binding, []).append(claim)
        return found

    @contextlib.asynccontextmanager
    async def idle(self, attachments: Collection[Attachment]) -> AsyncIterator[set[Attachment]]:
        """Keep requests from these attachments for the body, except from those that have one.

        :returns: the attachments that the body may change; their Pods still want them.
        """
        free = {attachment for attachment in attachments if self._is_idle(attachment)}
        locks = {_lock(a.container_id) for a in free} | {a.pod_uid for a in free}
        async with contextlib.AsyncExitStack() as stack:
            for lock in locks:  # at once: nobody has them
                await stack.enter_async_context(self._serial.held(lock))
            yield free

    def busy(self, pod_uid: str) -> bool:
        """Return whether something is being done to the interfaces of a Pod."""
        return self.adds.plugging(pod_uid) or self._serial.busy(pod_uid)

    def _is_idle(self, attachment: Attachment) -> bool:
        uid, key = attachment.pod_uid, Key(attachment.namespace, attachment.pod)
        busy = self.busy(uid) or self._serial.busy(_lock(attachment.container_id))
        wanted = self._kuryrports.usable(key, uid) is not None
        return wanted and not busy

    async def unplug(self, binding: Binding, attachment: Attachment) -> None:
        """Unplug one attachment, unless another request did so meanwhile."""
        async with self._serial.held(attachment.pod_uid):
            if attachment in binding.attachments():
                await binding.disconnect(attachment)
                LOG.info("unplugged %s", attachment)
        self.notify(Key(attachment.namespace, attachment.pod))

    async def check(self, request: Request) -> None:
        """Compare the Pod's interfaces with its KuryrPort.

        :raises CNIError: something is missing.
        """
        request.require_pod()
        port = self._kuryrports.get(_key(request))
        if port is None or port.pod_uid != request.pod_uid or not port.has_vifs:
            progress = self._kuryrports.progress(_key(request), request.pod_uid)
            raise CNIError(TRY_LATER, progress)
        for plug in self._plugs(request, port):
            try:
                await plug.binding.check(plug.attachment, plug.vif)
            except BindingError as error:
                raise CNIError(CHECK_FAILED, f"Pod {request.pod}: {error}") from error

    async def collect(self, request: Request) -> None:
        """Unplug what the runtime does not list, if the node agrees that it is dead (GC).

        A runtime that has lost its records lists nothing. So the Pod's namespace must be gone as
        well, or the Pod must have no KuryrPort. As SPEC demands, a failure does not end the work.

        :raises CNIError: 7 without a list; or the first failure.
        """
        valid = request.config.valid
        if valid is None:
            raise CNIError(BAD_CONFIG, "GC needs cni.dev/valid-attachments")
        await self.settled.wait()
        failures: list[Exception] = []
        for binding, attachment in self.all():
            if _attached(attachment) in valid or self.adds.plugging(attachment.pod_uid):
                continue
            try:
                if binding.vanished(attachment) or await self._abandoned(attachment):
                    LOG.info("GC: %s is no longer valid", attachment)
                    await self.unplug(binding, attachment)
            except errors.KuryrError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    async def sweep(self) -> None:
        """Clean up after requests that never came or were cut off.

        Unplug what has left its Pod, and what has no namespace to be found, if the Pod has no
        KuryrPort. If it has one, either a new sandbox takes over, or the KuryrPort's deletion
        has the same effect.
        """
        for binding, attachment in self.all():
            if self.adds.plugging(attachment.pod_uid):
                continue
            if Path(attachment.netns).exists() and not binding.vanished(attachment):  # noqa: ASYNC240
                continue
            if await self._abandoned(attachment):
                LOG.warning("%s has vanished without DEL", attachment)
                await self.unplug(binding, attachment)
        await self._discard(lambda stray: not self._kuryrports.of_pod(stray.pod_uid))

    async def _discard(self, wanted: Callable[[Stray], bool]) -> None:
        for binding in self._bindings:
            for stray in await binding.strays():
                if wanted(stray) and not self.adds.of_container(stray.container_id):
                    LOG.warning("removing leftover %s of %s", stray.name, stray.container_id)
                    await binding.discard(stray)

    async def _abandoned(self, attachment: Attachment) -> bool:
        key = Key(attachment.namespace, attachment.pod)
        return await self._kuryrports.abandoned(key, attachment.pod_uid)

    async def _take_over(self, request: Request) -> None:
        """Unplug the Pod's earlier sandbox: its DEL may come much later, or never."""
        for binding, attachment in self.of_pod(request.pod_uid):
            same_interface = attachment.request_ifname == request.ifname
            if same_interface and attachment.container_id != request.container_id:
                LOG.info("%s gives way to %s", attachment, request.container_id)
                await binding.disconnect(attachment)

    async def _undo(self, add: Add) -> None:
        if not add.plugging:
            return
        async with self._serial.held(add.request.pod_uid):
            for binding, attachment in self.all():
                if _attached(attachment) == add.attached:
                    try:
                        await binding.disconnect(attachment)
                    except errors.KuryrError as error:
                        LOG.warning("%s: cannot be undone now: %s", attachment, error)

    def _plugs(self, request: Request, port: KuryrPort) -> list[Plug]:
        """Return the interfaces to plug: the one that Multus asks for, or all others.

        Of these the default one comes first, under the runtime's name for it.
        """
        try:
            vifs = port.vifs()
        except DecodeError as error:
            message = f"KuryrPort {_key(request)} cannot be read: {error}"
            raise CNIError(NOT_AVAILABLE, message) from error
        delegated = port.delegated()
        self._check_network(request, vifs, delegated)
        wanted = _asked_for(request, vifs, delegated)
        names = sorted(wanted, key=lambda name: (name != DEFAULT_IFNAME, name))
        return [self._plug(request, name, vifs[name]) for name in names]

    def _check_network(
        self, request: Request, names: Collection[str], delegated: Mapping[str, str]
    ) -> None:
        """Check that the interfaces are those of the network for which the plugin is called.

        :param names: of all interfaces of the Pod.
        :param delegated: see :meth:`KuryrPort.delegated`.
        :raises CNIError: the node's configuration, or that of the masters, does not fit Multus'.
        """
        network, ifname = request.config.network, request.ifname
        # Multus may be told by the Pod to call the plugin of this network for the default one
        is_default = ifname == DEFAULT_IFNAME and ifname in names and ifname not in delegated
        problem = ""
        if ifname not in delegated and len(delegated) == len(names):
            problem = f"KuryrPort {_key(request)} has no interface but those for Multus"
        elif ifname in delegated and not network:
            problem = f"{ifname} is in {delegated[ifname]}: netAttachDefName is missing"
        elif network and not is_default and delegated.get(ifname) != network:
            problem = f"KuryrPort {_key(request)} has no {ifname} for Multus in {network}"
        elif not network and self._has_default(request, names):
            problem = f"the container has a default interface besides {ifname}"
        if problem:
            raise CNIError(BAD_CONFIG, f"{problem}; see [kubernetes] multus")

    def _has_default(self, request: Request, names: Collection[str]) -> bool:
        """Return whether the container has a default interface by another name already.

        :param names: of all interfaces of its Pod.
        """
        return any(
            attachment.container_id == request.container_id
            and attachment.request_ifname != request.ifname
            and attachment.name_in(names) == DEFAULT_IFNAME
            for _binding, attachment in self.all()
        )

    def _plug(self, request: Request, name: str, vif: VIFBase) -> Plug:
        binding = self._bindings.find(vif)
        if binding is None:
            raise CNIError(NOT_AVAILABLE, f"no binding is installed for {type(vif).__name__}")
        attachment = Attachment(
            container_id=request.container_id,
            ifname=request.ifname if name == DEFAULT_IFNAME else name,
            request_ifname=request.ifname,
            netns=request.netns,
            pod_uid=request.pod_uid,
            namespace=request.args["K8S_POD_NAMESPACE"],
            pod=request.args["K8S_POD_NAME"],
        )
        return Plug(binding, attachment, vif)

    def _describe(self, request: Request, progress: list[str]) -> str:
        waited = progress[0] if progress else ""
        waited = waited or self._kuryrports.progress(_key(request), request.pod_uid)
        return f"gave up after {self._add_timeout:.0f} s: {waited}"

    def notify(self, key: Key) -> None:
        """Tell subscribers that something has changed for the Pod of a KuryrPort."""
        for subscriber in self._subscribers:
            subscriber(key)


def _asked_for(
    request: Request, names: Iterable[str], delegated: Collection[str]
) -> Collection[str]:
    """Return the names of the interfaces that a request is for.

    :param names: of all interfaces of the Pod.
    :param delegated: those for which the plugin is called on its own.
    """
    if request.ifname in delegated:
        return [request.ifname]
    return set(names).difference(delegated)


def _lock(container_id: str) -> str:
    """Return the key that excludes DELs of a container; no Pod has such a uid."""
    return f"container {container_id}"


def _key(request: Request) -> Key:
    return Key(request.args["K8S_POD_NAMESPACE"], request.args["K8S_POD_NAME"])


def _attached(attachment: Attachment) -> Attached:
    return Attached(container_id=attachment.container_id, ifname=attachment.request_ifname)
