"""Tell objects that are gone from those that a cache lacks, by live reads."""

from collections.abc import Iterable
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.handlers.lag import LAG
from kuryr_k8s.k8s.api import KubeApi
from kuryr_k8s.k8s.resources import ENDPOINTSLICES, TLSSECRETS, Key, Resource
from kuryr_k8s.model.tls_secret import TLS_TYPE

Named = tuple[Resource[Any], Key]


async def check_gone(kube: KubeApi, lost: Iterable[Named]) -> None:
    """Make sure that objects that the caches lack are gone.

    :raises errors.Wait: one of them exists.
    """
    slices: dict[str, set[str]] = {}  # their names, by namespace
    for resource, key in lost:
        if resource is ENDPOINTSLICES:  # the controller may list them, and not get a single one
            if key.namespace not in slices:
                listed = await kube.list_views(ENDPOINTSLICES, key.namespace)
                slices[key.namespace] = {each.name for each in listed}
            exists = key.name in slices[key.namespace]
        else:
            found = await kube.find(resource, key)
            exists = found is not None and (
                resource is not TLSSECRETS or found.get("type") == TLS_TYPE
            )
        if exists:
            raise errors.Wait(f"the cache lags behind {resource.kind} {key}", delay=LAG)
