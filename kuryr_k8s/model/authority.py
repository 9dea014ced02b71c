"""Certificates of CAs, by which an L7 router verifies the certificates of Pods. Pure."""

import hashlib
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.serialization import Encoding

from kuryr_k8s.model.certificate import LONGEST, UnusableCertificate, read_certificates


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """The certificates of one CA, or of several: each may have signed those of Pods.

    :param source: what has them; later ones of it are their successors.
    :param digest: tells them from all others.
    :param bundle: all of them in PEM.
    """

    source: str
    digest: str
    bundle: bytes = field(repr=False, compare=False)


def read_authority(source: str, text: bytes, field: str) -> Authority:
    """Return the certificates in a text of PEM, without what else is there.

    :param source: see :class:`Authority`.
    :param field: where users write it.
    :raises UnusableCertificate: there are none, or one that cannot be read, for which haproxy
        would refuse the configuration of all hosts.
    """
    found = read_certificates(text, field)
    bundle = b"".join(dict.fromkeys(each.public_bytes(Encoding.PEM) for each in found))
    if len(bundle) > LONGEST:
        raise UnusableCertificate(f"{field} has more than {LONGEST} bytes of certificates")
    return Authority(source=source, digest=hashlib.sha256(bundle).hexdigest(), bundle=bundle)
