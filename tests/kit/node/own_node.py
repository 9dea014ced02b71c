"""The daemon's own Node, its Events, and the way to the API server."""

from kuryr_k8s.cni.node.own_node import OwnNode
from kuryr_k8s.k8s.resources import Key


class Nodes:
    """The daemon's own Node, reported whenever it changes."""

    def __init__(self, key: Key):
        self._key = key
        self._node = None
        self._subscribers = []

    def get(self, key):
        return self._node if key == self._key else None

    def subscribe(self, subscriber):
        self._subscribers.append(subscriber)

    def put(self, interface=None, *, uid="uid-1"):
        """Report the Node with this annotation."""
        self._node = OwnNode(
            uid=uid,
            interface=interface.to_json() if hasattr(interface, "to_json") else interface,
        )
        for subscriber in self._subscribers:
            subscriber(self._key)


class Api:
    """An API server at one address, which takes Events."""

    def __init__(self, server="https://198.18.0.1:6443"):
        self.server = server
        self.events = []

    async def way(self):
        return (self.server,)

    async def create(self, _resource, body):
        self.events.append((body["reason"], body["note"]))
        return body
