"""Certificates of L7 routers, and those of CAs, in Barbican, where Octavia reads them.

The name of a secret is a prefix that its router alone has, the source of what it has, such as the
uid of a Kubernetes Secret, a digest of the DNS names that it is for, and one of all that it has:
it is found again by that, whatever answer was lost.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from kuryr_k8s import errors
from kuryr_k8s.cloud.barbican.api import Barbican
from kuryr_k8s.engine.clock import Clock
from kuryr_k8s.model.authority import Authority
from kuryr_k8s.model.certificate import Certificate
from kuryr_k8s.patience import Patience

# Seconds for which a list counts. Where a listener or a pool names a secret that is gone, Octavia
# keeps the load balancer PENDING for ever at any change, but for one that replaces that secret.
# They count from the end of the list: one that takes longer would else never count.
FRESH = 10.0


@dataclass(slots=True)
class Stored:
    """Secrets in Barbican by the sources of their certificates.

    :param refs: some may have the certificate that their source had before.
    :param problem: why some are missing, or have that; None if all are there.
    :param offered: the secrets that Octavia has not taken, and is to be offered again.
    :param there: all secrets of the router.
    :param outdated: the sources whose secrets have the certificate that they had before.
    :param is_begun: others are to be stored as soon as other changes had their turn.
    """

    refs: dict[str, str] = field(default_factory=dict)
    problem: errors.KuryrError | None = None
    offered: frozenset[str] = frozenset()
    there: frozenset[str] = frozenset()
    outdated: set[str] = field(default_factory=set)
    is_begun: bool = False


class StoredCertificates:
    """The secrets of a router, listed when they are not known for certain.

    :param prefix: of the names of its secrets.
    """

    def __init__(self, barbican: Barbican, prefix: str, clock: Clock, patience: Patience) -> None:
        self._barbican = barbican
        self._prefix = prefix
        self._clock = clock
        self._patience = patience
        self._known: dict[str, str] | None = None  # names by refs, the oldest first
        self._listed = 0.0  # when
        self._held: dict[str, tuple[float, errors.CloudError]] = {}  # until when, by name
        self._is_failing = False  # the last secret was not stored, and that was not for its sake
        self._pause: tuple[float, errors.CloudError] | None = None  # until when none is stored
        self._outage: tuple[float, errors.CloudError] | None = None  # until when, of Barbican

    def doubt(self) -> None:
        """List the secrets again before the next use: others may have changed them."""
        self._known = None

    async def store(self, wanted: Collection[Certificate | Authority]) -> Stored:
        """Return the secrets of certificates, after storing those that are missing.

        One that is not taken keeps its predecessor, and holds up no other. While Barbican stores
        none, that is tried now and then only. Of very many, some are left for the next time.

        :raises errors.CloudError: Barbican does not answer, or has not stored one for the first
            time.
        """
        stored = Stored()
        is_full = False
        failed: set[str] = set()
        known = await self._list()
        there = _by_name(known)
        self._forget_others({*map(self._name_of, wanted), *there})
        until = self._clock.now() + self._patience.storing
        for certificate in wanted:
            name = self._name_of(certificate)
            failure = self._failure_of(name, is_there=name in there)
            if failure is None and name not in there and not is_full:
                if (begun := self._clock.now()) >= until:
                    stored.is_begun = True
                    continue
                try:
                    there[name] = await self._store(name, certificate, known)
                    self._is_failing = False
                except errors.CloudError as error:
                    failure = self._refused(name, error, begun)
                    is_full = isinstance(error, errors.OverQuota)
            if failure is not None:
                stored.problem = stored.problem or failure.with_traceback(None)
                failed.add(name)
            elif name in there:
                stored.refs[certificate.source] = there[name]
        self._keep_former(wanted, stored, known)
        known = await self._list()  # again, if storing took long, or an answer was lost
        stored.offered = frozenset(ref for ref, name in known.items() if name in failed)
        stored.there = frozenset(known)
        return stored

    def refuse(self, text: str, but: Collection[str]) -> bool:
        """Do without the secrets that Octavia names in a refusal, for a while.

        :param but: those that clients are shown: Octavia may be unable to read any at the moment.
        :returns: whether there are any.
        """
        named = [
            (ref, name)
            for ref, name in (self._known or {}).items()
            if ref in text and ref not in but
        ]
        for ref, name in named:
            refusal = errors.CloudError(f"Octavia does not take {ref}: {text[:300]}")
            self._hold(name, refusal, self._patience.refused)
        return bool(named)

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
                del known[ref]
        if problem is not None:
            raise problem

    def _prefix_of(self, certificate: Certificate | Authority) -> str:
        """Return what the names of all secrets for the same names, of one source, begin with."""
        names = certificate.shown_for if isinstance(certificate, Certificate) else ()
        digest = hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()
        return f"{self._prefix}{certificate.source}:{digest[:16]}:"

    def _name_of(self, certificate: Certificate | Authority) -> str:
        return f"{self._prefix_of(certificate)}{certificate.digest}"

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

    def _refused(self, name: str, error: errors.CloudError, begun: float) -> errors.CloudError:
        """Hold a secret that Barbican has not stored; return why.

        If that is not for its sake, none is stored for as long as the answer has taken, at least:
        who waits for it keeps all others waiting. Then another one has its turn.

        :param begun: when it was to be stored.
        :raises errors.CloudError: it may pass at once, and nobody has to do without it.
        """
        if error.is_of_request:
            return self._hold(name, error, self._patience.refused)
        if not self._is_failing:
            self._is_failing = True
            raise error
        now = self._clock.now()
        pause = max(self._patience.refused, now - begun)
        self._pause = now + pause, error
        return self._hold(name, error, 2 * pause)

    def _keep_former(
        self,
        wanted: Iterable[Certificate | Authority],
        stored: Stored,
        known: Mapping[str, str],
    ) -> None:
        """Add the secrets with the certificates, for the same names, that sources had before."""
        missing = {
            self._prefix_of(each): each.source for each in wanted if each.source not in stored.refs
        }
        if not missing:
            return
        for ref, name in known.items():  # the newest one counts
            source = missing.get(f"{name.rpartition(':')[0]}:")
            if source is not None and name not in self._held:
                stored.refs[source] = ref
                stored.outdated.add(source)

    def _hold(self, name: str, error: errors.CloudError, seconds: float) -> errors.CloudError:
        self._held[name] = self._clock.now() + seconds, error
        return error

    def _forget_others(self, names: Collection[str]) -> None:
        """Forget what was held of secrets that nobody wants any more."""
        self._held = {name: held for name, held in self._held.items() if name in names}

    def _failure_of(self, name: str, *, is_there: bool) -> errors.CloudError | None:
        """Return why a certificate was not stored a moment ago, or is not offered, if so."""
        now, held = self._clock.now(), self._held.get(name)
        if held is not None and now < held[0]:
            return held[1]
        self._held.pop(name, None)
        if self._pause is not None and not is_there and now < self._pause[0]:
            return self._pause[1]
        return None

    async def _list(self) -> dict[str, str]:
        """Return the secrets as listed just now; else ask for them, if Barbican is not away.

        :raises errors.CloudError: it does not answer. Who waits for it keeps all others waiting,
            so it is left alone for as long as it has taken, at least.
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
                self._outage = now + max(self._patience.refused, now - begun), error
                raise
            self._listed = self._clock.now()
            self._known = {
                each.ref: each.name for each in listed if each.name.startswith(self._prefix)
            }
        return self._known


def _by_name(known: Mapping[str, str]) -> dict[str, str]:
    """Return secrets by their names; of several, as after a lost answer, always the same."""
    found: dict[str, str] = {}
    for ref, name in known.items():
        found[name] = min(found.get(name, ref), ref)
    return found
