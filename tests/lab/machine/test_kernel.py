"""The binding of VLANs on a kernel that has them: each case of it is reported."""

import pytest

from tests.lab.machine import kernel_cases

pytestmark = pytest.mark.lab_only


@pytest.fixture(scope="module")
def results():
    return kernel_cases.run_in_machine()


@pytest.mark.parametrize("case", kernel_cases.names())
def test_vlan_binding_on_a_kernel_with_vlans(results, case):
    assert results.get(case) == kernel_cases.PASSED
