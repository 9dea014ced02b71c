"""Every test belongs to a stage, and `make check` chooses the tests of a change."""

from pathlib import Path

import pytest

from lab.suite import reports, stages
from lab.suite.check import select

ROOT = Path(__file__).parents[3]
REPORT = """<testsuites><testsuite tests="3" failures="1" errors="0" skipped="1">
<testcase classname="tests.unit.test_a" name="test_one[fd00::1]"/>
<testcase classname="tests.unit.test_a.TestMore" name="test_two"><skipped/></testcase>
<testcase classname="tests.unit.test_a" name="test_three"><failure message="it broke"/></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def report(tmp_path):
    file = tmp_path / "unit.xml"
    file.write_text(REPORT)
    return file


def test_a_test_that_no_stage_ran_is_found(report):
    collected = """
tests/unit/test_a.py::test_one[fd00::1]
tests/unit/test_a.py::TestMore::test_two
tests/unit/test_a.py::test_three
tests/kit/test_forgotten.py::test_four[a b]

4 tests collected in 0.10s
"""
    assert reports.never_run(collected, [report]) == [
        "tests/kit/test_forgotten.py::test_four[a b]"
    ]


def test_a_report_tells_counts_and_reasons(report):
    assert reports.counts(report) == (1, 1, 1)
    assert list(reports.failures(report)) == ["tests.unit.test_a::test_three: it broke"]


def test_a_stage_without_a_report_ran_nothing(tmp_path):
    assert reports.counts(tmp_path / "none.xml") == (0, 0, 0)
    assert reports.never_run("tests/a.py::test_b", [tmp_path / "none.xml"]) == [
        "tests/a.py::test_b"
    ]


def test_the_paths_of_all_stages_exist_and_each_name_stands_once():
    found = stages.all_stages(complete=True)
    assert len({stage.name for stage in found}) == len(found)
    assert [path for stage in found for path in stage.paths if not (ROOT / path).exists()] == []


def test_only_the_complete_run_has_another_python():
    sampled = {stage.python for stage in stages.all_stages(complete=False)}
    assert sampled == {"py"}
    assert {stage.python for stage in stages.all_stages(complete=True)} == {"py", "py313"}


@pytest.fixture
def tree(tmp_path):
    files = {
        "tests/unit/drivers/lbaas/test_plan.py": "from tests.kit.lbaas import plans",
        "tests/unit/drivers/test_registry.py": "from tests.kit.packages import install",
        "tests/unit/lab/test_suite.py": "",
        "tests/unit/kit/test_lanes.py": "from tests.kit.paths import REPOSITORY",
        "tests/unit/cni/node.py": "import tests.kit.node.fakes",
        "tests/unit/cni/test_parking.py": "from tests.unit.cni.node import Node",
        "tests/unit/model/test_codec.py": "from tests.kit.paths import GOLDEN",
        "tests/unit/test_documents.py": "",
        "tests/conftest.py": "from tests import samples",
        "tests/kit/lbaas/plans.py": "from tests.kit.clock import Clock",
        "tests/outside/installed.py": "",
        "tests/component/test_pods.py": "from tests.outside import installed",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


KIT = "tests/unit/kit"


@pytest.mark.parametrize(
    ("changed", "chosen"),
    [
        (["kuryr_k8s/drivers/lbaas/plan.py"], ["tests/unit/drivers/lbaas"]),
        (["kuryr_k8s/drivers/vif/neutron.py"], ["tests/unit/drivers"]),
        (["kuryr_k8s/app.py"], ["tests/unit"]),
        (["lab/suite/check.py"], ["tests/unit/lab"]),
        (
            ["tests/unit/drivers/test_registry.py"],
            ["tests/unit/drivers/test_registry.py", KIT],
        ),
        (["tests/unit/drivers/test_deleted.py"], [KIT]),
        (["tests/unit/cni/node.py"], ["tests/unit/cni/test_parking.py", KIT]),
        (["tests/kit/node/fakes.py"], ["tests/unit/cni/test_parking.py", KIT]),
        (["tests/kit/lbaas/plans.py"], ["tests/unit/drivers/lbaas/test_plan.py", KIT]),
        (["tests/kit/clock.py"], ["tests/unit/drivers/lbaas/test_plan.py", KIT]),
        (["tests/golden/vlan.json"], [KIT, "tests/unit/model/test_codec.py"]),
        (["tests/lives/pods.py"], [KIT]),
        (["tests/tables/test_takeover.py"], [KIT]),
        (["tests/outside/installed.py"], [KIT]),
        (["tests/conftest.py"], ["tests/unit"]),
        (["tests/samples.py"], ["tests/unit"]),
        (["test-requirements.txt"], ["tests/unit"]),
        (["README.md"], ["tests/unit/test_documents.py"]),
        (["setup.cfg", "README.md"], ["tests/unit"]),
        (
            ["kuryr_k8s/drivers/lbaas/plan.py", "kuryr_k8s/drivers/base/driver.py"],
            ["tests/unit/drivers"],
        ),
    ],
)
def test_check_chooses_the_unit_tests_of_the_packages_that_changed(tree, changed, chosen):
    assert select(changed, tree) == chosen


def test_tests_that_no_stage_ran_are_summed_up_by_their_files():
    tests = [f"tests/{file}.py::test_{number}" for file in "abcdefg" for number in range(3)]
    lines = reports.by_file(tests)
    assert lines[0] == "3 of tests/a.py"
    assert lines[5:] == ["and tests of 2 other files"]
