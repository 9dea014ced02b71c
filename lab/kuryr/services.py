"""Services on Octavia: the controller's settings for their load balancers."""

from __future__ import annotations

from lab import facts
from lab.kubernetes import dns
from lab.openstack import cloud
from lab.openstack.rest import Api
from lab.process import CommandError, wait_until

HANDLERS = "vif,kuryrport,kuryrportpool,node,lbaas_spec,loadbalancer"
# The load balancers that are there as long as Services have any.
_LASTING = (
    "default/kubernetes",
    f"{dns.NAMESPACE}/{dns.NAME}",
    f"{dns.NAMESPACE}/{dns.NAME}/IPv6",
)
# What each provider needs. ovn has one algorithm, and its members are on subnets that it knows;
# an amphora reaches members through the router.
PROVIDERS = {
    "ovn": {
        "member_mode": "L2",
        "lb_algorithm": "SOURCE_IP_PORT",
    },
    "amphora": {
        "member_mode": "L3",
        "lb_algorithm": "ROUND_ROBIN",
    },
}


def settings(found: facts.Cloud, provider: str) -> dict[str, dict[str, str]]:
    """Build the controller's settings by group."""
    network = found.networks["services"]
    subnets = [subnet.id for subnet in (network.v4, network.v6) if subnet is not None]
    return {
        "kubernetes": {
            "enabled_handlers": HANDLERS,
            "endpoints_driver_octavia_provider": provider,
        },
        "neutron_defaults": {
            "service_subnet": ",".join(subnets),
            "external_svc_net": found.networks["public"].id,
        },
        "octavia_defaults": PROVIDERS[provider],
    }


def up(lab: facts.Lab, provider: str, seconds: int = 120) -> None:
    """Start the cluster's DNS, and wait until load balancers of this provider lead to it.

    The API server answers at its ClusterIP then, too.

    :raises CommandError: they do not in time.
    """
    dns.up(lab)
    octavia = Api(f"{lab.cloud.octavia_url}/v2/lbaas", cloud.admin_token())
    query = {"provider": provider, "project_id": lab.cloud.project_id}

    def are_active() -> bool:
        listed = octavia.get("/loadbalancers", provisioning_status="ACTIVE", **query)
        return {found["name"] for found in listed["loadbalancers"]}.issuperset(_LASTING)

    if not wait_until(are_active, seconds, 0.5):
        raise CommandError(f"after {seconds} s not all of {', '.join(_LASTING)} are ACTIVE")
    dns.await_ready(lab, seconds)
