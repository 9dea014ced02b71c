"""The members to which the fake Octavia's load balancers forward, over time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from tests.kit.fakes.cloud import FakeCloud
from tests.kit.fakes.octavia.kinds import LISTENER, LOAD_BALANCER, MEMBER
from tests.kit.fakes.octavia.store import OWNER

# weights of members by address, by the VIP and the port of a listener
Fronts = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class State:
    """Weights of the members of each front, from a moment of time.monotonic() on."""

    since: float
    fronts: Fronts

    def serving(self, front: str) -> list[str]:
        """Return the members of a front that get new connections, in a fixed order."""
        members = self.fronts.get(front, {})
        return sorted(address for address, weight in members.items() if weight)


class ForwardingLog:
    """A log of the members to which a cloud's load balancers forward, while it is switched on.

    Octavia's API shows a change when it is accepted; what forwards follows when the change is no
    longer PENDING. So a member keeps its weight for as long as it is PENDING, and a new one has
    none.
    """

    def __init__(self, cloud: FakeCloud) -> None:
        self._cloud = cloud
        self._on = False
        self._weights: dict[str, int] = {}  # in force, by the id of the member
        self.states = [State(0.0, {})]

    def switch(self, *, on: bool) -> None:
        """Begin another log, or end this one: to follow thousands of members takes time."""
        self._on = on
        self.states = [State(time.monotonic(), self._fronts())]

    async def run(self) -> None:
        """Add each state to the log until cancelled."""
        while True:
            await self._cloud.changes.wait_for(self._has_changed, within=float("inf"))
            self.states.append(State(time.monotonic(), self._fronts()))

    def _has_changed(self) -> bool:
        return self._fronts() != self.states[-1].fronts

    def _fronts(self) -> dict[str, dict[str, int]]:
        if not self._on:
            return {}
        store = self._cloud.octavia.store
        members = store.of(MEMBER)
        for member_id, member in members.items():
            if not member["provisioning_status"].startswith("PENDING"):
                self._weights[member_id] = member["weight"]
        for member_id in self._weights.keys() - members.keys():
            del self._weights[member_id]
        return {
            f"{store.of(LOAD_BALANCER)[listener[OWNER]]['vip_address']}:"
            f"{listener['protocol_port']}": {
                member["address"]: self._weights[member["id"]]
                for member in store.members(listener["default_pool_id"] or "")
                if member["id"] in self._weights
            }
            for listener in store.of(LISTENER).values()
        }
