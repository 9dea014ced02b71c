"""A small client of Kubernetes' API, with nothing but the standard library: calls and watches.

`kubectl` is there for rare requests.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from lab import facts
from lab.process import run

Json = dict[str, Any]
# A name, the object or None where it is gone, and the time.monotonic() of hearing it.
Heard = Callable[[str, Json | None, float], None]


def kubectl(
    lab: facts.Lab, *arguments: str, stdin: str | None = None, timeout: float = 300
) -> str:
    """Run kubectl as the cluster's administrator.

    :returns: what it printed.
    :raises CommandError: it failed, or took too long.
    """
    command = [f"{lab.bin}/kubectl", f"--kubeconfig={lab.kubernetes.admin_kubeconfig}"]
    return run([*command, *arguments], stdin=stdin, timeout=timeout)


class KubeError(Exception):
    """The API server refused a request; status is the HTTP code."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"HTTP {status}: {text}")
        self.status = status


class Unreachable(Exception):
    """No answer: whether the request was carried out is not known."""


class Kube:
    """The API server, as the cluster's administrator sees it."""

    def __init__(self, lab: facts.Lab) -> None:
        url = urllib.parse.urlsplit(lab.kubernetes.url)
        self._host, self._port = str(url.hostname), url.port
        keys = Path(lab.state) / "pki"
        self._context = ssl.create_default_context(cafile=lab.kubernetes.ca)
        self._context.load_cert_chain(keys / "admin.crt", keys / "admin.key")

    def call(self, method: str, path: str, body: Json | None = None, **query: str) -> Json:
        """Send one request, and read the answer.

        :raises KubeError: a status of 400 or more.
        :raises Unreachable: no answer.
        """
        with self.open(method, path, body, timeout=15, **query) as response:
            try:
                answer: Json = json.loads(response.read())
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise Unreachable(f"{method} {path}: {error}") from error
        return answer

    def items(self, path: str, **query: str) -> list[Json]:
        """List the objects below a path.

        :raises KubeError: a status of 400 or more.
        :raises Unreachable: no answer.
        """
        found: list[Json] = self.call("GET", path, None, **query)["items"]
        return found

    def open(
        self, method: str, path: str, body: Json | None = None, *, timeout: float, **query: str
    ) -> Response:
        """Send a request whose answer the caller reads.

        :raises KubeError: a status of 400 or more.
        :raises Unreachable: no answer.
        """
        connection = http.client.HTTPSConnection(
            self._host, self._port or 443, context=self._context, timeout=timeout
        )
        target = f"{path}?{urllib.parse.urlencode(query)}" if query else path
        data = None if body is None else json.dumps(body)
        try:
            connection.request(method, target, data, {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status < 400:
                return Response(connection, response)
            text = response.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Unreachable(f"{method} {target}: {error}") from error
        connection.close()
        raise KubeError(response.status, f"{method} {target}: {text}")


# How a watch may end.
_BROKEN = (KubeError, Unreachable, OSError, ValueError, http.client.HTTPException)


class Response:
    """An answer, and the connection that it comes over."""

    def __init__(
        self, connection: http.client.HTTPSConnection, response: http.client.HTTPResponse
    ) -> None:
        self._connection = connection
        self.read, self.readline = response.read, response.readline

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def cut(self) -> None:
        """End the connection from another thread: a reader sees the end."""
        with contextlib.suppress(OSError, AttributeError):
            self._connection.sock.shutdown(socket.SHUT_RDWR)


class Follower:
    """Reports the present state of the objects below a path, then every change, until closed.

    Changes that a broken watch has missed are reported when they are found by listing again.
    """

    def __init__(self, kube: Kube, path: str, heard: Heard) -> None:
        self._kube, self._path, self._heard = kube, path, heard
        self._known: set[str] = set()
        self._closed = threading.Event()
        self._response: Response | None = None
        self._thread = threading.Thread(target=self._run, name=f"follow {path}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        if self._response is not None:
            self._response.cut()
        self._thread.join(20)

    def _run(self) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(*_BROKEN):
                self._watch(self._list())
            self._closed.wait(0.1)

    def _list(self) -> str:
        listed = self._kube.call("GET", self._path)
        now = time.monotonic()
        items = {item["metadata"]["name"]: item for item in listed["items"]}
        for name in self._known - set(items):
            self._tell(name, None, now)
        for name, item in items.items():
            self._tell(name, item, now)
        return str(listed["metadata"]["resourceVersion"])

    def _watch(self, version: str) -> None:
        query = {"watch": "1", "resourceVersion": version}
        with self._kube.open("GET", self._path, None, timeout=300, **query) as self._response:
            while not self._closed.is_set() and (line := self._response.readline()):
                now = time.monotonic()
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                item = event["object"]
                gone = event["type"] == "DELETED"
                self._tell(item["metadata"]["name"], None if gone else item, now)

    def _tell(self, name: str, item: Json | None, now: float) -> None:
        (self._known.discard if item is None else self._known.add)(name)
        self._heard(name, item, now)


def is_ready(pod: Json) -> bool:
    """Return whether this Pod's condition Ready is true."""
    return condition(pod, "Ready")


def condition(pod: Json, kind: str) -> bool:
    """Return whether a Pod's condition of this type is true."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(each["type"] == kind and each["status"] == "True" for each in conditions)
