"""ARCHITECTURE.md tells the truth about the files of its tours."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent.parent
TEXT = (REPOSITORY / "ARCHITECTURE.md").read_text()
SECTION = re.compile(r"^## The way of one event: ([^\n]+)$(.*?)(?=^## )", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| (\d+) \| (`[^|]+`) \| (\d+) \|", re.MULTILINE)
TOURS = {name: ROW.findall(text) for name, text in SECTION.findall(TEXT)}
ROWS = [row for rows in TOURS.values() for row in rows]
OF_SERVICES = ("handlers/lb_*.py", "drivers/lb_*.py", "drivers/fip_*.py")


@pytest.mark.parametrize(("names", "lines"), [row[1:] for row in ROWS])
def test_lines_of_the_tours_are_nearly_as_many_as_they_say(names, lines):
    count = 0
    for name in re.findall("`([^`]+)`", names):
        path = REPOSITORY / "kuryr_k8s" / name.removeprefix("kuryr_k8s/")
        files = sorted(path.glob("*.py")) if path.is_dir() else [path]
        count += sum(len(file.read_text().splitlines()) for file in files)
    assert abs(count - int(lines)) <= count / 10


def test_tours_have_all_their_steps():
    steps = [str(number) for number in range(1, 15)]
    assert {name: [row[0] for row in rows] for name, rows in TOURS.items()} == {
        "a Pod is scheduled": steps,
        "a Service is made": steps,
    }


@pytest.mark.parametrize("pattern", OF_SERVICES)
def test_files_of_services_have_one_place_each(pattern):
    names = [file.name for file in (REPOSITORY / "kuryr_k8s").glob(pattern)]
    assert names
    assert {name: TEXT.count(f"/{name}`") for name in names} == dict.fromkeys(names, 1)
