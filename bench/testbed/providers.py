"""Octavia's providers: what the controller needs for each, and the time that each takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lab.kuryr.services import PROVIDERS as DEFAULTS


@dataclass(frozen=True)
class Provider:
    """A provider, and how long its changes take, as measured on the lab.

    :param change: seconds for which a change of a pool's members stays PENDING.
    :param one_by_one: changes wait for those before them.
    """

    name: str
    change: float
    one_by_one: bool

    @property
    def octavia_defaults(self) -> Mapping[str, str]:
        """The options of the group of this name."""
        return DEFAULTS[self.name]


PROVIDERS = {
    provider.name: provider
    for provider in (
        Provider("ovn", change=1.5, one_by_one=True),
        Provider("amphora", change=2.5, one_by_one=False),
    )
}
