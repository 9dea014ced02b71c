"""The token of a node's daemon: bound to the Node, and made anew for a new Node of that name."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

from lab import facts
from lab.kubernetes.client import kubectl

ACCOUNT = "kuryr-daemon"
LASTS = 87600 * 3600  # seconds, asked for
_RENEW = 24 * 3600  # seconds before its end

Json = dict[str, Any]


def missing(lab: facts.Lab, node: str, path: Path) -> str | None:
    """Return a new token, or None if the one in the file is good for a day at least.

    The API server refuses a token once the Node is gone that it is bound to.

    :raises CommandError: the Node is not registered.
    """
    uid = kubectl(lab, "get", "node", node, "--output=jsonpath={.metadata.uid}").strip()
    if path.exists() and _is_good(path.read_text(), uid):
        return None
    bound = (
        "--bound-object-kind=Node",
        f"--bound-object-name={node}",
        f"--bound-object-uid={uid}",
        f"--duration={LASTS}s",
    )
    return kubectl(lab, "--namespace=kube-system", "create", "token", ACCOUNT, *bound).strip()


def _is_good(token: str, uid: str) -> bool:
    claims = _claims(token)
    bound = claims.get("kubernetes.io", {}).get("node", {}).get("uid")
    return bool(bound == uid and claims.get("exp", 0) > time.time() + _RENEW)


def _claims(token: str) -> Json:
    """Read what the token says of itself; its signature is the API server's business."""
    try:
        payload = token.split(".")[1]
        claims: Json = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (IndexError, ValueError):
        return {}
    return claims
