"""What can go wrong between a client and a server, dialled in by tests.

One table serves the fake cloud and the proxy in front of the Kubernetes API. A rule says which
requests it concerns, how often, and what happens to them: an *action*, which gets the request and
`proceed`, the coroutine function that really does the work. So an action decides whether the
request is applied, and whether and how the client hears of it; "applied, but the reply was lost"
is as easy as "never arrived".

    cloud.faults.add(method="POST", path=r"/v2.0/ports$", action=answer(503, retry_after=2))
    cloud.faults.add(method="DELETE", path=r"/ports/", times=None, action=delay(0.3))
    cloud.faults.at_write(3, lose_reply())     # the third POST, PUT, PATCH or DELETE from now on
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from aiohttp import web

Proceed = Callable[[], Awaitable[web.StreamResponse]]
Action = Callable[[web.Request, Proceed], Awaitable[web.StreamResponse]]

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
PAGE = "<html><body><h1>404 Not Found</h1>\nnginx</body></html>\n"


class Answer(Exception):
    """The server says `status`; the server that catches this gives the body its own shape."""

    def __init__(
        self, status: int, kind: str = "", message: str = "", headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(status, kind, message)
        self.status, self.kind, self.message = status, kind, message
        self.headers = headers or {}


class Write(NamedTuple):
    """A request that changes something, as it arrived."""

    method: str
    path: str


@dataclass
class Rule:
    """Which requests an action is for; `hits` counts those it was applied to."""

    action: Action
    method: str | None
    path: re.Pattern[str]
    left: int | None
    when: Callable[[web.Request], bool] | None
    hits: int = 0

    def takes(self, request: web.Request) -> bool:
        """Whether the request is one of this rule's, and the rule is not used up."""
        return (
            self.left != 0
            and self.method in (None, request.method)
            and self.path.search(request.path) is not None
            and (self.when is None or self.when(request))
        )

    def remove(self) -> None:
        """Let everything pass from now on."""
        self.left = 0


@dataclass
class Faults:
    """The table of rules and the count of writes.

    `counts` says which requests are worth counting as writes (a login is not).
    """

    counts: Callable[[web.Request], bool] = lambda _request: True
    rules: list[Rule] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    _at_write: dict[int, Action] = field(default_factory=dict)

    def add(
        self,
        *,
        action: Action,
        method: str | None = None,
        path: str = "",
        times: int | None = 1,
        when: Callable[[web.Request], bool] | None = None,
    ) -> Rule:
        """Add a rule; the first rule that takes a request decides. times=None means always."""
        rule = Rule(action, method, re.compile(path), times, when)
        self.rules.append(rule)
        return rule

    def at_write(self, number: int, action: Action) -> None:
        """Do `action` to the n-th write from now on; the next one is number 1."""
        self._at_write[len(self.writes) + number] = action

    def clear(self) -> None:
        """Forget all rules; the writes seen so far stay."""
        self.rules.clear()
        self._at_write.clear()

    async def around(self, request: web.Request, proceed: Proceed) -> web.StreamResponse:
        """Answer the request, with the fault that is due if there is one."""
        action = self._due(request)
        return await (proceed() if action is None else action(request, proceed))

    def _due(self, request: web.Request) -> Action | None:
        if request.method in WRITES and self.counts(request):
            self.writes.append(Write(request.method, request.path))
            action = self._at_write.pop(len(self.writes), None)
            if action is not None:
                return action
        for rule in self.rules:
            if rule.takes(request):
                rule.hits += 1
                if rule.left is not None:
                    rule.left -= 1
                return rule.action
        return None


def answer(
    status: int,
    kind: str = "",
    message: str = "",
    *,
    retry_after: float | None = None,
    applied: bool = False,
) -> Action:
    """Answer with `status`, without doing the work unless `applied`."""
    headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}

    async def act(_request: web.Request, proceed: Proceed) -> web.StreamResponse:
        if applied:
            await proceed()
        raise Answer(status, kind, message, headers)

    return act


def from_proxy(status: int, text: str = PAGE, content_type: str = "text/html") -> Action:
    """Answer as a proxy before the service does, in its own words; nothing is applied."""

    async def act(_request: web.Request, _proceed: Proceed) -> web.StreamResponse:
        return web.Response(status=status, text=text, content_type=content_type)

    return act


def hide(*kept: str) -> Action:
    """Do the work, and leave everything out of the list that is the answer, but for these ids."""

    async def act(_request: web.Request, proceed: Proceed) -> web.StreamResponse:
        response = await proceed()
        assert isinstance(response, web.Response)
        assert isinstance(response.text, str)
        shown = {
            name: [row for row in rows if row.get("id") in kept]
            for name, rows in json.loads(response.text).items()
            if not name.endswith("_links")
        }
        return web.json_response(shown)

    return act


class Break(NamedTuple):
    """Where a bulk request breaks: so many are made, so many after the next one half made."""

    made: int
    half_made: int
    answer: Answer


BREAK = web.RequestKey("break", Break)


def make_some(made: int, *, status: int = 500, half_made: int = 0) -> Action:
    """Make the first ports of a bulk request, then fail; what was made stays.

    Neutron makes the rows of all in one transaction, and then binds one after another. Where that
    fails for one, it goes; those `made` before stay, and those after are left `half_made`:
    without a binding.
    """

    async def act(request: web.Request, proceed: Proceed) -> web.StreamResponse:
        request[BREAK] = Break(made, half_made, Answer(status))
        return await proceed()

    return act


def cut() -> Action:
    """Close the connection; nothing is applied."""

    async def act(request: web.Request, _proceed: Proceed) -> web.StreamResponse:
        return drop(request)

    return act


def lose_reply() -> Action:
    """Do the work, then close the connection without an answer."""

    async def act(request: web.Request, proceed: Proceed) -> web.StreamResponse:
        await proceed()
        return drop(request)

    return act


def delay(seconds: float) -> Action:
    """Do the work after a while."""

    async def act(_request: web.Request, proceed: Proceed) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return await proceed()

    return act


def dated(date: str) -> Action:
    """Do the work; the server's clock shows this date."""

    async def act(_request: web.Request, proceed: Proceed) -> web.StreamResponse:
        response = await proceed()
        response.headers["Date"] = date
        return response

    return act


def garble() -> Action:
    """Do the work and answer with half of a JSON document."""

    async def act(_request: web.Request, proceed: Proceed) -> web.StreamResponse:
        response = await proceed()
        status = 200 if response.status == 204 else response.status  # 204 has no body
        return web.Response(
            status=status, text='{"ports": [{"id": ', content_type="application/json"
        )

    return act


class Hang:
    """Hold a request until it is released: the moment to kill or cancel the client.

    With `applied`, the work is done first and only the reply is held. `reached` is set when the
    request is being held.
    """

    def __init__(self, *, applied: bool = False) -> None:
        self.reached = asyncio.Event()
        self._applied = applied
        self._released = asyncio.Event()

    def release(self) -> None:
        """Let go of the request that is held, and of all that come."""
        self._released.set()

    async def __call__(self, _request: web.Request, proceed: Proceed) -> web.StreamResponse:
        response = await proceed() if self._applied else None
        self.reached.set()
        await self._released.wait()
        return await proceed() if response is None else response


def drop(request: web.Request) -> web.StreamResponse:
    """Close the connection under the request; the response returned reaches nobody."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
