"""Network cards and their virtual functions (VFs), as sysfs shows them.

See Documentation/PCI/pci-iov-howto.rst of Linux. Interfaces under ``/sys/bus/pci/devices/<address>
/net`` are those of the node's own namespace: a VF that a Pod has shows none.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kuryr_k8s.model.device import PCI_SLOT

SYSFS = Path("/sys")
IFF_UP = 0x1
# Drivers that give a device to a program: no interface of the kernel's belongs to it.
USERSPACE = ("vfio-pci", "uio_pci_generic", "igb_uio")
_VIRTFN = re.compile(r"virtfn(\d+)")
_REPRESENTOR = re.compile(r"(c\d+)?pf\d+(vf|sf)\d+")  # phys_port_name of a VF's end on a switch


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualFunction:
    """A VF of a card.

    :param pci_slot: its PCI address.
    :param vendor_info: ids of vendor and product, such as ``8086:10ed``.
    :param card: the interface of the card (its physical function).
    :param number: its number on the card.
    :param driver: of the kernel; empty if none has it.
    :param ifname: its interface in the node's own namespace; empty if it has none there.
    """

    pci_slot: str
    vendor_info: str
    card: str
    number: int
    driver: str
    ifname: str

    @property
    def is_in_userspace(self) -> bool:
        """True if a program has it, or will: such as DPDK."""
        return self.driver in USERSPACE

    @property
    def is_home(self) -> bool:
        """True if no Pod has its interface."""
        return bool(self.ifname) or self.is_in_userspace


class Cards:
    """The cards of the node.

    :param sysfs: where it is mounted.
    """

    def __init__(self, sysfs: Path = SYSFS) -> None:
        self._devices = sysfs / "bus/pci/devices"
        self._interfaces = sysfs / "class/net"

    def find(self, pci_slot: str) -> VirtualFunction | None:
        """Return the VF at a PCI address; None if there is none."""
        if not PCI_SLOT.fullmatch(pci_slot):
            return None
        device = self._devices / pci_slot
        try:
            card = device / "physfn"
            number = self._number(card, pci_slot)
            (card_interface,) = _own_names(card / "net")[:1]
            vendor, product = (_hexadecimal(device / name) for name in ("vendor", "device"))
        except (OSError, ValueError):
            return None
        driver = device / "driver"
        return VirtualFunction(
            pci_slot=pci_slot,
            vendor_info=f"{vendor}:{product}",
            card=card_interface,
            number=number,
            driver=driver.resolve().name if driver.exists() else "",
            ifname=next(iter(_names(device / "net")), ""),
        )

    def of(self, card: str) -> list[VirtualFunction]:
        """List the VFs of a card by its interface, in the order of their numbers."""
        device = self._interfaces / card / "device"
        slots = [path.resolve().name for _, path in sorted(_virtfns(device))]
        found = (self.find(slot) for slot in slots)
        return [function for function in found if function is not None]

    def is_idle(self, function: VirtualFunction) -> bool:
        """Return whether a VF has an interface on the node that nobody has set up.

        Of one that a program drives nobody can tell.
        """
        if not function.ifname:
            return function.is_in_userspace
        interface = self._devices / function.pci_slot / "net" / function.ifname
        try:
            is_up = int((interface / "flags").read_text(), 16) & IFF_UP
        except OSError:
            return False  # it is going away
        return not (is_up or (interface / "master").exists())

    def _number(self, card: Path, pci_slot: str) -> int:
        """Return the number of a VF on its card.

        :raises ValueError: the card does not have it.
        """
        for number, path in _virtfns(card):
            if path.resolve().name == pci_slot:
                return number
        raise ValueError(pci_slot)


def _virtfns(card: Path) -> list[tuple[int, Path]]:
    found = ((_VIRTFN.fullmatch(path.name), path) for path in card.glob("virtfn*"))
    return [(int(match[1]), path) for match, path in found if match]


def _own_names(directory: Path) -> Sequence[str]:
    """Return the names of a card's own interfaces, without those that stand for VFs."""

    def port_name(name: str) -> str:
        try:
            return (directory / name / "phys_port_name").read_text().strip()
        except OSError:  # most drivers have none, and say so when it is read
            return ""

    return [name for name in _names(directory) if not _REPRESENTOR.fullmatch(port_name(name))]


def _names(directory: Path) -> Sequence[str]:
    return sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []


def _hexadecimal(path: Path) -> str:
    return path.read_text().strip().removeprefix("0x")
