"""Asynchronous calls through openstacksdk's adapters, in bounded threads and plain JSON.

An adapter keeps what is hard about OpenStack (clouds.yaml, authentication plugins, the catalogue,
re-authentication). Its resource classes are not used: they cost three times the CPU, and large
lists stall the loop.
"""

import asyncio
import functools
import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import requests

from kuryr_k8s import errors
from kuryr_k8s.cloud.deadline import Deadline, NotSent
from kuryr_k8s.cloud.page_size import PageSize
from kuryr_k8s.engine.budget import Budget
from kuryr_k8s.engine.limit import AdaptiveLimit, Slot, current_priority

T = TypeVar("T")
Json = dict[str, Any]
Query = Mapping[str, str | Sequence[str]]
BURST = 1.0  # seconds whose calls may begin at once, after as long without any
REQUEST_ID = "x-openstack-request-id"
_ADDED = 201  # with "null" instead of an object: Neutron has added a tag
_TOO_LARGE = 413
# Of Neutron (409 OverQuota), Octavia and Barbican (403). The word "quota" is not enough: a policy
# that forbids us to read a quota contains it, too.
_EXHAUSTION = re.compile(
    "OverQuota|Quota exceeded|Quota has been met|quota has been reached", re.IGNORECASE
)
_NO_ADDRESS = re.compile("IpAddressGenerationFailure|No more IP addresses", re.IGNORECASE)
# Octavia's messages while it changes a part of a load balancer, or the load balancer itself.
_IMMUTABLE = re.compile("is immutable and cannot be updated|Invalid state .* of loadbalancer")
# Octavia's words where it looks for a pool before it looks for members, and Barbican's; these
# bodies are pecan's.
_MISSING = re.compile(r"^(Secret|[A-Z][\w ]+ [0-9a-f-]{36}) not found\.$")


class Adapter(Protocol):
    """The part of the SDK that we need; every failure is a CloudError already."""

    def authenticate(self) -> str:
        """Get a token and the API's address.

        :returns: The id of the project that the token is for.
        """

    def invalidate(self) -> None:
        """Forget the token, because the API does not accept it."""

    def request(self, url: str, method: str, **kwargs: Any) -> requests.Response:
        """Send one request."""

    def close(self) -> None:
        """Close the HTTP connections that are kept open."""


class Observer(Protocol):
    """Counts calls: method, path, status (0: no answer) and seconds."""

    def __call__(self, method: str, path: str, status: int, seconds: float) -> None: ...


class Transport:
    """One OpenStack API with its own limit of calls in flight.

    :param name: of the API, in its errors.
    :param serves: Called with the name whenever the API has answered as one that serves.
    :param limit: Maximum number of calls in flight; the others wait for a slot. There are fewer
        while the API is overloaded.
    :param rate: Number of calls that may begin in a second; 0: any.
    :param deadline: Returns the seconds that a request may take at this moment; called in a thread
        right before the request is sent. When they have passed, the request is not sent any more.
        If it was, its answer is not awaited any longer, though the server may still carry it out.

    ``page_sizes`` are what all lists have learned, by the kind of the objects and their fields.
    """

    def __init__(
        self,
        adapter: Adapter,
        *,
        limit: int,
        rate: float = 0.0,
        name: str = "",
        serves: Callable[[str], None] = lambda _name: None,
        deadline: Callable[[], float] = lambda: 60.0,
        observe: Observer | None = None,
    ) -> None:
        self._adapter = adapter
        self._name, self._serves = name, serves
        budget = Budget(rate, max(1, round(rate * BURST))) if rate else None
        self.limit = AdaptiveLimit(limit, budget=budget)
        self.page_sizes: defaultdict[tuple[str, str], PageSize] = defaultdict(PageSize)
        self._size = limit
        self._threads = self._make_threads()
        self._deadline = deadline
        self._observe = observe

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: Json | None = None,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        is_secret: bool = False,
    ) -> Json:
        """Send one request and wait for its answer.

        :param is_secret: The body is kept out of logs, whatever their level.
        :raises errors.CloudError: The answer is 400 or more, or there was none (status 0).
        """
        content: Json = {"json": body, "params": dict(query or {}), "headers": dict(headers or {})}
        if is_secret:
            content["log"] = False  # keystoneauth's own
        async with self.limit.slot(current_priority()) as slot:
            request = functools.partial(self._request, path, method, content)
            started = asyncio.get_running_loop().time()
            status = 0
            try:
                response = await self._answer(slot, request)
                status = response.status_code
            except errors.CloudError as error:
                error.api = self._name
                raise
            finally:
                if self._observe is not None:
                    elapsed = asyncio.get_running_loop().time() - started
                    self._observe(method, path, status, elapsed)
        if status < 400:
            self._serves(self._name)
            return _json(response, f"{method} {path}")
        answer = error_from(response, f"{method} {path}")
        answer.api = self._name
        if not answer.is_outage:
            self._serves(self._name)
        raise answer

    async def _answer(
        self, slot: Slot, request: Callable[[Deadline], requests.Response]
    ) -> requests.Response:
        """Send the request from a thread, and tell the limit about the outcome."""
        try:
            response = await self._in_thread(request)
        except NotSent:
            raise
        except errors.CloudError as error:
            slot.answered(error.status)
            raise
        slot.answered(response.status_code)
        return response

    async def _in_thread(self, work: Callable[[Deadline], T]) -> T:
        """Do something in a thread, until the deadline."""
        deadline = Deadline(self._deadline)
        try:
            return await finish(self._threads.submit(work, deadline), deadline.given_up)
        finally:
            if deadline.given_up.done():
                self._replace_threads()
            deadline.close()

    def _replace_threads(self) -> None:
        """Leave a thread that nobody waits for to itself; calls to come need its place."""
        self._threads.shutdown(wait=False)
        self._threads = self._make_threads()

    def _make_threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._size, thread_name_prefix="openstack")

    def _request(
        self, path: str, method: str, content: Json, deadline: Deadline
    ) -> requests.Response:
        response = self._send(path, method, content, deadline)
        if response.status_code == 401:  # a token revoked, or keys rotated
            self._adapter.invalidate()
            response = self._send(path, method, content, deadline)
        return response

    def _send(
        self, path: str, method: str, content: Json, deadline: Deadline
    ) -> requests.Response:
        """Send the request once, and not after the deadline; nothing beneath sends it again."""
        self._authenticate(deadline)
        with deadline.sending() as seconds:
            return self._adapter.request(
                path,
                method,
                **content,
                raise_exc=False,
                timeout=seconds,
                connect_retries=0,
                status_code_retries=0,
                allow_reauth=False,
                redirect=False,
            )

    async def project_id(self) -> str:
        """Return the id of the project that our account works in."""
        async with self.limit.slot(current_priority()):
            return await self._in_thread(self._authenticate)

    def _authenticate(self, deadline: Deadline) -> str:
        with deadline.sending():
            return self._adapter.authenticate()

    def close(self) -> None:
        """Stop waiting for calls in flight; they end in their threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._adapter.close()


async def finish(thread: Future[T], given_up: asyncio.Future[None] | None = None) -> T:
    """Wait for a thread's result; a caller that is cancelled also waits, and then gives up.

    Threads cannot be stopped. This way the slot stays taken until the call has ended, and no write
    continues after its caller believes it cancelled.

    :param given_up: When it is done, the thread will send nothing more, and is left to itself.
    :raises errors.CloudError: The thread was left to itself.
    """
    future = asyncio.wrap_future(thread)
    future.add_done_callback(_retrieve)
    ends: list[asyncio.Future[Any]] = [future, *([given_up] if given_up else [])]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        if not thread.cancel():
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        raise
    if not future.done():
        raise errors.CloudError("the call did not end in time")
    return future.result()


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Take note of an exception that perhaps nobody waits for any more."""
    if not future.cancelled():
        future.exception()


def error_from(response: requests.Response, what: str) -> errors.CloudError:
    """Translate an answer of 400 or more into one of our errors."""
    status, text = response.status_code, response.text
    kind: type[errors.CloudError] = errors.CloudError
    if status == 404 and _is_missing(text):
        kind = errors.NotFound
    elif status in (403, 409, 413) and _NO_ADDRESS.search(text):
        kind = errors.NoAddress
    elif status in (403, 409, 413) and _EXHAUSTION.search(text):
        kind = errors.OverQuota
    elif status == 409 and _IMMUTABLE.search(text):
        kind = errors.Immutable
    elif status in (409, 412):
        kind = errors.Conflict
    elif status in (400, 401, 403, _TOO_LARGE, 422, 501):
        kind = errors.BadRequest
    message = message_of(text) or what
    if status == _TOO_LARGE and kind is errors.BadRequest:
        # oslo.middleware's own words are unfinished: «Larger than max_request_body_size (%s)»
        message = f"{what}: the body is larger than the API accepts"
    retry_after = response.headers.get("Retry-After", "")
    return kind(
        message,
        status=status,
        request_id=response.headers.get(REQUEST_ID),
        retry_after=float(retry_after) if retry_after.isdigit() else None,
        kind=_kind_of(text),
        text=text,
    )


def _is_missing(text: str) -> bool:
    """Return whether a 404 is the service's own, and not that of a proxy before it."""
    try:
        body = json.loads(text)
    except ValueError:
        return False
    if not isinstance(body, dict):
        return False
    if _kind_of(text) or "faultstring" in body:
        return True
    return bool(_MISSING.match(str(body.get("description"))))


def message_of(text: str) -> str:
    """Extract the message for people from an error's body, whichever service wrote it."""
    try:
        body = json.loads(text)
    except ValueError:
        return text.strip()[:300]
    if isinstance(body, dict):
        inner = next((value for value in body.values() if isinstance(value, dict)), body)
        for name in ("message", "faultstring", "detail", "description", "NeutronError"):
            if isinstance(inner.get(name), str):
                return str(inner[name])[:300]
    return text.strip()[:300]


def _kind_of(text: str) -> str:
    """Extract Neutron's name of the error from the body; empty for other services."""
    try:
        return str(json.loads(text)["NeutronError"]["type"])
    except (ValueError, KeyError, TypeError):
        return ""


def _json(response: requests.Response, what: str) -> Json:
    if not response.content:
        return {}
    try:
        answer = response.json()
    except ValueError as error:
        raise errors.CloudError(f"{what}: the answer is not JSON") from error
    if answer is None and response.status_code == _ADDED:
        return {}
    if not isinstance(answer, dict):
        raise errors.CloudError(f"{what}: the answer is not a JSON object")
    return answer
