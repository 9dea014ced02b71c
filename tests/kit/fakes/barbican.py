"""Barbican's secrets: what Octavia's certificates are stored in."""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Callable
from typing import Any

from aiohttp import web

from .faults import Answer
from .neutron.policy import Context

Json = dict[str, Any]
ROOT = "/key-manager/v1"
LONGEST = 20000  # characters: [DEFAULT] max_allowed_secret_in_bytes counts those of base64
_MOST = 100  # in a page, however many are asked for
_BY_STATUS = {
    403: "Secret creation attempt not allowed - please review your user/project privileges",
    404: "Secret not found.",
    500: "Internal Server Error.",
}


class BarbicanAPI:
    """All that answers below /key-manager; ``secrets`` has what is stored, by id.

    :param context_of: says who makes a request, or refuses it.
    """

    def __init__(self, context_of: Callable[[web.Request], Context]) -> None:
        self.secrets: dict[str, Json] = {}
        self.quota = -1
        self.is_away = False  # it answers 503, to Octavia too
        self.url = ""
        self._context_of = context_of

    def routes(self) -> list[web.RouteDef]:
        """Every route."""
        path = f"{ROOT}/secrets"
        return [
            web.get(path, self._list),
            web.post(path, self._store),
            web.delete(f"{path}/{{id}}", self._delete),
        ]

    def ref(self, secret_id: str) -> str:
        """The URL by which Octavia names a secret."""
        return f"{self.url}{ROOT}/secrets/{secret_id}"

    def refs(self) -> set[str]:
        """Those of all secrets that can be read."""
        return set() if self.is_away else set(map(self.ref, self.secrets))

    def payload(self, ref: str) -> bytes:
        """What is stored there."""
        payload: bytes = self.secrets[ref.rpartition("/")[2]]["payload"]
        return payload

    def is_lost(self, ref: str) -> bool:
        """Whether a reference is to a secret of ours that cannot be read."""
        return ref.startswith(f"{self.url}{ROOT}/") and ref not in self.refs()

    def _project_of(self, request: web.Request) -> str:
        if self.is_away:
            raise Answer(503)
        return self._context_of(request).project_id

    def add(self, project_id: str, name: str, payload: bytes = b"") -> str:
        """A secret that somebody stores; its id."""
        secret_id = str(uuid.uuid4())
        self.secrets[secret_id] = {"name": name, "project_id": project_id, "payload": payload}
        return secret_id

    async def _list(self, request: web.Request) -> web.Response:
        project_id = self._project_of(request)
        found = [
            {"secret_ref": self.ref(secret_id), "name": secret["name"], "status": "ACTIVE"}
            for secret_id, secret in self.secrets.items()
            if secret["project_id"] == project_id
        ]
        begin = int(request.query.get("offset", "0"))
        some = found[begin : begin + min(int(request.query.get("limit", "10")), _MOST)]
        return web.json_response({"secrets": some, "total": len(found)})

    async def _store(self, request: web.Request) -> web.Response:
        project_id, body = self._project_of(request), await request.json()
        if 0 <= self.quota <= len(self.secrets):
            raise Answer(
                403,
                message="Secret creation issue seen - Creation not allowed because a quota has"
                " been reached.",
            )
        try:
            payload = base64.b64decode(body["payload"], validate=True)
        except (binascii.Error, KeyError) as error:
            raise Answer(400, message="Unable to decode request data.") from error
        if not payload or len(body["payload"]) > LONGEST:
            raise Answer(413, message="Provided information too large to process")
        secret_id = self.add(project_id, body.get("name") or "", payload)
        return web.json_response({"secret_ref": self.ref(secret_id)}, status=201)

    async def _delete(self, request: web.Request) -> web.Response:
        project_id, secret_id = self._project_of(request), request.match_info["id"]
        secret = self.secrets.get(secret_id)
        if secret is None or secret["project_id"] != project_id:
            raise Answer(404)
        del self.secrets[secret_id]
        return web.Response(status=204)


def render(fault: Answer) -> Json:
    """The body of an error; pecan's."""
    text = fault.message or _BY_STATUS.get(fault.status, "An unknown error.")
    return {"code": fault.status, "title": "Error", "description": text}
