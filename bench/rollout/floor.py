"""The floor of `bench rollout`: what Octavia's delays allow at best. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bench.rollout.course import Course
from bench.services.case import Delays
from bench.testbed.forwarding import State

Change = tuple[float, frozenset[str]]  # the Pods that are ready from this moment on


def fastest(
    course: Course, changes: Sequence[Change], pools: Sequence[int], delays: Delays
) -> Course:
    """Return the course of a program that knows every change at once and is never late.

    It writes whenever Octavia takes another write, and has one look at the end of each.

    :param course: the course that was measured, with the same changes.
    :param pools: their number in each of the load balancers.
    """
    fronts = [
        (balancer, f"{balancer}:{number}")
        for balancer, count in enumerate(pools)
        for number in range(count)
    ]
    begin = changes[0][0]
    written = {front: changes[0][1] for _balancer, front in fronts}
    free = [begin] * len(pools)  # when each load balancer is no longer PENDING, as was seen
    worker = begin  # when the provider has worked off everything
    effects: list[tuple[float, str, frozenset[str]]] = []
    now = begin
    while True:
        wanted = [pods for since, pods in changes if since <= now][-1]
        for balancer, front in fronts:
            if written[front] == wanted or free[balancer] > now:
                continue
            answered = now + delays.latency
            done = (max(answered, worker) if delays.one_by_one else answered) + delays.pending
            worker, free[balancer] = done, done + delays.latency
            written[front] = wanted
            effects.append((done, front, wanted))
        late = [free[balancer] for balancer, front in fronts if written[front] != wanted]
        coming = [moment for moment in (*late, *(since for since, _ in changes)) if moment > now]
        if not coming:
            break
        now = min(coming)
    current = {front: dict.fromkeys(changes[0][1], 1) for _balancer, front in fronts}
    states = [State(begin, dict(current))]
    for done, front, pods in sorted(effects, key=lambda effect: effect[:2]):
        current[front] = dict.fromkeys(pods, 1)
        states.append(State(done, dict(current)))
    end = max(course.end, states[-1].since)
    writes = len(effects)
    return replace(course, states=states, end=end, writes=writes, calls=2 * writes)
