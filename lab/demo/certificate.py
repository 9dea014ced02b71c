"""The certificate for the host of the demonstration's Ingress, by a CA of its own.

Files that exist are kept.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from lab import facts
from lab.kubernetes.certificates import Store

_CA = "ca"
Json = dict[str, Any]


def authority(lab: facts.Lab) -> Path:
    """Return the path of the CA's certificate, by which clients verify that of the host."""
    return _directory(lab) / f"{_CA}.crt"


def secret(lab: facts.Lab, name: str, host: str) -> Json:
    """Describe the Secret with the certificate for the host."""
    store = Store(_directory(lab))
    store.authority(_CA)
    store.certificate(host, f"/CN={host}", "serverAuth", (f"DNS:{host}",), authority=_CA)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "type": "kubernetes.io/tls",
        "data": {
            f"tls.{suffix}": base64.b64encode(
                (_directory(lab) / f"{host}.{suffix}").read_bytes()
            ).decode()
            for suffix in ("crt", "key")
        },
    }


def _directory(lab: facts.Lab) -> Path:
    return Path(lab.state) / "demo"
