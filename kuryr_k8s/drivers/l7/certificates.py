"""Certificates of L7 routers, and those of CAs, in Barbican, where Octavia reads them.

The name of a secret is a prefix that its router alone has, the source of what it has, such as the
uid of a Kubernetes Secret, and its digest: it is found again by that, whatever answer was lost.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from kuryr_k8s import errors
from kuryr_k8s.cloud.barbican.api import Barbican
from kuryr_k8s.engine.clock import Clock
from kuryr_k8s.model.authority import Authority
from kuryr_k8s.model.certificate import Certificate

# Seconds for which a list counts: where a secret is gone that a listener or a pool names, Octavia
# keeps the load balancer PENDING for ever at any change, but for one of that very part's secrets.
# They count from its end: one that takes longer than that would never be of use.
FRESH = 10.0
SHARE = 4  # Barbican is left alone this many times as long as it has kept us waiting


@dataclass(frozen=True, slots=True)
class Stored:
    """Secrets in Barbican by the sources of their certificates.

    :param refs: some may have the certificate that their source had before.
    :param problem: why some are missing, or have that; None if all are there.
    :param refused: the secrets that Octavia has not taken, and is to be offered again.
    :param outdated: the sources whose secrets have the certificate that they had before.
    """

    refs: Mapping[str, str]
    problem: errors.KuryrError | None = None
    refused: frozenset[str] = frozenset()
    outdated: frozenset[str] = frozenset()


class StoredCertificates:
    """The secrets of a router, listed when they are not known for certain.

    :param prefix: of the names of its secrets.
    :param pause: seconds until what has failed is tried again.
    """

    def __init__(self, barbican: Barbican, prefix: str, clock: Clock, pause: float) -> None:
        self._barbican = barbican
        self._prefix = prefix
        self._clock = clock
        self._pause = pause
        self._known: dict[str, str] | None = None  # names by refs, the oldest first
        self._listed = 0.0  # when
        self._names: dict[str, frozenset[str]] = {}  # DNS names by the names of secrets
        self._refused: dict[str, tuple[float, errors.CloudError]] = {}  # until when, by name
        self._failed: set[str] = set()  # names of those that were not stored at the first attempt
        self._outage: tuple[float, errors.CloudError] | None = None  # until when, of Barbican

    def doubt(self) -> None:
        """List the secrets again before the next use: others may have changed them."""
        self._known = None

    async def store(self, wanted: Iterable[Certificate | Authority]) -> Stored:
        """Return the secrets of certificates, after storing those that are missing.

        One that is not taken keeps its predecessor, and holds up no other.

        :raises errors.CloudError: Barbican does not answer, or has not stored one for the first
            time.
        """
        refs: dict[str, str] = {}
        problem: errors.CloudError | None = None
        is_full = False
        failed: set[str] = set()
        outdated: set[str] = set()
        known = await self._list()
        for certificate in wanted:
            name = f"{self._prefix}{certificate.source}:{certificate.digest}"
            self._names[name] = _names_of(certificate)
            there, failure = _ref_of(name, known), self._failure_of(name)
            if there is None and failure is None and not is_full:
                try:
                    there = await self._store(name, certificate, known)
                except errors.CloudError as error:
                    is_final = isinstance(error, errors.BadRequest | errors.OverQuota)
                    if not is_final and name not in self._failed:
                        self._failed.add(name)
                        raise  # it may pass at once, and nobody has to do without it
                    failure = self._refuse(name, error)
                    is_full = isinstance(error, errors.OverQuota)
            if failure is not None:
                problem = problem or failure
                failed.add(name)
            elif there is not None:
                refs[certificate.source] = there
                self._failed.discard(name)
            if certificate.source not in refs and (former := self._former(certificate, known)):
                refs[certificate.source] = former
                outdated.add(certificate.source)
        known = await self._list()  # again, if storing took long, or an answer was lost
        refused = frozenset(ref for ref, name in known.items() if name in failed)
        return Stored(refs, problem, refused, frozenset(outdated))

    def refuse(self, text: str, but: Collection[str]) -> bool:
        """Do without the secrets that Octavia names in a refusal, for a while.

        :param but: those that clients are shown: Octavia may be unable to read any at the moment.
        :returns: whether there are any.
        """
        refused = [
            (ref, name)
            for ref, name in (self._known or {}).items()
            if ref in text and ref not in but
        ]
        for ref, name in refused:
            self._refuse(name, errors.CloudError(f"Octavia does not take {ref}: {text}"))
        return bool(refused)

    async def delete_unused(self, used: Collection[str]) -> None:
        """Delete all secrets of the router but these.

        :raises errors.CloudError: some could not be deleted.
        """
        known = await self._list()
        problem: errors.CloudError | None = None
        for ref in [ref for ref in known if ref not in used]:
            try:
                await self._barbican.delete(ref)
            except errors.CloudError as error:
                problem = problem or error
            else:
                self._names.pop(known.pop(ref), None)
        if problem is not None:
            raise problem

    async def _store(
        self, name: str, certificate: Certificate | Authority, known: dict[str, str]
    ) -> str:
        """Store a secret; return it.

        :param known: where it is added.
        """
        listed, self._known = self._known, None  # until there is an answer, it may be there or not
        try:
            secret = await self._barbican.store(name, certificate.bundle)
        except errors.CloudError as error:
            if error.is_refusal:
                self._known = listed
            raise
        self._known = listed
        known[secret.ref] = name
        return secret.ref

    def _former(
        self, certificate: Certificate | Authority, known: Mapping[str, str]
    ) -> str | None:
        """Return the secret with the certificate that the source of this one had before."""
        source, names = f"{self._prefix}{certificate.source}:", _names_of(certificate)
        found = [
            ref
            for ref, name in known.items()
            if name.startswith(source)
            and name not in self._refused
            and self._names.get(name, names) == names
        ]
        return found[-1] if found else None

    def _refuse(self, name: str, error: errors.CloudError) -> errors.CloudError:
        self._refused[name] = self._clock.now() + self._pause, error
        return error

    def _failure_of(self, name: str) -> errors.CloudError | None:
        """Return why a certificate was not stored a moment ago, if it was not."""
        until, error = self._refused.get(name, (0.0, None))
        if error is None or self._clock.now() < until:
            return error
        del self._refused[name]
        return None

    async def _list(self) -> dict[str, str]:
        """Return the secrets as listed just now; else ask for them, if Barbican is not away.

        :raises errors.CloudError: it does not answer. Who waits for it keeps all others waiting,
            so it is not asked again at once.
        """
        if self._known is None or self._clock.now() - self._listed > FRESH:
            until, outage = self._outage or (0.0, None)
            if outage is not None and self._clock.now() < until:
                raise outage.with_traceback(None)
            self._outage, begun = None, self._clock.now()
            try:
                listed = await self._barbican.list_secrets()
            except errors.CloudError as error:
                now = self._clock.now()
                self._outage = now + max(self._pause, SHARE * (now - begun)), error
                raise
            self._listed = self._clock.now()
            self._known = {
                each.ref: each.name for each in listed if each.name.startswith(self._prefix)
            }
        return self._known


def _names_of(certificate: Certificate | Authority) -> frozenset[str]:
    """Return the DNS names that a certificate is for; those of CAs are for none."""
    return certificate.names if isinstance(certificate, Certificate) else frozenset()


def _ref_of(name: str, known: Mapping[str, str]) -> str | None:
    """Return the secret of this name; of several, as after a lost answer, always the same."""
    return min((ref for ref, found in known.items() if found == name), default=None)
