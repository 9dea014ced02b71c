"""Weights of members of a pool with several Services, each of which has a share. Pure.

Octavia spreads requests by the weights of members, so those of a Service are its weight by the
number of its members that get requests, however many these are. Where these fractions are not
whole numbers up to 256 together, they are rounded as finely as Octavia's weights allow.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

from kuryr_k8s.model.load_balancer import Address, Member

LARGEST = 256  # weight in Octavia


def weighted(shares: Iterable[tuple[Sequence[Member], int]]) -> tuple[Member, ...]:
    """Return the members of several Services, with weights.

    A Pod behind two of them is one member, with both weights. A Service without members leaves
    its share to the others. Members of one with weight 0 keep their connections.

    :param shares: the members of each Service, of weight 1 or 0, and its weight.
    """
    found: dict[Address, Member] = {}
    exact: dict[Address, Fraction] = {}
    for members, weight in shares:
        number = sum(1 for member in members if member.weight)
        for member in members:
            found.setdefault(member.key, member)
            share = Fraction(weight, number) if member.weight else Fraction(0)
            exact[member.key] = exact.get(member.key, Fraction(0)) + share
    whole = _whole(exact)
    return tuple(
        dataclasses.replace(member, weight=whole[key]) for key, member in sorted(found.items())
    )


def _whole(exact: dict[Address, Fraction]) -> dict[Address, int]:
    """Return weights in these proportions; none is 0 but for 0."""
    some = [weight for weight in exact.values() if weight]
    if not some:
        return dict.fromkeys(exact, 0)
    common = math.lcm(*(weight.denominator for weight in some))
    unit = Fraction(math.gcd(*(int(weight * common) for weight in some)), common)
    scale = min(1 / unit, Fraction(LARGEST) / max(some))
    return {key: max(1, round(weight * scale)) if weight else 0 for key, weight in exact.items()}
