"""Pools of ports as benchmarks ask for them; the options' names are both projects'."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

MODES = ("noop", "cold", "warm")


@dataclass(frozen=True)
class Pool:
    """`noop`: none; `cold`: the first Pods of a node make it; `warm`: it is full before."""

    mode: str = "noop"
    minimum: int = 5
    batch: int = 10
    frequency: int = 20  # seconds between looks at ports that came back

    @classmethod
    def enough(cls, mode: str, pods: Iterable[int]) -> Pool:
        """One that, if it is to be warm, has enough for the greatest number of Pods."""
        usual = cls(mode)
        return cls(mode, minimum=max(pods) + usual.batch) if mode == "warm" else usual

    @property
    def options(self) -> dict[str, dict[str, str]]:
        """Of kuryr.conf, by section."""
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
