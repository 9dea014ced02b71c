"""Lists and watches of objects, continued as long as they are needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.kit.kube import KubeClient, KubeRefusal

Json = dict[str, Any]
_GONE = 410  # the version is too old for the server


async def follow(
    client: KubeClient,
    path: str,
    query: Mapping[str, str],
    *,
    listed: Callable[[list[Json]], None],
    changed: Callable[[str, Json], None],
) -> None:
    """Follow the objects of a path until cancelled.

    The server ends a watch whose reader lags; it continues from the last version, or after another
    list if that version is too old.

    :param listed: called with all objects after each list.
    :param changed: called with each event's type and object.
    """
    while True:
        answer = await client.request("GET", path, **query)
        listed(answer["items"])
        version = str(answer["metadata"]["resourceVersion"])
        while version:
            version = await _watch(client, path, query, version, changed)


async def _watch(
    client: KubeClient,
    path: str,
    query: Mapping[str, str],
    version: str,
    changed: Callable[[str, Json], None],
) -> str:
    """Watch once.

    :returns: the version to continue from; empty if it is too old.
    """
    query = {**query, "timeoutSeconds": "3600", "resourceVersion": version}
    try:
        async for event in client.watch(path, **query):
            if event["type"] == "ERROR":
                return ""
            changed(event["type"], event["object"])
            version = event["object"]["metadata"]["resourceVersion"]
    except KubeRefusal as refusal:
        if refusal.status == _GONE:
            return ""
        raise
    return version
