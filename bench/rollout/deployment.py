"""The Pods of a Deployment that is replaced Pod by Pod, as EndpointSlices show them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from bench.rollout.floor import Change
from bench.testbed.testbed import Testbed
from tests.kit.kube.objects import make_endpointslice, path_of

Json = dict[str, Any]
PORT = ("http", 8080)
ADDRESSES = {"IPv4": "10.64.1.{}", "IPv6": "fd64::1:{}"}
READY = {"ready": True}
TERMINATING = {"ready": False, "serving": True, "terminating": True}


def pod_of(address: str) -> str:
    """Return the name of the Pod with this address."""
    return f"pod-{address.replace(':', '.').rpartition('.')[2]}"


class Deployment:
    """Pods without containers; this process writes what kube-controller-manager would.

    :param number: of the Pods that are ready.
    :param families: of their Services' addresses.
    """

    def __init__(self, testbed: Testbed, number: int, families: Sequence[str]) -> None:
        self._testbed = testbed
        self._number = number
        self._families = families
        self._pods = dict.fromkeys(range(1, number + 1), READY)
        self._services: list[str] = []
        self.changes: list[Change] = [(time.monotonic(), self.ready)]
        self.ended: dict[str, float] = {}

    @property
    def ready(self) -> frozenset[str]:
        """The names of the Pods that are ready."""
        return frozenset(
            f"pod-{number}" for number, conditions in self._pods.items() if conditions == READY
        )

    async def add_service(self, name: str) -> None:
        """Create the EndpointSlices of a Service."""
        self._services.append(name)
        for item in self._slices([name]):
            await self._testbed.admin.create(item)

    async def delete_slices(self) -> None:
        """Delete all EndpointSlices."""
        for item in self._slices(self._services):
            await self._testbed.admin.delete(path_of(item))

    async def roll(self, every: float, drain: float) -> None:
        """Replace one Pod after another, at intervals of so many seconds.

        A Pod that is replaced serves for `drain` seconds more, as its preStop hook has it.
        """
        begun = time.monotonic()
        replaced = [(number * every, number, True) for number in range(1, self._number + 1)]
        ended = [(seconds + drain, number, False) for seconds, number, _ in replaced]
        for seconds, number, is_replaced in sorted([*replaced, *(ended if drain else ())]):
            await asyncio.sleep(max(0.0, begun + seconds - time.monotonic()))
            if is_replaced:
                self._replace(number, drain)
            else:
                self._end(number)
            async with asyncio.TaskGroup() as group:
                for item in self._slices(self._services):
                    body = {"endpoints": item["endpoints"]}
                    group.create_task(self._testbed.admin.patch(path_of(item), body))

    def _replace(self, number: int, drain: float) -> None:
        now = time.monotonic()
        self._pods[number + self._number] = READY
        if drain:
            self._pods[number] = TERMINATING
        else:
            self._end(number)
        self.changes.append((now, self.ready))

    def _end(self, number: int) -> None:
        del self._pods[number]
        self.ended[f"pod-{number}"] = time.monotonic()

    def _slices(self, services: Sequence[str]) -> list[Json]:
        return [
            make_endpointslice(
                f"{service}-{family.lower()}",
                service,
                tuple(
                    (ADDRESSES[family].format(number), conditions)
                    for number, conditions in self._pods.items()
                ),
                [PORT],
                namespace=self._testbed.cluster.namespace,
                family=family,
            )
            for service in services
            for family in self._families
        ]
