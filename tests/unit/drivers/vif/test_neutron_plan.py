"""Which ports of an earlier attempt can become what a Pod asks for now."""

import pytest

from kuryr_k8s.drivers.vif import neutron_plan
from tests.unit.drivers.vif.test_nested_plan import PORT, request

OPEN = PORT | {"port_security_enabled": False, "security_groups": []}


@pytest.mark.parametrize(
    ("port", "changes", "fits"),
    [
        (PORT, {}, True),
        (PORT, {"addresses": ("10.0.0.5",), "mac": "fa:16:3e:aa:bb:cc"}, True),
        (PORT, {"addresses": ("10.0.0.6",)}, False),
        (PORT, {"mac": "fa:16:3e:aa:bb:dd"}, False),
        (PORT, {"port_security": False}, True),  # it is changed
        (OPEN, {"port_security": False}, True),
        (OPEN, {}, False),
    ],
)
def test_port_fits_what_is_asked_for(port, changes, fits):
    assert neutron_plan.has_what_is_asked(port, request(**changes)) == fits
