"""The Nodes by the hosts that their daemons have published, and those that share one."""

from collections import defaultdict
from collections.abc import Iterable

from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kuryr_k8s import errors
from kuryr_k8s.model.pod import Node


class HostShared(errors.Refused):
    """Another Node has published the same host and has its pools; ports of both are on it."""

    reason = "KuryrHostShared"


class Hosts(Collector):
    """Tells which Node has the pools of a host: the first one that was noted since the start.

    Two machines have one name in Neutron, or one machine has two Nodes. Which of the two cannot be
    told, so the Pods of both are served.
    """

    def __init__(self) -> None:
        self._nodes: defaultdict[str, dict[str, None]] = defaultdict(dict)  # in their order
        self._hosts: dict[str, str] = {}

    def note(self, name: str, node: Node | None) -> list[str]:
        """Note a Node as it is now.

        :returns: the other Nodes of the host that it had, if it has another one or none by now.
        """
        host = node.host_id if node is not None and not node.foreign else None
        before = self._hosts.get(name)
        if before == host:
            return []
        left: list[str] = []
        if before is not None:
            del self._hosts[name], self._nodes[before][name]
            left = list(self._nodes[before])
            if not left:
                del self._nodes[before]
        if host is not None:
            self._hosts[name] = host
            self._nodes[host][name] = None
        return left

    def check(self, name: str) -> None:
        """Check that no other Node has the pools of the Node's host.

        :raises HostShared: one has.
        """
        host = self._hosts.get(name)
        if host is None:
            return
        first = next(iter(self._nodes[host]))
        if first != name:
            raise HostShared(
                f"node {first} has published the same host, {host!r}: ports of both are bound to "
                "it. Give each machine a hostname of its own in Open vSwitch, or delete the Node "
                "that is out of use"
            )

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Count the Nodes that came second."""
        yield GaugeMetricFamily(
            "kuryr_shared_hosts",
            "Nodes that have published the same host as another Node, which has its pools",
            value=len(self._hosts) - len(self._nodes),
        )
