#!/usr/bin/env python3
"""make net-experiments: vTurbo's experiments on network I/O (section 5.1), with the traffic from inside the machine, in virtual time.

  udp   goodput and drops of a stream of datagrams, with 3, 4 and 5 VMs a core: credit, and the server with a turbo core
  tcp   goodput of a stream to a reader that computes on its data in place, a millisecond for whatever each call brings, so that it is
        hardly ever off its core but as the owner of its socket, with 4 VMs a core: the set-ups of the paper's section 3.2 one after
        the other, and last lwIP as it is, where nobody owns a socket
  light the same stream to a reader that computes in place as long as there are data, and waits for more without owning anything

boot/net-demo.cfg is the machine; what is laid over it is in SETUPS and in text_of(). A seed is a run in which the traffic begins at
another point of the VMs' slices. Means with a 95 % confidence interval; writes build/results/net-experiments-bochs.json.

  tools/netexp.py [--experiment udp|tcp|light]... [--setup NAME]... [--seeds N]
"""
import argparse
import json
import os
import re
import sys

import clients
import compare
import machine
import netdemo
import progress
import sentence

PLATFORM = "bochs"
PCPUS = 4  # the source's, the driver domain's, the core, the turbo core
SEEDS, MS = 3, {"udp": 1000, "tcp": 2000, "light": 2000}

# TCP is scaled down from 1 Gb/s by 100: Linux's largest buffers of the paper's time, 4 MiB on either side, become 64 KiB, the least
# there is, at the receiver, and 32 KiB at the sender; the paper's 40 MB become 400 KiB. The light reader computes 6 instructions a
# byte, which takes 30 % of a quarter of the core at the link's rate.
SMALL, LARGE, SENDER = "rcvbuf=65536", "rcvbuf=409600", "sndbuf=32768"
READER, LIGHT = "in_place each=100000", "in_place work=6"
LINK = "iodom rate=10M delay=2ms"

# name: (what is laid over the base, what the server is told)
SETUPS = {
    # Datagrams that come while the server waits up to 90 ms are 180 KB at 16 Mb/s. The paper needed 40 MB
    # where 11 were enough by that sum; scaled by 50 that is 800 KiB.
    "udp": {"credit": ({}, "rcvbuf=819200"), "turbo": (netdemo.TURBO, "rcvbuf=819200"),
            "turbo, small buffer": (netdemo.TURBO, SMALL)},
    "tcp": {
        "credit": ({}, f"{READER} {SMALL} early_ack=0"),
        "turbo": (netdemo.TURBO, f"{READER} {SMALL} early_ack=0"),
        "turbo+buffers": (netdemo.TURBO, f"{READER} {LARGE} early_ack=0"),
        "turbo+buffers+early_ack": (netdemo.TURBO, f"{READER} {LARGE} early_ack=1"),
        "turbo+buffers, no owners": (netdemo.TURBO, f"{READER} {LARGE} plain"),
    },
    "light": {
        "turbo+buffers": (netdemo.TURBO, f"{LIGHT} {LARGE} early_ack=0"),
        "turbo+buffers+early_ack": (netdemo.TURBO, f"{LIGHT} {LARGE} early_ack=1"),
    },
}
VMS = {"udp": (3, 4, 5), "tcp": (4,), "light": (4,)}
SCRIPT = "@0ms wait source 60s\n+0ms destroy server\n+100ms poweroff\n"


def without(text, section):
    return re.sub(rf"(?ms)^\[{section}\].*?(?=^\[|\Z)", "", text)


def text_of(experiment, setup, vms, seed):
    """The VM file of one run."""
    ms = MS[experiment]
    settings, server = SETUPS[experiment][setup]
    traffic = f"udp_ms={ms} udp_rate=16000000" if experiment == "udp" else f"tcp_ms={ms} {SENDER}"
    over = {"hypervisor": {"script": "net-demo.script", "top": "no", "seed": str(seed)},
            "vm server": {"cmdline": f"ip=10.0.0.2/24 ring=16 busy {server}"},
            "vm source": {"cmdline": f"ip=10.0.0.3/24 to=10.0.0.2 start_ms={netdemo.start(seed)} {traffic}"}}
    if experiment != "udp":
        over["vm source"]["net"] = LINK
    for n in range(4, vms):
        over[f"vm hog-{n}"] = {"image": "spin", "memory": "4M", "pool": "core"}
    with open(netdemo.BASE, encoding="ascii") as f:
        text = without(f.read(), "vm probe")
    for n in range(vms, 4):
        text = without(text, f"vm hog-{n}")
    return compare.lay_over(text, compare.both(settings, over))


def read(experiment, text):
    """What one run has printed. Goodput of datagrams is what arrived in the time that the source took: the reader may see the first
    late, and the last ones all at once."""
    acks, bridge = netdemo.last("acks", text), netdemo.bridge(text)
    drops = {"ring_drops": netdemo.ring_drops(text), "queue_drops": bridge.get("queue_full", 0)}
    if experiment == "udp":
        got, source = netdemo.last("udp", text), re.search(r"source: load: udp \d+ datagrams of \d+ bytes in (\d+) ns", text)
        if not source:
            raise LookupError("source")
        goodput = round(int(got["udp_bytes"]) * 8e3 / int(source[1]), 2)
        return {"goodput_mbps": goodput} | drops | {"sent": int(got["udp_sent"]), "lost": int(got["udp_lost"])}
    return {"goodput_mbps": netdemo.mbps(netdemo.last("tcp", text), "tcp")} | drops | {
        "early_acks": int(acks["early"]), "backlog_segments": int(acks["segments"]), "backlog_most": int(acks["backlog"])}


def run(experiment, setup, vms, seed=1):
    name = f"{experiment}-{vms}-{setup}-{seed}".replace(", ", "+").replace(" ", "-")
    found = netdemo.boot("net-experiments/" + name, text_of(experiment, setup, vms, seed), SCRIPT, PLATFORM, PCPUS,
                         lambda text: read(experiment, text))
    return {"experiment": experiment, "setup": setup, "vms": vms, "seed": seed} | found


def summarise(runs):
    """One row: every number that was measured, as mean and half-width."""
    same = ("experiment", "setup", "vms")
    row = {key: runs[0][key] for key in same} | {"runs": len(runs)}
    return row | {key: compare.interval([r[key] for r in runs]) for key in runs[0] if key not in (*same, "seed")}


def table(rows):
    columns = [key for key in rows[0] if key not in ("experiment", "setup", "vms", "runs")]
    lines = [["set-up", "VMs", *(key.replace("_", " ") for key in columns)]]
    for r in rows:
        lines.append([r["setup"], str(r["vms"]), *(compare.number(r[key], 2 if key == "goodput_mbps" else 0) for key in columns)])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return ["  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(line, widths))) for line in lines]


def main():
    parser = argparse.ArgumentParser(description="UDP and TCP goodput of a VM among VMs that compute")
    parser.add_argument("--experiment", action="append", choices=list(SETUPS))
    parser.add_argument("--setup", action="append", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    args = parser.parse_args()
    what = [(experiment, setup, vms) for experiment in args.experiment or SETUPS for vms in VMS[experiment]
            for setup in SETUPS[experiment] if not args.setup or setup in args.setup]
    turns = [(*w, seed) for seed in range(1, args.seeds + 1) for w in what]
    try:
        runs = progress.run_all("net-experiments", lambda turn: run(*turn), turns, os.cpu_count(),
                                lambda turn: "{}, {}, {} VMs, seed {}".format(*turn))
    except clients.Failed as what:
        sys.exit(f"net-experiments: {what}")
    rows = [summarise([r for r in runs if (r["experiment"], r["setup"], r["vms"]) == w]) for w in what]
    print(f"Takt, {PLATFORM}: {args.seeds} seed(s); UDP: 1 s of 16 Mb/s over 20 Mb/s; TCP: 2 s over 10 Mb/s")
    for experiment in SETUPS:
        mine = [r for r in rows if r["experiment"] == experiment]
        if mine:
            print("\n".join(["", experiment.upper(), *table(mine)]))
    path = os.path.join(machine.BUILD, "results", f"net-experiments-{PLATFORM}.json")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"platform": PLATFORM, "commit": compare.commit(), "runs": runs, "summary": rows}, f, indent=1)
        f.write("\n")
    print(f"\n{path}")


if __name__ == "__main__":
    sentence.run(main)
