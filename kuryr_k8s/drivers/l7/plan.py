"""Plan the policies of a listener by which Octavia does what its routes say. Pure.

Octavia's rules of a policy must all match, each possibly inverted. Its policies are looked at in
the order REJECT, then redirects, then pools, whatever their positions are, and in the order of
their positions among each of these (``octavia/common/jinja/haproxy``). So a redirect would come
before a pool of a more specific route: it is told which requests not to take. There is no OR among
rules: where that takes several rules, the route has a policy for each of the hosts concerned.

No pool is a default pool: what takes all requests that no other route takes has a policy as well,
and may be the same on several listeners, which Octavia would not let share a default pool.
"""

import bisect
import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kuryr_k8s.model.load_balancer import (
    REDIRECT_PREFIX,
    REDIRECT_TO_POOL,
    REJECT,
    TURNS,
    L7Policy,
    L7Rule,
)
from kuryr_k8s.model.routes import Action, Forward, Host, Path, Redirect, Reject, Route

LONGEST_VALUE = 255  # characters of a rule's value
LONGEST_NAME = 255
MOST_RULES = 50  # of a policy
HOST, PATH = "HOST_NAME", "PATH"
EQUAL_TO, REGEX, STARTS_WITH = "EQUAL_TO", "REGEX", "STARTS_WITH"
ACTIONS: dict[type[Action], str] = {
    Reject: REJECT,
    Redirect: REDIRECT_PREFIX,
    Forward: REDIRECT_TO_POOL,
}
# a policy without rules is passed over
ANYTHING = L7Rule(PATH, STARTS_WITH, "/")
_SENT = re.compile(r"[!-~]*")  # characters of which requests consist
_PLAIN = re.compile(r"[A-Za-z0-9/._~-]+")
_SPECIAL = re.compile(r"[][\\^$.|?*+(){}]")
# Octavia's template writes these as HTML does, or haproxy ends a word there
_UNSAFE = re.compile(r"""[&<>"'#`\s]""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The policies of a listener, in the order of their positions.

    Requests that none of them takes are answered with 503.

    :param of_routes: which of them are for a route, by its name.
    :param refused: why routes are left out, by their names.
    """

    policies: tuple[L7Policy, ...]
    of_routes: dict[str, tuple[L7Policy, ...]]
    refused: dict[str, str]


def plan(routes: Iterable[Route]) -> Plan:
    """Return the plan for the routes of a listener."""
    refused: dict[str, str] = {}
    known: dict[tuple[Host, Path], Route] = {}
    for route in sorted(routes, key=lambda each: each.precedence):
        first = known.setdefault((route.host, route.path), route)
        if first is not route:
            refused[route.name] = f"{first.name} has the same host and path, and comes first"
        elif not _SENT.fullmatch(route.host.name + "/".join(route.path.elements)):
            refused[route.name] = "host or path has characters that clients send percent-encoded"
        elif any(len(rule.value) > LONGEST_VALUE for rule in _rules(route.host, route.path)):
            refused[route.name] = f"host or path is longer than {LONGEST_VALUE} characters"
    policies: list[L7Policy] = []
    of_routes: dict[str, tuple[L7Policy, ...]] = {}
    late = [_Late() for _ in TURNS]  # for each turn, the routes whose turn is after it
    for route in known.values():
        if route.name in refused:
            continue
        turn = _turn(route)
        made = _policies(route, late[turn])
        if made is None:
            refused[route.name] = (
                f"it would need more than {MOST_RULES} rules to leave requests to other routes"
            )
            continue
        policies += made
        of_routes[route.name] = tuple(made)
        for each in late[:turn]:
            each.add(route.host, route.path)
    policies.sort(key=lambda policy: TURNS.index(policy.action))
    return Plan(policies=tuple(policies), of_routes=of_routes, refused=refused)


def _turn(route: Route) -> int:
    """Return when Octavia looks at the policies of a route."""
    return TURNS.index(ACTIONS[type(route.action)])


class _Late:
    """Requests that a route leaves to others, which are more specific, and whose turn is later.

    What a route needs is found by its path, however many others there are.
    """

    def __init__(self) -> None:
        self._paths: defaultdict[Host, _Paths] = defaultdict(_Paths)  # of just this host
        self._inner: defaultdict[Host, _Paths] = defaultdict(_Paths)  # of hosts within it

    def add(self, host: Host, path: Path) -> None:
        """Add requests, after all that are more specific."""
        self._paths[host].add(path, host)
        if not (host.is_any or host.is_wildcard):
            domain = Host(f"*.{host.domain}")
            self._inner[domain].add(path, host)
            host = domain
        if not host.is_any:
            self._inner[Host("")].add(path, host)

    def within(self, host: Host, path: Path) -> list[Path] | None:
        """Return which paths of a path are left to others on just this host.

        :returns: None for all of them.
        """
        found = self._paths.get(host)
        if found is None:
            return []
        return None if any(found.around(path)) else list(found.within(path))

    def inner(self, host: Host, path: Path) -> Iterator[Host]:
        """Yield the hosts within a host on which requests to a path are left to others.

        Of those of a domain, only its wildcard if it is one of them.
        """
        inner = self._inner.get(host)
        if inner is None:
            return
        for each in inner.hosts(path):
            if host.is_any and self.within(each, path) == []:
                yield from self.inner(each, path)  # its wildcard leaves nothing to others
            else:
                yield each


class _Paths:
    """Paths, and the hosts that have them."""

    def __init__(self) -> None:
        self._hosts: dict[Path, dict[Host, None]] = {}
        self._in_order: list[Path] = []

    def add(self, path: Path, host: Host) -> None:
        """Add a path of a host."""
        if path not in self._hosts:
            self._hosts[path] = {}
            bisect.insort(self._in_order, path, key=_place)
        self._hosts[path][host] = None

    def around(self, path: Path) -> Iterator[Path]:
        """Yield the paths that cover a path, the path itself included."""
        for length in range(len(path.elements) + 1):
            outer = Path(elements=path.elements[:length], is_exact=False)
            if outer in self._hosts:
                yield outer
        if path.is_exact and path in self._hosts:
            yield path

    def within(self, path: Path) -> Iterator[Path]:
        """Yield the paths that a path covers, but for itself."""
        if path.is_exact:
            return
        start = bisect.bisect_right(self._in_order, _place(path), key=_place)
        for inner in itertools.islice(self._in_order, start, None):
            if not path.covers(inner):
                return
            yield inner

    def hosts(self, path: Path) -> Iterator[Host]:
        """Yield each host that has a path in common with a path, once."""
        paths = itertools.chain(self.around(path), self.within(path))
        found = itertools.chain.from_iterable(self._hosts[each] for each in paths)
        seen: set[Host] = set()
        for host in found:
            if host not in seen:
                seen.add(host)
                yield host


def _place(path: Path) -> tuple[tuple[str, ...], bool]:
    """Return the sort key by which what a path covers comes next to it."""
    return path.elements, path.is_exact


def _outermost(paths: Iterable[Path]) -> list[Path]:
    """Return the paths that none of the others covers."""
    found: list[Path] = []
    for path in sorted(paths, key=_place):
        if not (found and found[-1].covers(path)):
            found.append(path)
    return found


def _policies(route: Route, late: _Late) -> list[L7Policy] | None:
    """Return the policies for a route; None if any would need too many rules.

    :param late: what it leaves to others.
    """
    made: list[L7Policy] = []
    for policy in _of_hosts(route, late, route.host, ()):
        if len(policy.rules) > MOST_RULES:
            return None
        made.append(policy)
    return made


def _of_hosts(route: Route, late: _Late, host: Host, left: Iterable[Path]) -> Iterator[L7Policy]:
    """Yield the policies by which a route takes requests to a host.

    :param left: the paths that the route leaves to others on wider hosts.
    """
    own = late.within(host, route.path)
    if own is None:
        return
    paths = _outermost([*left, *own])
    inner = list(itertools.islice(late.inner(host, route.path), MOST_RULES + 1))
    rules = (
        *_rules(host, route.path),
        *(rule for each in inner for rule in _host_rules(each, invert=True)),
        *(rule for path in paths[: MOST_RULES + 1] for rule in _path_rules(path, invert=True)),
    )
    yield _policy(route, rules or (ANYTHING,))
    for each in inner:
        yield from _of_hosts(route, late, each, paths)


def _policy(route: Route, rules: Iterable[L7Rule]) -> L7Policy:
    action = route.action
    return L7Policy(
        name=route.name[:LONGEST_NAME],
        action=ACTIONS[type(action)],
        rules=tuple(dict.fromkeys(rules)),
        redirect_pool=action.pool if isinstance(action, Forward) else None,
        redirect_prefix=action.prefix if isinstance(action, Redirect) else None,
        redirect_http_code=action.code if isinstance(action, Redirect) else None,
    )


def _rules(host: Host, path: Path) -> tuple[L7Rule, ...]:
    return (*_host_rules(host), *_path_rules(path))


def _host_rules(host: Host, *, invert: bool = False) -> tuple[L7Rule, ...]:
    """Return the rule for a host; none if any will do.

    The header may name a port. Octavia's comparison ignores case.
    """
    if host.is_any:
        return ()
    name = f"[^.]+{_escaped(host.name[1:])}" if host.is_wildcard else _escaped(host.name)
    return (L7Rule(HOST, REGEX, f"^{name}(:[0-9]+)?$", invert),)


def _path_rules(path: Path, *, invert: bool = False) -> tuple[L7Rule, ...]:
    """Return the rule for a path; none if any will do."""
    if path.is_any:
        return ()
    text = "/" + "/".join(path.elements)
    if path.is_exact and _PLAIN.fullmatch(text):
        return (L7Rule(PATH, EQUAL_TO, text, invert),)
    if path.is_exact:
        return (L7Rule(PATH, REGEX, f"^{_escaped(text)}$", invert),)
    return (L7Rule(PATH, REGEX, f"^{_escaped(text)}(/.*)?$", invert),)


def _escaped(text: str) -> str:
    """Return a regular expression of haproxy (PCRE) for a text."""
    text = _SPECIAL.sub(r"\\\g<0>", text)
    return _UNSAFE.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
