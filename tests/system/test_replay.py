"""What the scheduler is told in the image, told again to the same sources on the host, must make it decide the same."""
import os

import pytest

import tracestream
from conftest import BUILD
from machine import Machine
from replay import replay
from system.takt import make_iso, place

SCHED_INPUT, IN_LABEL = 0x0401, 24  # trace.h, hv/sched/core.h

CONFIG = """\
[hypervisor]
record = yes
trace_console = com2
script = script
seed = 7
io_window_ms = 50
aca = 1

[pool second]
cpus = 1
{preset}

[vm hog]
image = spin
memory = 4M

[vm waker]
image = waker
memory = 4M
cmdline = period_us=5000

[vm reporter]
image = test-io_report
memory = 4M
cmdline = "every=100 ms=200 quiet=10000"

[vm part]
image = busy
memory = 4M
cmdline = percent=40
pool = second
weight = 512

[vm capped]
image = spin
memory = 4M
pool = second
cap = 30
"""

# The recording stops before its records are all on the line, which on Bochs carries 360 a virtual second.
SCRIPT = """\
@200ms sched-credit -d hog -w 1000
@300ms pause waker
@350ms unpause waker
@{stop}ms trace stop
@{stop}ms pause hog
+0ms pause waker
+0ms pause reporter
+0ms pause part
+0ms pause capped
""" + "".join(f"@{s}s trace status\n" for s in range(2, 60))


@pytest.mark.parametrize("preset", ["", "sched_preset = faithful-4.2"], ids=["hardened", "faithful"])
def test_replay(platform, preset, request):
    if platform == "bochs" and preset and not request.config.getoption("--long"):
        pytest.skip("takes long; make check runs it")
    directory = place(f"replay-{platform}-{'faithful' if preset else 'hardened'}")
    script = SCRIPT.format(stop=1200 if platform == "qemu" else 500)
    iso = make_iso(directory, CONFIG.format(preset=preset), modules={"script": script})
    stream = os.path.join(directory, "trace.bin")
    with Machine(platform, iso, cpus=2, directory=directory, com2=stream) as machine:
        how, match = machine.wait(r"streaming\s*: false\s+streamed\s*: (\d+)\s+lost\s*: (\d+)", 170)
        assert how == "matched", f"{how}\n{machine.serial()[-2000:]}"
    assert os.path.exists(os.path.join(BUILD, "sim")), "make build/sim first"
    assert int(match.group(1)) > 200 and int(match.group(2)) == 0, match.group(0)
    status, text = replay(stream)
    assert status == 0, text
    assert "identical" in text
    labels = [r.arg[0] >> 16 for r in tracestream.load(stream).records if r.event == SCHED_INPUT and r.arg[0] & 0xFF == IN_LABEL]
    assert set(labels) == {0, 1}  # one came and went
