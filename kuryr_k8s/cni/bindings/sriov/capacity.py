"""The VFs that the daemon offers itself, in the capacity of its Node.

No device plugin can offer the resource's old name: the kubelet takes none with ``kubernetes.io``
in its domain. The scheduler counts it as it counts any other, and the kubelet keeps it.
"""

from collections.abc import Mapping, Sequence

from kuryr_k8s.cni.bindings.sriov.cards import Cards
from kuryr_k8s.cni.parts import Loop
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.k8s.api import KubeApi
from kuryr_k8s.k8s.resources import NODES, Key
from kuryr_k8s.model.annotations import OPAQUE_VFS

INTERVAL = 60.0  # seconds between two looks: somebody may have made VFs, or the Node anew
SOON = 5.0  # seconds until a Node is looked at again of which the kubelet has not said anything


class Capacity:
    """Keeps the numbers of VFs in the capacity of the Node true.

    :param offered: the card behind each physical network.
    """

    def __init__(self, api: KubeApi, node: Key, cards: Cards, offered: Mapping[str, str]) -> None:
        self._api = api
        self._node = node
        self._cards = cards
        self._offered = offered
        self._controller = Controller("sriov-capacity", self.reconcile, workers=1)
        self._controller.queue.add(node)

    def loops(self) -> Sequence[Loop]:
        """Return the loop; where nothing is offered any more, something may still be there."""
        return [self._controller]

    async def reconcile(self, key: Key) -> float:
        """Compare the numbers with the cards.

        :returns: seconds until the next look.
        """
        node = await self._api.find(NODES, key)
        capacity = ((node or {}).get("status") or {}).get("capacity")
        if not capacity:
            return SOON
        wanted = {
            f"{OPAQUE_VFS}{physnet}": str(len(self._cards.of(card)))
            for physnet, card in self._offered.items()
        }
        present = {name: count for name, count in capacity.items() if name.startswith(OPAQUE_VFS)}
        if present != wanted:
            gone = dict.fromkeys(present.keys() - wanted.keys())
            patch = {"status": {"capacity": wanted | gone}}
            await self._api.merge_patch(NODES, key, patch, subresource="status")
        return INTERVAL
