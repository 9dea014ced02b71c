"""View of Secrets with a certificate for the caches.

https://kubernetes.io/docs/concepts/configuration/secret/#tls-secrets
"""

import base64
import binascii
from dataclasses import dataclass, field
from typing import Any, Self

TLS_TYPE = "kubernetes.io/tls"
LONGEST = 32768  # characters of base64: what has more does not fit into Barbican


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSSecret:
    """A Secret with a certificate and its key, in PEM; what cannot be read is empty.

    :param certificates: the certificate, followed by those that lead to a root.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    certificates: bytes
    key: bytes = field(repr=False)

    @classmethod
    def read(cls, item: dict[str, Any]) -> Self:
        """Read a Secret from the API's JSON."""
        meta, data = item["metadata"], item.get("data") or {}
        return cls(
            namespace=meta["namespace"],
            name=meta["name"],
            uid=meta["uid"],
            resource_version=meta["resourceVersion"],
            certificates=_decoded(data.get("tls.crt")),
            key=_decoded(data.get("tls.key")),
        )


def _decoded(text: str | None) -> bytes:
    try:
        return base64.b64decode(text or "", validate=True) if len(text or "") <= LONGEST else b""
    except (binascii.Error, ValueError):
        return b""
