"""Processes that benchmarks start at the same instant."""

import os
import tempfile
import time

import pytest

from bench.node.parallel_processes import Program, at_once


def shell(script, **more):
    return Program(("/bin/sh", "-c", script), {"PATH": "/usr/bin:/bin"}, **more)


def test_each_process_has_its_own_time_code_output_and_input():
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        os.mkfifo(fifo := f"{directory}/fifo")
        reaped = f"read pid < {fifo}; while kill -0 $pid 2> /dev/null; do sleep 0.01; done"
        quick, slow = at_once(
            [shell(f"cat; echo $$ > {fifo}; exit 3", stdin=b"in"), shell(f"{reaped}; echo $PATH")]
        )
    assert (quick.code, quick.output) == (3, b"in")
    assert (slow.code, slow.output) == (0, b"/usr/bin:/bin\n")
    assert begin <= quick.begin == slow.begin
    assert quick.seconds < slow.seconds < time.monotonic() - begin


def test_what_cannot_be_started_is_a_failed_run():
    [run] = at_once([Program(("/nonexistent",), {})])
    assert run.code == 127


@pytest.fixture
def open_files():
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208 - just names
    yield
    # what an earlier test left may be closed meanwhile
    assert set(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208


def test_no_descriptor_is_left(open_files):
    at_once([shell("true")] * 3)
