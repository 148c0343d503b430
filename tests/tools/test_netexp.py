"""tools/netexp.py: the VM files of its set-ups, and what it reads from the guests' output."""
import json
import os
import subprocess
import sys

import clients
import machine
import netdemo
import netexp
import pytest

from conftest import BUILD

ACKS = ("server: iperf: acks early=7 bottom_half=1 process=2 timer=0 suppressed=0 backlog=9 "
        "backlog_most=5\n")
BRIDGE = "iodom: iodom: server.0: in=1 out=2 ring_full=33 queue_full=2 irqs=4\n"


def test_read():
    udp = ("server: iperf: udp 500000 bytes in 1000000000 ns, 4.00 Mb/s, 35 of 350 datagrams "
           "lost, 0 out of order, jitter 1 ns\n")
    source = "source: load: udp 350 datagrams of 1470 bytes in 1250000000 ns\n"
    assert netexp.read("udp", source + udp + ACKS + BRIDGE) == {
        "goodput_mbps": 3.2, "ring_drops": 33, "queue_drops": 2, "sent": 350, "lost": 35}
    with pytest.raises(LookupError, match="source"):
        netexp.read("udp", udp + ACKS + BRIDGE)
    tcp = "server: iperf: tcp 1000000 bytes in 4000000000 ns, 2.00 Mb/s, 0 wrong, end 0\n"
    for experiment in ("tcp", "light"):
        assert netexp.read(experiment, tcp + ACKS + BRIDGE) == {
            "goodput_mbps": 2.0, "ring_drops": 33, "queue_drops": 2, "early_acks": 7,
            "backlog_segments": 9, "backlog_most": 5}


def test_read_events():
    class Trace:
        lost, gaps, vms, records = 0, 0, {1: ("iodom", 1), 2: ("server", 1)}, [
            netexp.tracestream.Record(1_000_000, netexp.tracestream.EVTCHN_TAKE, 0, who << 16, 3,
                                      ns, 0, 0)
            for who, ns in ((1, 2_000_000), (1, 1_000_000), (2, 9_000_000))]

    text = (
        "[    0.501000] server: load: tcp 1000000 bytes in 500000000 ns, end 0\n"
        "iodom: iodom: server.0: in=1 in_bytes=1048576 out=2 out_bytes=524288\n"
        "iodom: iodom: source.0: in=1 in_bytes=524288\n"
        "source: iperf: tcp 1000000 bytes in 4000000000 ns\n"
    )
    assert netexp.read_events(text, Trace) == {
        "goodput_mbps": 2.0, "events_to_driver_domain": 2, "ms_per_mb_to_driver_domain": 2.0,
        "events_to_vm": 1,
        "ms_per_mb_to_vm": 6.0}
    with pytest.raises(LookupError, match="begins after the traffic, which began at 0.000 s"):
        netexp.read_events(text.replace("0.501000", "0.500500"), Trace)
    Trace.lost = 3
    with pytest.raises(LookupError, match="3 records were lost"):
        netexp.read_events(text, Trace)


@pytest.mark.parametrize("experiment", netexp.SETUPS)
def test_parameters_are_printed_when_the_traffic_is_over(experiment, monkeypatch, tmp_path):
    """The parameters are 25 KB, which take two seconds on a serial line of 115,200 baud. The
    parameters of a VM that has ended by then are printed first, but these are few. A trace begins
    before the traffic."""
    scripts = []

    def image(name, config, script):
        scripts.append((config, script))
        raise clients.Failed("this test boots nothing")

    monkeypatch.setattr(machine, "BUILD", str(tmp_path))
    monkeypatch.setattr(netdemo, "image", image)
    for setup in netexp.SETUPS[experiment]:
        with pytest.raises(clients.Failed):
            netexp.run(experiment, setup, 4)
    for config, script in scripts:
        pools, vms = netdemo.names(config)
        asked = [f"param -j=pool-{p} -p {p}\n" for p in pools] + [
            f"param -j=vm-{vm} -d {vm}\n" for vm in vms
        ]
        assert all(script.count(line) == 1 for line in asked)
        over = script.index(" wait ")
        assert sum(script.index(line) < over for line in asked) == 1 < len(asked)
        assert max(map(script.index, asked)) < script.index("destroy")
        if experiment == "events":
            assert (
                script.index("trace start event")
                < over
                < script.index("trace stop")
                < script.index("param -j=pool")
            )


def made(seed, goodput, warm_up=0.5, setup="hardened", vms=4):
    return {"experiment": "udp", "setup": setup, "vms": vms, "seed": seed, "warm_up_s": warm_up,
            "goodput_mbps": goodput,
            "lost": 7, "vm_file": "ab", "knobs": {}}


def test_summarise():
    row = netexp.summarise([made(n, 6.0 + n) for n in (1, 2, 3)])
    assert (row["setup"], row["vms"], row["runs"], row["goodput_mbps"]["mean"]) == (
        "hardened",
        4,
        3,
        8.0,
    )
    assert row["goodput_mbps"]["ci95"] == pytest.approx(2.484, abs=1e-3) and "seed" not in row
    assert row["of_line_rate"] == pytest.approx(8 / 19.444, abs=1e-3)
    assert row["unsettled"] == netexp.QUICK
    assert "8.00 ±2.48" in netexp.table([row])[1] and "41%" in netexp.table([row])[1]
    assert "vm_file" not in row and row["lost"]["why"] == "all 3 runs gave the same value"


def test_the_warm_up_is_what_the_rule_says():
    def row(at):
        return netexp.summarise(
            [made(n, at(w) + n / 10, w) for w in netexp.WARM_UPS for n in (1, 2, 3)],
            netexp.WARM_UPS,
        )

    steady = row(lambda w: 8.0)
    assert (steady["warm_up_s"], steady["unsettled"], steady["runs"]) == (0.5, None, 3)
    late = row(lambda w: 8.0 if w > 0.5 else 4.0)
    assert (late["warm_up_s"], late["unsettled"], late["goodput_mbps"]["mean"]) == (1, None, 8.2)
    never = row(lambda w: 4.0 * w)
    assert never["warm_up_s"] == 2 and "changes from" in never["unsettled"]
    assert "not known to have settled" in netexp.table([never])[-1]


def test_gains_are_of_the_baseline_that_the_paper_had():
    runs = [made(n, 4.0 + n / 10, setup="faithful-4.1") for n in (1, 2, 3)]
    runs += [made(n, 12.0 + n / 10, setup="turbo") for n in (1, 2, 3)]
    rows = [netexp.summarise(runs[:3]), netexp.summarise(runs[3:])]
    netexp.add_gains(rows, runs)
    assert [r["of_baseline"] for r in rows] == [1.0, 2.9]
    assert rows[1]["more_than_baseline"] == {"n": 3, "value": 8.0,
                                             "why": "all 3 runs gave the same value"}


def test_a_gain_over_what_has_not_settled_is_a_range():
    """With one lucky run of a baseline, the gain could be any number."""
    base = [made(1, at, w, setup="faithful-4.1")
            for w, at in zip(netexp.WARM_UPS, (1.0, 0.5, 0.25))]
    turbo = [made(1, 9.0, w, setup="turbo") for w in netexp.WARM_UPS]
    rows = [netexp.summarise(runs, netexp.WARM_UPS) for runs in (base, turbo)]
    netexp.add_gains(rows, base + turbo)
    assert rows[0]["unsettled"] and rows[1]["unsettled"] is None
    assert rows[0]["of_baseline"] == 1.0
    assert rows[1]["of_baseline"] == {"least": 9.0, "most": 36.0}
    lines = netexp.table(rows)
    assert "0.25 to 1.00" in lines[1] and "9.0 to 36.0x" in lines[2] and "36.00x" not in lines[2]


def test_runs_do_not_overwrite_each_other(monkeypatch, tmp_path):
    names = []
    monkeypatch.setattr(machine, "BUILD", str(tmp_path))
    monkeypatch.setattr(netexp.netdemo, "boot", lambda name, *rest,
                        **more: names.append(name) or {})
    turns = [(e, s, n, seed, w) for e, setups in netexp.SETUPS.items() for s in setups
             for n in netexp.VMS[e]
             for seed in (1, 2) for w in netexp.WARM_UPS]
    for turn in turns:
        netexp.run(*turn)
    assert len(set(names)) == len(turns)


def test_one_run_that_fails_takes_no_other_with_it(monkeypatch, tmp_path, capsys):
    def run(kind, setup, vms, seed, warm_up):
        if (setup, seed) == ("turbo", 2):
            raise clients.Failed("no result of udp (timeout); see there")
        return made(seed, 8.0 + seed, warm_up, setup, vms)

    monkeypatch.setattr(netexp, "run", run)
    monkeypatch.setattr(machine, "BUILD", str(tmp_path))
    monkeypatch.setattr(netexp.netdemo, "provenance", lambda *args, **facts: facts)
    monkeypatch.setattr(sys, "argv", ["netexp.py", "--experiment", "udp", "--setup", "turbo",
                                      "--setup", "hardened",
                                      "--seeds", "3", "--quick"])
    assert netexp.main() == 1
    with open(tmp_path / "results" / "net-experiments-bochs.json", encoding="utf-8") as f:
        found = json.load(f)
    assert len(found["runs"]) == 15 and len(found["missing"]) == 3
    assert found["missing"][0] == {"experiment": "udp", "setup": "turbo", "vms": 3, "seed": 2,
                                   "warm_up_s": 0.5,
                                   "why": "no result of udp (timeout); see there"}
    assert [r["runs"] for r in found["summary"] if r["setup"] == "turbo"] == [2, 2, 2]
    assert "missing: experiment udp, setup turbo, vms 3, seed 2" in capsys.readouterr().err


def test_who_interrupts_keeps_what_is_finished(capsys):
    def one_run(n):
        if n == 3:
            raise KeyboardInterrupt
        return {"x": n}

    turns = [(n,) for n in range(1, 6)]
    runs, missing = netdemo.split(turns, netdemo.attempt_all("some", one_run, turns, 1, str),
                                  ("seed",))
    assert runs[:2] == [{"seed": 1, "x": 1}, {"seed": 2, "x": 2}]
    assert missing[0]["seed"] == 3 and "interrupted" in missing[0]["why"]
    # What was under way may end.
    assert sorted(r["seed"] for r in runs + missing) == [1, 2, 3, 4, 5]
    assert "some: interrupted" in capsys.readouterr().err


@pytest.mark.parametrize("experiment, setup, vms",
                         [(e, s, n) for e, setups in netexp.SETUPS.items() for s in setups
                          for n in netexp.VMS[e]])
def test_vm_files(experiment, setup, vms, tmp_path):
    """The right number of VMs share the core. There is a turbo core, or a second regular one, as
    the name of the set-up says. With another seed the traffic begins at another time."""
    files = [tmp_path / f"{seed}.cfg" for seed in (1, 2)]
    found = []
    for seed, path in enumerate(files, 1):
        path.write_text(netexp.text_of(experiment, setup, vms, seed))
        done = subprocess.run([os.path.join(BUILD, "cfgdump"), path], capture_output=True,
                              text=True, check=True)
        dump = json.loads(done.stdout)
        found.append({vm["name"]: vm for vm in dump["vms"]})
        pools = {pool["name"]: pool for pool in dump["pools"]}
    assert pools["core"]["cpus"] == ([2, 3] if "+core" in setup else [2])
    on_core = {name for name, vm in found[0].items() if vm["pool"] == "core"}
    assert len(on_core - {"iodom"}) == vms and ("iodom" in on_core) == ("one pool" in setup)
    assert found[0]["server"]["turbo"] == ("turbo" in setup)
    assert ("early_ack=1" in found[0]["server"]["cmdline"]) == ("early_ack" in setup)
    sender, other = ("server", "source") if experiment == "events" else ("source", "server")
    assert found[0][sender]["cmdline"] != found[1][sender]["cmdline"]
    assert found[0][other] == found[1][other]
