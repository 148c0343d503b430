#!/usr/bin/env python3
"""make compare: the papers' scheduling policies, and what they are measured against, side by side on one workload.

boot/mixed.cfg is the workload: four VMs that share a core, of which one computes and serves a client's events. A policy is a few lines
of settings that are laid over that file; the machine always has the same pCPUs. What is measured:

  CPU        of each VM, in percent of a pCPU
  latency    from an event's being raised to its being done with: mean, 99th percentile, maximum
  switches   a second, of all vCPUs on the core and the extra one
  cost       instructions of the scheduler a decision, everything included (accounting, ticks, wakes), by callgrind in the simulation

  tools/compare.py [--platform sim|bochs|qemu|kvm]... [--policy NAME]... [--seeds N] [--seconds S]

Ten seeds each: means with a 95 % confidence interval. Where time is virtual, runs go on side by side. Writes
build/results/compare-PLATFORM.json and .png. A policy whose settings this build does not know is listed as missing.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys

import demo
import machine
import progress
import sentence

BASE = os.path.join(machine.ROOT, "boot", "mixed.cfg")
SIM = os.path.join(machine.BUILD, "sim")
PCPUS = 3  # the client's, the core, the extra one
SEEDS = 10
PERCENT = 40  # of a pCPU, beside serving: more than its share, and little enough to sleep at times
WARM_UP, SECONDS = 2, {"sim": 10, "bochs": 2, "qemu": 4, "kvm": 4}

CORE, SERVER, OTHERS = "pool core", "vm mixed", ("vm hog-1", "vm hog-2", "vm hog-3")
IO = {CORE: {"io_threshold": "100"}}  # 300 events a second: I/O-intensive
LENDERS = {vm: {"share_pct": "50"} for vm in OTHERS}
MICRO = {SERVER: {"micro_us": "5000"}}
TURBO = {"pool turbo": {"cpus": "2", "turbo_of": "core"}, SERVER: {"turbo": "yes"}}


def preset(name):
    return {CORE: {"sched_preset": name}}


def both(*settings):
    """Settings put together."""
    result = {}
    for s in settings:
        for section, keys in s.items():
            result.setdefault(section, {}).update(keys)
    return result


# In the order of the table. {section: {key: value}}: a value that the base file has is replaced, a section that it has not is added.
POLICIES = {
    "credit": {},
    "credit-faithful-3.4": preset("faithful-3.4"),
    "credit-faithful-4.1": preset("faithful-4.1"),
    "credit-faithful-4.2": preset("faithful-4.2"),
    "credit+extra-core": {CORE: {"cpus": "1-2"}},
    "uniform-1ms": preset("uniform-1ms"),
    "aggressive": preset("aggressive"),
    "vslicer": both(preset("vslicer"), MICRO),
    "vslicer-prototype": both(preset("vslicer-paper-prototype"), MICRO),
    "vturbo": TURBO,
    "sc": both(preset("sc"), IO, LENDERS),
    "aca": both(preset("aca"), IO),
    "sc+aca": both(preset("sc+aca"), IO, LENDERS),
    "pools": {"pool io": {"sched_preset": "pool-io", "cpus": "2"}, SERVER: {"pool": "io"}},
    "anticipatory": preset("anticipatory"),
    "vturbo+vslicer": both(TURBO, preset("vslicer"), MICRO),
}


def lay_over(base, settings):
    """The text of a VM file with other values: what a section already has is replaced, what it has not follows its heading."""
    lines, section, left = [], None, {s: dict(keys) for s, keys in settings.items()}
    for line in base.splitlines():
        heading = re.match(r"\s*\[(.*?)\]", line)
        key = re.match(r"\s*([\w.]+)\s*=", line)
        if heading:
            section = " ".join(heading[1].split())
        elif key and key[1] in settings.get(section, {}):
            continue
        lines.append(line)
        if heading:
            lines += [f"{k} = {v}" for k, v in left.pop(section, {}).items()]
    for section, keys in left.items():
        lines += ["", f"[{section}]"] + [f"{k} = {v}" for k, v in keys.items()]
    return "\n".join(lines) + "\n"


def with_seed(text, seed, percent, warm_up, seconds):
    """Of the events, and of the hypervisor; what the guests are to do, and when to measure. A quarter of the warm-up passes
    before the first event, so that the I/O monitor, whose windows begin at boot, sees a whole one before the measurement."""
    text = re.sub(r"(?m)^seed\s*=.*", f"seed = {seed}", text)
    times = {"start_ms": warm_up / 4, "from_ms": warm_up, "to_ms": warm_up + seconds}
    guests = f"seed={seed} percent={percent} " + " ".join(f"{k}={int(1000 * s)}" for k, s in times.items())
    return re.sub(r"(?m)^(cmdline\s*=.*\b(?:client|server)=.*)$", rf"\1 {guests}", text)


# ---- one run ----

class Refused(Exception):
    """The build does not know a setting; the text says which."""


def simulate(path, *options, tool=()):
    command = [*tool, SIM, "-p", str(PCPUS), *options, path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(" ".join(done.stderr.split("\n")[0].removeprefix("sim: ").replace(path + ":", "line ").split()))
    return done


def in_simulation(path, args):
    result = json.loads(simulate(path, "-j", "-w", f"{args.warm_up}s", "-t", f"{args.seconds}s").stdout)
    served = next(v for v in result["vcpus"] if "events" in v)
    return result["vcpus"], served["events"], served["event_us"]


MEASURED = re.compile(r"mixed: (\d+) events, ns from raised to done: mean (\d+), p99 (\d+), max (\d+)")
ENVELOPE = "\x1e\\{.*\"id\": *\"compare\".*\n"


def in_image(path, args):
    directory = os.path.dirname(path)
    script, iso = os.path.join(directory, "compare.script"), os.path.join(directory, "compare.iso")
    with open(script, "w", encoding="ascii") as f:
        f.write(f"@0ms top -j=compare -w {args.warm_up} -d {args.seconds}\n")
    subprocess.run([os.path.join(machine.ROOT, "tools", "mkiso.sh"), iso, path, "--cmdline", "script=compare.script",
                    "--module", f"compare.script={script}"], cwd=machine.ROOT, check=True)
    with machine.Machine(args.platform, iso, cpus=PCPUS, directory=directory) as m:
        how, _ = m.wait(ENVELOPE, demo.WALL[args.platform])
        if how == "matched":
            m.seen = 0  # the guest may have reported before
            how, _ = m.wait(MEASURED.pattern + r"\s", 60)
        text = m.serial()
    if how != "matched":
        sys.exit(f"compare: nothing was measured ({how}); see {directory}")
    events, mean, p99, worst = map(int, MEASURED.search(text).groups())
    return demo.answer(text, "compare")["vcpus"], events, {"mean": mean / 1e3, "p99": p99 / 1e3, "max": worst / 1e3}


def place(policy, seed, args):
    return os.path.join(machine.BUILD, "run", f"compare-{args.platform}", str(seed), f"{policy}.cfg")


def run(policy, seed, args):
    """What is written down of one run."""
    path = place(policy, seed, args)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(BASE, encoding="ascii") as f:
        text = lay_over(with_seed(f.read(), seed, args.percent, args.warm_up, args.seconds), POLICIES[policy])
    with open(path, "w", encoding="ascii") as f:
        f.write(text)
    if args.platform == "sim":
        vcpus, events, latency = in_simulation(path, args)
    else:
        simulate(path, "-n")  # an image would only warn
        vcpus, events, latency = in_image(path, args)
    vms = {}
    for v in vcpus:
        vm = vms.setdefault(v["vm"], {"vm": v["vm"], "cpu_pct": 0, "switches_per_s": 0})
        vm["cpu_pct"] = round(vm["cpu_pct"] + v["cpu_pct"], 3)
        vm["switches_per_s"] = round(vm["switches_per_s"] + v["switches_per_s"], 2)
    return {"policy": policy, "seed": seed, "commit": args.commit, "knobs": POLICIES[policy], "pcpus": PCPUS,
            "warm_up": args.warm_up, "seconds": args.seconds, "percent": args.percent, "vms": list(vms.values()), "events": events,
            "latency_us": {k: round(latency[k], 1) for k in ("mean", "p99", "max")},
            "switches_per_s": round(sum(vm["switches_per_s"] for vm in vms.values() if vm["vm"] != "client"), 2)}


SCHEDULER = ("hv_sched_yield", "sched_block", "sched_run", "sched_saved", "sched_timer_fire", "sched_wake")


def cost(policy, args):
    """Instructions of the scheduler for each decision, in the simulation, whatever the platform; None without valgrind."""
    path = place(policy, 1, args)
    tool = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no",
            *(f"--toggle-collect={f}" for f in SCHEDULER)]
    try:
        done = simulate(path, "-j", "-q", "-w", "0s", "-t", "2s", tool=tool)
    except (FileNotFoundError, Refused):
        return None
    return round(int(re.search(r"Collected\s*:\s*(\d+)", done.stderr)[1]) / json.loads(done.stdout)["decisions"])


# ---- many runs ----

# Student's t, 0.975, by degrees of freedom; beyond, the normal distribution's with what is missing at 30
T975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110,
        2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)


def interval(samples):
    """The mean, and half the width of its 95 % confidence interval: None for a single one."""
    n = len(samples)
    if n < 2:
        return {"mean": round(samples[0], 3), "ci95": None}
    t = T975[n - 2] if n - 2 < len(T975) else 1.96 + 0.082 * 30 / (n - 1)
    return {"mean": round(statistics.fmean(samples), 3), "ci95": round(t * statistics.stdev(samples) / n ** 0.5, 3)}


def summarise(runs):
    """A policy's runs as one row of the table."""
    names = [vm["vm"] for vm in runs[0]["vms"]]
    return {"policy": runs[0]["policy"], "runs": len(runs),
            "cpu_pct": {name: interval([vm["cpu_pct"] for r in runs for vm in r["vms"] if vm["vm"] == name]) for name in names},
            "latency_us": {k: interval([r["latency_us"][k] for r in runs]) for k in ("mean", "p99", "max")},
            "switches_per_s": interval([r["switches_per_s"] for r in runs]),
            "instructions_per_decision": runs[0].get("instructions_per_decision")}


def number(x, digits=1, scale=1.0):
    if x is None:
        return "-"
    if not isinstance(x, dict):
        return f"{x * scale:.{digits}f}"
    text = f"{x['mean'] * scale:.{digits}f}"
    return text if x["ci95"] is None else f"{text} ±{x['ci95'] * scale:.{digits}f}"


def table(summaries, missing):
    """Lines of text."""
    vms = [name for name in summaries[0]["cpu_pct"] if name != "client"] if summaries else []
    head = ["policy", *(f"{vm} %" for vm in vms), "latency ms", "p99", "max", "switches/s", "instr."]
    rows = [[s["policy"], *(number(s["cpu_pct"][vm]) for vm in vms),
             *(number(s["latency_us"][k], 2, 1e-3) for k in ("mean", "p99", "max")),
             number(s["switches_per_s"], 0), number(s["instructions_per_decision"], 0)] for s in summaries]
    widths = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(r, widths))).rstrip()
             for r in [head, *rows]]
    return lines + [f"{policy.ljust(widths[0])}  missing: {why}" for policy, why in missing.items()]


def draw(summaries, platform, path):
    """Shares as bars, latencies as points: what each policy gives the mixed VM, and what the others pay."""
    try:
        import matplotlib
    except ImportError:
        print("compare: no picture without python3-matplotlib")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    names = [s["policy"] for s in summaries]
    y = range(len(names))
    vms = [vm for vm in summaries[0]["cpu_pct"] if vm != "client"]
    fig, (left, right) = plt.subplots(1, 2, figsize=(11, 0.38 * len(names) + 1.6), sharey=True)
    start = [0.0] * len(names)
    for vm, colour in zip(vms, ["#d95f02", "#1b6ca8", "#5a9bc8", "#a6c8e0"]):
        width = [s["cpu_pct"][vm]["mean"] for s in summaries]
        left.barh(y, width, left=start, color=colour, label=vm, height=0.7)
        start = [a + b for a, b in zip(start, width)]
    left.set_xlabel("CPU, % of a pCPU")
    left.set_yticks(list(y), names)
    left.invert_yaxis()
    left.legend(loc="upper right", fontsize=8)
    for key, marker, colour in (("mean", "o", "#222222"), ("p99", "d", "#7570b3"), ("max", "x", "#c02020")):
        x = [s["latency_us"][key]["mean"] / 1e3 for s in summaries]
        error = [(s["latency_us"][key]["ci95"] or 0) / 1e3 for s in summaries]
        low = [min(e, v * 0.99) for e, v in zip(error, x)]
        right.errorbar(x, list(y), xerr=[low, error], fmt=marker, color=colour, markersize=5, elinewidth=1, label=key)
    right.set_xscale("log")
    right.set_xlabel("from an event's being raised to its being done with, ms")
    right.grid(axis="x", which="both", color="#e4e4e4")
    right.set_axisbelow(True)
    right.legend(fontsize=8)
    fig.suptitle(f"Four VMs a core, one of them serving 300 events a second ({platform}, {summaries[0]['runs']} runs each)",
                 fontsize=10)
    fig.tight_layout()
    fig.savefig(path, dpi=110)
    plt.close(fig)


def attempt(policy, seed, args):
    """What run() returns, or why the build refuses the policy. Seed 1 also counts a decision's instructions."""
    try:
        result = run(policy, seed, args)
    except Refused as why:
        return why
    if seed == 1:
        result["instructions_per_decision"] = cost(policy, args)
    return result


def compare(args, policies):
    runs, summaries, missing = [], [], {}
    jobs = [(policy, seed) for policy in policies for seed in range(1, args.seeds + 1)]
    # QEMU's clock is the host's, so nothing may run beside it.
    workers = 1 if args.platform in ("qemu", "kvm") else os.cpu_count()
    results = progress.run_all(f"compare on {args.platform}", lambda job: attempt(*job, args), jobs, workers,
                               lambda job: f"{job[0]}, seed {job[1]}")
    results = dict(zip(jobs, results))
    for policy in policies:
        mine = [results[policy, seed] for seed in range(1, args.seeds + 1)]
        refused = next((r for r in mine if isinstance(r, Refused)), None)
        if refused:
            missing[policy] = str(refused)
            continue
        for r in mine:
            r["instructions_per_decision"] = mine[0]["instructions_per_decision"]
        runs += mine
        summaries.append(summarise(mine))
    print(f"Takt, {args.platform}: {args.seconds:g} s after {args.warm_up:g} s of warm-up, {args.seeds} seed(s), {PCPUS} pCPUs")
    print("\n".join(table(summaries, missing)))
    if args.platform in ("qemu", "kvm"):
        print("The clock is the host's here: these figures are worth as much as the host was idle. PLATFORM=bochs is exact.")
    path = os.path.join(machine.BUILD, "results", f"compare-{args.platform}")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".json", "w", encoding="utf-8") as f:
        json.dump({"platform": args.platform, "runs": runs, "summary": summaries, "missing": missing}, f, indent=1)
        f.write("\n")
    if summaries:
        draw(summaries, args.platform, path + ".png")
    print(f"{path}.json, .png")
    return 0 if summaries else 1


def commit():
    done = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=machine.ROOT, capture_output=True, text=True,
                          check=False)
    return done.stdout.strip() or "unknown"


def main():
    parser = argparse.ArgumentParser(description="policies side by side")
    parser.add_argument("--platform", action="append", choices=["sim", "bochs", "qemu", "kvm"])
    parser.add_argument("--policy", action="append", choices=list(POLICIES), metavar="NAME", help=", ".join(POLICIES))
    parser.add_argument("--seeds", type=int, help=f"how many runs of each ({SEEDS})")
    parser.add_argument("--percent", type=int, default=PERCENT, help="how much the mixed VM computes beside serving")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--warm-up", type=float, default=WARM_UP)
    given = parser.parse_args()
    failed = 0
    for platform in given.platform or ["sim"]:
        args = argparse.Namespace(platform=platform, warm_up=given.warm_up, percent=given.percent,
                                  seconds=given.seconds or SECONDS[platform], seeds=given.seeds or SEEDS,
                                  commit=commit())
        failed |= compare(args, given.policy or list(POLICIES))
    return failed


if __name__ == "__main__":
    sentence.run(main)
