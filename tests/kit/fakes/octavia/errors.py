"""Octavia's errors with its own words; a client decides by status and text."""

from __future__ import annotations

from typing import Any

from tests.kit.fakes.faults import Answer

_BY_STATUS = {
    400: "Validation failure: The request is bad.",
    403: "Policy does not allow this request to be performed.",
    404: "The resource could not be found.",
    409: "Load Balancer is immutable and cannot be updated.",
    500: "Internal Server Error",
    503: "Project busy.  Unable to lock the project.  Please try again.",
}
_OF_PECAN = "pecan"
_OF_WEBOB = "webob"


def render(fault: Answer) -> dict[str, Any]:
    """The body of an error."""
    code = "Client" if fault.status < 500 else "Server"
    text = fault.message or _BY_STATUS.get(fault.status, "An unknown error.")
    if fault.kind == _OF_PECAN:
        return {"code": fault.status, "title": "Bad Request", "description": text}
    if fault.kind == _OF_WEBOB:
        title = "Request Entity Too Large"
        return {"message": text, "code": f"{fault.status} {title}", "title": title}
    return {"faultcode": code, "faultstring": text, "debuginfo": None}


def missing(kind: str, resource_id: str) -> Answer:
    """404; the kind as Octavia says it, for example «Load Balancer»."""
    return Answer(404, message=f"{kind} {resource_id} not found.")


def missing_above(kind: str, resource_id: str) -> Answer:
    """404 for what the path leads through; the body is that of the framework beneath."""
    return Answer(404, _OF_PECAN, f"{kind} {resource_id} not found.")


def invalid(message: str) -> Answer:
    """400 from the code that knows what belongs together."""
    return Answer(400, message=f"Validation failure: {message}")


def bad_input(name: str, value: Any, reason: str) -> Answer:
    """400 from the layer that reads requests."""
    text = f"Invalid input for field/attribute {name}. Value: '{value}'. {reason}"
    return Answer(400, message=text)


def unknown(kind: str, name: str) -> Answer:
    """400 for an attribute that there is not, or not in this request."""
    return Answer(400, message=f"Unknown attribute for argument {kind}: {name}")


def forbidden() -> Answer:
    """403 by policy."""
    return Answer(403)


def too_large() -> Answer:
    """413 of oslo.middleware before Octavia, which does not fill in the number."""
    text = "Request is too large. Larger than max_request_body_size (%s).<br /><br />\n\n\n"
    return Answer(413, _OF_WEBOB, text)


def over_quota(kind: str) -> Answer:
    """403, which is no policy's."""
    return Answer(403, message=f"Quota has been met for resources: {kind}")


def immutable(kind: str, resource_id: str) -> Answer:
    """409 for a part, while anything of the load balancer is being changed."""
    return Answer(409, message=f"{kind} {resource_id} is immutable and cannot be updated.")


def pending(status: str, load_balancer_id: str) -> Answer:
    """409 for the load balancer itself."""
    text = f"Invalid state {status} of loadbalancer resource {load_balancer_id}"
    return Answer(409, message=text)


def unsupported(provider: str, reason: str) -> Answer:
    """501: the provider cannot do it."""
    text = f"Provider '{provider}' does not support a requested option: {reason}"
    return Answer(501, message=text)


def broken(provider: str, reason: str) -> Answer:
    """500: the provider met something that it did not expect."""
    return Answer(500, message=f"Provider '{provider}' reports error: {reason}")
