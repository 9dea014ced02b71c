"""Members of a pool from EndpointSlices. Pure.

The members are the endpoints of those slices of the VIP's address family that have a port of that
name and protocol. The port's number is the slice's: a named targetPort may differ between Pods.

ready (or the Service publishes endpoints that are not)   weight 1
not ready any more, serving and terminating               weight 0: no new connections
else                                                      no member

If no endpoint is ready, those that terminate and still serve get weight 1, as everywhere in
Kubernetes (KEP-1669): else a restart of a Service's only Pod would be an outage.
"""

from collections.abc import Callable, Iterable

from kuryr_k8s.model.lbaas import LBaaSPortSpec
from kuryr_k8s.model.load_balancer import Address, Member
from kuryr_k8s.model.service import Endpoint, EndpointSlice, Service

NAME_LIMIT = 255


def members_of(
    port: LBaaSPortSpec,
    service: Service,
    slices: Iterable[EndpointSlice],
    subnet_of: Callable[[str], str | None],
) -> tuple[Member, ...]:
    """Return the members of the pool of a port.

    An endpoint that is in two slices, while it moves from one to the other, counts once, as the
    better of the two.

    :param slices: the slices of the VIP's address family.
    :param subnet_of: returns the subnet in which an address is reached.
    """
    found: dict[Address, tuple[int, str]] = {}
    for each in slices:
        numbers = [
            other.port
            for other in each.ports
            if (other.name, other.protocol) == (port.name or "", port.protocol)
        ]
        for number in numbers:
            for endpoint in each.endpoints:
                weight = _weight(endpoint, service)
                if weight is None:
                    continue
                key = Address(endpoint.address, number)
                name = _name(endpoint, service.namespace, number)
                found[key] = max(found.get(key, (weight, name)), (weight, name))
    nobody_ready = not any(weight for weight, _name in found.values())
    return tuple(
        Member(
            address=key.address,
            port=key.port,
            name=name,
            subnet_id=subnet_of(key.address),
            weight=1 if nobody_ready else weight,
        )
        for key, (weight, name) in sorted(found.items())
    )


def _weight(endpoint: Endpoint, service: Service) -> int | None:
    if endpoint.ready or service.publish_not_ready_addresses:
        return 1
    return 0 if endpoint.serving and endpoint.terminating else None


def _name(endpoint: Endpoint, namespace: str, number: int) -> str:
    """Return the name of the endpoint's Pod, or else its address, with the port."""
    who = f"{namespace}/{endpoint.pod}" if endpoint.pod else endpoint.address
    return f"{who[: NAME_LIMIT - 6]}:{number}"
