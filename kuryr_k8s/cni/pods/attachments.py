"""The attachments of the node: how they come, go, and are told apart.

A Pod may have had several sandboxes, and their requests come in any order. An attachment is
its container's: only the newest sandbox of a Pod is attached, a DEL of another touches nothing
of it, and work on one Pod is never done twice at a time.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from kuryr_k8s import errors
from kuryr_k8s.cni.bindings.base import Attachment, Binding, BindingError
from kuryr_k8s.cni.pods.flights import Flight, Flights, Serial
from kuryr_k8s.cni.pods.wanted import Ports
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
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.codec import DecodeError
from kuryr_k8s.model.kuryrport import DEFAULT_IFNAME, KuryrPort
from kuryr_k8s.model.vif import VIFBase

LOG = logging.getLogger(__name__)


class Plug(NamedTuple):
    """One interface to plug, and by what."""

    binding: Binding
    attachment: Attachment
    vif: VIFBase


class Attachments:
    """:param bindings: by the class of VIFs.
    :param settled: set once leftovers of an earlier run are dealt with.
    :param add_timeout: seconds that an ADD may take.
    """

    def __init__(
        self,
        bindings: Mapping[str, Binding],
        ports: Ports,
        *,
        settled: asyncio.Event,
        add_timeout: float,
    ) -> None:
        self.settled = settled
        self.flights = Flights()
        self._bindings = bindings
        self._ports = ports
        self._add_timeout = add_timeout
        self._serial = Serial()
        self._subscribers: list[Callable[[Key], None]] = []

    def subscribe(self, subscriber: Callable[[Key], None]) -> None:
        """Call it after each change with the key of the Pod's KuryrPort."""
        self._subscribers.append(subscriber)

    def all(self) -> list[tuple[Binding, Attachment]]:
        return [(b, attachment) for b in self._bindings.values() for attachment in b.attachments()]

    def of_pod(self, pod_uid: str) -> list[tuple[Binding, Attachment]]:
        return [(b, attachment) for b, attachment in self.all() if attachment.pod_uid == pod_uid]

    async def add(self, request: Request) -> Result:
        """Plug all interfaces of the request's Pod; returns when traffic can flow.

        :raises CNIError: among others 11 when it took too long, with what was waited for. The
            node is then as it was before.
        """
        request.require_pod()
        deadline = asyncio.get_running_loop().time() + self._add_timeout
        async with self.flights.admitted(request, deadline) as flight:
            progress = ["kuryr-k8s-daemon is starting"]
            try:
                async with flight.limited(deadline):
                    await self.settled.wait()
                    return await self._add(flight, progress)
            except TimeoutError as error:
                await self._undo(flight)
                why = flight.called_off or self._say(request, progress)
                raise CNIError(TRY_LATER, f"Pod {request.pod}: {why}") from error
            except Exception:
                await self._undo(flight)
                raise
            finally:
                flight.plugging = False
                self._changed(_key(request))

    async def _add(self, flight: Flight, progress: list[str]) -> Result:
        request = flight.request
        progress.clear()
        while True:
            await self._ports.wait(_key(request), request.pod_uid)
            async with self._serial.held(request.pod_uid):
                port = self._ports.usable(_key(request), request.pod_uid)
                if port is None:
                    continue
                flight.plugging = True  # before anything is awaited: the port is ours from here
                plugs = self._plugs(request, port)
                await self._take_over(request)
                result = Result()
                for plug in plugs:
                    progress[:] = [f"plugging {plug.attachment.ifname} ({plug.vif.id})"]
                    result += await plug.binding.connect(plug.attachment, plug.vif)
            for plug in plugs:
                try:
                    await plug.binding.ready(plug.attachment, plug.vif)
                except asyncio.CancelledError:
                    progress[:] = [plug.binding.progress(plug.vif)]
                    raise
            return result

    async def delete(self, request: Request) -> None:
        """Unplug what the request's container has; nothing is as good.

        :raises CNIError: 11, it cannot be done now.
        """
        attached = Attached(container_id=request.container_id, ifname=request.ifname)
        if flight := self.flights.find(attached):
            await flight.call_off("the runtime sent DEL")
        found = [pair for pair in self.all() if _attached(pair[1]) == attached]
        for binding, attachment in found:
            await self.unplug(binding, attachment)
        if not found:
            await self._discard(lambda container_id: container_id == request.container_id)

    async def unplug(self, binding: Binding, attachment: Attachment) -> None:
        """Unplug one attachment, unless somebody did so meanwhile."""
        async with self._serial.held(attachment.pod_uid):
            if attachment in binding.attachments():
                await binding.disconnect(attachment)
                LOG.info("unplugged %s", say(attachment))
        self._changed(Key(attachment.namespace, attachment.pod))

    async def check(self, request: Request) -> None:
        """:raises CNIError: something of the Pod's interfaces is missing."""
        request.require_pod()
        port = self._ports.get(_key(request))
        if port is None or port.pod_uid != request.pod_uid:
            raise CNIError(TRY_LATER, self._ports.progress(_key(request), request.pod_uid))
        for plug in self._plugs(request, port):
            try:
                await plug.binding.check(plug.attachment, plug.vif)
            except BindingError as error:
                raise CNIError(CHECK_FAILED, f"Pod {request.pod}: {error}") from error

    async def collect(self, request: Request) -> None:
        """GC: unplug what the runtime does not list, if the node agrees that it is dead.

        A runtime that lost its records lists nothing: so the Pod's namespace must be gone as
        well, or no KuryrPort stand for the Pod. As SPEC wants, one failure does not end it.

        :raises CNIError: 7 without a list; or the first failure.
        """
        valid = request.config.valid
        if valid is None:
            raise CNIError(BAD_CONFIG, "GC needs cni.dev/valid-attachments")
        await self.settled.wait()
        failures: list[Exception] = []
        for binding, attachment in self.all():
            if _attached(attachment) in valid or self.flights.plugging(attachment.pod_uid):
                continue
            try:
                if binding.vanished(attachment) or await self._abandoned(attachment):
                    LOG.info("GC: %s is no longer valid", say(attachment))
                    await self.unplug(binding, attachment)
            except errors.KuryrError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    async def sweep(self) -> None:
        """Clean up after requests that never came or were cut off.

        Unplugs what left its Pod, or whose namespace is not to be found, where no KuryrPort
        stands for the Pod (where one does, either a new sandbox takes over, or its deletion
        leads to the same).
        """
        for binding, attachment in self.all():
            if self.flights.plugging(attachment.pod_uid):
                continue
            if Path(attachment.netns).exists() and not binding.vanished(attachment):  # noqa: ASYNC240
                continue
            if await self._abandoned(attachment):
                LOG.warning("%s has vanished without DEL", say(attachment))
                await self.unplug(binding, attachment)
        await self._discard(lambda _: True)

    async def _discard(self, wanted: Callable[[str], bool]) -> None:
        for binding in self._bindings.values():
            for stray in await binding.strays():
                if wanted(stray.container_id) and not self.flights.of_container(
                    stray.container_id
                ):
                    LOG.warning("removing leftover %s of %s", stray.name, stray.container_id)
                    await binding.discard(stray)

    async def _abandoned(self, attachment: Attachment) -> bool:
        key = Key(attachment.namespace, attachment.pod)
        return await self._ports.abandoned(key, attachment.pod_uid)

    async def _take_over(self, request: Request) -> None:
        """Unplug the Pod's earlier sandbox: its DEL may come much later, or never."""
        for binding, attachment in self.of_pod(request.pod_uid):
            same_interface = attachment.request_ifname == request.ifname
            if same_interface and attachment.container_id != request.container_id:
                LOG.info("%s gives way to %s", say(attachment), request.container_id)
                await binding.disconnect(attachment)

    async def _undo(self, flight: Flight) -> None:
        if not flight.plugging:
            return
        async with self._serial.held(flight.request.pod_uid):
            for binding, attachment in self.all():
                if _attached(attachment) == flight.attached:
                    try:
                        await binding.disconnect(attachment)
                    except errors.KuryrError as error:
                        LOG.warning("%s: cannot be undone now: %s", say(attachment), error)

    def _plugs(self, request: Request, port: KuryrPort) -> list[Plug]:
        """The default interface, under the runtime's name for it, then the others."""
        try:
            vifs = port.vifs()
        except DecodeError as error:
            message = f"KuryrPort {_key(request)} cannot be read: {error}"
            raise CNIError(NOT_AVAILABLE, message) from error
        names = sorted(vifs, key=lambda name: (name != DEFAULT_IFNAME, name))
        return [self._plug(request, name, vifs[name]) for name in names]

    def _plug(self, request: Request, name: str, vif: VIFBase) -> Plug:
        kind = type(vif).__name__
        if kind not in self._bindings:
            raise CNIError(NOT_AVAILABLE, f"no binding is installed for {kind}")
        attachment = Attachment(
            container_id=request.container_id,
            ifname=request.ifname if name == DEFAULT_IFNAME else name,
            request_ifname=request.ifname,
            netns=request.netns,
            pod_uid=request.pod_uid,
            namespace=request.args["K8S_POD_NAMESPACE"],
            pod=request.args["K8S_POD_NAME"],
        )
        return Plug(self._bindings[kind], attachment, vif)

    def _say(self, request: Request, progress: list[str]) -> str:
        waited = progress[0] if progress else ""
        waited = waited or self._ports.progress(_key(request), request.pod_uid)
        return f"gave up after {self._add_timeout:.0f} s: {waited}"

    def _changed(self, key: Key) -> None:
        for subscriber in self._subscribers:
            subscriber(key)


def _key(request: Request) -> Key:
    return Key(request.args["K8S_POD_NAMESPACE"], request.args["K8S_POD_NAME"])


def _attached(attachment: Attachment) -> Attached:
    return Attached(container_id=attachment.container_id, ifname=attachment.request_ifname)


def say(attachment: Attachment) -> str:
    """An attachment, for the log."""
    return (
        f"{attachment.ifname} of Pod {attachment.namespace}/{attachment.pod}, container "
        f"{attachment.container_id}"
    )
