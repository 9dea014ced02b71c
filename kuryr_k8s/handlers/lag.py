"""Write to objects by caches that may lag behind."""

from collections.abc import Awaitable
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.k8s.informer import Informer

Json = dict[str, Any]
LAG = 1.0  # seconds until a cache that lags is looked at again


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
