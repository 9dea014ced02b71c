"""Routes of an L7 router: which requests go where, whatever kind of object says so.

Of several routes that match a request the most specific one serves it (Kubernetes, Ingress, «Path
types» and «Hostname wildcards»; Gateway API, HTTPRouteRule): an exact host before a wildcard, and
both before none; then an exact path before prefixes, and the longest prefix first; then the
oldest route; then the first one by name.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:  # they know hosts, which are here
    from kuryr_k8s.model.authority import Authority
    from kuryr_k8s.model.certificate import Certificate, UnusableCertificate


PERMANENT_REDIRECT = 308  # the client repeats its request with the same method
# the router that the options of this group describe; L7Routers cannot have such a name
OWN_ROUTER = "[l7_router]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """Paths of requests: one alone, or all that begin with the same elements.

    :param elements: what stands between slashes; of a prefix without an empty last one.
    """

    elements: tuple[str, ...]
    is_exact: bool

    @classmethod
    def exact(cls, text: str) -> Self:
        """Return the path that is just this text."""
        return cls(elements=_elements(text), is_exact=True)

    @classmethod
    def prefix(cls, text: str) -> Self:
        """Return the paths that begin with the elements of this text.

        An empty text, and ``/``, are the beginning of all paths. A last slash does not count.
        """
        elements = _elements(text)
        return cls(elements=elements[:-1] if elements[-1] == "" else elements, is_exact=False)

    @property
    def is_any(self) -> bool:
        """True if every path belongs to it."""
        return not (self.is_exact or self.elements)

    def covers(self, other: Self) -> bool:
        """Return whether all paths of the other one belong to it."""
        if self.is_exact:
            return self == other
        return other.elements[: len(self.elements)] == self.elements

    def meets(self, other: Self) -> bool:
        """Return whether any path belongs to both."""
        return self.covers(other) or other.covers(self)


def _elements(text: str) -> tuple[str, ...]:
    return tuple(text.removeprefix("/").split("/"))


@dataclass(frozen=True, slots=True)
class Host:
    """Hosts of requests: one, all with one more label before a suffix (``*.``), or any (empty)."""

    name: str

    @property
    def is_any(self) -> bool:
        """True if every host belongs to it."""
        return not self.name

    @property
    def is_wildcard(self) -> bool:
        """True if its first label may be any label."""
        return self.name.startswith("*.")

    @property
    def domain(self) -> str:
        """The name of the host without its first label."""
        return self.name.partition(".")[2]

    @property
    def rank(self) -> int:
        """How specific the host is: the lower, the more specific."""
        return 2 if self.is_any else int(self.is_wildcard)

    def covers(self, other: Self) -> bool:
        """Return whether all hosts of the other one belong to it."""
        if self == other or self.is_any:
            return True
        return self.is_wildcard and not other.is_any and self.domain == other.domain


@dataclass(frozen=True, slots=True)
class Forward:
    """Pass requests on to a pool."""

    pool: str


@dataclass(frozen=True, slots=True)
class Redirect:
    """Send clients elsewhere.

    :param prefix: of the URL, before the path that the client has asked for.
    :param code: the HTTP status: 301, 302, 303, 307 or 308.
    """

    prefix: str
    code: int


@dataclass(frozen=True, slots=True)
class Reject:
    """Answer requests with the HTTP status 403."""


Action = Forward | Redirect | Reject


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Define what the router does with requests to a host and a path.

    :param name: tells it from all others.
    :param namespace: of its object.
    :param created: when its object was created (RFC 3339).
    :param certificate: the source of the certificate with which it is served; empty for none.
    """

    name: str
    host: Host
    path: Path
    action: Action
    namespace: str = ""
    created: str = ""
    certificate: str = ""

    @property
    def precedence(self) -> tuple[object, ...]:
        """Sort key of the route: the most specific route first, then the oldest one."""
        return (
            self.host.rank,
            -len(self.host.name),
            self.host.name,
            not self.path.is_exact,
            -len(self.path.elements),
            self.path.elements,
            self.created,
            self.name,
        )


@dataclass(frozen=True, slots=True, order=True)
class Backend:
    """A port of a Service, to which requests are passed on.

    :param port: its name or its number, as text.
    :param by_cookie: a client stays with a Pod, by a cookie.
    :param is_of_pods: the port's number is that of the Pods, and no port is the first one.
    :param over_tls: the Pods get requests over TLS; nobody verifies their certificates.
    """

    namespace: str
    service: str
    port: str
    by_cookie: bool = False
    is_of_pods: bool = False
    over_tls: bool = False

    def __str__(self) -> str:
        """Return the name of its pool."""
        how = " over TLS" if self.over_tls else ""
        affinity = " by cookie" if self.by_cookie else ""
        return f"{self.namespace}/{self.service}:{self.port}{how}{affinity}"

    @property
    def parts(self) -> tuple["Backend", ...]:
        """The Services' ports whose Pods are members of the pool."""
        return (self,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Ports of several Services, each with its share of the requests.

    :param name: of the pool.
    :param shares: the ports, and their weights: the share is the weight by the sum of weights.
    :param algorithm: of Octavia's pool.
    :param by_cookie: a client stays with a Pod, by a cookie.
    :param authority: the Pods get requests over TLS, and have certificates by this CA; None: they
        get them in plain HTTP.
    """

    name: str
    shares: tuple[tuple[Backend, int], ...]
    algorithm: str
    by_cookie: bool = False
    authority: "Authority | None" = None

    def __str__(self) -> str:
        """Return the name of its pool."""
        return self.name

    @property
    def parts(self) -> tuple[Backend, ...]:
        """The Services' ports whose Pods are members of the pool."""
        return tuple(backend for backend, _ in self.shares)


@dataclass(frozen=True, slots=True, order=True)
class SecretName:
    """The name of a Secret with a certificate."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return what users call it."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing of a claim can be had.

    :param reason: one CamelCase word.
    :param message: in words for users.
    """

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """List the routes that one object claims of an L7 router.

    :param kind: of the object, like ``namespace``, ``name`` and ``uid``.
    :param router: the name of the L7Router, or ``OWN_ROUTER``.
    :param created: when it was created (RFC 3339).
    :param backends: the Services' ports to which its routes lead.
    :param secured: hosts of its routes that are to be served over TLS, and the certificate of
        each, the Secret with it, or why it cannot be used; None for the router's own one.
    :param is_plain_too: such hosts are served in plain HTTP as well, instead of leading there.
    :param redirect: the HTTP status by which requests in plain HTTP lead there; None: they are
        answered with 403.
    :param is_of_namespace: its hosts are to belong to its namespace alone.
    :param version: of what is claimed: another one if that has changed, in this process.
    :param refusal: why it has no routes.
    :param problems: what of it cannot be done, in words for users.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    router: str = OWN_ROUTER
    created: str = ""
    routes: tuple[Route, ...] = ()
    backends: tuple[Backend | Split, ...] = ()
    secured: "tuple[tuple[Host, SecretName | Certificate | UnusableCertificate | None], ...]" = ()
    is_plain_too: bool = False
    redirect: int | None = PERMANENT_REDIRECT
    is_of_namespace: bool = False
    version: int = 0
    refusal: Refusal | None = None
    problems: tuple[str, ...] = ()

    @property
    def age(self) -> tuple[str, str]:
        """Sort key of the claim: the oldest first; of one second in the order of their routes."""
        return self.created, f"{self.kind} {self.namespace}/{self.name} "
