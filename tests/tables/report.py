"""The tables of faults, printed at the end of a session."""

from collections import Counter

import pytest

from tests.samples import SEED
from tests.tables.faults import COLUMNS

CELLS = pytest.StashKey[list]()
PRODUCT = pytest.StashKey[Counter]()  # runs of the whole product, by life
PARTS = pytest.StashKey[list]()  # what the processes of the session have to say


def judge(config, cells, *, of=None):
    """Have these cells in the table; each that differs fails the test, in a line of its own.

    :param of: how many cells the whole product has, if these are a sample of it.
    """
    config.stash.setdefault(CELLS, []).extend(cells)
    product = config.stash.setdefault(PRODUCT, Counter())
    if cells:
        product[cells[0].life] += len(cells) if of is None else of
    wrong = [str(cell) for cell in cells if cell.problems]
    if wrong:
        pytest.fail(f"{len(wrong)} of {len(cells)} runs:\n" + "\n".join(wrong), pytrace=False)


def part(config):
    """Return what this process has to say, in plain types."""
    cells = config.stash.get(CELLS, [])
    lives = dict.fromkeys(cell.life for cell in cells)
    tables = {
        life: list(_table(life, [cell for cell in cells if cell.life == life])) for life in lives
    }
    return {
        "tables": tables,
        "cells": len(cells),
        "wrong": sum(bool(cell.problems) for cell in cells),
        "product": config.stash.get(PRODUCT, Counter()).total(),
    }


def summary(config):
    """Yield lines: the seed, for each life a table of requests and faults, and the sums."""
    parts = [report for report in (*config.stash.get(PARTS, []), part(config)) if report["cells"]]
    if not parts:
        return
    run, wrong, product = (
        sum(report[key] for report in parts) for key in ("cells", "wrong", "product")
    )
    yield f"faults: {run} of {product} runs of the whole product were made" + (
        "" if run == product else f", chosen by --seed={config.stash[SEED]} (all: --all-faults)"
    )
    for report in parts:
        for lines in report["tables"].values():
            yield from lines
    yield f"{run} runs, {wrong} of them differ from an undisturbed life"
    yield "ok: the same end, and no write repeated but the struck one; +n: writes more"


def _table(life, cells):
    faults = list(dict.fromkeys(cell.fault for cell in cells))
    faults.sort(key=lambda fault: COLUMNS.index(fault) if fault in COLUMNS else len(COLUMNS))
    rows = list(dict.fromkeys(str(cell.place) for cell in cells))
    width = max(map(len, rows)) + 1
    written = len({str(cell.place) for cell in cells if getattr(cell.place, "is_write", False)})
    yield f"{life}: {written} writes, {len(cells)} runs"
    yield " " * width + " ".join(f"{fault:>9}" for fault in map(_short, faults))
    found = {(str(cell.place), cell.fault): cell.brief for cell in cells}
    for row in rows:
        yield f"{row:<{width}}" + " ".join(f"{found.get((row, f), ''):>9}" for f in faults)
    yield ""


def _short(fault):
    return (
        fault.replace("crash ", "crash-")
        .replace(" applied", "+done")
        .replace("time-out", "hang")[:9]
    )
