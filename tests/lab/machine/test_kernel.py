"""Bindings of VLANs and of VFs in a machine that has them: each case is reported."""

import pytest

from tests.lab.machine import kernel_cases

pytestmark = pytest.mark.lab_only


@pytest.fixture(scope="module")
def results(request):
    here = [item for item in request.session.items if item.path == request.path]
    return kernel_cases.run_in_machine([item.callspec.params["case"] for item in here])


@pytest.mark.sampled(12)
@pytest.mark.parametrize("case", kernel_cases.names())
def test_binding_in_a_machine_that_has_what_it_needs(results, case):
    assert results.get(case) == kernel_cases.PASSED
