"""The reference bridge network on the nodes: pods without the product, and its yardstick."""

from __future__ import annotations

import json
from collections.abc import Iterable

from lab.host import wiring
from lab.paths import Paths, write_atomic
from lab.topology import Node

_FILE = "10-bridge.conflist"
_BRIDGE = "cni-bridge0"


def enable(paths: Paths, nodes: Iterable[Node]) -> None:
    """Configure every node; pods can start within seconds."""
    for node in nodes:
        ranges = [[{"subnet": node.bridge_v4}], [{"subnet": node.bridge_v6}]]
        routes = [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]
        data = str(paths.node(node.name).root / "cni" / "host-local")
        plugins = [
            {
                "type": "bridge",
                "bridge": _BRIDGE,
                "isGateway": True,
                "ipMasq": True,
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local",
                    "dataDir": data,
                    "ranges": ranges,
                    "routes": routes,
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ]
        conflist = {"cniVersion": "1.0.0", "name": "bridge", "plugins": plugins}
        write_atomic(paths.node(node.name).cni_conf / _FILE, json.dumps(conflist, indent=1))


def disable(paths: Paths, nodes: Iterable[Node]) -> None:
    """Remove the configuration; the bridge goes too when no pod is on it any more."""
    for node in nodes:
        (paths.node(node.name).cni_conf / _FILE).unlink(missing_ok=True)
        remove_bridge(node)


def remove_bridge(node: Node) -> None:
    """Delete the bridge device, if it is there."""
    if wiring.link_exists(_BRIDGE, node.netns):
        wiring.delete_link(_BRIDGE, node.netns)
