"""Results of end-to-end tests: read from their report, and shown as a table. Pure."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# What ginkgo puts in front of a spec, and labels that say nothing to readers of the table.
_KIND = re.compile(r"^\[It\] ")
_LABELS = re.compile(r" ?\[(Conformance|LinuxOnly|sig-network)\]")


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one spec.

    :param failure: why it failed, in a few words; empty if it passed.
    """

    spec: str
    seconds: float
    failure: str = ""


def read(report: Path) -> list[Result]:
    """Read what has run; specs that were not chosen are left out."""
    results = []
    for case in ET.parse(report).getroot().iter("testcase"):
        name = case.get("name", "")
        if not _KIND.match(name) or case.get("status") in ("skipped", "pending"):
            continue
        failure = case.find("failure")
        text = "" if failure is None else (failure.get("message") or failure.text or "failed")
        results.append(
            Result(
                _LABELS.sub("", _KIND.sub("", name)).strip(),
                float(case.get("time") or 0),
                " ".join(text.split())[:300],
            )
        )
    return results


def table(runs: Sequence[Sequence[Result]], reasons: Mapping[str, str]) -> Iterable[str]:
    """Yield the lines of a table with a row for each spec and a column for each run.

    :param reasons: why specs cannot pass, by a regular expression of their names.
    """
    specs = sorted({result.spec for run in runs for result in run})
    by_run = [{result.spec: result for result in run} for run in runs]
    for spec in specs:
        cells = [_cell(run.get(spec)) for run in by_run]
        yield f"{'  '.join(f'{cell:>8}' for cell in cells)}  {spec}"
        failures = {run[spec].failure for run in by_run if spec in run and run[spec].failure}
        for text in sorted(failures):
            yield f"{'':>10}{reason_of(spec, reasons) or text}"
    for number, run in enumerate(runs, 1):
        passed = sum(not result.failure for result in run)
        seconds = sum(result.seconds for result in run)
        yield f"run {number}: {passed} of {len(run)} passed, {seconds:.0f} s"


def reason_of(spec: str, reasons: Mapping[str, str]) -> str | None:
    """Return why the spec cannot pass; None if it should."""
    return next((why for name, why in reasons.items() if re.search(name, spec)), None)


def _cell(result: Result | None) -> str:
    if result is None:
        return "-"
    return "FAILED" if result.failure else f"{result.seconds:.1f} s"
