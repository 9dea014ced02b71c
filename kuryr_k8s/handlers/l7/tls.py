"""Divide routes between plain HTTP and TLS, by the certificates that there are. Pure.

What asks for TLS is never served in plain HTTP instead, and a host is never served with a
certificate that is not its own: where there is none, requests are answered with 403.

haproxy finds a certificate by its names, an exact one before a wildcard, and of two that have one
name it shows any. Therefore a name belongs to one namespace: that of the oldest object that has
it, as a host or in its certificate. Certificates of others that have the name are not used. In a
namespace the oldest object with a certificate for a host decides which one is shown for it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from kuryr_k8s.model.certificate import Certificate, UnusableCertificate
from kuryr_k8s.model.routes import Claim, Host, Path, Redirect, Reject, Route, SecretName

OPERATOR = ""  # to whom the names of the default certificate belong, instead of a namespace
INLINE = "inline certificate"
EVERY_PATH = Path.prefix("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """Routes, and the certificates with which some of them are served.

    :param certificates: the first one is shown to clients that ask for a name of none of them.
    :param closed: the names of routes that would be served over TLS, and have no certificate.
    :param problems: what of a claim cannot be done, in words for users, by its object's uid.
    :param default_problem: why the certificate of the router itself cannot be used, if so.
    """

    plain: tuple[Route, ...]
    secure: tuple[Route, ...] = ()
    certificates: tuple[Certificate, ...] = ()
    closed: frozenset[str] = frozenset()
    problems: Mapping[str, tuple[str, ...]]
    default_problem: str | None = None


def divide(
    claims: Iterable[Claim],
    certificate_of: Callable[[SecretName], Certificate],
    default: SecretName | None = None,
) -> Division:
    """Return what is served in plain HTTP and what over TLS.

    :param certificate_of: returns the certificate in a Secret, or raises
        :class:`UnusableCertificate`.
    :param default: the Secret for those who name none.
    """
    in_order = sorted(claims, key=lambda each: each.age)
    assignment = _Assignment(certificate_of, default)
    for claim in in_order:
        assignment.add(claim)
    assignment.settle()
    plain: list[Route] = []
    secure: list[Route] = []
    closed: set[str] = set()
    rejected: set[tuple[Host, Path]] = set()
    for claim in in_order:
        asking = {host for host, _ in claim.secured}
        for route in claim.routes:
            asks = route.host in asking
            certificate = assignment.shown.get(route.host)
            plain.append(
                _plain(route, certificate, claim.redirect, asks=asks and not claim.is_plain_too)
            )
            if certificate is not None:
                secure.append(replace(route, certificate=certificate.source))
            elif asks or assignment.is_covered(route.host):
                # one policy for all routes of a host; without a host, the paths of others,
                # as of the default backend, are left to them
                path = route.path if route.host.is_any else EVERY_PATH
                if (route.host, path) not in rejected:
                    rejected.add((route.host, path))
                    secure.append(replace(route, path=path, action=Reject()))
            if asks and certificate is None:
                closed.add(route.name)
    return Division(
        plain=tuple(plain),
        secure=tuple(secure),
        certificates=tuple(assignment.used.values()),
        closed=frozenset(closed),
        problems={uid: tuple(dict.fromkeys(each)) for uid, each in assignment.problems.items()},
        default_problem=assignment.default_problem,
    )


def without_tls(claims: Iterable[Claim]) -> Division:
    """Return what is served where the operator has not enabled TLS: everything in plain HTTP."""
    wanted = list(claims)
    told = "tls: it is not enabled ([l7_router] tls): the hosts are served in plain HTTP only"
    return Division(
        plain=tuple(route for claim in wanted for route in claim.routes),
        problems={claim.uid: (told,) for claim in wanted if claim.secured},
    )


def _plain(
    route: Route, certificate: Certificate | None, code: int | None, *, asks: bool
) -> Route:
    """Return the route for requests in plain HTTP.

    :param code: with which clients are led to TLS; None if they are not.
    :param asks: it is to be served over TLS alone.
    """
    if not asks:
        return route
    if certificate is None or code is None or not _is_one(route.host):
        return replace(route, action=Reject())
    return replace(route, action=Redirect(f"https://{route.host.name}", code))


def _is_one(host: Host) -> bool:
    return not (host.is_any or host.is_wildcard)


def _wider(host: Host) -> tuple[str, str]:
    """Return the names of the hosts that cover a host besides itself."""
    return f"*.{host.domain}", ""


@dataclass(frozen=True, slots=True)
class _Wish:
    """Hold a host of a claim, and the certificate with which it asks to be served."""

    claim: Claim
    host: Host
    certificate: Certificate


@dataclass(frozen=True, slots=True)
class _Holder:
    """Name who has the certificate for a name.

    :param owner: whose certificate it is, in words for users.
    """

    namespace: str
    owner: str
    certificate: Certificate


def _check_host(certificate: Certificate, host: Host, what: str) -> None:
    if not host.is_any and not certificate.is_for(host):
        raise UnusableCertificate(f"{what}: its certificate is not for {host.name}")


class _Assignment:
    """Certificates by the hosts for which they are shown.

    ``used`` has them by their Secrets, ``shown`` by hosts, ``problems`` by the objects' uids.
    """

    def __init__(
        self, certificate_of: Callable[[SecretName], Certificate], default: SecretName | None
    ) -> None:
        self.used: dict[str, Certificate] = {}
        self.shown: dict[Host, Certificate] = {}
        self.problems: defaultdict[str, list[str]] = defaultdict(list)
        self.default_problem: str | None = None
        self._of = certificate_of
        self._default = default
        self._wishes: list[_Wish] = []
        self._closed: set[Host] = set()  # asked for, and without a certificate
        self._holders: dict[str, str] = {}  # namespaces by the names that belong to them
        self._in_use: dict[str, _Holder] = {}  # by the names for which haproxy has certificates
        self._replaced: list[tuple[_Wish, _Holder]] = []  # whose certificate is shown instead
        if default is not None:
            try:
                self._use(_Holder(OPERATOR, "", certificate_of(default)))
            except UnusableCertificate as error:
                self.default_problem = f"Secret {default}: {error}"

    def add(self, claim: Claim) -> None:
        """Take the names of a claim, and its certificates, after those of older ones."""
        for route in claim.routes:
            self._holders.setdefault(route.host.name, claim.namespace)
        for host, secret in claim.secured:
            try:
                certificate = self._usable(claim.namespace, host, secret)
            except UnusableCertificate as error:
                self._close(claim, host, str(error))
            else:
                wish = _Wish(claim, host, certificate)
                if secret not in (None, self._default):
                    wish = self._chosen(wish)
                self._wishes.append(wish)

    def settle(self) -> None:
        """Show the certificates, but where haproxy would show another namespace's."""
        for wish in self._wishes:
            names = (wish.host.name, _wider(wish.host)[0])
            holders = (self._in_use[name].namespace for name in names if name in self._in_use)
            holder = next(holders, OPERATOR)
            if holder not in (OPERATOR, wish.claim.namespace) and not wish.host.is_any:
                self._close(
                    wish.claim,
                    wish.host,
                    f"{wish.host.name}: namespace {holder} has a certificate for it",
                )
                continue
            self.shown.setdefault(wish.host, wish.certificate)
            is_led = not wish.claim.is_plain_too and wish.claim.redirect is not None
            if is_led and not _is_one(wish.host):
                self.problems[wish.claim.uid].append(
                    f"tls: {wish.host.name or '*'}: requests in plain HTTP are answered with 403, "
                    "as Octavia can redirect to one host only"
                )

        for wish, older in self._replaced:
            self._report_replaced(wish, older.owner)

    def _chosen(self, wish: _Wish) -> _Wish:
        """Return the wish with the certificate of its namespace for the host, and use that."""
        claim, host, certificate = wish.claim, wish.host, wish.certificate
        holder = self._older(wish)
        if holder is None:
            owner = f"{claim.kind} {claim.namespace}/{claim.name}"
            self._use(_Holder(claim.namespace, owner, certificate))
            return wish
        if holder.certificate.digest != certificate.digest:
            self._replaced.append((wish, holder))
        return _Wish(claim, host, holder.certificate)

    def _older(self, wish: _Wish) -> _Holder | None:
        """Return who of the namespace has another certificate, which haproxy would prefer."""
        for name in (wish.host.name, _wider(wish.host)[0]):
            found = self._in_use.get(name)
            if found is not None and found.namespace == wish.claim.namespace:
                is_other = found.certificate.source != wish.certificate.source
                return found if is_other and found.certificate.is_for(wish.host) else None
            if name in wish.certificate.shown_for:
                return None
        return None

    def _report_replaced(self, wish: _Wish, owner: str) -> None:
        told = f"the certificate of {owner}, which came first, is shown instead"
        if wish.certificate.source in self.used:  # for another host
            told = f"{owner}, which came first, has another certificate: either may be shown"
        self.problems[wish.claim.uid].append(f"tls: {wish.host.name}: {told}")

    def is_covered(self, host: Host) -> bool:
        """Return whether a host without a certificate is to be closed over TLS.

        Else another host's route, which is served over TLS, would take requests for it.
        """
        return host in self._closed or any(Host(name) in self.shown for name in _wider(host))

    def _close(self, claim: Claim, host: Host, why: str) -> None:
        self.problems[claim.uid].append(f"tls: {why}")
        self._closed.add(host)

    def _use(self, holder: _Holder) -> None:
        self.used[holder.certificate.source] = holder.certificate
        for name in holder.certificate.shown_for:
            self._holders.setdefault(name, holder.namespace)
            self._in_use.setdefault(name, holder)

    def _usable(
        self,
        namespace: str,
        host: Host,
        secret: SecretName | Certificate | UnusableCertificate | None,
    ) -> Certificate:
        """Return the certificate for a host of a claim, if its names belong to the namespace."""
        if isinstance(secret, UnusableCertificate):
            raise UnusableCertificate(f"{INLINE}: {secret}")
        if isinstance(secret, Certificate):
            return self._of_namespace(namespace, host, secret, INLINE)
        named = secret or self._default
        if named is None:
            raise UnusableCertificate(
                f"{host.name or '*'}: no Secret is named, and the router has no default "
                "certificate"
            )
        try:
            certificate = self._of(named)
        except UnusableCertificate as error:
            raise UnusableCertificate(f"Secret {named}: {error}") from error
        if named == self._default:
            _check_host(certificate, host, f"Secret {named}")
            return certificate
        return self._of_namespace(namespace, host, certificate, f"Secret {named}")

    def _of_namespace(
        self, namespace: str, host: Host, certificate: Certificate, what: str
    ) -> Certificate:
        """Return the certificate, if it is for the host, and for no name of other namespaces.

        :param what: where it is, in words for users.
        """
        _check_host(certificate, host, what)
        for name, holder in self._of_others(certificate, namespace):
            whose = f"namespace {holder} has"
            if holder == OPERATOR:
                whose = "the router's default certificate is for"
            raise UnusableCertificate(f"{what}: {whose} {name}, and came first")
        return certificate

    def _of_others(self, certificate: Certificate, namespace: str) -> Iterator[tuple[str, str]]:
        """Yield the names of a certificate that belong to others, and to whom."""
        for name in sorted(certificate.shown_for):
            holder = self._holders.get(name, namespace)
            if holder != namespace:
                yield name, holder
