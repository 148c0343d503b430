"""The scheduler's inputs in the image are given again to the same sources on the host, which must
make the same decisions."""
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
{pool}

{pools}

[vm hog]
image = spin
memory = 4M

[vm waker]
image = waker
memory = 4M
cmdline = period_us=5000
pool = second
{waker}

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
{part}

[vm capped]
image = spin
memory = 4M
pool = second
cap = 30
"""

TURBO = "[pool fast]\ncpus = 2\nturbo_of = second"
BOTH = {"waker": "turbo = yes", "part": "turbo = yes", "pools": TURBO}
# These differ from one recording to the next: keys of the pool, of the VM that wakes and of a VM
# that computes, and further pools.
POLICIES = {
    "hardened": {},
    "faithful-3.4": {},
    "faithful-4.0": {},
    "faithful-4.1": {},
    "faithful-4.2": {},
    "vslicer": {"waker": "micro_us = 5000"},
    "vslicer-edf": {"pool": "sched_preset = vslicer\nslicer = edf", "waker": "micro_us = 5000",
                    "part": "latency_us = 15000"},
    "vslicer-frequency": {"pool": "sched_preset = vslicer\nslicer = frequency",
                          "waker": "micro_us = 5000",
                          "part": "latency_us = 15000"},
    "vslicer-paper-prototype": {"waker": "micro_us = 5000"},
    "sc": {"waker": "io = io", "part": "share_pct = 50"},
    "aca": {"waker": "io = io", "part": "io = cpu"},
    "sc+aca": {"waker": "io = io", "part": "share_pct = 50"},
    "anticipatory": {},
    "aggressive": {},
    "uniform-1ms": {},
    "pool-io": {},
    "order-fifo": {"pool": "order = fifo"},
    "credit-to-the-ns": {"pool": "sched_preset = faithful-4.2\ncredit_unit_us = 0"},
    "vturbo": {**BOTH, "pool": ""},
    "vturbo+vslicer": {**BOTH, "pool": "sched_preset = vslicer",
                       "waker": "turbo = yes\nmicro_us = 5000"},
}
QUICK = {"qemu": ("hardened", "sc+aca", "vturbo"), "bochs": ()}

# The recording stops before all of its records are on the line, which on Bochs carries 360 records
# a virtual second.
SCRIPT = """\
@{0}ms sched-credit -d hog -w 1000
@{1}ms pause waker
@{2}ms unpause waker
@{stop}ms trace stop
@{stop}ms pause hog
+0ms pause waker
+0ms pause reporter
+0ms pause part
+0ms pause capped
""" + "".join(f"@{s}s trace status\n" for s in range(2, 60))


@pytest.mark.parametrize("policy", POLICIES)
def test_replay(platform, policy, request):
    if policy not in QUICK[platform] and not request.config.getoption("--long"):
        pytest.skip("takes long; make check runs it")
    keys = {"pool": f"sched_preset = {policy}", "waker": "", "part": "", "pools": "",
            **POLICIES[policy]}
    directory = place(f"replay-{platform}-{policy}")
    stop = 1200 if platform == "qemu" else 150 if keys["pools"] else 500
    script = SCRIPT.format(stop * 4 // 10, stop * 6 // 10, stop * 7 // 10, stop=stop)
    iso = make_iso(directory, CONFIG.format(**keys), modules={"script": script})
    stream = os.path.join(directory, "trace.bin")
    with Machine(platform, iso, cpus=3 if keys["pools"] else 2, directory=directory,
                 com2=stream) as machine:
        how, match = machine.wait(r"streaming\s*: false\s+streamed\s*: (\d+)\s+lost\s*: (\d+)",
                                  170 if platform == "qemu" else 900)  # Bochs' seconds are virtual.
        assert how == "matched", f"{how}\n{machine.serial()[-2000:]}"
    assert os.path.exists(os.path.join(BUILD, "sim")), "make build/sim first"
    assert int(match.group(1)) > 200 and int(match.group(2)) == 0, match.group(0)
    status, text = replay(stream)
    assert status == 0, text
    assert "identical" in text
    labels = [r.arg[0] >> 16 for r in tracestream.load(stream).records if r.event == SCHED_INPUT
              and r.arg[0] & 0xFF == IN_LABEL]
    assert set(labels) == {0, 1}  # One label came and went.
