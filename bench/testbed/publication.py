"""Places where controllers publish the state of a Service's load balancer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kuryr_k8s.model.annotations import LBAAS_STATE, LBAAS_STATE_CUT

Json = dict[str, Any]


@dataclass(frozen=True)
class Publication:
    """A kind of object that has the names of the Services.

    `members` counts the members in the published state of an object; None if there is no state.
    """

    resource: str
    members: Callable[[Json], int | None]

    def path(self, namespace: str) -> str:
        """Return the path of the objects of a namespace."""
        group, _, plural = self.resource.rpartition("/")
        return f"{group}/namespaces/{namespace}/{plural}"


def _in_annotation(endpoints: Json) -> int | None:
    annotations = endpoints["metadata"].get("annotations") or {}
    if cut := annotations.get(LBAAS_STATE_CUT):  # "460 of 5000"
        return int(cut.rpartition(" ")[2])
    text = annotations.get(LBAAS_STATE)
    return len(json.loads(text)["versioned_object.data"]["members"]) if text else None


def _in_status(load_balancer: Json) -> int | None:
    status = load_balancer.get("status") or {}
    return len(status["members"]) if "members" in status else None


ANNOTATION = Publication("/api/v1/endpoints", _in_annotation)
STATUS = Publication("/apis/openstack.org/v1/kuryrloadbalancers", _in_status)
