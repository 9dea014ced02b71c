"""Capabilities of an Octavia: the versions of its API and its providers.

Octavia does not tell users what a provider can do: it answers 501 (:class:`errors.Unsupported`, as
here).
Versions: https://docs.openstack.org/api-ref/load-balancer/v2/#api-versions-history
"""

import asyncio
from collections.abc import Iterator

from kuryr_k8s import errors
from kuryr_k8s.cloud.octavia.api import Octavia
from kuryr_k8s.model.load_balancer import LoadBalancer

Version = tuple[int, int]
TAGS, FLAVORS, CIDRS, SOURCE_IP_PORT, ZONES, PROXYV2, SCTP = (
    (2, minor) for minor in (5, 6, 12, 13, 14, 22, 23)
)


class Capabilities:
    """Capabilities of one Octavia; asked before the first write, and again after it fell short."""

    def __init__(self, octavia: Octavia) -> None:
        self._octavia = octavia
        self._known: tuple[Version, frozenset[str]] | None = None
        self._asking = asyncio.Lock()

    async def check(self, wanted: LoadBalancer) -> None:
        """Make sure that Octavia can provide a load balancer.

        :raises errors.Unsupported: it is too old for something, or has no such provider.
        :raises errors.CloudError: it does not answer.
        """
        newest, providers = await self._ask()
        for feature, version in needed(wanted):
            if newest < version:
                self._known = None
                has, needs = (".".join(map(str, each)) for each in (newest, version))
                raise errors.Unsupported(
                    f"{feature} needs version {needs} of Octavia's API, which has {has}",
                    feature=feature,
                )
        if wanted.provider not in (None, *providers):
            self._known = None
            raise errors.Unsupported(
                f"Octavia has no provider {wanted.provider}, but {', '.join(sorted(providers))}",
                feature="provider",
            )

    async def _ask(self) -> tuple[Version, frozenset[str]]:
        async with self._asking:
            if self._known is None:
                versions = await self._octavia.microversions()
                self._known = max(versions), await self._octavia.providers()
            return self._known


def needed(wanted: LoadBalancer) -> Iterator[tuple[str, Version]]:
    """Yield the features that not every Octavia has, with the version that brought each."""
    yield "tags", TAGS
    if wanted.flavor_id is not None:
        yield "flavor_id", FLAVORS
    if wanted.availability_zone is not None:
        yield "availability_zone", ZONES
    for listener in wanted.listeners:
        if listener.allowed_cidrs:
            yield "allowed_cidrs", CIDRS
    for pool in wanted.pools:
        if pool.lb_algorithm == "SOURCE_IP_PORT":
            yield "lb_algorithm", SOURCE_IP_PORT
        if pool.protocol in ("PROXYV2", "SCTP"):
            yield "protocol", PROXYV2 if pool.protocol == "PROXYV2" else SCTP
