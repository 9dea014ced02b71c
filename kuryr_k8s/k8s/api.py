"""The Kubernetes API as plain JSON, over aiohttp.

It does without ``kubernetes_asyncio``, whose generated models take 34 MiB, and a millisecond for
each Pod. Every error leaves this module as one of :mod:`kuryr_k8s.errors`, and every call has a
deadline.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

import aiohttp

from kuryr_k8s import errors
from kuryr_k8s.engine.limit import AdaptiveLimit, current_priority
from kuryr_k8s.k8s.credentials import Credentials
from kuryr_k8s.k8s.gate import TimeLeft, open_session, time_for
from kuryr_k8s.k8s.json_text import parse
from kuryr_k8s.k8s.refusals import Refusals
from kuryr_k8s.k8s.resources import Key, Resource, Versioned

Json = dict[str, Any]
View = TypeVar("View", bound=Versioned)
MERGE_PATCH = "application/merge-patch+json"  # RFC 7396
JSON_PATCH = "application/json-patch+json"  # RFC 6902
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"  # JSON is YAML
JSON = "application/json"
METADATA = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
PAGE = 500
CALLS = 16  # each connection costs a quarter of a MiB
_NO_LIMIT = aiohttp.ClientTimeout()  # ``call`` limits the time itself
# Every 403 has the reason Forbidden. That of the authorizer begins so: 'pods "web" is forbidden:
# User "kuryr" cannot patch resource "pods" in API group "" in the namespace "default"'. What comes
# after the colon of another one is the word of an admission plugin, or begins with it.
_BY_AUTHORIZER = re.compile(r'(?:\S+ (?:"[^"]*" )?is )?forbidden: User "[^"]*" cannot ')


class KubeApi:
    """The calls that we need, and no others.

    :param credentials: They also say where the server is.
    :param calls: The most that are in flight at once; further ones wait for a slot, and those
        that a Pod waits for go first. Watches need none.
    :param timeout: Seconds that one call may take.
    :param time_left: Returns the seconds that a write may take at this moment; called when the
        write is requested and right before it is sent. At 0 or less nothing is sent. None: there
        is no such limit.
    :param heard: Called with the header ``Date`` of each answer as soon as it comes.
    :param refusals: of the account, which other clients may have as well.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        calls: int = CALLS,
        timeout: float = 30.0,
        time_left: TimeLeft | None = None,
        heard: Callable[[str], None] = lambda _date: None,
        refusals: Refusals | None = None,
    ) -> None:
        self._session = open_session(time_left)
        # It stays as it is: a webhook of one namespace that hangs says nothing about the server.
        self._limit = AdaptiveLimit(calls)
        self._timeout = timeout
        self._time_left = time_left
        self._heard = heard
        self._credentials = credentials
        self.refusals = refusals or Refusals()

    async def close(self) -> None:
        await self._session.close()

    async def way(self) -> tuple[str, ...]:
        """Return the URLs of the server, and of the proxy if there is one.

        :raises errors.NoCredentials: there are no credentials, which say where the server is.
        """
        loaded = (await self._credentials.get()).loaded
        return (loaded.server, *([loaded.proxy] if loaded.proxy else []))

    async def probe(self, resource: Resource[Any]) -> None:
        """Check that the kind exists and that we may list it.

        :raises errors.KubeError: Names what to install, or the permission that is missing.
        """
        try:
            await self.newest_version(resource, {})
        except errors.KubeNotFound as error:
            name = f"{resource.plural}.{resource.group}"
            raise errors.KubeNotFound(
                f"the CRD {name} is not installed (etc/crds)", status=404
            ) from error

    async def get(self, resource: Resource[Any], key: Key) -> Json:
        """Read one object from etcd's quorum, past every cache.

        :raises errors.KubeNotFound: The object does not exist.
        """
        return await self.call("GET", resource.path(key.namespace, key.name))

    async def find(self, resource: Resource[Any], key: Key) -> Json | None:
        """Read one object as :meth:`get` does; return None if it does not exist."""
        try:
            return await self.get(resource, key)
        except errors.KubeNotFound:
            return None

    async def list_pages(
        self, resource: Resource[Any], selectors: Mapping[str, str], namespace: str = ""
    ) -> AsyncIterator[tuple[list[Json], str]]:
        """Read a collection by quorum, page by page.

        :returns: The items and the resourceVersion of each page.
        """
        query: dict[str, str] = dict(selectors) | {"limit": str(PAGE)}
        while True:
            accept = METADATA_LIST if resource.metadata_only else JSON
            page = await self.call("GET", resource.path(namespace), query=query, accept=accept)
            meta: Json = page["metadata"]
            yield page["items"] or [], meta["resourceVersion"]
            if not meta.get("continue"):
                return
            query["continue"] = meta["continue"]

    async def list_views(self, resource: Resource[View], namespace: str = "") -> list[View]:
        """List the views of all objects of a kind, by quorum, in one namespace or in all."""
        pages = self.list_pages(resource, {}, namespace)
        return [resource.view(item) async for items, _version in pages for item in items]

    async def newest_version(self, resource: Resource[Any], selectors: Mapping[str, str]) -> int:
        """Return the server's current resourceVersion, by quorum."""
        query = dict(selectors) | {"limit": "1"}
        page = await self.call("GET", resource.path(), query=query)
        return int(page["metadata"]["resourceVersion"])

    async def create(self, resource: Resource[Any], body: Json) -> Json:
        """Create an object.

        :raises errors.KubeConflict: An object of that name exists.
        """
        named: Json = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        namespace = named["metadata"].get("namespace", "")
        return await self.call("POST", resource.path(namespace), body=named)

    async def update(self, resource: Resource[Any], body: Json) -> Json:
        """Replace an object that was read, unless it has changed since.

        :param body: The whole object, with the resourceVersion that was read.
        :raises errors.KubeConflict: The object has changed.
        """
        meta = body["metadata"]
        return await self.call("PUT", resource.path(meta["namespace"], meta["name"]), body=body)

    async def merge_patch(
        self,
        resource: Resource[Any],
        key: Key,
        patch: Json,
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Json:
        """Patch the named fields, and no others (RFC 7396).

        With ``patch["metadata"]["uid"]`` the patch applies to that very object only, and with
        ``resourceVersion`` in addition to that very state of it.

        :param dry_run: Only find out whether the server would do it.
        :raises errors.KubeConflict: Another object has the name by now, or the object has changed.
        """
        path = resource.path(key.namespace, key.name, subresource)
        query = {"dryRun": "All"} if dry_run else {}
        return await self.call("PATCH", path, query=query, body=patch, content_type=MERGE_PATCH)

    async def apply(self, resource: Resource[Any], key: Key, fields: Json, manager: str) -> Json:
        """Give fields of an object these values, and create it if need be (server-side apply).

        :param manager: the owner of the fields; it takes them from others.
        """
        body = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": key.name},
            **fields,
        }
        path, query = resource.path(key.namespace, key.name), {"fieldManager": manager}
        return await self.call(
            "PATCH", path, query={**query, "force": "true"}, body=body, content_type=APPLY_PATCH
        )

    async def patch_status_of(
        self, resource: Resource[Any], key: Key, known: Versioned, status: Json
    ) -> Json:
        """Patch fields of an object's status, if the object is still as it is known.

        :raises errors.KubeConflict: another object has the name by now, or it has changed.
        """
        meta = {"uid": known.uid, "resourceVersion": known.resource_version}
        patch = {"metadata": meta, "status": status}
        return await self.merge_patch(resource, key, patch, subresource="status")

    async def patch_conditions(
        self, resource: Resource[Any], key: Key, conditions: Sequence[Json], *, uid: str
    ) -> Json:
        """Set conditions in the status of the object ``uid``; those of other types stay.

        Only kinds that Kubernetes itself defines can be patched in this way.

        :raises errors.KubeConflict: Another object has the name by now.
        """
        path = resource.path(key.namespace, key.name, "status")
        patch = {"metadata": {"uid": uid}, "status": {"conditions": list(conditions)}}
        return await self.call("PATCH", path, body=patch, content_type=STRATEGIC_MERGE_PATCH)

    async def remove_finalizers(
        self,
        resource: Resource[Any],
        key: Key,
        *names: str,
        uid: str,
        known: tuple[str, ...],
        reads: bool = True,
    ) -> Json | None:
        """Remove finalizers of the object ``uid`` in one write, unless the object is gone.

        ``known`` are its finalizers as they were seen last. If they changed since, the object is
        read and the write is repeated, once.

        :param reads: whether that may be done.
        :returns: The object as it is now; None if there was nothing to write.
        :raises errors.KubeConflict: they have changed, and the object is not read.
        """
        try:
            return await self._remove_finalizers(resource, key, names, uid, known)
        except errors.KubeConflict:
            if not reads:
                raise
            live = await self.find(resource, key)
            if live is None or live["metadata"]["uid"] != uid:
                return None
            finalizers = tuple(live["metadata"].get("finalizers", ()))
            return await self._remove_finalizers(resource, key, names, uid, finalizers)

    async def _remove_finalizers(
        self,
        resource: Resource[Any],
        key: Key,
        names: tuple[str, ...],
        uid: str,
        known: tuple[str, ...],
    ) -> Json | None:
        places = [place for place, name in enumerate(known) if name in names]
        if not places:
            return None
        patch: list[Json] = [{"op": "test", "path": "/metadata/uid", "value": uid}]
        for place in reversed(places):  # those behind one that goes move up
            path = f"/metadata/finalizers/{place}"
            patch.append({"op": "test", "path": path, "value": known[place]})
            patch.append({"op": "remove", "path": path})
        where = resource.path(key.namespace, key.name)
        try:
            return await self.call("PATCH", where, body=patch, content_type=JSON_PATCH)
        except errors.KubeNotFound:
            return None
        except errors.KubeError as error:
            if error.status == 422:  # a test of the patch failed
                raise errors.KubeConflict(str(error), status=409) from error
            raise

    async def delete(
        self, resource: Resource[Any], key: Key, *, uid: str, resource_version: str | None = None
    ) -> Json | None:
        """Request the deletion of the object ``uid``; an object that is gone counts as deleted.

        :param resource_version: the object goes only if it has not changed since.
        :returns: The object with its deletionTimestamp if a finalizer holds it, otherwise a
            Status; None if it was gone already.
        :raises errors.KubeConflict: Another object has the name by now, or it has changed.
        """
        known = {"uid": uid}
        if resource_version is not None:
            known["resourceVersion"] = resource_version
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": known}
        try:
            return await self.call("DELETE", resource.path(key.namespace, key.name), body=body)
        except errors.KubeNotFound:
            return None

    async def watch(
        self,
        resource: Resource[Any],
        query: Mapping[str, str],
        *,
        namespace: str = "",
        idle: float,
    ) -> AsyncGenerator[Json, None]:
        """Yield the events of a watch as they come; end when the server ends it.

        :param idle: Seconds without a single byte after which the connection counts as dead.
        :raises errors.KubeGone: The resourceVersion is too old.
        """
        timeout = aiohttp.ClientTimeout(sock_connect=self._timeout, sock_read=idle)
        headers = {"Accept": METADATA if resource.metadata_only else JSON}
        query = {"watch": "true"} | dict(query)
        response = await self._send("GET", resource.path(namespace), query, None, headers, timeout)
        async with response:
            try:
                async for line in _lines(response):
                    event = await parse(line)
                    if event["type"] == "ERROR":
                        raise _error(event["object"].get("code", 500), event["object"])
                    yield event
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                raise errors.KubeError(f"watch of {resource.plural}: {_say(error)}") from error

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Json:
        """Send one request and read its whole answer.

        :raises errors.KubeError: The answer is 400 or more, or there was none (status 0).
        """
        seconds = time_for(method, self._time_left, self._timeout)
        headers = {"Accept": accept, "Content-Type": content_type}
        try:
            async with asyncio.timeout(seconds), self._limit.slot(current_priority()):
                response = await self._send(method, path, query or {}, body, headers, _NO_LIMIT)
                async with response:
                    answer: Json = await parse(await response.read())
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise errors.KubeError(f"{method} {path}: {_say(error)}") from error
        return answer

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Any,
        headers: dict[str, str],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - handed on to aiohttp
    ) -> aiohttp.ClientResponse:
        kind = f"{'WATCH' if query.get('watch') else method} {_resource_of(path)}"
        try:
            access = await self._credentials.get()
        except errors.NoCredentials as error:
            self.refusals.answered(kind, error)
            raise
        loaded = access.loaded
        if loaded.authorization:
            headers["Authorization"] = loaded.authorization
        try:
            response = await self._session.request(
                method,
                f"{loaded.server}{path}{'?' if query else ''}{urlencode(query)}",
                headers=headers,
                data=None if body is None else json.dumps(body),
                ssl=access.tls or True,
                server_hostname=loaded.server_name,
                proxy=loaded.proxy,
                timeout=timeout,
            )
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise errors.KubeError(f"{method} {path}: {_say(error)}") from error
        self._heard(response.headers.get("Date", ""))
        if response.status == 401:
            self._credentials.doubt()
        problem = await _problem_of(response)
        self.refusals.answered(kind, problem)
        if problem is not None:
            raise problem
        return response


def merge_patch_to(wanted: Json, found: Json) -> Json:
    """Return the merge patch (RFC 7396) that turns one JSON object into another."""
    patch: Json = dict.fromkeys(found.keys() - wanted.keys())
    for name, value in wanted.items():
        if name not in found:
            patch[name] = value
        elif found[name] != value:
            both = isinstance(value, dict) and isinstance(found[name], dict)
            patch[name] = merge_patch_to(value, found[name]) if both else value
    return patch


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Split a stream into lines of any length (a Pod may have a megabyte)."""
    parts: list[bytes] = []
    async for chunk in response.content.iter_any():
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            yield b"".join([*parts, line])
            parts.clear()
        if rest:
            parts.append(rest)
        await asyncio.sleep(0)  # a relist of thousands of objects must not hold the loop


def _resource_of(path: str) -> str:
    """Return the resource that a path is about, with the subresource: ``kuryrports/status``."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        parts = parts[2:]
    return "/".join([*parts[:1], *parts[2:]])


async def _problem_of(response: aiohttp.ClientResponse) -> errors.KubeError | None:
    """Read the answer if it is an error."""
    if response.status < 400:
        return None
    async with response:
        try:
            status = await parse(await response.read())
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            status = {}
    return _error(response.status, status, response.headers.get("Retry-After"))


def _error(code: int, status: Any, retry_after: str | None = None) -> errors.KubeError:
    """Translate a ``metav1.Status`` into one of our errors."""
    message = status.get("message") if isinstance(status, dict) else None
    kinds = {404: errors.KubeNotFound, 409: errors.KubeConflict, 410: errors.KubeGone}
    delay = float(retry_after) if retry_after and retry_after.isdigit() else None
    kind = kinds.get(code, errors.KubeError)
    if code == 403 and "NamespaceTerminating" in _causes(status):
        kind = errors.KubeNamespaceEnds
    elif code == 403 and _BY_AUTHORIZER.match(str(message)):
        kind = errors.KubeForbidden
    return kind(str(message or "no message"), status=code, retry_after=delay)


def _causes(status: Any) -> list[str]:
    details = status.get("details") if isinstance(status, dict) else None
    causes = (details or {}).get("causes") or ()
    return [str(cause.get("reason")) for cause in causes]


def _say(error: BaseException) -> str:
    return str(error) or type(error).__name__
