"""The VFs that the daemon offers itself (``[sriov] advertise``), and those that it gave out."""

from collections.abc import Callable, Collection, Mapping

from kuryr_k8s.cni.bindings.sriov.cards import Cards
from kuryr_k8s.k8s.informer import Informer
from kuryr_k8s.model.kuryrport import KuryrPort


class Offers:
    """Chooses VFs for Pods; a VF that was chosen once is its Pod's until the KuryrPort is gone.

    It remembers what it has chosen until the KuryrPort shows it: a request that names a VF may be
    carried out although its answer never comes.

    :param offered: the card behind each physical network.
    :param in_use: returns the PCI addresses of VFs that Pods have, or have not given back.
    """

    def __init__(
        self,
        offered: Mapping[str, str],
        cards: Cards,
        kuryrports: Informer[KuryrPort],
        in_use: Callable[[], Collection[str]],
    ) -> None:
        self._offered = offered
        self._cards = cards
        self._kuryrports = kuryrports
        self._in_use = in_use
        self._chosen: dict[str, set[str]] = {}  # PCI addresses by uids of KuryrPorts

    def choose(self, port: KuryrPort, physnet: str, taken: Collection[str]) -> str | None:
        """Choose a VF for a Pod.

        :param taken: VFs that the Pod has for other interfaces.
        :returns: the VF's PCI address; None if none is free.
        """
        card = self._offered.get(physnet)
        if card is None:
            return None
        others = self._others(port.uid) | set(taken) | set(self._in_use())
        for function in self._cards.of(card):
            if function.pci_slot not in others and self._cards.is_idle(function):
                self._chosen.setdefault(port.uid, set()).add(function.pci_slot)
                return function.pci_slot
        return None

    def _others(self, uid: str) -> set[str]:
        """Return the PCI addresses that other Pods have, or may have by now."""
        ports = {port.uid: port for port in self._kuryrports.values()}
        self._chosen = {
            each: slots
            for each, slots in self._chosen.items()
            if each in ports
            and not slots <= {device.pci_slot for _, device in ports[each].devices}
        }
        named = {
            device.pci_slot
            for each, port in ports.items()
            if each != uid
            for _, device in port.devices
        }
        remembered = (slots for each, slots in self._chosen.items() if each != uid)
        return named.union(*remembered)
