#!/usr/bin/env python3
"""make fidelity: the same VM files in the simulation of the whole machine and on Bochs.

Both get the same VM file and the same script for the shell, and both execute 100 million
instructions in a virtual second. What `top`, the hypervisor's counters and the guests print of the
same virtual interval is compared. A figure is the mean over the seeds of Bochs. These are the
bounds:

  shares              CPU time of each VM: 1.5 points of a pCPU
  goodput             TCP, UDP and disks: 10 %
  latency             median (or mean, where a guest prints no median) and 99th percentile: 15 %
  exits, interrupts   a second: 10 %, or 2 a second where there are few

A run is one sample: where in the slices of others the events of a VM come is another with each
seed, and with each microsecond that the boot takes. So the simulation, which costs little, runs
with ten seeds (--sim-seeds) or as many as Bochs, whichever is more. Bochs has one seed where a run
hardly depends on it, and five in the network and disk demonstrations; --seeds says otherwise. If a
figure of both platforms with the same seeds is out of bounds, but the one of Bochs lies between the
least and the most of the simulation's seeds, the row says so, and counts as within.

Whoever changes what the simulation charges (tests/whole/model.c, `sim-whole --cost`) may look at
the scenarios that are marked `calibration`. They are shown, but only the others are judged.

Prints a table, and writes build/results/fidelity.json. Exits 0 only if each judged figure is within
its bound, or outside for a reason that its row tells (the seeds, or REASONS below).

  tools/fidelity.py [--scenario NAME]... [--quick] [--seeds N] [--sim-seeds N] [--reuse]

--quick has the scenarios of QUICK below, for make check.

--reuse takes what Bochs has printed in a run before, if its VM file and its image are the same.
"""
import argparse
import os
import re
import statistics
import subprocess

import collabdemo
import compare
import demo
import experiment
import machine
import netdemo
import progress
import sentence

SIM = os.path.join(machine.BUILD, "sim-whole")
GUESTS = os.path.join(machine.BUILD, "whole")
HV = os.path.join(machine.BUILD, "takt.elf")
SIM_SEEDS = 10
# Their figures are nearly the same with each seed, so one run on Bochs says most about them.
QUICK = ("vslicer", "vturbo", "sc+aca")
WALL = 1800  # s that a run on Bochs may take

# {kind: (the bound, how it is told)}. A bound is in points for shares, and relative for the rest.
BOUNDS = {"share": (1.5, "1.5 points"), "goodput": (0.10, "10 %"), "latency": (0.15, "15 %"),
          "rate": (0.10, "10 %")}
FEW = 2.0  # events a second: differences below that are no difference
# {(scenario, figure): why it may be out of bounds}
REASONS = {
    ("pools", "hog-*: exits"): "a tick and the end of a slice come within microseconds, as one "
                               "exit or as two",
}


class Scenario:
    """A VM file, and when to measure.

    text     makes the VM file for a seed
    cpus     pCPUs of the machine
    warm_up  s from the boot to the measurement
    seconds  how long the measurement takes
    read     {figure: (kind, pattern)}: what guests print; the pattern's group `v` is the value, and
             `per`, if it has that group, what the value is divided by
    margin   s after the measurement, until the guests have printed their results
    seeds    how many of them Bochs runs, if nothing else is asked for
    judged   False: costs of the simulation may be fitted to it, so it proves nothing
    """

    def __init__(self, text, cpus, warm_up, seconds, read=None, judged=True, margin=1, seeds=1):
        self.text, self.cpus, self.warm_up, self.seconds = text, cpus, warm_up, seconds
        self.read, self.judged, self.margin, self.seeds = read or {}, judged, margin, seeds


def file_text(name):
    """Returns a function that gives this file of boot/ for each seed."""
    def text(seed):
        with open(os.path.join(machine.ROOT, "boot", name), encoding="ascii") as f:
            return compare.lay_over(f.read(), {"hypervisor": {"seed": str(seed), "top": "no",
                                                              "guest_console": "log"}})
    return text


MIXED_WARM_UP, MIXED_SECONDS = 4, 16


def mixed(policy):
    """Returns a function that gives the workload of `make compare` under that policy."""
    def text(seed):
        with open(compare.BASE, encoding="ascii") as f:
            base = compare.with_seed(f.read(), seed, f"percent={compare.PERCENT} loop=closed",
                                     MIXED_WARM_UP, MIXED_SECONDS)
        return compare.lay_over(base, compare.settings_of(policy))
    return text


def of_policy(policy, judged=True, seeds=1):
    line = r"mixed: whole: \d+ events, ns from raised to done: mean "
    return Scenario(mixed(policy), compare.PCPUS, MIXED_WARM_UP, MIXED_SECONDS,
                    {"event mean": ("latency", line + r"(?P<v>\d+)"),
                     "event p99": ("latency", line + r"\d+, p99 (?P<v>\d+)")}, judged,
                    margin=2, seeds=seeds)


def of_net(setup):
    def text(seed):
        return re.sub(r"(?m)^script = .*\n", "", netdemo.vm_file(setup, seed))

    echo = r"probe: load: echo \d+ requests, \d+ answers, rtt ns p50 "
    return Scenario(text, netdemo.PCPUS, 0.4, 5.6, {
        "TCP": ("goodput", r"server: iperf: tcp (?P<v>\d+) bytes in (?P<per>\d+) ns"),
        "UDP": ("goodput", r"server: iperf: udp (?P<v>\d+) bytes in (?P<per>\d+) ns"),
        "echo p50": ("latency", echo + r"(?P<v>\d+)"),
        "echo p99": ("latency", echo + r"\d+ p99 (?P<v>\d+)")}, margin=9, seeds=5)


def of_disk(setup):
    def text(seed):
        return re.sub(r"(?m)^script = .*\n", "", collabdemo.vm_file(setup, seed))

    read = {}
    for vm in collabdemo.WRITERS:
        line = rf"\] {vm}: bursts: "
        read[f"{vm}: bursts"] = ("goodput", line + r"took_us=(?P<per>\d+)(?P<v>)")
        line += r"writes=.* write_mean_us="
        read[f"{vm}: write mean"] = ("latency", line + r"(?P<v>\d+)")
        read[f"{vm}: write p99"] = ("latency", line + r"\d+ write_p99_us=(?P<v>\d+)")
    return Scenario(text, collabdemo.PCPUS, 0.3, 3.7, read, seeds=10)


def of_blk():
    line = r"disk: blktest: .* "
    return Scenario(file_text("net.cfg"), 2, 0.02, 2.98, {
        "disk write": ("goodput", line + r"wrote in (?P<per>\d+) ns(?P<v>)"),
        "disk read": ("goodput", line + r"read in (?P<per>\d+);(?P<v>)")}, judged=False)


SCENARIOS = {
    "demo": Scenario(file_text("demo.cfg"), 2, 2, 8, judged=False),
    "net.cfg": of_blk(),
    "faithful-4.2": of_policy("faithful-4.2", judged=False),
    "credit": of_policy("hardened", seeds=10),
    "vslicer": of_policy("vslicer"),
    "vturbo": of_policy("vturbo"),
    "sc+aca": of_policy("sc+aca"),
    "pools": of_policy("pools"),
    "net hardened": of_net("hardened"),
    "net turbo": of_net("turbo"),
    "disk plain": of_disk("plain"),
}


# ---- one run ----

def script(scenario):
    begin, end = 1000 * scenario.warm_up, 1000 * (scenario.warm_up + scenario.seconds)
    return (f"@{begin:.0f}ms counters -j=before\n+0ms top -j=top -d {scenario.seconds:g}\n"
            f"@{end + 500:.0f}ms counters -j=after\n"
            f"@{end + 1000 * scenario.margin:.0f}ms poweroff\n")


def on_bochs(directory, cpus):
    paths = [os.path.join(directory, "fidelity." + kind) for kind in ("iso", "cfg", "script")]
    subprocess.run([os.path.join(machine.ROOT, "tools", "mkiso.sh"), paths[0], paths[1],
                    "--cmdline", "script=fidelity.script", "--module",
                    f"fidelity.script={paths[2]}", "--cpus", str(cpus)],
                   cwd=machine.ROOT, check=True)
    with machine.Machine("bochs", paths[0], cpus=cpus, directory=directory) as m:
        how = m.wait(timeout=WALL)[0]
        said = m.serial()
    os.unlink(paths[0])  # It has 10 MB, and the results have the hashes of its parts.
    if how != "ended":
        raise sentence.Problem(f"{directory}: the machine did not end ({how})")
    return said


def in_simulation(directory, scenario, costs=()):
    end = scenario.warm_up + scenario.seconds + scenario.margin + 5
    done = subprocess.run([SIM, "-g", GUESTS, "-p", str(scenario.cpus), "-w", "1ms", "-t",
                           f"{end:g}s", *(f"--cost={c}" for c in costs), "--script",
                           os.path.join(directory, "fidelity.script"),
                           os.path.join(directory, "fidelity.cfg")],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise sentence.Problem(f"{directory}: {done.stderr.strip()}")
    return done.stdout


def saved(directory, make, reuse, key):
    """Returns what make() returns, or what it returned in a run before with the same key."""
    path = os.path.join(directory, "said")
    if reuse and os.path.exists(path):
        with open(path, encoding="utf-8", errors="replace") as f:
            before, _, said = f.read().partition("\n")
        if before == key:
            return said
    said = make()
    with open(path, "w", encoding="utf-8") as f:
        f.write(key + "\n" + said)
    return said


def run(name, seed, platform, reuse):
    """Makes a run. Returns what the machine printed."""
    scenario = SCENARIOS[name]
    directory = os.path.join(machine.BUILD, "run", "fidelity", f"{platform}-{name}-{seed}"
                             .replace(" ", "-"))
    os.makedirs(directory, exist_ok=True)
    for kind, text in (("cfg", scenario.text(seed)), ("script", script(scenario))):
        with open(os.path.join(directory, "fidelity." + kind), "w", encoding="ascii") as f:
            f.write(text)
    if platform == "sim":
        return in_simulation(directory, scenario)
    images = re.findall(r"(?m)^image = (\S+)", scenario.text(seed))
    inputs = [HV, *(os.path.join(directory, "fidelity." + kind) for kind in ("cfg", "script")),
              *(os.path.join(machine.BUILD, "guests", f"{i}.elf") for i in sorted(set(images)))]
    key = " ".join(experiment.digest(path) for path in inputs)
    return saved(directory, lambda: on_bochs(directory, scenario.cpus), reuse, key)


# ---- figures ----

def alike(vm):
    """Returns a name for all VMs that differ only in what follows the last hyphen, such as hog-1
    and hog-2. They have the same program, weight and pool. Which of them is running when a tick
    comes depends on phases, so their exits are added up."""
    return re.sub(r"-\w$", "-*", vm)


def figures(name, said):
    """Returns {figure: (kind, value)} of what a machine printed."""
    scenario, found = SCENARIOS[name], {}
    said = netdemo.plain(said)
    top, before, after = (demo.answer(said, tag) for tag in ("top", "before", "after"))
    if not (top and before and after):
        raise sentence.Problem(f"fidelity: {name}: an answer of the shell is missing")
    for v in top["vcpus"]:
        for figure, kind, key in (("share", "share", "cpu_pct"), ("exits", "rate", "exits_per_s")):
            of_vm = f"{v['vm']}: {figure}"
            if kind == "rate":
                of_vm = alike(v["vm"]) + of_vm.removeprefix(v["vm"])
            found[of_vm] = (kind, found.get(of_vm, (kind, 0))[1] + v[key])
    found["hypervisor"] = ("share", sum(p["hv_pct"] for p in top["pcpus"]))
    for v in top["vcpus"]:
        if v["wake_us"]["count"] >= 100 and v["vm"] == "waker":
            for p in ("p50", "p99"):
                found[f"{v['vm']}: wake {p}"] = ("latency", v["wake_us"][p])
    counters = [{row["name"]: row["value"] for row in rows} for rows in (before, after)]
    found["interrupts"] = ("rate", (counters[1]["interrupts_injected"] -
                                    counters[0]["interrupts_injected"]) / (scenario.seconds + 0.5))
    for figure, (kind, pattern) in scenario.read.items():
        m = re.search(pattern, said)
        if m:
            value = float(m["v"] or 1e9)
            if "per" in m.groupdict():
                value *= 8e3 / float(m["per"])
            found[figure] = (kind, value)
        else:
            found[figure] = (kind, None)
    return found


def judge(name, figure, kind, sim, bochs):
    """Returns a row of the table: how far apart they are, and whether that is within the bound."""
    row = {"scenario": name, "figure": figure, "kind": kind, "simulation": sim, "bochs": bochs,
           "judged": SCENARIOS[name].judged, "difference": None, "within": False}
    if sim is None or bochs is None:
        row["within"] = False  # A guest did not print it.
    elif kind == "share":
        row["difference"] = sim - bochs
        row["within"] = abs(sim - bochs) <= BOUNDS[kind][0]
    else:
        row["difference"] = (sim - bochs) / bochs if bochs else None
        row["within"] = abs(sim - bochs) <= BOUNDS[kind][0] * bochs
        if kind == "rate" and abs(sim - bochs) <= FEW:
            row["within"] = True
    row["reason"] = REASONS.get((name, figure))
    return row


def explain(row, seeds):
    """Adds what the figure is with each seed of the simulation. They are the reason of a row that
    is out of bounds if Bochs's figure is one that they can have."""
    if None in seeds or row["bochs"] is None:
        return row
    row["least"], row["most"] = min(seeds), max(seeds)
    if not row["within"] and row["least"] <= row["bochs"] <= row["most"]:
        row["reason"] = (f"seeds: {number(row['least'])} to {number(row['most'])} with "
                         f"{len(seeds)} seeds of the simulation")
    return row


def mean(values):
    if None in values:
        return None
    return statistics.mean(values)


def compared(name, runs):
    """Returns the rows of a scenario. `runs` is {platform: [figures of each seed]}; the simulation
    may have more seeds than Bochs."""
    rows = []
    for figure, (kind, _) in runs["bochs"][0].items():
        sim, bochs = ([one.get(figure, (kind, None))[1] for one in runs[platform]]
                      for platform in ("sim", "bochs"))
        row = judge(name, figure, kind, mean(sim[:len(bochs)]), mean(bochs))
        rows.append(explain(row, sim))
    return rows


def number(v):
    if v is None:
        return "none"
    return f"{v:.2f}" if abs(v) < 1000 else f"{v:.0f}"


def table(rows):
    lines = [["scenario", "figure", "simulation", "Bochs", "difference", ""]]
    for r in rows:
        difference = "" if r["difference"] is None else (
            f"{r['difference']:+.2f} points" if r["kind"] == "share"
            else f"{100 * r['difference']:+.1f} %")
        verdict = "" if r["within"] else r["reason"] or "OUT"
        if not r["judged"]:
            verdict = f"{verdict} (calibration)".strip()
        lines.append([r["scenario"], r["figure"], number(r["simulation"]), number(r["bochs"]),
                      difference, verdict])
    widths = [max(len(line[i]) for line in lines) for i in range(5)]
    return ["  ".join([line[0].ljust(widths[0]), line[1].ljust(widths[1]),
                       *(line[i].rjust(widths[i]) for i in (2, 3, 4)), line[5]]).rstrip()
            for line in lines]


def main():
    parser = argparse.ArgumentParser(description="the simulation of the whole machine and Bochs")
    parser.add_argument("--scenario", action="append", choices=list(SCENARIOS))
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--sim-seeds", type=int, default=SIM_SEEDS)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--reuse", action="store_true")
    args = parser.parse_args()
    names = args.scenario or (list(QUICK) if args.quick else list(SCENARIOS))
    seeds = {}
    for name in names:
        of_bochs = args.seeds or SCENARIOS[name].seeds
        seeds[name, "bochs"] = range(1, of_bochs + 1)
        seeds[name, "sim"] = range(1, max(of_bochs, args.sim_seeds) + 1)
    turns = [(name, seed, platform) for platform in ("bochs", "sim") for name in names
             for seed in seeds[name, platform]]
    found = progress.run_all("fidelity", lambda turn: figures(turn[0], run(*turn, args.reuse)),
                             turns, os.cpu_count(), lambda turn: "{}, seed {}, {}".format(*turn))
    found = dict(zip(turns, found))
    rows = [row for name in names for row in compared(name, {
        platform: [found[name, seed, platform] for seed in seeds[name, platform]]
        for platform in ("sim", "bochs")})]
    print("\n".join(table(rows)))
    judged = [r for r in rows if r["judged"]]
    outside = [r for r in judged if not r["within"]]
    out = [r for r in outside if not r["reason"]]
    netdemo.write_results("fidelity", experiment.provenance(
        "bochs", HV, seeds={" on ".join(key): list(s) for key, s in seeds.items()}) | {
            "bounds": {k: b[1] for k, b in BOUNDS.items()}, "rows": rows,
            "out_of_bounds": len(out)})
    print(f"fidelity: {len(judged)} figures judged, {len(judged) - len(outside)} within bounds, "
          f"{len(outside) - len(out)} outside with a reason, {len(out)} out of bounds")
    return bool(out)


if __name__ == "__main__":
    sentence.run(main)
