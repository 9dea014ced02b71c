"""Configurations of pools of ports; both projects have the same options."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

MODES = ("noop", "cold", "warm")


@dataclass(frozen=True)
class Pool:
    """A configuration of pools.

    Its mode is `noop` (no pool), `cold` (the pool is empty when the Pods come) or `warm` (it is
    full).
    """

    mode: str = "noop"
    minimum: int = 5
    batch: int = 10
    frequency: int = 20  # seconds between checks for ports that returned

    @classmethod
    def sized_for(cls, mode: str, pods: Iterable[int]) -> Pool:
        """Return a pool of this mode; a warm one has ports for the greatest number of Pods."""
        default = cls(mode)
        return cls(mode, minimum=max(pods) + default.batch) if mode == "warm" else default

    @property
    def options(self) -> dict[str, dict[str, str]]:
        """Options of kuryr.conf, by section."""
        if self.mode == "noop":
            return {"kubernetes": {"vif_pool_driver": "noop"}}
        numbers = {
            "ports_pool_min": self.minimum,
            "ports_pool_batch": self.batch,
            "ports_pool_max": 0,
            "ports_pool_update_frequency": self.frequency,
        }
        return {
            "kubernetes": {"vif_pool_driver": "neutron"},
            "vif_pool": {name: str(value) for name, value in numbers.items()},
        }

    def __str__(self) -> str:
        options = self.options.get("vif_pool", {})
        words = ", ".join(f"{name} = {value}" for name, value in options.items())
        return f"{self.mode} ({words})" if words else self.mode
