"""The table of Kubernetes' end-to-end tests."""

from lab.conformance.results import Result, read, table

REPORT = """<?xml version="1.0"?>
<testsuites><testsuite name="e2e">
<testcase name="[SynchronizedBeforeSuite]" status="passed" time="1"/>
<testcase name="[It] [sig-network] A should be [Conformance]" status="passed" time="2.5"/>
<testcase name="[It] [sig-network] DNS should answer" status="failed" time="9">
<failure message="it did
  not">a trace</failure></testcase>
<testcase name="[It] [sig-node] Pods should run" status="skipped" time="0"/>
</testsuite></testsuites>
"""


def test_what_has_run_is_read_and_what_was_not_chosen_is_left_out(tmp_path):
    report = tmp_path / "junit_01.xml"
    report.write_text(REPORT)
    assert read(report) == [
        Result("A should be", 2.5),
        Result("DNS should answer", 9.0, "it did not"),
    ]


def test_table_tells_why_a_spec_failed_and_the_reason_if_there_is_one():
    runs = [
        [Result("A", 1.0), Result("B", 2.0, "boom"), Result("C", 1.0, "bang")],
        [Result("A", 1.5), Result("B", 2.0)],
    ]
    lines = list(table(runs, {"^C": "Octavia cannot"}))
    assert [" ".join(line.split()) for line in lines] == [
        "1.0 s 1.5 s A",
        "FAILED 2.0 s B",
        "boom",
        "FAILED - C",
        "Octavia cannot",
        "run 1: 1 of 3 passed, 4 s",
        "run 2: 2 of 2 passed, 4 s",
    ]
