"""Limits of who may connect: source ranges, and security groups of the VIP. Pure."""

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import NobodyConnects
from kuryr_k8s.handlers.services.refusals import LIMITS, NotOffered
from kuryr_k8s.model.load_balancer import FoundLoadBalancer
from kuryr_k8s.model.service_annotations import Settings


def is_limited(settings: Settings) -> bool:
    """Return whether not everybody may connect."""
    return bool(settings.source_ranges or settings.vip_sg_ids)


def is_closed(found: FoundLoadBalancer, settings: Settings) -> bool:
    """Return whether the VIP has security groups, or all listeners have source ranges."""
    if settings.vip_sg_ids:
        return bool(found.vip_sg_ids)
    return all(each.listener.allowed_cidrs for each in found.listeners)


def are_limits_refused(error: errors.KuryrError) -> bool:
    """Return whether no load balancer can have the source ranges or the security groups."""
    cause = error.__cause__ if isinstance(error, NotOffered) else error
    return isinstance(cause, NobodyConnects) or (
        isinstance(cause, errors.Unsupported) and cause.feature in LIMITS
    )
