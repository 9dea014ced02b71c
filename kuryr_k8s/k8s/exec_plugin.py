"""Plugins that give credentials: programs that a kubeconfig names under ``exec``.

https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

import json
import os
import subprocess
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from kuryr_k8s.k8s.credentials import Unreadable, check_token

Json = dict[str, Any]
LONGEST = 30.0  # seconds that a plugin may take


@dataclass(frozen=True, slots=True)
class Given:
    """The credentials from a plugin: a token, or a certificate and its key as PEM, or both.

    :param expires: in seconds since the epoch; None: it does not say.
    """

    token: str = field(repr=False)
    certificate: str
    key: str = field(repr=False)
    expires: float | None


def run(plugin: Json, directory: Path) -> Given:
    """Run a plugin.

    :param plugin: an ``ExecConfig``.
    :param directory: of the kubeconfig; relative paths begin there.
    :raises Unreadable: it gives no credentials.
    """
    command = str(plugin.get("command", ""))
    if "/" in command:
        command = str(directory / command)
    asked = {"kind": "ExecCredential", "apiVersion": plugin.get("apiVersion")}
    asked["spec"] = {"interactive": False}
    own = {item["name"]: str(item["value"]) for item in plugin.get("env") or ()}
    environment = dict(os.environ) | {"KUBERNETES_EXEC_INFO": json.dumps(asked)} | own
    try:
        done = subprocess.run(
            [command, *map(str, plugin.get("args") or ())],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LONGEST,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unreadable(f"plugin {command}: {error}") from error
    if done.returncode:
        words = " ".join(done.stderr.decode(errors="replace").split())[-300:]
        raise Unreadable(f"plugin {command} ended with exit code {done.returncode}: {words}")
    try:
        given = _read(json.loads(done.stdout)["status"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unreadable(f"plugin {command} printed no ExecCredential") from error
    if not given.token and not given.certificate:
        raise Unreadable(f"plugin {command} printed an ExecCredential without credentials")
    if given.token:
        check_token(given.token, f"the output of plugin {command}")
    return given


def _read(status: Json) -> Given:
    expires = status.get("expirationTimestamp")
    return Given(
        token=str(status.get("token") or "").strip(),
        certificate=str(status.get("clientCertificateData") or ""),
        key=str(status.get("clientKeyData") or ""),
        expires=datetime.fromisoformat(str(expires)).timestamp() if expires else None,
    )
