"""Kinds of Services in front of a Deployment, on the fake cloud and on the lab."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kuryr_k8s.model.service_annotations import INTERNAL, LOAD_BALANCER_ID, PREFIX

Json = dict[str, Any]
FIRST, SECOND = "web", "second"  # Services, at ports 80 and 81


@dataclass(frozen=True)
class Kind:
    """A kind of Service.

    :param pools: their number in each of the load balancers.
    :param elsewhere: a further load balancer has its VIP in a subnet of Pods.
    :param shared: the load balancer also serves a second Service of the same Pods.
    """

    name: str
    pools: tuple[int, ...]
    spec: Json = field(default_factory=dict)
    elsewhere: bool = False
    shared: bool = False

    @property
    def families(self) -> tuple[str, ...]:
        """The families of its ClusterIPs."""
        return ("IPv4", "IPv6") if "ipFamilyPolicy" in self.spec else ("IPv4",)

    def first(self, pod_subnet: str) -> tuple[Json, dict[str, str]]:
        """Return the spec of the first Service, but for its ports, and its annotations."""
        annotations = {INTERNAL: "true"} if "type" in self.spec else {}
        if self.elsewhere:
            annotations[f"{PREFIX}subnet-id"] = pod_subnet
        return self.spec, annotations

    def second(self, load_balancer_id: str) -> tuple[Json, dict[str, str]]:
        """Return the same of the second Service, which is on this load balancer."""
        return self.spec, {INTERNAL: "true", LOAD_BALANCER_ID: load_balancer_id}


_OUTSIDE = {"type": "LoadBalancer"}
KINDS = {
    kind.name: kind
    for kind in (
        Kind("ClusterIP", (1,)),
        Kind("-external", (1, 1), _OUTSIDE, elsewhere=True),
        Kind("shared", (2, 1), _OUTSIDE, shared=True),
        Kind("dual-stack", (1, 1), {"ipFamilyPolicy": "RequireDualStack"}),
    )
}
