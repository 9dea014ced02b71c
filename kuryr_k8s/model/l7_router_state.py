"""State of an L7 router, as an annotation of Nodes shows it."""

import ipaddress
import json
from typing import Any

from kuryr_k8s.model.codec import model
from kuryr_k8s.model.lbaas import KuryrObject, LBaaSLoadBalancer

DATA, VERSION = "versioned_object.data", "versioned_object.version"
YOUNGER = ("provider", "security_groups")  # fields that LBaaSLoadBalancer 1.0 does not have


@model
class L7RouterState(KuryrObject):
    """An L7 router: its floating IP, and its load balancer as LBaaSLoadBalancer 1.0."""

    fip: str | None = None
    router_lb: LBaaSLoadBalancer

    def to_json(self) -> dict[str, Any]:
        """Encode the state."""
        encoded = super(L7RouterState, self).to_json()  # noqa: UP008 - slots make another class
        shown = encoded[DATA]["router_lb"]
        shown[VERSION] = "1.0"
        for name in YOUNGER:
            shown[DATA].pop(name, None)
        return encoded

    def to_text(self) -> str:
        """Return the text of the annotation."""
        return json.dumps(self.to_json(), sort_keys=True)


def vip_address_in(text: str) -> str | None:
    """Return the address of the VIP in the text of an annotation, which others may have written.

    :returns: None if there is none that can be read.
    """
    try:
        address = json.loads(text)[DATA]["router_lb"][DATA]["ip"]
        return str(ipaddress.IPv4Address(address))
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
