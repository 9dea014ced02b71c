"""Which of Kubernetes' end-to-end tests are asked of the lab, and which cannot pass, and why.

A reason is about the cluster of the lab or about Octavia, and stands in docs/services.md if users
meet it.
"""

from __future__ import annotations

CONFORMANCE = r"\[sig-network\].*\[Conformance\]"
MORE = (
    r"\[sig-network\] (Services|Networking Granular Checks|DNS|.*IPv6DualStack|LoadBalancers|"
    r"EndpointSlice|Service CIDRs|HostPort|Connectivity Pod Lifecycle)"
)
# Specs of clouds of others, of kube-proxy's own means, or of what the lab does not have.
NOT_ASKED = r"\[Disruptive\]|\[Slow\]|KubeProxy|NetworkPolicy|\[Feature:(SCTP|NetworkPolicy|Alpha)"
REASONS: dict[str, str] = {  # by a regular expression of the names of specs
    r"should be able to handle large requests: udp": (
        "provider ovn: the lab's Open vSwitch uses its userspace datapath, which passes fragments "
        "on one by one; only the first has the port that the load balancer asks for"
    ),
}
