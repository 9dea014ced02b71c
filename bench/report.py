"""Reports of benchmarks: tables, figures, and targets."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Target:
    """A promise: `measured` must not exceed `limit`, both in `unit`."""

    name: str
    measured: float
    limit: float
    unit: str = ""

    @property
    def reached(self) -> bool:
        """True if the promise is kept; a figure that could not be measured (NaN) keeps none."""
        return self.measured <= self.limit


@dataclass(frozen=True)
class Table:
    """A table: `rows` hold cells in the order of `columns`; numbers are rounded for reading."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def as_text(self) -> str:
        """Return the table with its title, aligned by its widest cells."""
        cells = [list(self.columns), *([_cell(cell) for cell in row] for row in self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        lines = ["  ".join(_aligned(row, widths)).rstrip() for row in cells]
        return "\n".join([self.title, *lines])


@dataclass
class Report:
    """A report; `figures` holds every number measured.

    The names of figures do not change between versions, so that reports can be compared.
    """

    name: str
    tables: list[Table] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def reached(self) -> bool:
        """True if every target is reached."""
        return all(target.reached for target in self.targets)

    def as_text(self) -> str:
        """Return the tables and the targets for reading."""
        tables = [*self.tables]
        if self.targets:
            rows = [
                (
                    target.name,
                    target.measured,
                    target.limit,
                    target.unit,
                    "reached" if target.reached else "MISSED",
                )
                for target in self.targets
            ]
            columns = ("TARGET", "MEASURED", "AT MOST", "UNIT", "")
            tables.append(Table("Targets", columns, rows))
        return "\n\n".join([f"# bench {self.name}", *(table.as_text() for table in tables)])

    def as_json(self) -> str:
        """Return the figures and the targets as one JSON object."""
        targets = [
            {
                "name": target.name,
                "measured": target.measured,
                "limit": target.limit,
                "unit": target.unit,
                "reached": target.reached,
            }
            for target in self.targets
        ]
        return json.dumps({"name": self.name, "figures": self.figures, "targets": targets})


def percentile(values: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile of the values.

    :returns: the smallest value that a `share` (0 to 1) of all values do not exceed.
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
