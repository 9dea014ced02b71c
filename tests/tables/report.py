"""The table of faults, printed at the end of a session."""

import pytest

CELLS = pytest.StashKey[list]()
LINES = pytest.StashKey[list]()  # what other processes of the stage have to say


def judge(config, cells):
    """Have these cells in the table; each that differs fails the test, in a line of its own."""
    config.stash.setdefault(CELLS, []).extend(cells)
    wrong = [str(cell) for cell in cells if cell.problems]
    if wrong:
        pytest.fail(f"{len(wrong)} of {len(cells)} runs:\n" + "\n".join(wrong), pytrace=False)


def summary(config):
    """Lines: for each life a table of requests and faults, and the sums."""
    cells = config.stash.get(CELLS, [])
    for life in dict.fromkeys(cell.life for cell in cells):
        yield from _table(life, [cell for cell in cells if cell.life == life])
    if cells:
        wrong = [cell for cell in cells if cell.problems]
        yield f"{len(cells)} runs, {len(wrong)} of them differ from an undisturbed life"
        yield "ok: the same end, and no write repeated but the struck one; +n: writes more"


def _table(life, cells):
    faults = list(dict.fromkeys(cell.fault for cell in cells))
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
