"""Free VLAN ids of one trunk: pure computation."""

from collections.abc import Collection
from itertools import islice

VLAN_IDS = range(1, 4095)  # 0 and 4095 are reserved by IEEE 802.1Q


def free(taken: Collection[int], count: int) -> list[int]:
    """Choose the lowest ``count`` ids that are not taken, or as many as there are, ascending."""
    unavailable = frozenset(taken)
    return list(islice((vlan_id for vlan_id in VLAN_IDS if vlan_id not in unavailable), count))
