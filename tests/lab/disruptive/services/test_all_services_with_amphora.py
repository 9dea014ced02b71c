"""Services whose load balancers are amphorae: what is the same as with the provider ovn."""

import pytest

from tests.lab.service_cases import (
    test_load_balancer_is_reached_from_outside_at_the_address_in_its_status,
    test_pod_with_the_readiness_gate_is_ready_only_once_its_load_balancer_leads_to_it,
    test_ports_come_and_go_and_the_others_go_on_to_answer,
    test_service_is_answered_by_its_pods_from_every_node_and_follows_them,
    test_service_made_again_with_the_same_address_has_a_load_balancer_of_its_own,
    test_service_of_ipv6_is_answered,
    test_services_on_one_load_balancer_are_answered_each_by_its_own_pods,
)

__all__ = [
    "test_load_balancer_is_reached_from_outside_at_the_address_in_its_status",
    "test_pod_with_the_readiness_gate_is_ready_only_once_its_load_balancer_leads_to_it",
    "test_ports_come_and_go_and_the_others_go_on_to_answer",
    "test_service_is_answered_by_its_pods_from_every_node_and_follows_them",
    "test_service_made_again_with_the_same_address_has_a_load_balancer_of_its_own",
    "test_service_of_ipv6_is_answered",
    "test_services_on_one_load_balancer_are_answered_each_by_its_own_pods",
]
pytestmark = [pytest.mark.lab_only, pytest.mark.complete, pytest.mark.product("amphora")]
