"""Capabilities of an Octavia: the versions of its API and its providers.

Octavia does not tell users what a provider can do: it answers 501 (:class:`errors.Unsupported`, as
here).
Versions: https://docs.openstack.org/api-ref/load-balancer/v2/#api-versions-history
"""

import asyncio
from collections.abc import Iterator

from kuryr_k8s import errors
from kuryr_k8s.cloud.octavia import bodies
from kuryr_k8s.cloud.octavia.api import Octavia
from kuryr_k8s.model.load_balancer import HASHING, LoadBalancer

Version = tuple[int, int]
# of providers that forward by a hash
HASHED = ("TCP", "UDP", "SCTP")
ALGORITHMS = ("SOURCE_IP", "SOURCE_IP_PORT")
MONITORS = ("TCP", "UDP-CONNECT")
ADDITIVE, CIDRS, SOURCE_IP_PORT, ZONES, CIPHERS = ((2, minor) for minor in (11, 12, 13, 14, 15))
TLS_VERSIONS, PROXYV2, SCTP, ADDITIONAL, GROUPS = ((2, minor) for minor in (17, 22, 23, 26, 29))
# of pools over TLS
CHOICES = {"tls_ciphers": CIPHERS, "tls_versions": TLS_VERSIONS, "alpn_protocols": (2, 24)}


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
        check_groups(wanted, wanted.provider)

    async def pool_choices(self) -> list[str]:
        """List what Octavia chooses for a pool over TLS, as far as it knows these attributes.

        :raises errors.CloudError: it does not answer.
        """
        newest, _providers = await self._ask()
        return [name for name in bodies.POOL_CHOICES if newest >= CHOICES[name]]

    async def _ask(self) -> tuple[Version, frozenset[str]]:
        async with self._asking:
            if self._known is None:
                versions = await self._octavia.microversions()
                self._known = max(versions), await self._octavia.providers()
            return self._known


def check_groups(wanted: LoadBalancer, provider: str | None) -> None:
    """Make sure that the provider does not ignore the VIP's security groups.

    Octavia accepts them for any provider, and says nothing.

    :param provider: None if Octavia is to choose.
    :raises errors.Unsupported: it would let everybody in.
    """
    if wanted.vip_sg_ids and provider in HASHING:
        raise errors.Unsupported(
            f"provider {provider} ignores security groups of a VIP", feature="vip_sg_ids"
        )


def check_replacement(wanted: LoadBalancer) -> None:
    """Make sure that a provider is not known to lack something, before an older one's goes.

    Octavia itself tells when it is asked to create, and then the address must be free already.

    :raises errors.Unsupported: it lacks something.
    """
    if wanted.provider not in HASHING:
        return
    lacks = {
        "protocol": any(each.protocol not in HASHED for each in wanted.listeners),
        "allowed_cidrs": any(each.allowed_cidrs for each in wanted.listeners),
        "lb_algorithm": any(each.lb_algorithm not in ALGORITHMS for each in wanted.pools),
        "health_monitor": any(
            monitor.type not in MONITORS
            for pool in wanted.pools
            if (monitor := pool.health_monitor) is not None
        ),
    }
    for feature, is_lacking in lacks.items():
        if is_lacking:
            raise errors.Unsupported(
                f"provider {wanted.provider} does not support the {feature} asked for: the load "
                "balancer of the provider before stays",
                feature=feature,
            )


def needed(wanted: LoadBalancer) -> Iterator[tuple[str, Version]]:
    """Yield the features that not every Octavia has, with the version that brought each."""
    yield "additive_only", ADDITIVE  # an older one would replace all members; tags are older
    if wanted.availability_zone is not None:
        yield "availability_zone", ZONES
    if wanted.additional_vips:
        yield "additional_vips", ADDITIONAL
    if wanted.vip_sg_ids:
        yield "vip_sg_ids", GROUPS
    for listener in wanted.listeners:
        if listener.allowed_cidrs:
            yield "allowed_cidrs", CIDRS
        if listener.tls_ciphers is not None:
            yield "tls_ciphers", CIPHERS
        if listener.tls_versions:
            yield "tls_versions", TLS_VERSIONS
    for pool in wanted.pools:
        if pool.lb_algorithm == "SOURCE_IP_PORT":
            yield "lb_algorithm", SOURCE_IP_PORT
        if pool.protocol in ("PROXYV2", "SCTP"):
            yield "protocol", PROXYV2 if pool.protocol == "PROXYV2" else SCTP
