"""Tags by which cloud objects of Services, L7 routers and ports are found again.

This is the only place where an owner is written as text. Clouds hold these tags for as long as
the objects live, so their form never changes.
"""

from collections.abc import Iterable, Sequence

from kuryr_k8s.model.owner import Owner, Role

SERVICE_TAG = "kuryr-service:"  # followed by the owner
# followed by the owner's uid
POD_TAG, NEUTRON_PORT_TAG = "kuryr-pod:", "kuryr-neutron-port:"
L7_ROUTER_TAG = "kuryr-l7-router:"
_OF_OTHERS = {
    Role.POD: POD_TAG,
    Role.NEUTRON_PORT: NEUTRON_PORT_TAG,
    Role.L7_ROUTER: L7_ROUTER_TAG,
}
NAMESPACE_TAG = "kuryr-namespace:"  # followed by the namespace's name
PREFIXES = (SERVICE_TAG, *_OF_OTHERS.values(), NAMESPACE_TAG)  # of all tags that tell whose it is
# the first one that a text ends with counts
_SUFFIXES = {
    Role.EXTERNAL_SECOND: "-external-second",
    Role.SECOND: "-second",
    Role.EXTERNAL: "-external",
    Role.SHARED: "-shared",
}


def tags_of(cluster: Sequence[str], namespace: str, owner: Owner) -> tuple[str, ...]:
    """Return all tags of an object that is made for an owner.

    :param cluster: ``[neutron_defaults] resource_tags``.
    """
    return (*cluster, f"{NAMESPACE_TAG}{namespace}", owner_tag(owner))


def owner_tag(owner: Owner) -> str:
    """Return the tag that names the owner."""
    if owner.role in _OF_OTHERS:
        return f"{_OF_OTHERS[owner.role]}{owner.uid}"
    return f"{SERVICE_TAG}{owner.uid}{_SUFFIXES.get(owner.role, '')}"


def owner_of(tags: Iterable[str]) -> Owner | None:
    """Return the owner that the tags name, if they name one."""
    found = tuple(tags)
    text = _value_of(SERVICE_TAG, found)
    if not text:
        named = ((_value_of(tag, found), role) for role, tag in _OF_OTHERS.items())
        return next((Owner(uid, role) for uid, role in named if uid), None)
    for role, suffix in _SUFFIXES.items():
        if text.endswith(suffix):
            return Owner(text.removesuffix(suffix), role)
    return Owner(text)


def namespace_of(tags: Iterable[str]) -> str:
    """Return the namespace that the tags name; empty if they name none."""
    return _value_of(NAMESPACE_TAG, tags)


def _value_of(prefix: str, tags: Iterable[str]) -> str:
    return next((tag.removeprefix(prefix) for tag in tags if tag.startswith(prefix)), "")
