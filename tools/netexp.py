#!/usr/bin/env python3
"""make net-experiments: vTurbo's experiments on network I/O (section 5.1), in virtual time.

  udp     goodput and drops of a stream of datagrams at the link's full rate, with 3, 4 and 5 VMs
          on a core
  tcp     goodput of a stream with 4 VMs on a core. The reader computes on its data in place, a
          millisecond for the data of each call, so it nearly always owns its socket when it is off
          its core. The set-ups are those of the paper's section 3.2, one after the other, and at
          last unmodified lwIP, where no thread owns a socket
  light   the same stream to a reader that computes in place as long as there are data, and owns
          nothing while it waits for more
  events  how long the events that carry a megabyte wait between a VM and the driver domain, as in
          figure 2 of "Coexisting scheduling policies". One of 4 VMs on the core sends a TCP stream
          for a second. The driver domain is one more VM on the core, or has a pool of its own. This
          is computed from traces; tools/event-times.py says what is counted

boot/net-demo.cfg is the machine; the traffic comes from inside it. SETUPS and text_of() have what
is added to that file. The baseline is faithful-4.1, Credit as in the Xen that the paper was
measured with; `hardened` is our own Credit, to which the turbo core is added. With `+core` the
turbo core is a second regular core, which is the control: it shows what one more core gains by
itself.

A seed is a run in which the traffic begins at another point of the VMs' slices. All set-ups have
the same seeds. Each run is made after each of WARM_UPS, and tools/experiment.py says which of them
was long enough, and what may be said of several runs. Writes
build/results/net-experiments-bochs.json with every run; if some fail it has the others, and says
which are missing.

  tools/netexp.py [--experiment udp|tcp|light|events]... [--setup NAME]... [--seeds N] [--quick]

--quick measures only after the shortest warm-up, and does not check whether that is enough.
"""
import argparse
import importlib
import os
import re

import compare
import experiment
import machine
import netdemo
import sentence
import taketrace
import tracestream
from netdemo import BASELINE, EXTRA, HARDENED, TURBO

event_times = importlib.import_module("event-times")

PLATFORM = "bochs"
PCPUS = 4  # for the source, the driver domain, the shared core, the turbo core
SEEDS, MS = 5, {"udp": 1000, "tcp": 2000, "light": 2000, "events": 1000}
WARM_UPS = (0.5, 1, 2)  # in s; each is twice the one before, as experiment.settle() wants them
FLOOR = 0.1             # Mb/s; a smaller difference does not matter

# TCP is scaled down from 1 Gb/s by 100. Linux's largest buffers of the paper's time, 4 MiB on
# either side, become 64 KiB at the receiver, the least that there is, and 32 KiB at the sender. The
# paper's 40 MB become 400 KiB. The light reader computes 6 instructions a byte, which takes 30 % of
# a quarter of the core at the link's rate.
SMALL, LARGE, SENDER = "rcvbuf=65536", "rcvbuf=409600", "sndbuf=32768"
READER, LIGHT = "in_place each=100000", "in_place work=6"
TCP_LINK = 10_000_000
LINE = {"udp": netdemo.DATAGRAMS, "tcp": netdemo.line_rate(TCP_LINK, 1460, 54)}
LINE["light"] = LINE["events"] = LINE["tcp"]

BASELINES = {"faithful-4.1": BASELINE, "faithful-4.1+core": compare.both(BASELINE, EXTRA),
             "hardened": HARDENED,
             "hardened+core": compare.both(HARDENED, EXTRA)}


def baselines(server):
    return {name: (settings, server) for name, settings in BASELINES.items()}


# name: (what is added to the base file, the words for the server)
SETUPS = {
    # The datagrams that come while the server waits for up to 90 ms are 220 KB. The paper needed 40
    # MB where 11 MB were enough by that sum; 40 MB scaled by 50 is 800 KiB.
    "udp": {**baselines("rcvbuf=819200"), "turbo": (TURBO, "rcvbuf=819200"),
            "turbo, small buffer": (TURBO, SMALL)},
    "tcp": {
        **baselines(f"{READER} {SMALL} early_ack=0"),
        "turbo": (TURBO, f"{READER} {SMALL} early_ack=0"),
        "turbo+buffers": (TURBO, f"{READER} {LARGE} early_ack=0"),
        "turbo+buffers+early_ack": (TURBO, f"{READER} {LARGE} early_ack=1"),
        "turbo+buffers, no owners": (TURBO, f"{READER} {LARGE} plain"),
    },
    "light": {
        "turbo+buffers": (TURBO, f"{LIGHT} {LARGE} early_ack=0"),
        "turbo+buffers+early_ack": (TURBO, f"{LIGHT} {LARGE} early_ack=1"),
    },
}
ON_CORE = {"vm iodom": {"pool": "core"}}
SETUPS["events"] = {
    "faithful-4.1, one pool": (compare.both(BASELINE, ON_CORE), ""),
    "faithful-4.1": (BASELINE, ""), "hardened": (HARDENED, ""), "turbo": (TURBO, ""),
}
VMS = {"udp": (3, 4, 5), "tcp": (4,), "light": (4,), "events": (4,)}
SCRIPT = "+0ms wait source 60s\n+0ms destroy server\n+100ms poweroff\n"


def without(text, section):
    return re.sub(rf"(?ms)^\[{section}\].*?(?=^\[|\Z)", "", text)


def text_of(kind, setup, vms, seed, warm_up=WARM_UPS[0]):
    """Returns the VM file of one run."""
    ms = MS[kind]
    settings, server = SETUPS[kind][setup]
    traffic = f"udp_ms={ms} udp_rate={LINE['udp']}" if kind == "udp" else f"tcp_ms={ms} {SENDER}"
    start = netdemo.start(seed, warm_up)
    over = {"hypervisor": {"script": "net-demo.script", "top": "no", "seed": str(seed)},
            "vm server": {"cmdline": f"ip=10.0.0.2/24 ring=16 busy {server}"},
            "vm source": {"cmdline": f"ip=10.0.0.3/24 to=10.0.0.2 start_ms={start} {traffic}"}}
    if kind == "events":
        # The VM on the core sends, and the VM outside of the core takes the stream.
        over["vm server"] = {
            "cmdline": f"ip=10.0.0.2/24 ring=16 to=10.0.0.3 start_ms={start} tcp_ms={ms} "
                       "sndbuf=65536",
            "image": "load",
            "memory": "16M",
        }
        over["vm source"] = {"cmdline": "ip=10.0.0.3/24", "image": "iperf",
                             "net": f"iodom rate={TCP_LINK} delay=2ms"}
    elif kind != "udp":
        over["vm source"]["net"] = f"iodom rate={TCP_LINK} delay=2ms"
    for n in range(4, vms):
        over[f"vm hog-{n}"] = {"image": "spin", "memory": "4M", "pool": "core"}
    with open(netdemo.BASE, encoding="ascii") as f:
        text = without(f.read(), "vm probe")
    for n in range(vms, 4):
        text = without(text, f"vm hog-{n}")
    return compare.lay_over(text, compare.both(settings, over))


def read(kind, text):
    """Returns what one run has printed. The goodput of datagrams is what arrived in the time that
    the source took, because the reader may see the first datagram late, and the last ones all at
    once."""
    acks, bridge = netdemo.last("acks", text), netdemo.bridge(text)
    drops = {"ring_drops": netdemo.ring_drops(text), "queue_drops": bridge.get("queue_full", 0)}
    if kind == "udp":
        got, source = netdemo.last("udp", text), re.search(
            r"source: load: udp \d+ datagrams of \d+ bytes in (\d+) ns", text
        )
        if not source:
            raise LookupError("source")
        goodput = round(int(got["udp_bytes"]) * 8e3 / int(source[1]), 2)
        return {"goodput_mbps": goodput} | drops | {"sent": int(got["udp_sent"]),
                                                    "lost": int(got["udp_lost"])}
    return {"goodput_mbps": netdemo.mbps(netdemo.last("tcp", text), "tcp")} | drops | {
        "early_acks": int(acks["early"]), "backlog_segments": int(acks["segments"]),
        "backlog_most": int(acks["backlog"])}


def read_events(text, trace):
    """Returns what one run of `events` has printed, and what its trace says."""
    got = re.search(r"source: iperf: tcp (?P<tcp_bytes>\d+) bytes in (?P<tcp_ns>\d+) ns", text)
    if not got:
        raise LookupError("source")
    if trace.lost or trace.gaps:
        raise LookupError(f"all of the trace: {trace.lost} records were lost")
    sent = re.search(r"\[ *(\d+\.\d+)\] server: load: tcp \d+ bytes in (\d+) ns", text)
    if not sent:
        raise LookupError("server")
    begin = float(sent[1]) - int(sent[2]) / 1e9
    if not trace.records or min(r.ns for r in trace.records) / 1e9 > begin:
        raise LookupError(
            f"all of the trace: it begins after the traffic, which began at {begin:.3f} s"
        )
    rows = {(r["direction"], r["to"]): r for r in event_times.directions(trace, text)}
    there, back = rows["to", "iodom"], rows["from", "server"]
    return {"goodput_mbps": netdemo.mbps(got, "tcp"), "events_to_driver_domain": there["events"],
            "ms_per_mb_to_driver_domain": round(there["us_per_mb"] / 1000, 3),
            "events_to_vm": back["events"],
            "ms_per_mb_to_vm": round(back["us_per_mb"] / 1000, 3)}


# The trace begins before the traffic. It is sent over COM2 when the traffic is over: then no VM
# computes any more, so sending is quick.
EVENTS = (
    "@450ms trace start event\n+0ms wait server 60s\n+0ms trace stop\n+0ms destroy source\n"
    "+0ms destroy hog-1\n+0ms destroy hog-2\n+0ms destroy hog-3\n+10ms trace stream com2\n"
    "+600s poweroff\n"
)


def run_events(name, config):
    path = os.path.join(machine.BUILD, "run", name, "trace.bin")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb"):
        pass  # What an earlier run left is not of this run.

    def all_of_it_has_come(m):
        while m.wait(timeout=1)[0] == "timeout":
            with open(path, "rb") as f:
                records, headers = taketrace.arrived(f.read())
            if records and headers >= taketrace.QUIET_HEADERS:
                return "it came"
        return "it ended before the trace had come"

    return netdemo.boot(
        name,
        config,
        EVENTS,
        PLATFORM,
        PCPUS,
        lambda text: read_events(text, tracestream.load(path)),
        path,
        all_of_it_has_come,
    )


COLUMNS = ("experiment", "setup", "vms", "seed", "warm_up_s")


def run(kind, setup, vms, seed=1, warm_up=WARM_UPS[0]):
    name = f"{kind}-{vms}-{setup}-seed-{seed}-after-{warm_up:g}s".replace(", ", "+").replace(
        " ", "-"
    )
    name, config = "net-experiments/" + name, text_of(kind, setup, vms, seed, warm_up)
    if kind == "events":
        found = run_events(name, config)
    else:
        found = netdemo.boot(name, config, SCRIPT, PLATFORM, PCPUS, lambda text: read(kind, text))
    return dict(zip(COLUMNS, (kind, setup, vms, seed, warm_up))) | found


# ---- many runs ----

QUICK = "one warm-up was run alone"


def settled(runs, warm_ups):
    """Returns a set-up's runs after the warm-up that counts, and why it may be too short, or
    None."""
    if len(warm_ups) < len(WARM_UPS):
        return runs, QUICK
    by = {w: {r["seed"]: r for r in runs if r["warm_up_s"] == w} for w in warm_ups}
    seeds = sorted(set.intersection(*map(set, by.values())))
    if not seeds:
        return [], "no seed has a run after each warm-up"

    def observe(warm_up):
        looks = []
        for seed in seeds:
            whole = {"goodput in Mb/s": by[warm_up][seed]["goodput_mbps"]}
            # No figure exists for the halves of a stream.
            looks.append(experiment.Look(whole, (whole, whole)))
        return looks

    verdict = experiment.settle(observe, warm_ups[0], warm_ups[-1], {"goodput in Mb/s": FLOOR})
    return list(by[verdict.warm_up].values()), verdict.why


NOT_MEASURED = (*COLUMNS, "vm_file", "knobs")


def summarise(runs, warm_ups=WARM_UPS[:1]):
    """Returns one row of a set-up: what its runs say about every number that was measured."""
    chosen, why = settled(runs, warm_ups)
    if not chosen:
        return None
    row = {key: runs[0][key] for key in COLUMNS[:3]} | {
        "runs": len(chosen), "warm_up_s": chosen[0]["warm_up_s"], "unsettled": why}
    row |= {
        key: experiment.estimate([r[key] for r in chosen])
        for key in chosen[0]
        if key not in NOT_MEASURED
    }
    row["of_line_rate"] = round(mean(row["goodput_mbps"]) * 1e6 / LINE[row["experiment"]], 3)
    each = [r["goodput_mbps"] for r in runs]
    row["all_warm_ups"] = {"n": len(each), "min": min(each), "max": max(each)}
    return row


def mean(e):
    """Returns the middle of what experiment.estimate() says."""
    if "mean" in e:
        return e["mean"]
    if "value" in e:
        return e["value"]
    if "values" in e:
        return sorted(e["values"])[len(e["values"]) // 2]
    return sum(g["mean"] * g["n"] for g in e["groups"]) / e["n"]


def gain(row, base):
    """Returns how many times the goodput of the baseline a set-up has. If one of the two has not
    settled, its mean is a matter of luck. Then this is the least and the most that the runs of both
    allow."""
    if row is base:
        return 1.0
    if all(r["unsettled"] in (None, QUICK) for r in (row, base)):
        return round(mean(row["goodput_mbps"]) / mean(base["goodput_mbps"]), 2)
    mine, other = row["all_warm_ups"], base["all_warm_ups"]
    return {"least": round(mine["min"] / other["max"], 2),
            "most": round(mine["max"] / other["min"], 2)}


def gain_text(found):
    if found is None:
        return "-"
    if isinstance(found, dict):
        return f"{found['least']:.1f} to {found['most']:.1f}x"
    return f"{found:.2f}x"


def add_gains(rows, runs):
    """Adds to each row how many times the goodput of the baseline the set-up has, and by how much
    it is better for the seeds that both have."""
    for row in rows:
        base = next((r for r in rows if r["setup"] == "faithful-4.1" and
                     all(r[key] == row[key] for key in ("experiment", "vms"))), None)
        if not base:
            continue
        row["of_baseline"] = gain(row, base)
        row["more_than_baseline"] = experiment.paired(*(
            {r["seed"]: r["goodput_mbps"] for r in runs
             if all(r[key] == wanted[key] for key in ("experiment", "setup", "vms", "warm_up_s"))}
            for wanted in (base, row)))


def table(rows):
    told = ("experiment", "setup", "vms", "runs", "unsettled", "of_line_rate", "of_baseline",
            "more_than_baseline", "all_warm_ups", "warm_up_s", "goodput_mbps")
    columns = [key for key in rows[0] if key not in told]
    lines = [["set-up", "VMs", "Mb/s", "all warm-ups", "of line", "of 4.1", "warm-up",
              *(key.replace("_", " ") for key in columns)]]
    digits = {key: 2 if key.startswith("ms_per_mb") else 0 for key in columns}
    for r in rows:
        lines.append([r["setup"], str(r["vms"]), experiment.text(r["goodput_mbps"], 2),
                      "{min:.2f} to {max:.2f}".format(**r["all_warm_ups"]),
                      f"{r['of_line_rate']:.0%}", gain_text(r.get("of_baseline")),
                      f"{r['warm_up_s']:g} s",
                      *(experiment.text(r[key], digits[key]) for key in columns)])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    found = [
        "  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(line, widths)))
        for line in lines
    ]
    return found + [f"{r['setup']}, {r['vms']} VMs: not known to have settled: {r['unsettled']}"
                    for r in rows if r["unsettled"] not in (None, QUICK)]


def main():
    parser = argparse.ArgumentParser(
        description="UDP and TCP goodput of a VM among VMs that compute"
    )
    parser.add_argument("--experiment", action="append", choices=list(SETUPS))
    parser.add_argument("--setup", action="append", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--quick", action="store_true", help="one warm-up alone")
    args = parser.parse_args()
    known = {setup for setups in SETUPS.values() for setup in setups}
    for name in args.setup or ():
        if name not in known:
            raise sentence.Problem(f"--setup {name} is not known: {', '.join(sorted(known))}")
    what = [(e, setup, vms) for e in args.experiment or SETUPS for vms in VMS[e]
            for setup in SETUPS[e] if not args.setup or setup in args.setup]
    warm_ups = WARM_UPS[:1] if args.quick else WARM_UPS
    turns = [(*w, seed, warm_up) for seed in range(1, args.seeds + 1) for w in what
             for warm_up in warm_ups]
    results = netdemo.attempt_all(
        "net-experiments",
        run,
        turns,
        os.cpu_count(),
        lambda turn: "{}, {}, {} VMs, seed {}, after {:g} s".format(*turn),
    )
    runs, missing = netdemo.split(turns, results, COLUMNS)
    rows = []
    for w in what:
        mine = [r for r in runs if tuple(r[key] for key in COLUMNS[:3]) == w]
        rows += [row for row in [summarise(mine, warm_ups)] if row] if mine else []
    add_gains(rows, runs)
    print(
        f"Takt, {PLATFORM}: {args.seeds} seed(s); UDP: 1 s at the full rate of 20 Mb/s; TCP: 2 s "
        "over 10 Mb/s"
    )
    for e in SETUPS:
        mine = [r for r in rows if r["experiment"] == e]
        if mine:
            print("\n".join(["", f"{e.upper()}, line rate {LINE[e] / 1e6:.2f} Mb/s of payload",
                             *table(mine)]))
    if args.quick:
        print(f"\nNot known to have settled: {QUICK}.")
    print("\n" + experiment.LEGEND)
    netdemo.tell_missing("net-experiments", missing)
    facts = netdemo.provenance(PLATFORM, seeds=list(range(1, args.seeds + 1)), warm_ups_s=warm_ups,
                               ms=MS,
                               line_rate=LINE)
    netdemo.write_results(f"net-experiments-{PLATFORM}",
                          facts | {"summary": rows, "runs": runs, "missing": missing})
    return 1 if missing else 0


if __name__ == "__main__":
    sentence.run(main)
