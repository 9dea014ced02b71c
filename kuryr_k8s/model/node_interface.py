"""A node's own interface on Neutron, ``kuryr0``, as the controller describes it to the daemon.

The description is the value of the annotation ``openstack.org/kuryr-node-interface`` of the Node,
which only the controller writes.
"""

import ipaddress
import json
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
)
from typing import Any, Self, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Route:
    """A destination that the node reaches through a router of Neutron."""

    destination: IPv4Network | IPv6Network
    gateway: IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInterface:
    """The interface that the daemon plugs for its node.

    :param port_id: Of the Neutron port.
    :param addresses: The port's addresses with the lengths of their prefixes.
    """

    port_id: str
    mac_address: str
    mtu: int
    addresses: tuple[IPv4Interface | IPv6Interface, ...]
    routes: tuple[Route, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the interface from the annotation's value.

        :raises ValueError: The value does not describe an interface.
        """
        try:
            found = json.loads(text)
            return cls(
                port_id=str(found["portId"]),
                mac_address=str(found["macAddress"]),
                mtu=int(found["mtu"]),
                addresses=_each(found["addresses"], ipaddress.ip_interface),
                routes=_each(found["routes"], _route),
            )
        except (KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error

    def to_json(self) -> str:
        """Return the annotation's value."""
        return json.dumps(
            {
                "portId": self.port_id,
                "macAddress": self.mac_address,
                "mtu": self.mtu,
                "addresses": [str(address) for address in self.addresses],
                "routes": [
                    {"destination": str(route.destination), "gateway": str(route.gateway)}
                    for route in self.routes
                ],
            }
        )


def _each(found: list[Any], read: Callable[[Any], T]) -> tuple[T, ...]:
    return tuple(read(item) for item in found)


def _route(found: dict[str, str]) -> Route:
    return Route(
        ipaddress.ip_network(found["destination"]), ipaddress.ip_address(found["gateway"])
    )
