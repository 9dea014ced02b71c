"""Services whose load balancers are amphorae: what differs from the provider ovn."""

import pytest

from tests.lab.service_cases import (
    test_pod_whose_groups_let_in_nobody_is_reached_by_its_load_balancer,
)

__all__ = ["test_pod_whose_groups_let_in_nobody_is_reached_by_its_load_balancer"]
pytestmark = [pytest.mark.lab_only, pytest.mark.product("amphora")]
