"""Short names of components, which stand for one on every node."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

# What the product's components are called without its name.
_PREFIX = "kuryr-"


class UnknownName(Exception):
    """No component has this name; the message lists what there is."""


def resolve(names: Iterable[str], known: Sequence[str]) -> list[str]:
    """Find the components that are meant, in the order of the names, each once.

    `ovn-controller` means those of all nodes, `daemon` the kuryr-daemons of all nodes,
    `controller` the kuryr-controller; a component's own name means just it.

    :raises UnknownName: a name means nothing.
    """
    found: dict[str, None] = {}
    for name in names:
        meant = _meant(name, known)
        if not meant:
            listed = ", ".join(sorted({*short_names(known), *known}))
            raise UnknownName(f"there is no component {name}; there are: {listed}")
        found |= dict.fromkeys(meant)
    return list(found)


def short_names(known: Sequence[str]) -> list[str]:
    """List every short name that means something."""
    candidates = {_without_node(name) for name in known}
    candidates |= {name.removeprefix(_PREFIX) for name in candidates}
    return sorted(name for name in candidates if name not in known and _meant(name, known))


def _meant(name: str, known: Sequence[str]) -> list[str]:
    for wanted in (name, _PREFIX + name):
        if wanted in known:
            return [wanted]
        if found := sorted(each for each in known if _without_node(each) == wanted != each):
            return found
    return []


def _without_node(name: str) -> str:
    """Strip the node from a component's name, if the name has one."""
    found = re.fullmatch(r"(.+)-(?:vm)?node\d+", name)
    return found[1] if found else name
