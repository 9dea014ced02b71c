"""From bytes to bytes: one CNI request, judged, done, counted and logged."""

import asyncio
import json
import logging
import time
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kuryr_k8s import errors
from kuryr_k8s.cni.bindings.base import NamespaceGone
from kuryr_k8s.cni.pods.attachments import Attachments
from kuryr_k8s.cni.protocol import (
    BAD_NAMESPACE,
    INTERNAL,
    NOT_AVAILABLE,
    TRY_LATER,
    CNIError,
    Request,
    version_of,
)

LOG = logging.getLogger(__name__)
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 180)
DEL_PATIENCE = 20.0  # seconds that a DEL waits for Open vSwitch; the runtime comes again


class Switch(Protocol):
    """The part of :class:`~kuryr_k8s.cni.ovs.switch.OpenVSwitch` that we need."""

    connected: asyncio.Event


class Metrics:
    """What is counted of requests."""

    def __init__(
        self, registry: CollectorRegistry, attachments: Attachments, switch: Switch
    ) -> None:
        self.requests = Counter(
            "kuryr_cni_requests",
            "CNI requests by their code: 0 is success",
            ["command", "code"],
            registry=registry,
        )
        self.seconds = Histogram(
            "kuryr_cni_request_seconds",
            "Length of a CNI request in the daemon",
            ["command"],
            buckets=BUCKETS,
            registry=registry,
        )
        attached = Gauge("kuryr_cni_attachments", "Interfaces plugged", registry=registry)
        attached.set_function(lambda: len(attachments.all()))
        flying = Gauge("kuryr_cni_adds_in_flight", "ADDs being done", registry=registry)
        flying.set_function(lambda: len(attachments.flights))
        reached = Gauge("kuryr_cni_ovs_connected", "Is Open vSwitch reached", registry=registry)
        reached.set_function(switch.connected.is_set)


class Daemon:
    """Serves requests. STATUS speaks of the daemon alone: a runtime that is told of trouble
    makes the node NotReady, and has healthy Pods evicted.
    """

    def __init__(
        self, attachments: Attachments, switch: Switch, registry: CollectorRegistry
    ) -> None:
        self._attachments = attachments
        self._switch = switch
        self._metrics = Metrics(registry, attachments, switch)

    async def handle(self, raw: bytes) -> tuple[int, bytes]:
        """Do what is asked: (exit code, standard output) for kuryr-cni."""
        started = time.monotonic()
        command, who, code, answer = "?", "?", 0, b""
        try:
            request = Request.read(raw)
            command, who = request.command, f"{request.pod} {request.container_id}"
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
                who,
                error,
                exc_info=unforeseen,
            )
            code, answer = failure.code, _encode(failure.to_json(version_of(raw)))
        else:
            answer = b"" if result is None else _encode(result)
        self._count(command, who, code, answer, time.monotonic() - started)
        return (1 if code else 0), answer

    async def _do(self, request: Request) -> dict[str, Any] | None:
        match request.command:
            case "ADD":
                result = await self._attachments.add(request)
                return result.to_json(request.config.version, request.config.previous)
            case "DEL":
                await self._reach_switch()
                await self._attachments.delete(request)
            case "CHECK":
                self._require_settled()
                await self._attachments.check(request)
            case "GC":
                await self._reach_switch()
                await self._attachments.collect(request)
            case "STATUS":
                self._require_settled()
        return None

    async def _reach_switch(self) -> None:
        """Without its database it is not known what is attached."""
        try:
            async with asyncio.timeout(DEL_PATIENCE):
                await self._switch.connected.wait()
        except TimeoutError as error:
            raise CNIError(TRY_LATER, "Open vSwitch's database cannot be reached") from error

    def _require_settled(self) -> None:
        if not self._switch.connected.is_set():
            raise CNIError(NOT_AVAILABLE, "Open vSwitch's database cannot be reached")
        if not self._attachments.settled.is_set():
            raise CNIError(NOT_AVAILABLE, "kuryr-k8s-daemon is starting")

    def _count(self, command: str, who: str, code: int, answer: bytes, seconds: float) -> None:
        self._metrics.requests.labels(command, str(code)).inc()
        self._metrics.seconds.labels(command).observe(seconds)
        if code:
            text = answer.decode(errors="replace").strip()
            LOG.warning("%s %s: failed after %.3f s: %s", command, who, seconds, text)
        else:
            level = logging.DEBUG if command == "STATUS" else logging.INFO
            LOG.log(level, "%s %s: done in %.3f s", command, who, seconds)


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
