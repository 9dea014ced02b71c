"""VLAN ids of one trunk: which are free; no input, no output."""

from collections.abc import Collection
from itertools import islice

VLAN_IDS = range(1, 4095)  # 0 and 4095 are reserved by IEEE 802.1Q


def free(taken: Collection[int], count: int) -> list[int]:
    """The lowest ids that are not taken, ascending: ``count`` of them, or as many as there are."""
    unavailable = frozenset(taken)
    return list(islice((one for one in VLAN_IDS if one not in unavailable), count))
