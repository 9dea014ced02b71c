"""What stands on a load balancer so that it is found again: nothing else records whose it is."""

from collections.abc import Iterable, Sequence

SERVICE_TAG = "kuryr-service:"  # and the Service's uid
NAMESPACE_TAG = "kuryr-namespace:"  # and its name
SHARED_TAG = "kuryr-shared"  # of listeners and pools that are in the load balancer of another
FORMERLY_TAG = "kuryr-formerly:"  # and the id that the load balancer had before it was made anew
# And a listener's field that was asked for: whose default only Octavia knows, and which goes back
# to it when nobody asks any more.
SET_TAG = "kuryr-set:"


def tags_of(cluster: Sequence[str], namespace: str, owner: str) -> tuple[str, ...]:
    """All tags of the load balancer that is made for a Service.

    :param cluster: ``[neutron_defaults] resource_tags``.
    :param owner: the Service's uid.
    """
    return (*cluster, f"{NAMESPACE_TAG}{namespace}", f"{SERVICE_TAG}{owner}")


def shared_tags_of(cluster: Sequence[str], namespace: str, owner: str) -> tuple[str, ...]:
    """All tags of a listener, or a pool, in a load balancer that is not the owner's."""
    return (*tags_of(cluster, namespace, owner), SHARED_TAG)


def former_ids_of(tags: Iterable[str]) -> frozenset[str]:
    """The ids that the load balancer had before, as far as somebody used them."""
    named = (tag for tag in tags if tag.startswith(FORMERLY_TAG))
    return frozenset(tag.removeprefix(FORMERLY_TAG) for tag in named)


def owner_of(tags: Iterable[str]) -> str:
    """The Service's uid; empty: it is no Service's."""
    return _after(SERVICE_TAG, tags)


def namespace_of(tags: Iterable[str]) -> str:
    return _after(NAMESPACE_TAG, tags)


def set_fields(tags: Iterable[str]) -> frozenset[str]:
    """Of a listener, those that were asked for."""
    return frozenset(tag for tag in tags if tag.startswith(SET_TAG))


def _after(prefix: str, tags: Iterable[str]) -> str:
    return next((tag.removeprefix(prefix) for tag in tags if tag.startswith(prefix)), "")
