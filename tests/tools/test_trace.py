"""The trace stream and the tools that read it, on a made-up trace: two pCPUs and three VMs take
turns for ten seconds."""
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools"))

import trace2json  # noqa: E402
import trace2xen  # noqa: E402
import tracestream as ts  # noqa: E402

MS = 1_000_000
BUSY, WAKER, WEB0, WEB1 = 1 << 16, 2 << 16, 3 << 16, 3 << 16 | 1
IDLE = 0xFFFF << 16  # pCPU 0's idle vCPU, as sched_who() of hv/sched/policy.h numbers it


def made_up(rounds=1000):
    """The trace: on pCPU 0 `busy` runs for 6 ms and `waker` for 1, and the pCPU idles for 3. On
    pCPU 1 the two vCPUs of `web` run for 5 ms each."""
    out, now = [], 0

    def switch(ns, cpu, prev, ran, to, nxt, slice_ns, waited):
        out.append(ts.Record(ns, ts.SWITCH, cpu, nxt, prev, ran, slice_ns, 0))
        out.append(ts.Record(ns, ts.RUNSTATE, cpu, prev, 0, to, ran, 0))
        out.append(ts.Record(ns, ts.RUNSTATE, cpu, nxt, 2 if nxt == WAKER and not waited else 1, 0,
                             waited, 0))

    for _ in range(rounds):
        out.append(ts.Record(now + 5 * MS, ts.WAKE, 0, WAKER, 0, 0, 0, 0))
        out.append(ts.Record(now + 5 * MS, ts.RUNSTATE, 0, WAKER, 2, 1, 8 * MS, 0))
        out.append(ts.Record(now + 6 * MS - 1000, ts.EXIT, 0, BUSY, ts.EXITS.index("HLT"), 0x1000,
                             0xFFFF8000, 0x78))
        switch(now + 6 * MS, 0, BUSY, 6 * MS, 1, WAKER, 30 * MS, 1 * MS)
        switch(now + 7 * MS, 0, WAKER, 1 * MS, 2, IDLE, 0, 3 * MS)
        switch(now + 10 * MS, 0, IDLE, 3 * MS, 1, BUSY, 30 * MS, 4 * MS)
        switch(now + 5 * MS, 1, WEB0, 5 * MS, 1, WEB1, 5 * MS, 5 * MS)
        switch(now + 10 * MS, 1, WEB1, 5 * MS, 1, WEB0, 5 * MS, 5 * MS)
        now += 10 * MS
    return out


@pytest.fixture(scope="module")
def stream():
    """Returns the bytes that the hypervisor's own code makes of the trace."""
    subprocess.run(["make", "-s", "build/unit/stream_dump"], cwd=ROOT, check=True,
                   stdout=subprocess.DEVNULL)
    raw = b"".join(r.pack() for r in made_up())
    return subprocess.run([os.path.join(ROOT, "build/unit/stream_dump")], input=raw, check=True,
                          stdout=subprocess.PIPE).stdout


def test_events_have_the_names_that_the_shell_has():
    """`crash -t` and the tools call an event by the same name, and each event has one."""
    with open(os.path.join(ROOT, "hv", "trace", "trace.h"), encoding="utf-8") as f:
        numbers = {m[1]: int(m[2], 16) for m in re.finditer(r"\b(TRC_\w+) = (0x\w+)", f.read())}
    with open(os.path.join(ROOT, "hv", "trace", "trace.c"), encoding="utf-8") as f:
        names = dict(re.findall(r'\{ (TRC_\w+), "([^"]+)" \}', f.read()))
    assert len(numbers) > 20
    assert {numbers[event]: name for event, name in names.items()} == ts.NAMES
    assert set(names) == set(numbers)


def test_read_back(stream):
    trace = ts.parse(stream)
    want = sorted(made_up(), key=lambda r: r.ns)
    assert [r.pack() for r in trace.records] == [r.pack() for r in want]
    assert trace.cpus == 2 and (trace.gaps, trace.skipped, trace.lost) == (0, 0, 0)
    assert [trace.name(w) for w in (BUSY, WEB1, IDLE, ts.NOBODY)] == [
        "busy", "web.1", "idle", "idle"]


def test_idle_time_is_not_drawn_as_a_vm(stream):
    """The demonstration never idles, so it did not show that an idle pCPU seemed to run
    "vm32767"."""
    events = trace2json.convert(ts.parse(stream))["traceEvents"]
    names = {e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    assert names == {"pCPUs", "busy", "waker", "web"}
    assert {e["name"] for e in events if e["ph"] == "X" and e["pid"] == trace2json.CPUS} == {
        "busy", "waker", "web.0", "web.1"}


def test_python_frames_as_c_does(stream):
    assert stream.startswith(ts.frame("H", 250, b"TAKTRACE" + struct.pack("<IIQ", 1, 2, 123)))


@pytest.mark.parametrize("seed", range(20))
def test_damage_costs_only_what_it_hits(stream, seed):
    """Bytes are lost, changed and put in. Every record that comes out is one that went in, and few
    are missing."""
    rng = random.Random(seed)
    damaged = bytearray(stream)
    for _ in range(20):
        at = rng.randrange(300, len(damaged))
        what = rng.randrange(3)
        if what == 0:
            del damaged[at:at + rng.randrange(1, 100)]
        elif what == 1:
            damaged[at] ^= 1 << rng.randrange(8)
        else:
            damaged[at:at] = (
                bytes(rng.randrange(256) for _ in range(rng.randrange(1, 50))) + ts.MARKS
            )
    trace = ts.parse(bytes(damaged))
    good = {r.pack() for r in made_up()}
    assert all(r.pack() in good for r in trace.records)
    assert len(trace.records) >= len(good) - 20 * 7 * 2
    assert trace.skipped > 0 or trace.gaps > 0


def test_starts_in_the_middle(stream):
    trace = ts.parse(stream[1000:])
    assert len(trace.records) > 17900


def test_not_a_stream():
    with pytest.raises(ValueError):
        ts.parse(b"Takt is a hypervisor\n" * 100)
    with pytest.raises(ValueError):
        ts.parse(ts.frame("H", 0, b"TAKTRACE" + struct.pack("<IIQ", 99, 2, 0)))


def test_json(stream):
    trace = ts.parse(stream)
    events = trace2json.convert(trace)["traceEvents"]
    ran = {}
    for e in events:
        if e["ph"] == "X" and e["pid"] == trace2json.CPUS:
            ran[e["name"]] = ran.get(e["name"], 0) + e["dur"]
    assert {k: round(v / 1e6, 2) for k, v in ran.items()} == {"busy": 6.0, "waker": 1.0,
                                                              "web.0": 5.0, "web.1": 5.0}
    waits = sum(e["dur"] for e in events if e["ph"] == "X" and e["pid"] == trace2json.VMS + 1
                and e["name"] == "runnable")
    assert round(waits / 1e6, 2) == 4.0
    exits = [e for e in events if e["name"] == "exit"]
    assert len(exits) == 1000 and exits[0]["args"] == {"reason": "HLT", "rip": "0xffff800000001000",
                                                       "raw": "0x78"}
    on_cpu0 = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X"
                     and e["pid"] == trace2json.CPUS and e["tid"] == 0)
    assert all(a[1] <= b[0] for a, b in zip(on_cpu0, on_cpu0[1:]))


def test_lost_records_are_a_gap_not_a_run():
    records = made_up(2)
    lost = ts.Record(8 * MS, ts.LOST, 0, ts.NOBODY, 5, 0, 0, 0)
    left = [lost] + [r for r in records if not (r.cpu == 0 and 8 * MS < r.ns < 16 * MS)]
    data = b"".join(ts.frame("R", i, r.pack()) for i, r in enumerate(left))
    trace = ts.parse(data)
    assert trace.lost == 5
    runs, _ = trace2json.intervals(trace)
    assert (
        sum(end - start for cpu, who, start, end in runs if cpu == 0 and who == BUSY)
        == 6 * MS + 6 * MS
    )


POLICY = [ts.Record(1000, ts.MICRO, 0, BUSY, 1, 3, 10_000_000, 0),
          ts.Record(2000, ts.SHARE, 0, WAKER, 0, 0,
                    *divmod(-5_000_000 & (1 << 64) - 1, 1 << 32)[::-1]),
          ts.Record(3000, ts.TURBO, 0, ts.NOBODY, 3, 1500, 28_500_000, 0),
          ts.Record(4000, ts.LABEL, 0, ts.NOBODY, 3, 1, 700, 0),
          # This is the turbo vCPU of web.
          ts.Record(5000, ts.WAKE, 1, WEB0 | ts.TURBO_PART << 16, 0, 0, 0, 0)]


def test_records_of_policies():
    trace = ts.parse(b"".join(ts.frame("R", i, r.pack()) for i, r in enumerate(POLICY)))
    got = {e["name"]: (e["pid"] - trace2json.VMS, e["tid"], e["args"])
           for e in trace2json.convert(trace)["traceEvents"] if e["ph"] == "i"}
    assert got == {"micro": (1, 0, {"latency-sensitive here": 1, "others": 3, "T_n us": 10000}),
                   "share": (2, 0, {"credit moved us": -5000}),
                   "turbo": (3, 0, {"turbo us": 1500, "FS^R us": 28500}),
                   "label": (3, 0, {"label": "io", "events a second": 700}),
                   "wake": (3, 0, {"args": [0, 0, 0, 0]})}
    first = ts.Record(0, ts.RUNSTATE, 0, BUSY, 0, 1, 0, 0)
    data = b"".join(ts.frame("R", i, r.pack()) for i, r in enumerate([first] + POLICY))
    records = records_of(trace2xen.convert_all(ts.parse(data))[0])
    assert (0, 1000, 0x22040, (1, 0, 1, 3, 10_000_000, 0)) in records
    assert (0, 3000, 0x22042, (3, 0, 3, 1500, 28_500_000, 0)) in records
    assert (0, 4000, 0x22043, (3, 0, 3, 1, 700, 0)) in records


def records_of(data):
    """Takes xentrace's format apart again. Returns [(cpu, ns, event, words)]."""
    at, cpu, out = 0, None, []
    while at < len(data):
        head, = struct.unpack_from("<I", data, at)
        words, event, stamped = head >> 28 & 7, head & 0x0FFFFFFF, head >> 31
        ns = struct.unpack_from("<Q", data, at + 4)[0] if stamped else None
        at += 12 if stamped else 4
        extra = struct.unpack_from("<%dI" % words, data, at)
        at += 4 * words
        if event == trace2xen.CPU_CHANGE:
            cpu = extra[0]
            assert at + extra[1] <= len(data)
        else:
            out.append((cpu, ns, event, extra))
    return out


def test_xentrace_records(stream):
    data, without = trace2xen.convert_all(ts.parse(stream))
    records = records_of(data)
    assert without == 0
    assert [r[0] for r in records] == sorted(r[0] for r in records)
    assert sum(r[2] == trace2xen.VMEXIT64 for r in records) == 999
    assert (0, 7 * MS, 0x21001 | 0 << 8 | 2 << 4, (WAKER,)) in records
    assert (0, 7 * MS, 0x21001 | 1 << 8 | 0 << 4, (32767 << 16,)) in records


@pytest.mark.skipif(shutil.which("xenalyze") is None,
                    reason="xenalyze is not installed (package xen-utils)")
def test_xenalyze_reads_it(stream, tmp_path):
    path = tmp_path / "out.xen"
    path.write_bytes(trace2xen.convert_all(ts.parse(stream))[0])
    done = subprocess.run(["xenalyze", "--cpu-hz", "1G", "--svm-mode", "--summary", str(path)],
                          check=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=60)
    assert "FATAL" not in done.stdout
    lines = done.stdout.splitlines()
    start = next(i for i, line in enumerate(lines) if "Domain 1" in line)
    running = next(line for line in lines[start:] if line.strip().startswith("running:"))
    seconds = float(running.split()[2].rstrip("s"))
    assert 5.9 < seconds < 6.1


@pytest.mark.skipif(shutil.which("xenalyze") is None,
                    reason="xenalyze is not installed (package xen-utils)")
def test_xenalyze_reads_losses(tmp_path):
    """On one pCPU stretches are missing, each with a lost record in its place."""
    gaps = [(t * MS, (t + 37) * MS) for t in range(200, 9000, 400)]
    records = [ts.Record(b, ts.LOST, 0, ts.NOBODY, 30, 0, 0, 0) for _, b in gaps]
    records += [r for r in made_up() if r.cpu == 1 or not any(a <= r.ns < b for a, b in gaps)]
    records.sort(key=lambda r: r.ns)
    path = tmp_path / "out.xen"
    path.write_bytes(
        trace2xen.convert_all(
            ts.parse(b"".join(ts.frame("R", i, r.pack()) for i, r in enumerate(records)))
        )[0]
    )
    done = subprocess.run(["xenalyze", "--cpu-hz", "1G", "--svm-mode", "--summary", str(path)],
                          check=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=60)
    assert "FATAL" not in done.stdout and "Total time: 9.99 seconds" in done.stdout
    assert re.search(r"lost: +\d+ ", done.stdout)


def test_picture(stream, tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "stream").write_bytes(stream)
    subprocess.run([sys.executable, os.path.join(ROOT, "tools/trace-picture.py"),
                    str(tmp_path / "stream"), str(tmp_path / "out.png"),
                    "--length", "0.2"], check=True)
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_event_times(tmp_path):
    """This tests both directions between two VMs, and how long a megabyte of events of 4096 bytes
    waits."""
    records = [ts.Record(i * MS, ts.EVTCHN_TAKE, 0, BUSY if i % 2 else WAKER, 3 if i % 2 else 5,
                         2000 * (1 + i % 2) + i * 10, 0, 0)
               for i in range(200)]
    payload = b"".join(r.pack() for r in records[:31]), b"".join(r.pack() for r in records[31:62])
    stream = tmp_path / "s"
    head = struct.pack("<8sII", b"TAKTRACE", ts.VERSION, 1)
    stream.write_bytes(
        ts.frame("H", 0, head) + ts.frame("R", 1, payload[0]) + ts.frame("R", 2, payload[1])
    )
    out = subprocess.run([os.path.join(ROOT, "tools/event-times.py"), "-j", "--bytes-per-event",
                          "4096", str(stream)],
                         check=True, stdout=subprocess.PIPE, text=True).stdout
    rows = json.loads(out)
    assert [(r["port"], r["events"]) for r in rows] == [(3, 31), (5, 31)]
    assert rows[0]["p50_us"] == pytest.approx(4.31) and rows[1]["max_us"] == pytest.approx(2.6)
    assert rows[0]["mean_us"] == pytest.approx(4.31) and rows[0]["us_per_mb"] == pytest.approx(
        4.31 * 256
    )


def test_event_time_of_a_megabyte_in_both_directions(tmp_path):
    """Two VMs send by way of a driver domain, which has one port for both."""
    iodom, server, source = 1 << 16, 2 << 16, 3 << 16
    waits = [(iodom, 2, 100_000)] * 6 + [(server, 4, 3_000_000)] * 4 + [(server, 7, 500_000)]
    records = [
        ts.Record(i * MS, ts.EVTCHN_TAKE, 0, who, port, ns, 0, 0)
        for i, (who, port, ns) in enumerate(waits)
    ]
    vms = b"".join(
        ts.frame("V", 1 + i, struct.pack("<II32s", who >> 16, 1, name))
        for i, (who, name) in enumerate(((iodom, b"iodom"), (source, b"source")))
    )
    stream, log = tmp_path / "s", tmp_path / "log"
    stream.write_bytes(ts.frame("H", 0, struct.pack("<8sII", b"TAKTRACE", ts.VERSION, 1)) + vms +
                       ts.frame("R", 4, b"".join(r.pack() for r in records)))
    # The VM has gone, so the trace does not name it.
    log.write_text(
        "[    0.9] server: id 2, 1 vCPU, 16 MiB, runs\n"
        "[    1.0] iodom: iodom: server.0: in=1 in_bytes=60 out=2 out_bytes=1000 irqs=1\n"
        "[    2.0] iodom: iodom: source.0: in=9 in_bytes=2097152 irqs=2\n"
        "[    3.0] iodom: iodom: server.0: in=4 in_bytes=1048576 out=8 out_bytes=4194304 irqs=4\n"
        "[    3.0] other: iodom: server.0: in=4 in_bytes=7 out=8 out_bytes=7\n",
        encoding="ascii",
    )
    command = [os.path.join(ROOT, "tools/event-times.py"), "--log", str(log), str(stream)]
    said = json.loads(subprocess.run([*command, "-j"], check=True, stdout=subprocess.PIPE,
                                     text=True).stdout)
    assert said["directions"] == [
        {"direction": "to", "to": "iodom", "events": 6, "waited_us": 600.0, "mb": 3.0,
         "us_per_mb": 200.0},
        {"direction": "from", "to": "server", "events": 5, "waited_us": 12500.0, "mb": 5.0,
         "us_per_mb": 2500.0},
        {"direction": "from", "to": "source", "events": 0, "waited_us": 0, "mb": 2.0,
         "us_per_mb": 0.0}]
    later = json.loads(subprocess.run([*command, "-j", "--since", "7"], check=True,
                                      stdout=subprocess.PIPE, text=True).stdout)
    assert [row["waited_us"] for row in later["directions"]] == [0, 9500.0, 0]
    assert sum(row["events"] for row in later["ports"]) == 4
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert re.search(r"from driver domain +server +5 +12\.5 +5\.00 +2\.50\n", text), text
    log.write_text("nothing\n", encoding="ascii")
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 1 and "it needs report_s=1" in done.stderr
