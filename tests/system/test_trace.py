"""The trace of a running image: a ring that is not read blocks nothing, and a stream says what
happened."""
import json
import os
import subprocess
import sys
import time

import pytest
from conftest import ROOT

import trace2json
import trace2xen
import tracestream
from system.takt import CommandError, Takt, place, until

CONFIG = """\
[hypervisor]
top = no

[pool one]
cpus = 1

[vm a]
image = spin
memory = 4M
pool = one
weight = 512

[vm b]
image = spin
memory = 4M
pool = one
weight = 256

[vm naps]
image = waker
cmdline = period_us=2000
memory = 4M
"""
STREAM = os.path.join(place("trace"), "trace.bin")


@pytest.fixture(scope="module")
def takt():
    os.makedirs(os.path.dirname(STREAM), exist_ok=True)
    with Takt("trace", CONFIG, com2=STREAM) as t:
        yield t


def test_nobody_reads(takt):
    """Full rings lose new records, say how many, and hold up nothing."""
    takt("trace start all")
    until(lambda: takt("trace status")["lost"] > 1000, 60)
    exits = {v["vm"]: v for v in takt("vcpu-list")}
    assert {"a", "b", "naps"} <= set(exits)
    shares = takt.shares(1)
    assert abs(shares["a/0"] - 2 * shares["b/0"]) < 15, shares
    takt("trace stop")
    status = takt("trace status")
    assert status["mask"] == 0 and not status["streaming"]


def test_counters(takt):
    before = {c["name"]: c["value"] for c in takt("counters")}
    assert {
        "exits",
        "interrupts_injected",
        "timers_fired",
        "hypercalls",
        "kicks",
        "work_steps",
    } <= set(before)
    until(lambda: {c["name"]: c["value"] for c in takt("counters")}["exits"] > before["exits"] > 0,
          20)


def test_unknown_class_is_refused(takt):
    with pytest.raises(CommandError):
        takt("trace start everything")


def test_stream(takt):
    takt("trace stream com2")  # First comes what the rings still hold from before.
    until(lambda: os.path.getsize(STREAM) > 10000, 60)
    takt("trace start sched exit")
    time.sleep(1)
    takt("trace stop")
    for vm in ("a", "b", "naps"):
        takt(f"pause {vm}")
    until(lambda: not takt("trace status")["streaming"], 120)
    trace = tracestream.load(STREAM)
    status = takt("trace status")
    assert (trace.gaps, trace.skipped) == (0, 0)
    assert (
        len(trace.records) - sum(r.event == tracestream.LOST for r in trace.records)
        <= status["streamed"]
        <= len(trace.records) + 8
    )
    assert trace.lost == status["lost"] > 0
    assert {name for name, _ in trace.vms.values()} == {"a", "b", "naps"}
    for cpu in range(trace.cpus):
        times = [r.ns for r in trace.records if r.cpu == cpu]
        assert times == sorted(times)


def test_tools_on_it(takt):
    trace = tracestream.load(STREAM)
    runs, states = trace2json.intervals(trace)
    for cpu in range(trace.cpus):  # No vCPU is in two places, and no pCPU runs two vCPUs.
        mine = sorted((start, end) for c, _, start, end in runs if c == cpu)
        assert all(a[1] <= b[0] for a, b in zip(mine, mine[1:]))
    assert states and trace2json.convert(trace)["traceEvents"]
    data, _ = trace2xen.convert_all(trace)
    assert len(data) > 10000


def test_make_trace(tmp_path):
    """One command, without any typing, makes a picture, a file for Chrome's viewer, and the
    stream."""
    out = str(tmp_path / "trace")
    config = tmp_path / "my.cfg"
    config.write_text(CONFIG)
    done = subprocess.run([sys.executable, "tools/taketrace.py", "--platform", "qemu", "--vms",
                           str(config), "--seconds", "0.3", "--out", out],
                          cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    trace = tracestream.load(out + ".bin")
    ran = {r.vm for r in trace.records
           if r.event == tracestream.SWITCH and tracestream.is_vcpu(r.who)}
    assert {trace.vms[vm][0] for vm in ran} == {"a", "b", "naps"}
    assert 0.2e9 < trace.records[-1].ns - trace.records[0].ns
    with open(out + ".json", encoding="utf-8") as f:
        assert json.load(f)["traceEvents"]
    with open(out + ".png", "rb") as f:
        assert f.read(8) == b"\x89PNG\r\n\x1a\n"
    assert f"{len(trace.records)} records" in done.stdout and out + ".png" in done.stdout
