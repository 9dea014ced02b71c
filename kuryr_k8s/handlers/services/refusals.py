"""Refusals of providers, and load balancers without what was refused. Pure."""

import dataclasses
import re
from dataclasses import dataclass

from kuryr_k8s import errors
from kuryr_k8s.model.load_balancer import LoadBalancer

TRY_AGAIN = 600.0  # seconds until what was refused is asked for again


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal of anything but members.

    :param certain: what is refused is left out for a while.
    """

    shape: LoadBalancer
    at: float
    error: errors.BadRequest
    into: str | None
    certain: bool

    def concerns(self, shape: LoadBalancer, into: str | None, now: float) -> bool:
        """Return whether the same thing was refused not long ago."""
        return (self.shape, self.into) == (shape, into) and now - self.at < TRY_AGAIN


def shape_of(desired: LoadBalancer) -> LoadBalancer:
    """Return all but the members."""
    pools = tuple(dataclasses.replace(pool, members=()) for pool in desired.pools)
    return dataclasses.replace(desired, pools=pools)


def without_refused(desired: LoadBalancer, error: errors.BadRequest) -> LoadBalancer | None:
    """Leave out the ports of protocols that the provider cannot do.

    :returns: None if nothing would be left, or something else is refused.
    """
    if not isinstance(error, errors.Unsupported) or error.feature != "protocol":
        return None
    pools = {pool.name: pool.protocol for pool in desired.pools}
    kept = tuple(
        listener
        for listener in desired.listeners
        if not any(
            re.search(rf"\b{protocol}\b", error.brief)
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
