"""Conditions in the statuses of objects of ours."""

from datetime import UTC, datetime

from kuryr_k8s import errors
from kuryr_k8s.model.condition import Condition

LONGEST_MESSAGE = 1000  # characters


def new_condition(generation: int, reason: str, message: str = "") -> Condition:
    """Return a condition that is true since now, or false if it has a message.

    :param generation: of the specification that it is about.
    """
    return Condition(
        is_true=not message,
        reason=reason,
        message=message[:LONGEST_MESSAGE],
        since=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        generation=generation,
    )


def refused_condition(generation: int, error: errors.KuryrError) -> Condition:
    """Return a condition that is false since now, and says why in the words of an error.

    :param generation: of the specification that it is about.
    """
    message = getattr(error, "brief", str(error)) or error.reason
    return new_condition(generation, error.reason, message)
