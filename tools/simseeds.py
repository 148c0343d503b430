#!/usr/bin/env python3
"""Runs a VM file in the simulation with several seeds, and prints what may be said of all runs.

  tools/simseeds.py [--seeds N] [--preset NAME] [--json FILE] OPTIONS-OF-build/sim FILE

One run is one sample: a seed decides when each VM begins and when events come. There is one line
for each vCPU: its CPU time, its longest wait for a pCPU, the time from a wake until it runs, and,
if it serves events, the time from the raising of an event until it is finished. tools/experiment.py
decides what is printed where a mean would say nothing, and whether the runs had settled before they
were measured.

--preset sets sched_preset in [hypervisor] and in each [pool] of the file. A seed that is given with
-c is overridden. Example:

  tools/simseeds.py --preset faithful-4.2 -p 1 -w 3s -t 30s labs/wakers.cfg
"""
import argparse
import json
import os
import re
import subprocess
import tempfile

import compare
import experiment
import machine
import sentence

SIM = os.path.join(machine.BUILD, "sim")
SEEDS = 10
FLOORS = {"CPU %": 0.5, "mean ms": 0.02}


def with_preset(text, preset):
    """Returns the VM file with this preset for each pool."""
    sections = re.findall(r"(?m)^\s*\[(hypervisor|pool\s+\S+)\]", text)
    settings = {" ".join(s.split()): {"sched_preset": preset} for s in ["hypervisor", *sections]}
    return compare.lay_over(text, settings)


def result(options, seed):
    """Returns what build/sim prints with this seed. Only the last -c counts, so all of them are
    merged into one."""
    rest, given = [], []
    words = iter(options)
    for word in words:
        if word == "-c":
            given.append(next(words))
        else:
            rest.append(word)
    command = [SIM, "-j", "-c", " ".join([*given, f"seed={seed}"]), *rest]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise sentence.Problem(
            done.stderr.strip() or f"build/sim ended with exit status {done.returncode}"
        )
    return json.loads(done.stdout)


def quantities(v):
    return {"CPU %": v["cpu_pct"]} | (
        {"mean ms": v["event_us"]["mean"] / 1e3} if v.get("events") else {}
    )


def look(said):
    """Returns a run as the rule for the warm-up needs it."""
    def of(pick):
        return {f"{v['vm']}/{v['vcpu']} {name}": x for v in said["vcpus"]
                for name, x in quantities(pick(v)).items()}

    halves = [of(lambda v, half=half: v["halves"][half]) for half in (0, 1)]
    credit = [{f"{v['vm']}/{v['vcpu']}": v["halves"][half]["credit_ms"] for v in said["vcpus"]
               if "credit_ms" in v} for half in (0, 1)]
    changed = {vm["vm"]: vm["label_changed_s"] for vm in said["vms"]
               if vm["label_changes"] and vm["label_changed_s"] > said["warm_up_s"]}
    return experiment.Look(of(lambda v: v), halves, [{}, changed], credit)


def summarise(runs):
    """Returns a row for each vCPU."""
    rows = []
    for at, first in enumerate(runs[0]["vcpus"]):
        mine = [said["vcpus"][at] for said in runs]
        row = {"vm": first["vm"], "vcpu": first["vcpu"],
               "cpu_pct": experiment.estimate([v["cpu_pct"] for v in mine]),
               "wait_max_ms": experiment.points([v["wait_max_ms"] for v in mine]),
               "switches_per_s": experiment.estimate([v["switches_per_s"] for v in mine]),
               "wake_us": None,
               "event_us": None}
        if all(v["wakes"] for v in mine):
            row["wake_us"] = {
                k: experiment.points([v["wake_us"][k] for v in mine]) for k in ("p99", "max")
            }
        if all(v.get("events") for v in mine):
            row["event_us"] = {"mean": experiment.estimate([v["event_us"]["mean"] for v in mine])}
            row["event_us"] |= {
                k: experiment.points([v["event_us"][k] for v in mine]) for k in ("p99", "max")
            }
        rows.append(row)
    return rows


def table(rows):
    text = experiment.text
    lines = [["vCPU", "CPU %", "wait max ms", "switches/s", "wake p99 us", "max us", "event ms",
              "p99 ms", "max ms"]]
    for row in rows:
        wake, event = row["wake_us"] or {}, row["event_us"] or {}
        lines.append([f"{row['vm']}/{row['vcpu']}", text(row["cpu_pct"], 2),
                      text(row["wait_max_ms"]),
                      text(row["switches_per_s"]), text(wake.get("p99"), 0),
                      text(wake.get("max"), 0),
                      *(text(event.get(k), 2, 1e-3) for k in ("mean", "p99", "max"))])
    return compare.columns(lines)


def main():
    parser = argparse.ArgumentParser(description="a VM file in the simulation, with several seeds")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--preset", help="sched_preset of every pool")
    parser.add_argument("--json", metavar="FILE", help="writes the results there, too")
    args, options = parser.parse_known_args()
    if not options:
        parser.error("the VM file to simulate is missing")
    seeds = list(range(1, args.seeds + 1))
    with tempfile.TemporaryDirectory() as directory:
        path = options[-1]
        if args.preset:
            with open(path, encoding="ascii") as f:
                text = with_preset(f.read(), args.preset)
            path = os.path.join(directory, os.path.basename(path))
            with open(path, "w", encoding="ascii") as f:
                f.write(text)
        runs = [result([*options[:-1], path], seed) for seed in seeds]
    rows = summarise(runs)
    print(
        f"{options[-1]}{', ' + args.preset if args.preset else ''}: {runs[0]['seconds']:g} s after "
        f"{runs[0]['warm_up_s']:g} s, {len(seeds)} seeds"
    )
    print("\n".join(table(rows)))
    same, why = experiment.same_trace([said["trace"] for said in runs]), None
    if len(runs) > 1:
        looks = [look(said) for said in runs]
        why = experiment.unsettled(looks,
                                   {name: FLOORS[name.split(" ", 1)[1]] for name in looks[0].whole})
    for note in filter(None, (same, why and f"not settled: {why}")):
        print(note)
    if args.json:
        head = experiment.provenance("sim", SIM, [options[-1]], seeds=seeds, preset=args.preset,
                                     warm_up_s=runs[0]["warm_up_s"], seconds=runs[0]["seconds"])
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"provenance": head, "summary": rows, "runs": runs}, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    sentence.run(main)
