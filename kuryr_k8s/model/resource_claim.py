"""The devices of ResourceClaims (``resource.k8s.io/v1``): dynamic resource allocation."""

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatedDevice:
    """A device of a node that was allocated to a claim.

    :param device_class: the name of the DeviceClass that the claim asked for.
    :param driver: of the device, with ``pool`` and ``name`` its identity in ResourceSlices.
    """

    device_class: str
    driver: str
    pool: str
    name: str


def allocated(claim: Json) -> list[AllocatedDevice]:
    """Return the devices of a ResourceClaim, in the order of its allocation."""
    classes = _classes(claim["spec"].get("devices") or {})
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return [
        AllocatedDevice(
            device_class=classes.get(result["request"], ""),
            driver=result["driver"],
            pool=result["pool"],
            name=result["device"],
        )
        for result in (allocation.get("devices") or {}).get("results") or ()
    ]


def _classes(devices: Json) -> dict[str, str]:
    """Return the DeviceClass of each request; alternatives are called ``<request>/<name>``."""
    found = {}
    for request in devices.get("requests") or ():
        if exactly := request.get("exactly"):
            found[request["name"]] = exactly["deviceClassName"]
        for each in request.get("firstAvailable") or ():
            found[f"{request['name']}/{each['name']}"] = each["deviceClassName"]
    return found
