"""Long steps are named while they run."""

import io

from lab.progress import Progress


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_what_runs_is_named_after_ten_seconds_of_silence():
    clock, stream = Clock(), io.StringIO()
    progress = Progress(stream=stream, clock=clock)
    with progress.during("build-kubernetes"), progress.during("python"):
        clock.now = 8.9
        assert progress.tick()
        assert stream.getvalue() == ""
        clock.now = 10.0
        progress.tick()
        assert stream.getvalue() == "[   10.0 s] ...    build-kubernetes 10 s, python 10 s\n"
        clock.now = 15.0
        progress.done("python", 15.0)
        clock.now = 20.0
        progress.tick()
        assert len(stream.getvalue().splitlines()) == 2, "a line was printed five seconds ago"
        clock.now = 25.0
        progress.tick()
        assert len(stream.getvalue().splitlines()) == 3
    assert not progress.tick(), "nothing runs any more"


def test_on_a_terminal_one_line_is_updated_and_lines_of_finished_steps_stand_above_it():
    clock, stream = Clock(), Terminal()
    progress = Progress(stream=stream, clock=clock)
    with progress.during("build-kubernetes"):
        for clock.now in (1.0, 2.0):
            progress.tick()
        progress.done("python", 2.0)
    written = stream.getvalue()
    assert written.count("\n") == 1, "only the finished step has a line of its own"
    assert written.count("\r\033[K") == 3, "the line is cleared for each update and for the step"
    assert written.rstrip().endswith("2.0 s")


def test_an_activity_says_how_far_it_is():
    clock, stream = Clock(), io.StringIO()
    progress = Progress(stream=stream, clock=clock)
    with progress.during("component") as activity:
        activity.state = "35%"
        clock.now = 12.0
        progress.tick()
    assert "component 12 s (35%)" in stream.getvalue()


def test_a_quiet_progress_prints_failures_only():
    stream = io.StringIO()
    progress = Progress(stream=stream, quiet=True)
    with progress.during("python"):
        progress.done("python", 1.0)
    progress.failed("etcd", 1.0, ValueError("no disk"))
    assert [line.split()[3] for line in stream.getvalue().splitlines()[:1]] == ["FAILED"]
