"""tools/progress.py: what a waiting person sees, on a terminal and in a log."""
import io
import threading

import pytest

import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0)


def test_a_log_tells_each_job_that_is_done_and_the_time_left(capsys):
    assert progress.run_all("compare", lambda n: n * n, range(3), 1, lambda n: f"seed {n}") == [
        0,
        1,
        4,
    ]
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(", about")[0] for line in lines[:2]] == ["compare: 1 of 3",
                                                                    "compare: 2 of 3"]
    assert lines[0].endswith("left: seed 0") and lines[2] == "compare: 3 of 3: seed 2"


def test_a_terminal_has_one_line_that_is_erased(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(progress.sys, "stderr", terminal)
    shown = threading.Event()

    def job(n):
        while "it: 0 of 1, 1 s" not in terminal.getvalue():
            shown.wait(0.01)

    with progress.Line(lambda: "outer"):
        with progress.Line("inner", terminal):
            pass
    assert "inner" not in terminal.getvalue()
    progress.run_all("it", job, [1], 1)
    assert "\n" not in terminal.getvalue() and terminal.getvalue().endswith("\r\033[K")


def test_results_keep_the_order_of_the_jobs():
    second = threading.Event()

    def job(n):
        if n == 0:
            second.wait(10)
        else:
            second.set()
        return n

    assert progress.run_all("it", job, [0, 1], 2) == [0, 1]


def test_a_failed_job_ends_the_rest(capsys):
    begun = []

    def job(n):
        begun.append(n)
        raise LookupError("no figure")

    with pytest.raises(LookupError, match="no figure"):
        progress.run_all("it", job, range(50), 1)
    assert len(begun) < 50


@pytest.mark.parametrize("seconds, text", [(3, "3 s"), (89, "89 s"), (125, "2 min"),
                                           (3000, "50 min"), (7200, "2.0 h")])
def test_durations(seconds, text):
    assert progress.duration(seconds) == text
