"""Timed commands from a boot module on Bochs. They come at their times, and a run repeats bit for
bit."""
import pytest

from system.takt import Boot

pytestmark = pytest.mark.bochs

CONFIG = """\
[hypervisor]
script = script
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


def test_timed_and_repeated():
    first, second = (Boot(f"script-{n}", CONFIG, SCRIPT, "bochs", timeout=180) for n in (1, 2))
    results = first.results
    assert [a["id"] for a in first.answers] == list(results) == ["a", "b", "c", "d"], first.log[
        -2000:
    ]
    assert {v["name"] for v in results["a"]} >= {"one", "two"}
    before, after = results["b"][0], results["c"][0]
    # A paused vCPU does not run for a nanosecond more.
    assert before["paused"] and before["running_ns"] == after["running_ns"]
    top = results["d"]
    assert 0.6 <= top["seconds"] < 0.61
    share = {v["vm"]: v["cpu_pct"] for v in top["vcpus"]}
    assert share["two"] > 2 * share["one"] > 20
    assert "takt> pause one\n" in first.serial
    assert first.said(r"\] greets: .")  # Guests' lines are in the log, with the guests' names.
    assert first.serial == second.serial


FLOOD = """\
[hypervisor]
script = script
guest_console = log

[vm loud]
image = hostile
cmdline = mode=babble
memory = 2M
cpus = 1
"""


def test_a_guest_cannot_lock_the_operator_out():
    """A VM prints as fast as it can, and the serial line carries 11,520 bytes a second. Commands
    run when they are due all the same, and the prompt is not drawn a thousand times."""
    script = ["@300ms info -j=a", "@700ms info -j=b", "@1100ms info -j=c", "+10ms poweroff"]
    boot = Boot("flood", FLOOD, script, "bochs", timeout=180)
    assert list(boot.results) == ["a", "b", "c"], boot.log[-2000:]
    a, b, c = (boot.results[tag]["uptime_s"] for tag in "abc")
    assert 0.37 < b - a < 0.43 and 0.37 < c - b < 0.43  # It is 0.4 s, as the script says.
    lines = boot.said(r"\] loud: \\x01")
    assert 20 < len(lines) < 150, len(lines)  # The VM has its part of the line.
    assert boot.log.count("takt> ") < len(lines) + 10
