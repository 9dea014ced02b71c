"""The PCI addresses of devices that ResourceClaims gave: ``resource.k8s.io/v1``.

The kubelet names a Pod's claims only. A claim names its devices by driver, pool and name; what a
device is, its driver says in the ResourceSlices of the node.
"""

from collections.abc import Iterable
from typing import Any

from kuryr_k8s.k8s.api import KubeApi
from kuryr_k8s.k8s.resources import RESOURCECLAIMS, RESOURCESLICES, Key
from kuryr_k8s.model import resource_claim
from kuryr_k8s.model.resource_claim import AllocatedDevice

# attributes in which drivers tell a device's PCI address, the standard one first
ADDRESSES = ("resource.kubernetes.io/pciBusID", "k8s.cni.cncf.io/deviceID")


async def devices_of(api: KubeApi, claims: Iterable[Key]) -> list[AllocatedDevice]:
    """Return the devices of ResourceClaims."""
    found = []
    for key in claims:
        if (claim := await api.find(RESOURCECLAIMS, key)) is not None:
            found += resource_claim.allocated(claim)
    return found


async def pci_slots(
    api: KubeApi, node: Key, devices: Iterable[AllocatedDevice]
) -> dict[AllocatedDevice, str]:
    """Return the PCI addresses of devices, as far as the node's ResourceSlices tell them."""
    known = {}
    selectors = {"fieldSelector": f"spec.nodeName={node.name}"}
    async for items, _version in api.list_pages(RESOURCESLICES, selectors):
        for item in items:
            spec = item["spec"]
            for device in spec.get("devices") or ():
                place = spec["driver"], spec["pool"]["name"], device["name"]
                known[place] = _pci_slot(device)
    slots = {each: known.get((each.driver, each.pool, each.name), "") for each in devices}
    return {each: slot for each, slot in slots.items() if slot}


def _pci_slot(device: dict[str, Any]) -> str:
    attributes = device.get("attributes") or {}
    told = (attributes.get(name, {}).get("string", "") for name in ADDRESSES)
    return next(filter(None, told), "")
