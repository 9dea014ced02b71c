"""The controller's options for Services."""

from __future__ import annotations

from bench.testbed.implementations import Implementation, Options
from bench.testbed.providers import PROVIDERS
from bench.testbed.testbed import Testbed


def service_options(
    testbed: Testbed, implementation: Implementation, provider: str = "ovn"
) -> Options:
    """Return the options for Services, which both projects have.

    The provider has what it needs; Pods have one address.
    """
    facts = testbed.facts
    return {
        "kubernetes": {
            "enabled_handlers": implementation.handlers,
            "endpoints_driver_octavia_provider": provider,
        },
        "octavia_defaults": {
            **PROVIDERS[provider].octavia_defaults,
            "enforce_sg_rules": "false",  # only kuryr-kubernetes reads it, and needs it with ovn
        },
        "neutron_defaults": {
            "pod_subnet": facts["subnets"][0],
            "service_subnet": ",".join(facts["service_subnets"][: implementation.families]),
        },
    }
