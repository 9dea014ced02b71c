"""Plan the policies of a listener by which Octavia does what its routes say. Pure.

Octavia's rules of a policy must all match, each possibly inverted. Its policies are looked at in
the order REJECT, then redirects, then pools, whatever their positions are, and in the order of
their positions among each of these (``octavia/common/jinja/haproxy``). So a redirect would come
before a pool of a more specific route: it is told which requests not to take. There is no OR among
rules: where that takes several rules, the route has a policy for each of the hosts concerned.

No pool is a default pool: what takes all requests that no other route takes has a policy as well,
and may be the same on several listeners, which Octavia would not let share a default pool.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
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
    before = _Routes()
    for route in known.values():
        if route.name in refused:
            continue
        made = list(_policies(route, before.late(route)))
        if any(len(policy.rules) > MOST_RULES for policy in made):
            refused[route.name] = (
                f"it would need more than {MOST_RULES} rules to leave requests to other routes"
            )
            continue
        policies += made
        of_routes[route.name] = tuple(made)
        before.add(route)
    policies.sort(key=lambda policy: TURNS.index(policy.action))
    return Plan(policies=tuple(policies), of_routes=of_routes, refused=refused)


class _Routes:
    """Routes that come before others, by their hosts."""

    def __init__(self) -> None:
        self._by_host: defaultdict[Host, list[Route]] = defaultdict(list)
        self._by_domain: defaultdict[str, list[Host]] = defaultdict(list)

    def add(self, route: Route) -> None:
        """Add one."""
        if route.host not in self._by_host:
            self._by_domain[route.host.domain].append(route.host)
        self._by_host[route.host].append(route)

    def late(self, route: Route) -> list[Route]:
        """Return those that have requests in common with a route, and whose turn is after its."""
        turn = _turn(route)
        if turn == len(TURNS) - 1:
            return []
        hosts: Iterable[Host] = (route.host,)
        if route.host.is_any:
            hosts = self._by_host
        elif route.host.is_wildcard:
            hosts = self._by_domain.get(route.host.domain, ())
        return [
            other
            for host in hosts
            for other in self._by_host.get(host, ())
            if _turn(other) > turn and route.path.meets(other.path)
        ]


def _turn(route: Route) -> int:
    """Return when Octavia looks at the policies of a route."""
    return TURNS.index(ACTIONS[type(route.action)])


def _policies(route: Route, late: Sequence[Route]) -> Iterator[L7Policy]:
    """Yield the policies for a route.

    :param late: the routes that are more specific, and whose turn is later.
    """
    hosts = dict.fromkeys([route.host, *(other.host for other in late)])
    for host in hosts:
        paths = [other.path for other in late if other.host.covers(host)]
        if any(path.covers(route.path) for path in paths):
            continue  # they take all requests to it
        within = [each for each in hosts if each != host and host.covers(each)]
        # of two of these, one is within the other only if that is a wildcard
        wildcards = [each for each in within if each.is_wildcard]
        outermost = [
            each
            for each in within
            if not any(other != each and other.covers(each) for other in wildcards)
        ]
        rules = (
            *_rules(host, route.path),
            *(rule for each in outermost for rule in _host_rules(each, invert=True)),
            *(rule for path in paths for rule in _path_rules(path, invert=True)),
        )
        yield _policy(route, rules or (ANYTHING,))
        if len(rules) > MOST_RULES:
            return  # it cannot be had: the rest of it does not matter


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
