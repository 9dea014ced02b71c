"""EndpointSlices → the members of a pool. Nothing here does I/O.

The members are the endpoints of those slices of the VIP's address family that have a port of that
name and protocol, and the number is the slice's own: a named targetPort may be another one in each
Pod.

ready (or the Service publishes those that are not)   weight 1
not ready any more, serving and terminating           weight 0: keeps its connections, gets no more
else                                                  no member

Where none is ready, those that terminate and serve all the same do so (weight 1): as everywhere in
Kubernetes (KEP-1669), lest a restart of a Service's only Pod be an outage.
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
    """An endpoint that two slices tell of, as while it moves from one to the other, counts once:
    as the better of the two.

    :param slices: those of the VIP's family.
    :param subnet_of: where an address is reached.
    """
    found: dict[Address, tuple[int, str]] = {}
    for one in slices:
        numbers = [
            other.port
            for other in one.ports
            if (other.name, other.protocol) == (port.name or "", port.protocol)
        ]
        for number in numbers:
            for endpoint in one.endpoints:
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
    """Its Pod's; what is no Pod is called by its address."""
    who = f"{namespace}/{endpoint.pod}" if endpoint.pod else endpoint.address
    return f"{who[: NAME_LIMIT - 6]}:{number}"
