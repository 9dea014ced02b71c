"""A client for tests: raw JSON, no cache, no retries."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

from kuryr_k8s.k8s.json_text import parse_now

from .objects import path_of

Json = dict[str, Any]

MERGE = "application/merge-patch+json"


class KubeRefusal(Exception):
    """The server said no; `body` is its Status."""

    def __init__(self, status: int, body: Json) -> None:
        super().__init__(status, body.get("message"))
        self.status, self.body = status, body


class KubeClient:
    """One user of one server; paths as in Kubernetes' API, `/api/v1/pods`.

    `headers` are sent besides: an administrator becomes another user by them.
    """

    def __init__(
        self,
        base_url: str,
        token: str,
        ca_file: Path | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._url = base_url
        self._headers = {"Authorization": f"Bearer {token}", **(headers or {})}
        self._ca_file = ca_file
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        trust = ssl.create_default_context(cafile=str(self._ca_file)) if self._ca_file else True
        connector = aiohttp.TCPConnector(ssl=trust)
        self._session = aiohttp.ClientSession(
            connector=connector, headers=self._headers, read_bufsize=2**21
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def request(
        self, method: str, path: str, body: Any = None, content: str = "application/json", **q: Any
    ) -> Json:
        """One request; KubeRefusal for whatever is not a success. `q` is the query.

        A body of bytes is sent as it is.
        """
        assert self._session is not None
        data = body if body is None or isinstance(body, bytes) else json.dumps(body)
        headers = {"Content-Type": content}
        async with self._session.request(
            method, self._url + path, data=data, headers=headers, params=q
        ) as response:
            if response.status >= 400:
                raise await _refusal(response)
            answer: Json = parse_now(await response.read())
            return answer

    async def get(self, path: str) -> Json:
        """One object."""
        return await self.request("GET", path)

    async def find(self, path: str) -> Json | None:
        """One object, or None if there is none."""
        try:
            return await self.get(path)
        except KubeRefusal as refusal:
            if refusal.status == 404:
                return None
            raise

    async def list(self, path: str, **query: Any) -> list[Json]:
        """The objects of a collection; they carry no kind, as from the server."""
        items: list[Json] | None = (await self.request("GET", path, **query))["items"]
        return items or []

    async def create(self, obj: Json) -> Json:
        """Create an object where it belongs."""
        nameless = obj["metadata"] | {"name": None}
        collection = {name: value for name, value in nameless.items() if value is not None}
        return await self.request("POST", path_of(obj | {"metadata": collection}), obj)

    async def patch(self, path: str, body: Any, content: str = MERGE, **query: Any) -> Json:
        """Change an object."""
        return await self.request("PATCH", path, body, content, **query)

    async def delete(self, path: str, **options: Any) -> Json:
        """Delete an object, or a whole collection."""
        return await self.request("DELETE", path, {"kind": "DeleteOptions", **options})

    async def watch(self, path: str, **query: Any) -> AsyncGenerator[Json, None]:
        """The events of a watch, until the server ends it or the caller leaves."""
        assert self._session is not None
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.get(
            self._url + path, params={"watch": "true"} | query, timeout=timeout
        ) as response:
            if response.status >= 400:
                raise await _refusal(response)
            async for line in response.content:
                yield json.loads(line)


async def _refusal(response: aiohttp.ClientResponse) -> KubeRefusal:
    """An unknown group is refused in plain text."""
    text = await response.text()
    body = json.loads(text) if response.content_type == "application/json" else {"message": text}
    return KubeRefusal(response.status, body)
