"""Questions that a service answers itself, so that "ready" means more than an open port."""

from __future__ import annotations

import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lab.process import CommandError, run


@dataclass(frozen=True)
class Probe:
    """One question, built with http(), command() or unix_socket(); it survives JSON."""

    kind: str
    target: tuple[str, ...]
    pattern: str = ""
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    netns: str | None = None

    def answer(self, env: Mapping[str, str] | None = None, timeout: float = 3) -> bool:
        """Ask once.

        :returns: whether the answer came in time and matches.
        """
        try:
            if self.kind == "http":
                text = self._get(timeout)
            else:
                text = run(self.target, netns=self.netns, env=env, timeout=timeout + 7)
        except (OSError, CommandError, urllib.error.URLError, ValueError):
            return False
        return re.search(self.pattern, text) is not None

    def _get(self, timeout: float) -> str:
        url = self.target[0]
        context = None
        if url.startswith("https:"):
            context = ssl.create_default_context(cafile=self.ca)
            if self.ca is None:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key)
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        with opener.open(url, timeout=timeout) as response:
            body: bytes = response.read()
        return body.decode(errors="replace")


def http(
    url: str,
    pattern: str = "",
    ca: str | None = None,
    cert: str | None = None,
    key: str | None = None,
) -> Probe:
    """Build a GET that must succeed, and whose answer must match.

    Without `ca`, TLS is not verified.
    """
    return Probe("http", (url,), pattern, ca, cert, key)


def command(*argv: str, pattern: str = "", netns: str | None = None) -> Probe:
    """Build a command that must exit with 0, and whose output must match."""
    return Probe("command", argv, pattern, netns=netns)


def unix_socket(path: str) -> Probe:
    """Build the question whether somebody listens on this socket.

    Nobody connects to it: a server may fork for each client, and Octavia's driver agent then spins
    for ever over one that sends nothing.
    """
    return command("ss", "-xlH", "src", path, pattern=re.escape(path))


def to_json(probe: Probe) -> dict[str, Any]:
    """Turn a probe into what JSON can hold."""
    return asdict(probe)


def from_json(data: Mapping[str, Any]) -> Probe:
    """Restore a probe from what `to_json` returned."""
    return Probe(**{**data, "target": tuple(data["target"])})
