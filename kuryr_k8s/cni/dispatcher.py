"""CNI requests from bytes to bytes: read, done, counted and logged."""

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from typing import Any

from prometheus_client import Counter, Histogram
from prometheus_client.registry import Collector

from kuryr_k8s import errors
from kuryr_k8s.cni.bindings.base import NamespaceGone
from kuryr_k8s.cni.parts import Part
from kuryr_k8s.cni.patience import USUAL, Patience
from kuryr_k8s.cni.pods.attachments import Attachments
from kuryr_k8s.cni.protocol import (
    BAD_NAMESPACE,
    INTERNAL,
    NOT_AVAILABLE,
    PUT_OFF,
    TRY_LATER,
    CNIError,
    Request,
    version_of,
)
from kuryr_k8s.cni.spool import Spool

LOG = logging.getLogger(__name__)
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 180)


class Dispatcher(Part):
    """Answers the requests of the plugin.

    STATUS reports on the daemon alone: a runtime that hears of trouble makes the node NotReady,
    and has healthy Pods evicted. A DEL that cannot be done now is put off: the runtime keeps a
    sandbox, and the Pod's deletion, until DEL succeeds.
    """

    def __init__(self, attachments: Attachments, spool: Spool, patience: Patience = USUAL) -> None:
        self._attachments = attachments
        self._spool = spool
        self._patience = patience.delete
        self._requests = Counter(
            "kuryr_cni_requests",
            "CNI requests by their code: 0 is success",
            ["command", "code"],
            registry=None,
        )
        self._seconds = Histogram(
            "kuryr_cni_request_seconds",
            "Length of a CNI request in the daemon",
            ["command"],
            buckets=BUCKETS,
            registry=None,
        )

    def collectors(self) -> Sequence[Collector]:
        """Return the metrics of requests."""
        return [self._requests, self._seconds]

    async def handle(self, raw: bytes) -> tuple[int, bytes]:
        """Answer a request.

        :returns: the exit code and the standard output for kuryr-cni; with ``PUT_OFF`` the output
            says why.
        """
        started = time.monotonic()
        command, pod, code, answer = "?", "?", 0, b""
        try:
            request = Request.read(raw)
            command, pod = request.command, f"{request.pod} {request.container_id}"
            result = await self._do(request)
        except CNIError as error:
            code, answer = error.code, _encode(error.to_json(version_of(raw)))
        except Exception as error:
            failure = _translate(error)
            unforeseen = failure.code == INTERNAL
            LOG.log(
                logging.ERROR if unforeseen else logging.WARNING,
                "%s %s: %s",
                command,
                pod,
                error,
                exc_info=unforeseen,
            )
            code, answer = failure.code, _encode(failure.to_json(version_of(raw)))
        else:
            answer = b"" if result is None else _encode(result)
        self._count(command, pod, code, answer, time.monotonic() - started)
        if command == "DEL" and code == TRY_LATER:
            return PUT_OFF, answer
        return (1 if code else 0), answer

    async def _do(self, request: Request) -> dict[str, Any] | None:
        match request.command:
            case "ADD":
                await self._finish_put_off(request)
                result = await self._attachments.add(request)
                return result.to_json(request.config.version, request.config.previous)
            case "DEL":
                await self._delete(request)
            case "CHECK":
                self._require_settled()
                await self._attachments.check(request)
            case "GC":
                await self._reach()
                await self._attachments.collect(request)
            case "STATUS":
                self._require_settled()
        return None

    async def _delete(self, request: Request) -> None:
        """Do a DEL in time, so that none is still being done when kuryr-cni has put it off."""
        try:
            async with asyncio.timeout(self._patience):
                await self._attachments.reachable()
                await self._attachments.delete(request)
        except TimeoutError as error:
            trouble = self._attachments.trouble() or "the node is too slow"
            message = f"not done in {self._patience:.0f} s: {trouble}"
            raise CNIError(TRY_LATER, message) from error

    async def _finish_put_off(self, request: Request) -> None:
        """Do an earlier DEL of the container first: later on it would undo this ADD."""
        if await self._spool.drain(self.handle, request.container_id):
            raise CNIError(TRY_LATER, "an earlier DEL of this container is not done yet")

    async def _reach(self) -> None:
        """Wait until it is known what is attached."""
        try:
            async with asyncio.timeout(self._patience):
                await self._attachments.reachable()
        except TimeoutError as error:
            trouble = self._attachments.trouble() or "it is not known what is attached"
            raise CNIError(TRY_LATER, trouble) from error

    def _require_settled(self) -> None:
        if trouble := self._attachments.trouble():
            raise CNIError(NOT_AVAILABLE, trouble)
        if not self._attachments.settled.is_set():
            raise CNIError(NOT_AVAILABLE, "kuryr-k8s-daemon is starting")

    def _count(self, command: str, pod: str, code: int, answer: bytes, seconds: float) -> None:
        self._requests.labels(command, str(code)).inc()
        self._seconds.labels(command).observe(seconds)
        if code:
            text = answer.decode(errors="replace").strip()
            LOG.warning("%s %s: failed after %.3f s: %s", command, pod, seconds, text)
        else:
            level = logging.DEBUG if command == "STATUS" else logging.INFO
            LOG.log(level, "%s %s: done in %.3f s", command, pod, seconds)


def _translate(error: Exception) -> CNIError:
    match error:
        case NamespaceGone():
            return CNIError(BAD_NAMESPACE, str(error))
        case errors.KuryrError():
            return CNIError(TRY_LATER, str(error))
        case _:
            return CNIError(INTERNAL, f"internal error: {type(error).__name__}: {error}")


def _encode(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer).encode() + b"\n"
