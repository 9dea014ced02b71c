"""Live with caches that lag behind: tell what is gone from what they lack; write to objects."""

from collections.abc import Awaitable, Iterable
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.k8s.api import KubeApi
from kuryr_k8s.k8s.informer import Informer
from kuryr_k8s.k8s.resources import ENDPOINTSLICES, TLSSECRETS, Key, Resource
from kuryr_k8s.model.tls_secret import TLS_TYPE

LAG = 1.0  # seconds until a cache that lags is looked at again
Json = dict[str, Any]
Named = tuple[Resource[Any], Key]


async def written(write: Awaitable[Json], cache: Informer[Any], what: str) -> Json | None:
    """Write to an object as the cache shows it, and have the cache learn the answer.

    :param what: the kind and the key of the object.
    :returns: the object; None if it is gone.
    :raises errors.Wait: it is not as the cache shows it.
    """
    try:
        answer = await write
    except errors.KubeNotFound:
        return None
    except errors.KubeConflict as error:
        raise errors.Wait(f"the cache lags behind {what}", delay=LAG) from error
    cache.learn(answer)
    return answer


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
