"""Timed commands from a boot module on Bochs: they come at their times, and a run repeats bit for bit."""
import json
import re

import pytest

from machine import Machine
from system.takt import make_iso, place

pytestmark = pytest.mark.bochs

CONFIG = """\
[hypervisor]
script = timed
guest_console = log

[vm one]
image = spin
memory = 4M
cpus = 1

[vm two]
image = spin
memory = 4M
cpus = 1
weight = 768

[vm greets]
image = hello
memory = 4M
cpus = 0
"""
SCRIPT = """\
# pause, look, let go, look, and the end
@100ms list -j=a
@200ms pause one
+50ms  vcpu-list -j=b one
+100ms vcpu-list -j=c one
+0ms   unpause one
+0ms   top -j=d -w 0.3 -d 0.6
+0ms   poweroff
"""


def run(number):
    directory = place(f"script-{number}")
    iso = make_iso(directory, CONFIG, modules={"timed": SCRIPT})
    machine = Machine("bochs", iso, directory=directory)
    try:
        machine.start()
        how, _ = machine.wait(None, 180)
        assert how == "ended", machine.serial()[-2000:]
        return machine.serial()
    finally:
        machine.stop()


def test_timed_and_repeated():
    first = run(1)
    answers = {a["id"]: a for a in (json.loads(m[1]) for m in re.finditer("\x1e(.*)\n", first))}
    assert list(answers) == ["a", "b", "c", "d"], first[-2000:]
    assert all(a["error"] == 0 for a in answers.values())
    assert {v["name"] for v in answers["a"]["result"]} >= {"one", "two"}
    before, after = answers["b"]["result"][0], answers["c"]["result"][0]
    assert before["paused"] and before["running_ns"] == after["running_ns"]  # paused: not a nanosecond more
    top = answers["d"]["result"]
    assert 0.6 <= top["seconds"] < 0.61
    share = {v["vm"]: v["cpu_pct"] for v in top["vcpus"]}
    assert share["two"] > 2 * share["one"] > 20
    assert "takt> pause one\n" in first
    assert re.search(r"\] greets: .", first)  # guests' lines in the log, with their names
    assert run(2) == first
