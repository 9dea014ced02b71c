"""Plan the policies of a listener by which Octavia does what its routes say. Pure.

Octavia's rules of a policy must all match, each possibly inverted. Its policies are looked at in
the order REJECT, then redirects, then pools, whatever their positions are, and in the order of
their positions among each of these (``octavia/common/jinja/haproxy``). So a redirect would come
before a pool of a more specific route: it is told which requests not to take. There is no OR among
rules: where others have some of its paths on a host, the route has a policy for that host. Hosts
that it leaves to others are many in one regular expression.

No pool is a default pool: what takes all requests that no other route takes has a policy as well,
and may be the same on several listeners, which Octavia would not let share a default pool.
"""

import bisect
import itertools
import re
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from kuryr_k8s.model.l7_hosts import PORT, escaped, host_rules, pattern
from kuryr_k8s.model.load_balancer import (
    ANYTHING,
    EQUAL_TO,
    HOST_NAME,
    MOST_RULES,
    PATH,
    REDIRECT_PREFIX,
    REDIRECT_TO_POOL,
    REGEX,
    REJECT,
    TURNS,
    L7Policy,
    L7Rule,
)
from kuryr_k8s.model.routes import Action, Forward, Host, Path, Redirect, Reject, Route

LONGEST_VALUE = 255  # characters of a rule's value
LONGEST_NAME = 255
ACTIONS: dict[type[Action], str] = {
    Reject: REJECT,
    Redirect: REDIRECT_PREFIX,
    Forward: REDIRECT_TO_POOL,
}
GROUPS = (16, 32, 64, 128)  # hosts in a group: the first one counts that needs few rules
MOST_IN_GROUPS = MOST_RULES - 10  # others are for paths
ANY_HOST = Host("")
_SENT = re.compile(r"[!-~]*")  # characters of which requests consist
_PLAIN = re.compile(r"[A-Za-z0-9/._~-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The policies of a listener, in the order of their positions.

    Requests that none of them takes are answered with 503, as are those of a route that would
    need too many rules: it may be one that keeps them from a more general route.

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
            turn = len(TURNS)  # nobody gets its requests
        else:
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
        self._rules: dict[tuple[Host, Path], tuple[L7Rule, ...]] = {}

    def add(self, host: Host, path: Path) -> None:
        """Add requests, after all that are more specific."""
        domain = Host(f"*.{host.domain}")
        own, in_domain = self._paths[host], self._inner[domain]
        for inner in list(own.within(path)):
            own.discard(inner, host)
            in_domain.discard(inner, host)
        own.add(path, host)
        if host.is_any:
            return
        if not host.is_wildcard:
            in_domain.add(path, host)
        self._inner[ANY_HOST].add(path, domain)

    def paths(self, host: Host, path: Path) -> list[Path] | None:
        """Return which paths of a path are left to others on just this host.

        :returns: None for all of them.
        """
        found = self._paths.get(host, _NONE)
        return None if any(found.around(path)) else list(found.within(path))

    def hosts(self, host: Host, path: Path) -> Iterator[Host]:
        """Yield the hosts within a host on which only some paths of a path are left to others."""
        found = self._inner.get(host, _NONE)
        inner = (each for within in found.within(path) for each in found[within])
        for each in dict.fromkeys(inner):
            paths = self.paths(each, path)
            if paths:
                yield each
            elif paths is not None:  # a domain, of which only hosts have any
                yield from self.hosts(each, path)

    def rules(self, host: Host, path: Path) -> Iterator[L7Rule]:
        """Yield rules to leave those hosts within a host to others where they get all of a path.

        There are some for each path around it, so that routes with other paths share them.
        """
        # they stay true: what is within a host is more specific, so it has been added before
        for around in self._inner.get(host, _NONE).around(path):
            if (host, around) not in self._rules:
                self._rules[host, around] = tuple(_rules_without(host, self._with(host, around)))
            yield from self._rules[host, around]

    def _with(self, host: Host, path: Path) -> Iterator[Host]:
        """Yield the hosts within a host that have just this path, of domains the wildcard."""
        for inner in self._inner[host][path]:
            own = self._paths.get(inner)
            if own is None or not any(own.around(path)):  # a domain, of which only hosts have it
                yield from self._inner[inner][path]
            elif path in own:
                yield inner


class _Paths:
    """Paths, and the hosts that have them."""

    def __init__(self) -> None:
        self._hosts: dict[Path, dict[Host, None]] = {}
        self._in_order: list[Path] = []

    def __contains__(self, path: Path) -> bool:
        """Return whether any host has just this path."""
        return path in self._hosts

    def __getitem__(self, path: Path) -> Iterable[Host]:
        """Return the hosts that have just this path."""
        return self._hosts.get(path, ())

    def add(self, path: Path, host: Host) -> None:
        """Add a path of a host."""
        if path not in self._hosts:
            self._hosts[path] = {}
            bisect.insort(self._in_order, path, key=_place)
        self._hosts[path][host] = None

    def discard(self, path: Path, host: Host) -> None:
        """Remove a path of a host, if it is there."""
        hosts = self._hosts.get(path, {})
        hosts.pop(host, None)
        if path in self._hosts and not hosts:
            del self._hosts[path]
            del self._in_order[bisect.bisect_left(self._in_order, _place(path), key=_place)]

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


_NONE = _Paths()


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
    own = late.paths(host, route.path)
    if own is None:
        return
    paths = _outermost([*left, *own])
    hosts = list(late.hosts(host, route.path))
    rules = itertools.chain(
        _rules(host, route.path),
        late.rules(host, route.path),
        _rules_without(host, hosts),
        (rule for path in paths for rule in _path_rules(path, invert=True)),
    )
    # one more tells that there are too many
    yield _policy(route, host, tuple(itertools.islice(rules, MOST_RULES + 1)) or (ANYTHING,))
    for each in hosts:
        yield from _of_hosts(route, late, each, paths)


def _policy(route: Route, host: Host, rules: tuple[L7Rule, ...]) -> L7Policy:
    action = route.action
    return L7Policy(
        name=route.name[:LONGEST_NAME],
        action=ACTIONS[type(action)],
        rules=rules,
        redirect_pool=action.pool if isinstance(action, Forward) else None,
        redirect_prefix=action.prefix if isinstance(action, Redirect) else None,
        redirect_http_code=action.code if isinstance(action, Redirect) else None,
        host=host.name,
        namespace=route.namespace,
    )


def _rules(host: Host, path: Path) -> tuple[L7Rule, ...]:
    return (*host_rules(host), *_path_rules(path))


def _rules_without(host: Host, inner: Iterable[Host]) -> Iterator[L7Rule]:
    """Yield the rules by which a policy for a host leaves hosts within it to others.

    Each is for several of them.
    """
    domain = escaped(host.name[1:]) if host.is_wildcard else ""
    room = LONGEST_VALUE - len(f"^(){domain}{PORT}$")
    in_order = sorted(pattern(each).removesuffix(domain) for each in inner)
    held: list[list[str]] = []
    for size in (*GROUPS, len(in_order)):
        held = _packed(in_order, room, size) if in_order else []
        if len(held) <= MOST_IN_GROUPS:
            break
    for names in held:
        either = names[0] if len(names) == 1 else f"({'|'.join(names)})"
        yield L7Rule(HOST_NAME, REGEX, f"^{either}{domain}{PORT}$", invert=True)


def _packed(in_order: Collection[str], room: int, size: int) -> list[list[str]]:
    """Return lists of names, each of which can be one rule.

    The names are divided into groups of at most so many on average, a power of two of them, so
    that one name more or less changes the lists of its group alone.

    :param room: characters in a rule.
    """
    groups = 1 << ((len(in_order) - 1) // size).bit_length()
    divided: list[list[list[str]]] = [[] for _ in range(groups)]
    for name in in_order:
        held = divided[zlib.crc32(name.encode()) % groups]
        if held and len("|".join([*held[-1], name])) <= room:
            held[-1].append(name)
        else:
            held.append([name])
    return [names for held in divided for names in held]


def _path_rules(path: Path, *, invert: bool = False) -> tuple[L7Rule, ...]:
    """Return the rule for a path; none if any will do."""
    if path.is_any:
        return ()
    text = "/" + "/".join(path.elements)
    if path.is_exact and _PLAIN.fullmatch(text):
        return (L7Rule(PATH, EQUAL_TO, text, invert),)
    if path.is_exact:
        return (L7Rule(PATH, REGEX, f"^{escaped(text)}$", invert),)
    return (L7Rule(PATH, REGEX, f"^{escaped(text)}(/.*)?$", invert),)
