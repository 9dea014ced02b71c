"""What a benchmark found: tables for people, figures for programs, targets that hold or do not."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Target:
    """A promise: `measured` is to be at most `limit`, both in `unit`."""

    name: str
    measured: float
    limit: float
    unit: str = ""

    @property
    def reached(self) -> bool:
        return self.measured <= self.limit


@dataclass(frozen=True)
class Table:
    """`rows` are cells in the order of `columns`; numbers are rounded for reading."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def as_text(self) -> str:
        cells = [list(self.columns), *([_cell(cell) for cell in row] for row in self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        lines = ["  ".join(_aligned(row, widths)).rstrip() for row in cells]
        return "\n".join([self.title, *lines])


@dataclass
class Report:
    """`figures` holds every number measured, under names that do not change between versions."""

    name: str
    tables: list[Table] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def reached(self) -> bool:
        return all(target.reached for target in self.targets)

    def as_text(self) -> str:
        tables = [*self.tables]
        if self.targets:
            rows = [
                (t.name, t.measured, t.limit, t.unit, "reached" if t.reached else "MISSED")
                for t in self.targets
            ]
            columns = ("TARGET", "MEASURED", "AT MOST", "UNIT", "")
            tables.append(Table("Targets", columns, rows))
        return "\n\n".join([f"# bench {self.name}", *(table.as_text() for table in tables)])

    def as_json(self) -> str:
        targets = [
            {
                "name": t.name,
                "measured": t.measured,
                "limit": t.limit,
                "unit": t.unit,
                "reached": t.reached,
            }
            for t in self.targets
        ]
        return json.dumps({"name": self.name, "figures": self.figures, "targets": targets})


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile: the smallest value that `share` (0 to 1) of all do not exceed.

    :raises ValueError: there are no values.
    """
    if not values:
        raise ValueError("no values")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


def _aligned(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    first, *rest = zip(row, widths, strict=True)
    return [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]
