"""A small client of the OpenStack APIs, with nothing but the standard library."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]


class ApiError(Exception):
    """The service refused a request; status is the HTTP code."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"HTTP {status}: {text}")
        self.status = status


class Api:
    """One service, as seen by the owner of the token."""

    def __init__(self, base: str, token: str | None = None) -> None:
        self._base = base.rstrip("/")
        self._token = token

    def get(self, path: str, **query: str) -> Json:
        return self.call("GET", path, query=query)[0]

    def post(self, path: str, body: Json) -> Json:
        return self.call("POST", path, body)[0]

    def put(self, path: str, body: Json | None = None) -> Json:
        return self.call("PUT", path, body)[0]

    def delete(self, path: str) -> None:
        self.call("DELETE", path)

    def call(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[Json, Mapping[str, str]]:
        """Send one request.

        :returns: the answer's body and headers.
        :raises ApiError: a status of 400 or more.
        """
        url = f"{self._base}/{path.lstrip('/')}"
        if query:
            url += "?" + urllib.parse.urlencode(query)
        sent = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            **(headers or {}),
        }
        if self._token:
            sent["X-Auth-Token"] = self._token
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, sent, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=120) as response:
                text: bytes = response.read()
                return (json.loads(text) if text else {}), response.headers
        except urllib.error.HTTPError as error:
            detail = error.read().decode(errors="replace")
            raise ApiError(error.code, f"{method} {url}: {detail}") from error


def token(keystone: str, user: str, password: str, project: str) -> str:
    """Request a token of the user in the project (both in the default domain)."""
    domain = {"id": "default"}
    body: Json = {
        "auth": {
            "identity": {
                "methods": ["password"],
                "password": {"user": {"name": user, "password": password, "domain": domain}},
            },
            "scope": {"project": {"name": project, "domain": domain}},
        }
    }
    _, headers = Api(keystone).call("POST", "/auth/tokens", body)
    return headers["X-Subject-Token"]
