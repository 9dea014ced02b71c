"""Calls of the Barbican API v1.

https://docs.openstack.org/api-guide/key-manager/secrets.html

Secrets cannot be changed, and have no tags: whose one is stands in its name.
"""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from kuryr_k8s import errors
from kuryr_k8s.cloud.transport import Transport

SECRETS = "/secrets"
PAGE = 100  # the most that Barbican answers with


class StoredSecret(NamedTuple):
    """A secret in Barbican.

    :param ref: the URL by which Octavia names it.
    """

    ref: str
    name: str


class Barbican:
    """Client with typed calls; every error is a :class:`kuryr_k8s.errors.CloudError`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list_secrets(self) -> list[StoredSecret]:
        """Return all secrets of the project, the oldest first.

        Barbican counts pages by numbers: while others delete secrets, some may be missing.
        """
        found: dict[str, StoredSecret] = {}
        offset, total = 0, 1
        while offset < total:
            query = {"limit": str(PAGE), "offset": str(offset), "sort": "created:asc"}
            answer = await self._transport.call("GET", SECRETS, query=query)
            with _understood():
                rows: list[dict[str, Any]] = answer["secrets"]
                for row in rows:
                    ref = row["secret_ref"]
                    found[ref] = StoredSecret(ref, row.get("name") or "")
                total = int(answer["total"]) if rows else 0
            offset += len(rows)
        return list(found.values())

    async def store(self, name: str, payload: bytes) -> StoredSecret:
        """Store a secret; after a failure it may be there all the same."""
        body = {
            "name": name,
            "payload": base64.b64encode(payload).decode(),
            "payload_content_type": "application/octet-stream",
            "payload_content_encoding": "base64",
        }
        answer = await self._transport.call("POST", SECRETS, body=body, is_secret=True)
        with _understood():
            return StoredSecret(answer["secret_ref"], name)

    async def delete(self, ref: str) -> None:
        """Delete a secret; one that is gone is deleted."""
        secret_id = ref.rstrip("/").rpartition("/")[2]
        try:
            await self._transport.call("DELETE", f"{SECRETS}/{secret_id}")
        except errors.NotFound:
            return


@contextmanager
def _understood() -> Iterator[None]:
    """Raise what an answer lacks as an error of the cloud."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise errors.CloudError("Barbican's answer is not as its API says") from error
