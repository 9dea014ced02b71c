"""ARCHITECTURE.md tells the truth about the files of its tour."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent.parent
ROW = re.compile(r"^\| \d+ \| (`[^|]+`) \| (\d+) \|", re.MULTILINE)
ROWS = ROW.findall((REPOSITORY / "ARCHITECTURE.md").read_text())


@pytest.mark.parametrize(("names", "lines"), ROWS)
def test_lines_of_the_tour_are_nearly_as_many_as_it_says(names, lines):
    count = 0
    for name in re.findall("`([^`]+)`", names):
        path = REPOSITORY / "kuryr_k8s" / name.removeprefix("kuryr_k8s/")
        files = sorted(path.glob("*.py")) if path.is_dir() else [path]
        count += sum(len(file.read_text().splitlines()) for file in files)
    assert abs(count - int(lines)) <= count / 10


def test_the_tour_has_all_its_steps():
    assert len(ROWS) == 14
