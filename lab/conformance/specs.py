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
# Specs whose goroutines go on after their end: they fail whatever runs in the same process.
APART = r"preserve UDP traffic when server pod cycles"
REASONS: dict[str, str] = {  # by a regular expression of the names of specs
    r"internalTrafficPolicy=Local": (
        "all nodes share one VIP: a load balancer does not know on which node a client is"
    ),
    r"externalTrafficPolicy=Local": (
        "node ports lead to the load balancer under either policy: Pods see the node's address, "
        "and a node without an endpoint answers as well"
    ),
    r"session affinity timeout": (
        "provider ovn: affinity is a hash of addresses, which does not end; amphora: Octavia "
        "takes a timeout for UDP and SCTP only"
    ),
    r"rejected (for evicted pods|when no endpoints exist)": (
        "provider ovn: a VIP without members is in no table of OVN, and a connection times out"
    ),
    r"different Service CIDRs": (
        "ClusterIPs are addresses of a subnet of Neutron: a ServiceCIDR beyond it has an Event"
    ),
    r"ExternalIP": "externalIPs are no addresses of Neutron's subnets",
    r"endpoints using hostNetwork": (
        "provider ovn: what a node asks of its own address comes back with that address as its "
        "source, and the kernel drops it"
    ),
    r"preserve UDP traffic when server pod cycles": (
        "provider ovn: OVN remembers the endpoint of a flow whose client keeps its port, and the "
        "provider does not ask it to forget"
    ),
    r"should be able to handle large requests: udp": (
        "provider ovn: the lab's Open vSwitch uses its userspace datapath, which passes fragments "
        "on one by one; only the first has the port that the load balancer asks for"
    ),
}
