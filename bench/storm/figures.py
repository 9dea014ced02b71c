"""Figures of one phase of a storm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class LeaseAge:
    """The greatest age of the Lease in seconds, and how many controllers have held it."""

    oldest: float
    holders: int


@dataclass(frozen=True)
class Phase:
    """One phase: how long Pods waited, and what it cost meanwhile.

    :param what: the phase in words.
    :param waits: the seconds that each Pod waited, as far as Pods waited for something.
    :param seconds: the length of the phase.
    :param calls: calls of Neutron.
    :param creations: those of them that created ports, or tried to.
    :param rows: rows in the answers of Neutron.
    :param lease: the Lease meanwhile.
    """

    what: str
    waits: Sequence[float]
    seconds: float
    calls: int
    creations: int
    rows: int
    lease: LeaseAge
