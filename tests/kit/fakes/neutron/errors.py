"""Neutron's errors with its own words; a client decides by `type` and status.

The same exception as the faults' is used, so that a dialled-in error looks like a real one.
"""

from __future__ import annotations

from typing import Any

from tests.kit.fakes.faults import Answer

_BY_STATUS = {
    400: ("HTTPBadRequest", "The request is bad."),
    403: ("PolicyNotAuthorized", "The request is disallowed by policy"),
    404: ("HTTPNotFound", "The resource could not be found."),
    409: ("Conflict", "The request conflicts with another one."),
    429: ("OverLimit", "This request was rate-limited."),
    500: (
        "HTTPInternalServerError",
        "Request Failed: internal server error while processing your request.",
    ),
    503: ("ServiceUnavailable", "The service is unavailable."),
}
# How the exception of "there is no such thing" is called, and what it says.
_MISSING = {
    "network": ("NetworkNotFound", "Network {} could not be found."),
    "subnet": ("SubnetNotFound", "Subnet {} could not be found."),
    "port": ("PortNotFound", "Port {} could not be found."),
    "security_group": ("SecurityGroupNotFound", "Security group {} does not exist"),
    "security_group_rule": ("SecurityGroupRuleNotFound", "Security group rule {} does not exist"),
    "policy": ("QosPolicyNotFound", "QoS policy {} could not be found."),
    "trunk": ("TrunkNotFound", "Trunk {} could not be found."),
    "router": ("RouterNotFound", "Router {} could not be found"),
    "floatingip": ("FloatingIPNotFound", "Floating IP {} could not be found"),
    "rbac_policy": ("RbacPolicyNotFound", "RBAC policy of type network with ID {} not found"),
}


def render(fault: Answer) -> dict[str, Any]:
    """The body of an error."""
    kind, message = _BY_STATUS.get(fault.status, ("NeutronException", "An unknown error."))
    error = {"type": fault.kind or kind, "message": fault.message or message, "detail": ""}
    return {"NeutronError": error}


def missing(kind: str, resource_id: str) -> Answer:
    """404 with the exception of the kind."""
    name, message = _MISSING[kind]
    return Answer(404, name, message.format(resource_id))


def hidden() -> Answer:
    """404 for what exists but is none of the user's business."""
    return Answer(404, "HTTPNotFound", "The resource could not be found.")


def malformed(message: str) -> Answer:
    """400 from the layer that reads requests."""
    return Answer(400, "HTTPBadRequest", message)


def invalid_input(message: str) -> Answer:
    """400 from the plugin."""
    return Answer(400, "InvalidInput", f"Invalid input for operation: {message}.")


def disallowed(*rules: str) -> Answer:
    """403 by policy."""
    named = " and ".join(f"rule:{rule}" for rule in rules)
    text = f"({named})" if len(rules) > 1 else named
    return Answer(403, "PolicyNotAuthorized", f"{text} is disallowed by policy")


def parent_in_use(port_id: str) -> Answer:
    """409 for a port that has, or is, a part in a trunk."""
    message = f"Port {port_id} is currently in use and is not eligible for use as a parent port."
    return Answer(409, "ParentPortInUse", message)


def not_admin(reason: str) -> Answer:
    """403 where no policy is asked."""
    return Answer(403, "AdminRequired", f"User does not have admin privileges: {reason}.")


def over_quota(resource: str) -> Answer:
    """409 when a project has all that it may have."""
    return Answer(409, "OverQuota", f"Quota exceeded for resources: ['{resource}'].")


def revision_mismatch(expected: int, current: int) -> Answer:
    """412 when If-Match names another revision."""
    detail = f"Constrained to {expected}, but current revision is {current}"
    return Answer(412, "RevisionNumberConstraintFailed", detail)


def not_automatic(address: str, subnet_id: str) -> Answer:
    """An address is asked for in a subnet where it follows from the MAC."""
    message = (
        f"IPv6 address {address} cannot be directly assigned to a port on subnet {subnet_id} as"
        " the subnet is configured for automatic addresses"
    )
    return Answer(400, "AllocationOnAutoAddressSubnet", message)
