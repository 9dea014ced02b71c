"""Runs of the cases of `bench rollout`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.rollout.case import RolloutCase
from bench.rollout.course import Course
from bench.rollout.deployment import Deployment, pod_of
from bench.rollout.floor import fastest
from bench.rollout.kinds import FIRST, SECOND, Kind
from bench.services.case import Delays
from bench.services.load import WRITES, octavia_calls
from bench.testbed.forwarding import State
from bench.testbed.testbed import CONTROLLER, Controller, Testbed
from kuryr_k8s.model.service_annotations import LOAD_BALANCER_ID
from tests.kit.kube.objects import make_endpoints, make_service, path_of

Json = dict[str, Any]
PATIENCE = 120.0  # seconds for any step
QUIET = 3.0  # seconds without a call of Octavia after which all work is over
PORTS = {FIRST: 80, SECOND: 81}


class RolloutRunner:
    """The cases with one provider, beside one controller."""

    def __init__(self, testbed: Testbed, controller: Controller, delays: Delays) -> None:
        self._testbed = testbed
        self._process = controller.process
        self._delays = delays

    async def case(self, kind: Kind, number: int, every: float, drain: float) -> RolloutCase:
        """Replace all Pods of a Deployment behind Services of a kind.

        :param number: of the Pods.
        :raises RuntimeError: the load balancers do not get there.
        """
        cloud, audit = self._testbed.cloud, self._testbed.audit
        await cloud.set_delays(0.0)
        await cloud.follow_forwarding()
        deployment = Deployment(self._testbed, number, kind.families)
        await self._create(kind, deployment)
        await self._until_forwarded(kind, deployment)
        delays = self._delays
        await cloud.set_delays(
            delays.latency, pending=delays.pending, one_by_one=delays.one_by_one
        )
        await cloud.clear_calls()
        await cloud.follow_forwarding()
        audit.mark()
        begin = time.monotonic()
        deployment.changes[0] = (begin, deployment.ready)
        await deployment.roll(every, drain)
        await self._until_forwarded(kind, deployment)
        end = time.monotonic()
        calls = octavia_calls(await cloud.calls())
        course = Course(
            states=[_by_pod(state) for state in await cloud.forwarding()],
            ended=deployment.ended,
            begin=begin,
            last=deployment.changes[-1][0],
            end=end,
            writes=sum(call.method in WRITES for call in calls),
            calls=len(calls),
        )
        best = fastest(course, deployment.changes, kind.pools, delays)
        writes = audit.tally().writes(CONTROLLER)
        await self._delete(kind, deployment)
        return RolloutCase(kind.name, delays, number, every, drain, course, best, writes)

    async def _create(self, kind: Kind, deployment: Deployment) -> None:
        spec, annotations = kind.first(self._testbed.facts["subnets"][0])
        await self._add_service(FIRST, spec, annotations, deployment)
        if kind.shared:
            path = path_of(make_service(FIRST, namespace=self._testbed.cluster.namespace))
            found = ""

            async def is_published() -> bool:
                nonlocal found
                annotations = (await self._testbed.admin.get(path))["metadata"]["annotations"]
                found = annotations.get(LOAD_BALANCER_ID, "")
                return bool(found)

            await self._until(is_published)
            spec, annotations = kind.second(found)
            await self._add_service(SECOND, spec, annotations, deployment)

    async def _add_service(
        self, name: str, spec: Json, annotations: dict[str, str], deployment: Deployment
    ) -> None:
        namespace = self._testbed.cluster.namespace
        port = ("http", PORTS[name])
        service = make_service(name, port, namespace=namespace, annotations=annotations, **spec)
        await self._testbed.admin.create(service)
        await self._testbed.admin.create(make_endpoints(name, namespace))
        await deployment.add_service(name)

    async def _delete(self, kind: Kind, deployment: Deployment) -> None:
        await self._testbed.cloud.set_delays(0.0)
        admin, namespace = self._testbed.admin, self._testbed.cluster.namespace
        paths = [
            path_of(make_service(name, namespace=namespace))
            for name in ((FIRST, SECOND) if kind.shared else (FIRST,))
        ]
        for path in paths:
            await admin.delete(path)  # the server deletes its Endpoints
        await deployment.delete_slices()

        async def are_gone() -> bool:
            left = [await admin.find(path) for path in paths]
            return not any(left) and not await self._testbed.cloud.load_balancers(namespace)

        await self._until(are_gone)

    async def _until_forwarded(self, kind: Kind, deployment: Deployment) -> None:
        """Wait until exactly the Pods that are ready are members, and Octavia has been quiet."""

        async def is_so() -> bool:
            calls = octavia_calls(await self._testbed.cloud.calls())
            state = (await self._testbed.cloud.forwarding())[-1]
            last = max((call.answered for call in calls), default=state.since)
            fronts = list(_by_pod(state).fronts.values())
            wanted = [dict.fromkeys(deployment.ready, 1)] * sum(kind.pools)
            return fronts == wanted and time.monotonic() - last > QUIET

        await self._until(is_so)

    async def _until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    if await condition():
                        return
                    await asyncio.sleep(0.25)
        except TimeoutError:
            fronts = (await self._testbed.cloud.forwarding())[-1].fronts
            output = self._process.output_tail()
            raise RuntimeError(f"forwarded to {fronts}; the controller:\n{output}") from None


def _by_pod(state: State) -> State:
    """Return the state of the Deployment's Services, with the names of Pods for addresses."""
    fronts = {
        front: {pod_of(address): weight for address, weight in members.items()}
        for front, members in state.fronts.items()
        if int(front.rpartition(":")[2]) in PORTS.values()  # not the API server's
    }
    return State(state.since, fronts)
