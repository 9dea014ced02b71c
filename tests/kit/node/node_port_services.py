"""A cache of Services as nodes see them."""

import asyncio

from kuryr_k8s.model.node_port import ServiceAtNodes


class Services:
    """One Service with these node ports."""

    def __init__(self, node_ports=(), *, name="web", health_check_port=None):
        self._found = {}
        self.synced = asyncio.Event()
        self.synced.set()
        self.put(node_ports, name=name, health_check_port=health_check_port)

    def put(self, node_ports, *, name="web", health_check_port=None):
        self._found[name] = ServiceAtNodes(
            namespace="default",
            name=name,
            uid=f"uid of {name}",
            resource_version="1",
            node_ports=tuple(node_ports),
            health_check_port=health_check_port,
        )

    def clear(self):
        self._found.clear()

    def subscribe(self, subscriber):
        pass

    def values(self):
        return iter(tuple(self._found.values()))
