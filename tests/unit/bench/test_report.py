"""The figures of benchmarks: percentiles, targets, counts from logs, and times from /proc."""

import json

import pytest

from bench.report import Report, Table, Target, percentile
from bench.restart.report import per_pod
from bench.testbed import processes
from bench.testbed.audit import AuditLog, Request, tally

USER = "system:serviceaccount:kube-system:kuryr-controller"
STAT = "4711 (a (strange) name) S 1 4711 4711 0 -1 4194560 9 0 0 0 250 50 7 8 20 0 5 0 99 1 2"
STATUS = "Name:\tpython\nVmPeak:\t  999999 kB\nVmHWM:\t  122880 kB\nVmRSS:\t  102400 kB\n"


def event(verb, resource, *, stage="ResponseComplete", user=USER, **ref):
    reference = {"resource": resource, **ref}
    body = {"stage": stage, "verb": verb, "user": {"username": user}, "objectRef": reference}
    return json.dumps(body).encode() + b"\n"


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.0, 1), (0.991, 100)]
)
def test_percentile_is_the_value_of_the_nearest_rank(share, expected):
    values = [float(value) for value in range(100, 0, -1)]
    assert percentile(values, share) == expected


def test_percentiles_of_one_value_are_that_value():
    assert percentile([7.0], 0.5) == percentile([7.0], 0.99) == 7.0


def test_percentile_of_nothing_is_an_error():
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_target_is_reached_up_to_and_including_its_limit():
    assert Target("t", 2.0, 2.0).reached
    assert not Target("t", 2.001, 2.0).reached


def test_figure_that_could_not_be_measured_reaches_no_target():
    assert not Target("t", float("nan"), 2.0).reached


def test_report_is_reached_only_with_all_targets():
    good, bad = Target("good", 1, 2), Target("bad", 3, 2)
    assert Report("r", targets=[good]).reached
    assert not Report("r", targets=[good, bad]).reached


def test_text_says_which_target_was_missed():
    text = Report("r", targets=[Target("good", 1, 2), Target("bad", 3.14159, 2, "s")]).as_text()
    lines = {line.split()[0]: line.split() for line in text.splitlines() if line}
    assert lines["good"][-1] == "reached"
    assert lines["bad"][-4:] == ["3.14", "2", "s", "MISSED"]


def test_table_is_aligned_by_its_widest_cells():
    text = Table("Title", ("WHAT", "N"), [("a", 12345.6), ("longer", 1)]).as_text()
    assert text.splitlines() == ["Title", "WHAT        N", "a       12346", "longer      1"]


def test_json_has_every_figure_and_the_verdicts():
    report = Report("r", targets=[Target("t", 3, 2, "s")], figures={"x": {"y": 1.5}})
    read = json.loads(report.as_json())
    assert read["figures"] == {"x": {"y": 1.5}}
    assert read["targets"] == [
        {"name": "t", "measured": 3, "limit": 2, "unit": "s", "reached": False}
    ]


def test_audit_log_is_counted_by_writes_reads_and_lists():
    found = tally(
        [
            event("create", "kuryrports"),
            event("patch", "kuryrports", subresource="status"),
            event("delete", "kuryrports"),
            event("get", "pods"),
            event("list", "pods"),
            event("watch", "pods", stage="ResponseStarted"),
            event("watch", "pods"),  # its end
            event("patch", "kuryrports", user="another"),
        ]
    )
    assert (found.writes(USER), found.reads(USER), found.lists(USER)) == (3, 1, 2)
    assert found.writes("another") == 1
    assert found[Request(USER, "patch", "kuryrports/status")] == 1
    assert found.kinds()["kuryr-controller watch pods"] == 1


def test_leases_and_what_is_no_object_are_not_counted():
    lines = [event("patch", "leases"), event("get", "leases")]
    lines.append(
        b'{"stage": "ResponseComplete", "verb": "get", "user": {"username": "%s"}}\n'
        % USER.encode()
    )
    assert not tally(lines)


def test_audit_log_forgets_what_was_before_the_mark_and_half_a_line(tmp_path):
    path = tmp_path / "audit.log"
    log = AuditLog(path)
    log.mark()  # it is not there yet
    path.write_bytes(event("create", "kuryrports"))
    assert log.tally().writes(USER) == 1
    log.mark()
    with path.open("ab") as file:
        file.write(event("delete", "kuryrports") + event("patch", "kuryrports")[:-20])
    assert dict(log.tally()) == {Request(USER, "delete", "kuryrports"): 1}


def test_cpu_time_is_found_behind_a_name_with_spaces_and_brackets():
    assert processes.cpu_seconds(STAT, ticks=100) == 3.0


def test_memory_is_resident_and_peak_in_mib():
    assert processes.memory(STATUS) == processes.Memory(resident=100.0, peak=120.0)


def test_memory_for_each_pod_is_what_is_above_the_idle_in_thousands_of_bytes():
    assert per_pod(110.0, 100.0, 1024) == pytest.approx(10.24)


def test_waiting_for_a_disk_is_no_work_and_a_guests_time_counts_once():
    stat = "cpu  100 0 200 300 400 0 0 0 50 0\ncpu0 1 1 1 1\n"
    worked, passed = processes.machine_seconds(stat)
    assert worked / passed == 0.3
