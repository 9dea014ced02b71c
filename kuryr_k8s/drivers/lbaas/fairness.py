"""Order in which the policies of different users are changed. Pure.

Octavia takes one change of a load balancer after the other, for a second or more each. So the
namespace that waits for the fewest comes first: whoever wants a thousand hosts at once holds up
nobody else. What takes requests to one host keeps its order, and what takes those to many hosts
comes after what is for any of these.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable

from kuryr_k8s.model.load_balancer import L7Policy
from kuryr_k8s.model.routes import Host

Turn = tuple[int, int, str]
ANY_HOST = Host("")


def turns(policies: Collection[L7Policy]) -> dict[str, Turn]:
    """Return when the policies for each host are changed: the host with the least turn first.

    :param policies: all that are to be changed, or are to go.
    """
    waiting = Counter(each.namespace for each in policies)
    fewest: dict[Host, int] = {}
    for each in policies:
        host, count = Host(each.host), waiting[each.namespace]
        fewest[host] = min(fewest.get(host, count), count)
    most: defaultdict[str, int] = defaultdict(int)  # by domain
    for host, count in fewest.items():
        if not host.is_any:
            most[host.domain] = max(most[host.domain], count)
    last = max(fewest.values(), default=0)
    found: dict[str, Turn] = {}
    for host, count in fewest.items():
        if host.is_any:
            count = last
        elif host.is_wildcard:
            count = most[host.domain]
        found[host.name] = count, host.rank, host.name
    return found


def namespace_of(policy: L7Policy) -> str:
    """Return the namespace whose users wanted a policy, by its name; empty if it tells none."""
    owner = policy.name.split(" ", 2)[1:2]
    return owner[0].partition("/")[0] if owner and "/" in owner[0] else ""


class Hosts:
    """Hosts, to be compared with others."""

    def __init__(self, hosts: Iterable[Host]) -> None:
        self._hosts = frozenset(hosts)
        self._domains = frozenset(
            host.domain for host in self._hosts if not (host.is_any or host.is_wildcard)
        )

    def concern(self, host: Host) -> bool:
        """Return whether any of them is a host, covers it, or is covered by it."""
        return host in self._hosts or self.touch(host)

    def touch(self, host: Host) -> bool:
        """Return whether another one of them covers a host, or is covered by it."""
        if host.is_any:
            return bool(self._hosts - {host})
        if ANY_HOST in self._hosts:
            return True
        if host.is_wildcard:
            return host.domain in self._domains
        return Host(f"*.{host.domain}") in self._hosts
