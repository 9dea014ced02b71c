"""Refusals of providers, and load balancers without what was refused. Pure."""

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass

from kuryr_k8s import errors
from kuryr_k8s.model.load_balancer import LoadBalancer
from kuryr_k8s.model.service_annotations import PREFIX

NOT_IMPLEMENTED = 501  # HTTP status: the provider's own refusal
LIMITS = ("allowed_cidrs", "vip_sg_ids")  # what limits the clients
TRY_AGAIN = 600.0  # seconds until what was refused is asked for again
# what users write for what Octavia refuses (errors.Unsupported.feature)
ASKED_BY = {
    "allowed_cidrs": "loadBalancerSourceRanges",
    "insert_headers": f"annotation {PREFIX}x-forwarded-for",
    "default_tls_container_ref": f"annotation {PREFIX}default-tls-container-ref, or of another "
    "container of certificates",
    "tls_versions": f"annotation {PREFIX}tls-versions",
    "tls_ciphers": f"annotation {PREFIX}tls-ciphers",
    "client_authentication": f"annotation {PREFIX}client-ca-tls-container-ref, "
    "client-authentication or client-crl-container-ref",
    "protocol": f"annotation {PREFIX}x-forwarded-for, proxy-protocol or default-tls-container-ref",
    "flavor_id": f"annotation {PREFIX}flavor-id",
    "availability_zone": f"annotation {PREFIX}availability-zone",
    "vip_sg_ids": f"annotation {PREFIX}vip-sg-ids",
    "additional_vips": f"annotation {PREFIX}additional-vip-subnet-ids",
    "vip_port_id": f"annotation {PREFIX}port-id",
    "vip_network_id": f"annotation {PREFIX}network-id",
    "lb_algorithm": f"annotation {PREFIX}lb-method",
    "health_monitor": f"annotation {PREFIX}enable-health-monitor or health-monitor-type",
}


class NotOffered(errors.Refused):
    """Octavia, or its provider, cannot do what is asked for outside."""

    reason = errors.Unsupported.reason


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal of anything but members.

    :param answers: what was answered; of several things that cannot be had, each answer names one.
    :param certain: what is refused is left out for a while.
    """

    shape: LoadBalancer
    at: float
    answers: tuple[errors.BadRequest, ...]
    into: str | None
    certain: bool

    @property
    def limits(self) -> bool:
        """Return whether it is of what limits the clients."""
        return any(
            isinstance(answer, errors.Unsupported) and answer.feature in LIMITS
            for answer in self.answers
        )

    def concerns(self, shape: LoadBalancer, into: str | None, now: float) -> bool:
        """Return whether the same thing was refused not long ago."""
        return (self.shape, self.into) == (shape, into) and now - self.at < TRY_AGAIN


def shape_of(desired: LoadBalancer) -> LoadBalancer:
    """Return all but the members."""
    pools = tuple(dataclasses.replace(pool, members=()) for pool in desired.pools)
    return dataclasses.replace(desired, pools=pools)


def without_refused(
    desired: LoadBalancer,
    refused: Sequence[errors.BadRequest],
    plain: LoadBalancer | None = None,
) -> LoadBalancer | None:
    """Leave out what cannot be had: ports of some protocols, health monitors, additional VIPs.

    :param plain: its algorithms replace one that is refused.
    :returns: None if nothing would be left, or something else is refused.
    """
    less: LoadBalancer | None = desired
    for error in refused:
        feature = error.feature if isinstance(error, errors.Unsupported) else ""
        if less is not None and feature == "protocol":
            less = _without_ports(less, error.brief)
        elif less is not None and feature == "health_monitor" and error.status == NOT_IMPLEMENTED:
            less = _without_monitors(less)
        elif less is not None and feature == "additional_vips" and less.additional_vips:
            less = dataclasses.replace(less, additional_vips=())
        elif less is not None and feature == "lb_algorithm" and plain is not None:
            less = _with_algorithms_of(plain, less)
        else:
            return None
    return less


def _without_monitors(desired: LoadBalancer) -> LoadBalancer | None:
    if all(pool.health_monitor is None for pool in desired.pools):
        return None
    pools = tuple(dataclasses.replace(pool, health_monitor=None) for pool in desired.pools)
    return dataclasses.replace(desired, pools=pools)


def _with_algorithms_of(plain: LoadBalancer, desired: LoadBalancer) -> LoadBalancer | None:
    algorithms = {pool.name: pool.lb_algorithm for pool in plain.pools}
    pools = tuple(
        dataclasses.replace(pool, lb_algorithm=algorithms.get(pool.name, pool.lb_algorithm))
        for pool in desired.pools
    )
    return None if pools == desired.pools else dataclasses.replace(desired, pools=pools)


def _without_ports(desired: LoadBalancer, text: str) -> LoadBalancer | None:
    pools = {pool.name: pool.protocol for pool in desired.pools}
    kept = tuple(
        listener
        for listener in desired.listeners
        if not any(
            re.search(rf"\b{protocol}\b", text)
            for protocol in (listener.protocol, pools[listener.pool])
        )
    )
    if not kept or len(kept) == len(desired.listeners):
        return None
    names = {listener.pool for listener in kept}
    return dataclasses.replace(
        desired,
        listeners=kept,
        pools=tuple(pool for pool in desired.pools if pool.name in names),
    )
