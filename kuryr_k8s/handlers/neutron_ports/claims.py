"""IPAMClaims (``k8s.cni.cncf.io/v1alpha1``): what they say of the ports that were made for them.

Whoever runs the workload makes a claim and deletes it. We write its status: the addresses, the Pod
that has them, and whether there are any.
"""

import ipaddress
from datetime import UTC, datetime
from typing import Any

from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.k8s.resources import IPAMCLAIMS, Key
from kuryr_k8s.model.condition import Condition
from kuryr_k8s.model.neutronport import NeutronPort

Json = dict[str, Any]
ALLOCATED = "IPsAllocated"
# reasons of the condition, by those of ours
REASONS = {
    "KuryrAddressInUse": "IPAddressConflict",
    "OpenStackQuotaExceeded": "SubnetExhausted",
}


class Claims:
    """Writes the status of the IPAMClaims that have ports."""

    def __init__(self, context: HandlerContext) -> None:
        self._kube = context.kube
        self._written: dict[str, Json] = {}  # by the uids of claims

    async def tell(self, port: NeutronPort) -> None:
        """Write what is known of a claim's port, unless that is there.

        One that we have made bears the claim's name. Any other name is what a user has written,
        and may be none that an object can have.
        """
        if not port.claim_uid or port.claim != port.name:
            return
        wanted = _status_of(port)
        if self._written.get(port.claim_uid) == wanted:
            return
        key = Key(port.namespace, port.claim)
        live = await self._kube.find(IPAMCLAIMS, key)
        if live is not None and live["metadata"]["uid"] == port.claim_uid:
            status = _changes(wanted, live.get("status") or {})
            if status:
                patch = {"metadata": {"uid": port.claim_uid}, "status": status}
                await self._kube.merge_patch(IPAMCLAIMS, key, patch, subresource="status")
        self._written[port.claim_uid] = wanted

    def forget(self, port: NeutronPort) -> None:
        """Forget a claim whose port is gone."""
        self._written.pop(port.claim_uid, None)


def _status_of(port: NeutronPort) -> Json:
    """Return the status of a claim; without the times, and without what is not known."""
    lengths = dict(port.cidrs)
    ips = [
        f"{address}/{ipaddress.ip_network(lengths[subnet_id]).prefixlen}"
        for subnet_id, address in port.addresses
        if subnet_id in lengths
    ]
    status: Json = {"ownerPod": {"name": port.bound_to.name} if port.bound_to else None}
    if ips:
        status |= {"ips": ips, "condition": ("True", "SuccessfulAllocation", "")}
    elif port.ready is not None and not port.ready.is_true:
        reason = REASONS.get(port.ready.reason, "InternalError")
        status["condition"] = ("False", reason, port.ready.message)
    return status


def _changes(wanted: Json, found: Json) -> Json:
    """Return the fields of the status that differ."""
    changes: Json = {}
    if found.get("ownerPod") != wanted["ownerPod"]:
        changes["ownerPod"] = wanted["ownerPod"]
    if "ips" in wanted and sorted(wanted["ips"]) != sorted(found.get("ips") or ()):
        changes["ips"] = wanted["ips"]
    if "condition" in wanted:
        status, reason, message = wanted["condition"]
        others = [each for each in found.get("conditions") or () if each["type"] != ALLOCATED]
        known = [each for each in found.get("conditions") or () if each["type"] == ALLOCATED]
        shown = [(each["status"], each["reason"], each["message"]) for each in known]
        if shown != [wanted["condition"]]:
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            condition = Condition(
                is_true=status == "True", reason=reason, message=message, since=now
            )
            changes["conditions"] = [*others, condition.to_json(ALLOCATED)]
    return changes
