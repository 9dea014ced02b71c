"""JUnit reports of stages: counts, reasons of failures, and the tests that no stage ran."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

_REASON = 300  # characters of why a test failed
_NAMED = 5  # files with tests that no stage ran
_TEST = re.compile(r"^tests/\S+\.py::.+")


def counts(report: Path) -> tuple[int, int, int]:
    """Count the tests that passed, failed and were skipped."""
    if not report.exists():
        return (0, 0, 0)
    suites = list(ET.parse(report).getroot().iter("testsuite"))

    def count(*names: str) -> int:
        return sum(int(suite.get(name) or 0) for suite in suites for name in names)

    failed, skipped = count("failures", "errors"), count("skipped")
    return (count("tests") - failed - skipped, failed, skipped)


def failures(report: Path) -> Iterator[str]:
    """Yield the tests that failed, each with the beginning of the reason."""
    if not report.exists():
        return
    for case in ET.parse(report).getroot().iter("testcase"):
        for why in (*case.findall("failure"), *case.findall("error")):
            reason = " ".join((why.get("message") or "").split())
            yield f"{case.get('classname')}::{case.get('name')}: {reason[:_REASON]}"


def ran(reports: Iterable[Path]) -> set[tuple[str, str]]:
    """Return the tests that were run, as (class name, name)."""
    return {
        (case.get("classname") or "", case.get("name") or "")
        for report in reports
        if report.exists()
        for case in ET.parse(report).getroot().iter("testcase")
    }


def address(node_id: str) -> tuple[str, str]:
    """Translate pytest's id of a test to (class name, name) as a JUnit report has them."""
    path, bracket, parameters = node_id.partition("[")
    file, *names = path.split("::")
    names.insert(0, file.removesuffix(".py").replace("/", "."))
    return ".".join(names[:-1]), names[-1] + bracket + parameters


def never_run(collected: str, reports: Iterable[Path]) -> list[str]:
    """Find the tests that exist and that no stage ran.

    :param collected: what ``pytest --collect-only --quiet`` printed.
    :returns: their ids.
    """
    done = ran(reports)
    tests = [line for line in collected.splitlines() if _TEST.match(line)]
    return [test for test in tests if address(test) not in done]


def by_file(tests: Iterable[str]) -> list[str]:
    """Sum up ids of tests in a few lines: the number of each file, and of the other files."""
    files = Counter(test.split("::")[0] for test in tests)
    lines = [f"{count} of {file}" for file, count in sorted(files.items())]
    more = len(lines) - _NAMED
    return [*lines[:_NAMED], *([f"and tests of {more} other files"] if more > 0 else [])]
