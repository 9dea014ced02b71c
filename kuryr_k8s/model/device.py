"""A device of a node that a Pod has, as the node's daemon describes it in the KuryrPort."""

import re
from dataclasses import dataclass
from typing import Any, Self

PCI_SLOT = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
VENDOR_INFO = re.compile("[0-9a-f]{4}:[0-9a-f]{4}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A virtual function (VF) of a network card.

    :param physnet: the physical network behind the card, by Neutron's name.
    :param pci_slot: its PCI address, such as ``0000:03:10.1``.
    :param pci_vendor_info: ids of vendor and product, such as ``8086:10ed``.
    """

    physnet: str
    pci_slot: str
    pci_vendor_info: str

    @classmethod
    def read(cls, fields: dict[str, Any]) -> Self | None:
        """Read a device from its JSON; None if it is none: a node can write anything."""
        slot, vendor = fields.get("pciSlot", ""), fields.get("pciVendorInfo", "")
        if not (PCI_SLOT.fullmatch(slot) and VENDOR_INFO.fullmatch(vendor)):
            return None
        return cls(physnet=fields.get("physnet", ""), pci_slot=slot, pci_vendor_info=vendor)

    def write(self) -> dict[str, str]:
        """Return the JSON that :meth:`read` reads."""
        return {
            "physnet": self.physnet,
            "pciSlot": self.pci_slot,
            "pciVendorInfo": self.pci_vendor_info,
        }

    @property
    def binding_profile(self) -> dict[str, str]:
        """Return Neutron's ``binding:profile`` of a port on the device."""
        return {
            "pci_slot": self.pci_slot,
            "pci_vendor_info": self.pci_vendor_info,
            "physical_network": self.physnet,
        }
