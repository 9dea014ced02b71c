"""Certificates in Secrets, by a cache of the Secrets of their type."""

from collections.abc import Iterable

from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.k8s.resources import TLSSECRETS, Key
from kuryr_k8s.model.certificate import Certificate, UnusableCertificate, read_certificate
from kuryr_k8s.model.routes import SecretName
from kuryr_k8s.model.tls_secret import TLS_TYPE, TLSSecret


class TLSSecrets:
    """The certificates in the Secrets that a router needs, each read once."""

    def __init__(self, context: HandlerContext) -> None:
        self._secrets = context.informers.of(TLSSECRETS)
        self.named: frozenset[Key] = frozenset()  # Secrets that somebody names
        # those of them that there are; None before the first look
        self._used: frozenset[Key] | None = None
        self._read: dict[Key, tuple[TLSSecret, Certificate | UnusableCertificate]] = {}

    def follow(self, secrets: Iterable[SecretName]) -> None:
        """Keep what these Secrets have, and forget all others."""
        named = frozenset(Key(each.namespace, each.name) for each in secrets)
        used = frozenset(key for key in named if self._secrets.get(key) is not None)
        self.named, self._used = named, used
        self._read = {key: read for key, read in self._read.items() if key in used}

    def lost(self, secrets: Iterable[SecretName]) -> list[Key]:
        """List those of the Secrets that may have been shown, and that the cache lacks now."""
        keys = {Key(secret.namespace, secret.name) for secret in secrets}
        known = keys if self._used is None else keys & self._used
        return [key for key in known if self._secrets.get(key) is None]

    def certificate(self, secret: SecretName) -> Certificate:
        """Return the certificate in a Secret.

        :raises UnusableCertificate: there is none that can be used.
        """
        key = Key(secret.namespace, secret.name)
        found = self._secrets.get(key)
        if found is None:
            raise UnusableCertificate(f"there is no such Secret of type {TLS_TYPE}")
        known, read = self._read.get(key, (None, None))
        if known is not found or read is None:
            read = _read(found)
            self._read[key] = found, read
        if isinstance(read, UnusableCertificate):
            raise read.with_traceback(None)  # else each time it is raised lengthens the traceback
        return read


def _read(secret: TLSSecret) -> Certificate | UnusableCertificate:
    try:
        return read_certificate(secret.uid, secret.certificates, secret.key)
    except UnusableCertificate as error:
        return error
