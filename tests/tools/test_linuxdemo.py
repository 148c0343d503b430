"""make linux-demo fails if anything is lost, wrong or not said: it must not pass because a line
that it looks for is missing."""
import pytest

import linuxdemo

LOAD = {"iperf3_mbps": "12.5", "fio_exit": "0", "fio_read_iops": "90", "fio_write_iops": "80",
        "ab_bytes": "4096", "ab_complete": "200", "ab_failed": "0", "ab_per_s": "17.1"}
ROW = '{"vm": "%s", "running_ns": 5000000000, "runnable_ns": 100000000}'
MACHINE = ("\x1e{\"id\": \"vcpus\", \"error\": 0, \"result\": ["
           + ", ".join(ROW % vm for vm in linuxdemo.BUSY) + "]}\n"
           "load: demo stolen_s 2.5\nweb: demo stolen_s 3.5\n"
           "load: ends with code 0\nweb: ends with code 0\n")


def failed_of_load(**changes):
    results = linuxdemo.Results()
    said = {k: v for k, v in (LOAD | changes).items() if v is not None}
    text = "".join(f"[    1.2] load: demo {name} {value}\n" for name, value in said.items())
    linuxdemo.guest_results(text, results, "200")
    return results.failed


def failed_of_machine(text):
    results = linuxdemo.Results()
    linuxdemo.machine_results(text, results)
    return results.failed


def test_all_is_well():
    assert not failed_of_load()
    assert not failed_of_machine(MACHINE)


@pytest.mark.parametrize("name", LOAD)
def test_nothing_may_be_missing(name):
    assert failed_of_load(**{name: None})


@pytest.mark.parametrize("name, value", [("fio_exit", "1"), ("ab_failed", "3"),
                                         ("ab_complete", "199"), ("ab_bytes", "153")])
def test_nothing_may_be_wrong(name, value):
    assert len(failed_of_load(**{name: value})) == 1


@pytest.mark.parametrize("lost", ["busy-1", "load: demo", "web: demo", "web: ends"])
def test_the_machine_must_say_it(lost):
    assert len(failed_of_machine(MACHINE.replace(lost, "other"))) == 1


class Slow:
    """A machine that prints one more line at each look."""

    def __init__(self, lines):
        self.lines, self.looks = lines, 0

    def serial(self):
        return "\n".join(self.lines[:self.looks]) + "\n"

    def wait(self, timeout):
        self.looks += 1
        return ("ended", 0) if self.looks > len(self.lines) else ("timeout", None)


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1)])
def test_waits_for_the_last_words_of_both(order):
    """On Bochs one VM may end seconds after the other, and their last lines come in any order."""
    lines = ["load: ends with code 0", "web: ends with code 0", "web: demo stolen_s 3.5"]
    machine = Slow([lines[n] for n in order] + ["more"])
    linuxdemo.until_all(machine, linuxdemo.LAST, 60)
    assert machine.looks == 3


def test_an_end_of_the_machine_ends_the_wait():
    machine = Slow(["load: ends with code 0"])
    linuxdemo.until_all(machine, linuxdemo.LAST, 60)
    assert machine.looks == 2
