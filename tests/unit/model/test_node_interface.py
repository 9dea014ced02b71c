"""The annotation that describes a node's own interface."""

import ipaddress

import pytest

from kuryr_k8s.model.node_interface import NodeInterface, Route

INTERFACE = NodeInterface(
    port_id="6a0d6f4e-0000-4000-8000-000000000001",
    mac_address="fa:16:3e:63:00:0b",
    mtu=1442,
    addresses=(ipaddress.ip_interface("10.63.0.11/24"), ipaddress.ip_interface("fd63::b/64")),
    routes=(Route(ipaddress.ip_network("10.62.0.0/16"), ipaddress.ip_address("10.63.0.1")),),
)


def test_description_is_read_as_it_was_written():
    assert NodeInterface.parse(INTERFACE.to_json()) == INTERFACE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "null",
        INTERFACE.to_json().replace("10.63.0.11/24", "everywhere"),
        INTERFACE.to_json().replace('"addresses": [', '"addresses": [7.5, '),
        INTERFACE.to_json().replace("1442", '"much"'),
        INTERFACE.to_json().replace('"gateway"', '"router"'),
        "[" * 100_000,
    ],
)
def test_description_that_cannot_be_read_is_a_value_error(text):
    with pytest.raises(ValueError):  # noqa: PT011 - the decoders have words of their own
        NodeInterface.parse(text)
