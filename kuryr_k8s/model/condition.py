"""Conditions in the statuses of NeutronPorts, NeutronPortPools and L7Routers."""

from dataclasses import dataclass, replace
from typing import Any, Self

Json = dict[str, Any]
READY = "Ready"  # the type of the condition that everything is as the specification says


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition: whether something of an object is as its specification says.

    :param since: when that was last otherwise (RFC 3339).
    :param generation: of the specification that it is about.
    """

    is_true: bool
    reason: str
    message: str
    since: str
    generation: int = 0

    @classmethod
    def read(cls, item: Json) -> Self:
        """Read a condition from the API's JSON."""
        return cls(
            is_true=item["status"] == "True",
            reason=item["reason"],
            message=item["message"],
            since=item["lastTransitionTime"],
            generation=item.get("observedGeneration") or 0,
        )

    def follows(self, before: "Condition | None") -> "Condition":
        """Return the condition with the time of the one before if it says the same."""
        is_same = before is not None and before.is_true == self.is_true
        return replace(self, since=before.since) if before is not None and is_same else self

    def says_more_than(self, before: "Condition | None") -> bool:
        """Return whether it is to be written: it is not the one before, but for the time."""
        return before is None or replace(self, since=before.since) != before

    def to_json(self, kind: str) -> Json:
        """Return it as an element of ``status.conditions``."""
        return {
            "type": kind,
            "status": str(self.is_true),
            "reason": self.reason,
            "message": self.message,
            "observedGeneration": self.generation,
            "lastTransitionTime": self.since,
        }
