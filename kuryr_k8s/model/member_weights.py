"""Weights of members of a pool with several Services, each of which has a share. Pure.

Octavia spreads requests by the weights of members, which are whole numbers of 0 to 256. The
weights of a Service's members together are its share, however many these are. That is always
possible: a Service has a weight of 256 at most, and where it has many members, and a small share,
only some of them get requests.
"""

import dataclasses
import functools
from collections.abc import Iterable, Sequence

from kuryr_k8s.model.load_balancer import Address, Member

LARGEST = 256  # weight in Octavia
PRECISION = 0.001  # of all requests, by which a share may be wrong if that helps its members


def weighted(shares: Iterable[tuple[Sequence[Member], int]]) -> tuple[Member, ...]:
    """Return the members of several Services, with weights.

    The share of each Service is true to PRECISION. Within that, as many members as possible get
    requests, and then those of a Service as evenly as possible: some may have a weight that is
    greater by one. These are the first ones by their addresses, so that others take their turns
    only as members come and go. A Service always has a member that gets requests, unless its
    weight is 0. Members with weight 0 keep their connections. A Service without members leaves
    its share to the others.

    A Pod behind two Services is one member, with both weights. That makes weights greater, and
    where they would be greater than LARGEST, shares are less precise.

    :param shares: the members of each Service, of weight 1 or 0, and its weight, of 0 to LARGEST.
    """
    wanted = [(tuple(members), weight) for members, weight in shares]
    found = {member.key: member for members, _ in reversed(wanted) for member in members}
    whole = dict.fromkeys(found, 0)
    served = [
        (keys, weight)
        for members, weight in wanted
        if weight and (keys := sorted({member.key for member in members if member.weight}))
    ]
    are_apart = len({key for keys, _ in served for key in keys}) == sum(
        len(keys) for keys, _ in served
    )
    sums = _sums(tuple((len(keys), weight) for keys, weight in served), are_apart=are_apart)
    for (keys, _), total in zip(served, sums, strict=True):
        _spread(whole, keys, total)
    return tuple(
        dataclasses.replace(member, weight=whole[key]) for key, member in sorted(found.items())
    )


def _spread(whole: dict[Address, int], keys: Sequence[Address], total: int) -> None:
    """Add a total to the weights of members, as evenly as whole numbers allow."""
    each, left = divmod(total, len(keys))
    for place, key in enumerate(keys):
        whole[key] += each + (place < left)


@functools.lru_cache(4096)
def _sums(services: tuple[tuple[int, int], ...], *, are_apart: bool) -> tuple[int, ...]:
    """Return what the weights of each Service's members are to be together.

    :param services: the number of members, and the weight, of each; neither is 0.
    :param are_apart: no member has two of them.
    """
    if not services:
        return ()
    # The Service whose members need the greatest weights. With its own weight for each of them,
    # all sums are whole.
    number, weight = max(services, key=lambda each: each[1] / each[0])
    found = []
    for greatest in range(1, LARGEST + 1):
        top = greatest * number
        # rounded, and not to 0
        sums = tuple(max(1, (2 * top * each + weight) // (2 * weight)) for _, each in services)
        most = [-(-total // count) for (count, _), total in zip(services, sums, strict=True)]
        if are_apart or sum(most) <= LARGEST:
            found.append(sums)
    errors = {sums: _error(services, sums) for sums in found}
    bearable = min(errors.values()) + PRECISION
    near = [sums for sums in found if errors[sums] <= bearable]
    return min(near, key=lambda sums: (*_harm(services, sums), errors[sums], sum(sums)))


def _error(services: Sequence[tuple[int, int]], sums: Sequence[int]) -> float:
    """Return the part of all requests by which the share is wrong that is most so."""
    weights, total = sum(weight for _, weight in services), sum(sums)
    return max(
        abs(each * weights - weight * total) / (weights * total)
        for (_, weight), each in zip(services, sums, strict=True)
    )


def _harm(services: Sequence[tuple[int, int]], sums: Sequence[int]) -> tuple[int, float]:
    """Return how many members get no requests, and how unevenly others get theirs.

    The latter is the part of all requests that would be other members' then.
    """
    idle, uneven = 0, 0.0
    for (count, _), total in zip(services, sums, strict=True):
        if total < count:
            idle += count - total
        else:
            left = total % count
            uneven += left * (count - left) / count
    return idle, uneven / sum(sums)
