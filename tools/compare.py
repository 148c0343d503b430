#!/usr/bin/env python3
"""make compare: runs the papers' scheduling policies, and what they are compared with, on one
workload.

boot/mixed.cfg is the workload: four VMs share a core. One of them computes and serves the events of
a client. A policy is a few lines of settings that are laid over that file; the machine always has
the same pCPUs. What is measured:

  CPU        the CPU time of each VM, in per cent of a pCPU
  latency    the time from the raising of an event until it is finished: mean, 99th percentile,
             maximum
  switches   switches a second, of all vCPUs on the core and on the extra core
  cost       the instructions of the scheduler for one decision, everything included (accounting,
             ticks, wakes), counted by callgrind in the simulation

  tools/compare.py [--platform sim|bochs|qemu|kvm]... [--policy NAME]... [--seeds N] [--seconds S]
                   [--warm-up S] [--hv ELF]

NAME is one of the policies below, or a scheduler of your own (labs/policies.c), which then runs the
core. --hv is an image that knows it: `make compare LABS=labs/mine.c POLICY=mine` builds both.

Each policy runs with the same seeds. The tool finds out in the simulation how long a warm-up each
policy needs before the measurement; tools/experiment.py has that rule, and decides what may be
printed of several runs. Writes build/results/compare-PLATFORM.json and .png.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import textwrap

import demo
import experiment
import machine
import progress
import sentence

BASE = os.path.join(machine.ROOT, "boot", "mixed.cfg")
SIM = os.path.join(machine.BUILD, "sim")
HV = os.path.join(machine.BUILD, "takt.elf")
PCPUS = 3  # the client's, the shared core, the extra core
SEEDS = 10
# The demand in per cent of a pCPU, beside serving. It is more than the VM's share, so that the VM
# sleeps only where it gets more than that.
PERCENT = 40
SECONDS = {"sim": 30, "bochs": 4, "qemu": 4, "kvm": 4}
# In 4 s each of the four VMs has some 33 slices of 30 ms. So the halves of one run differ by more
# than the rule for the warm-up permits, however long it was warmed up, and only the mean of several
# runs tells whether it has settled. Fewer than ENOUGH runs are measured for LONGER seconds each.
ENOUGH, LONGER = 5, 16

# Warm-ups in s. In the simulation, warm-ups up to LONGEST are tried. An image is measured after the
# warm-up that the simulation needed. If its own figures say that it has not settled by then, the
# warm-up is doubled, up to LONGEST_IMAGE. An image may need longer because its VMs take some of the
# time to boot, and the I/O monitor sees them later.
SHORTEST, LONGEST, LONGEST_IMAGE = 2, 64, 16
# Differences that are too small to matter: in points of a pCPU, ms, switches a second.
FLOORS = {"latency ms": 0.02, "switches/s": 5,
          "mixed %": 0.5, "hog-1 %": 0.5, "hog-2 %": 0.5, "hog-3 %": 0.5}

CORE, SERVER, OTHERS = "pool core", "vm mixed", ("vm hog-1", "vm hog-2", "vm hog-3")
# A VM with 300 events a second is I/O-intensive. The monitor counts events that come while one is
# pending as one event, so a server with a quarter of the core gets some 100 a second. With a
# threshold of 100 its label would change for ever.
IO = {CORE: {"io_threshold": "50"}}
LENDERS = {vm: {"share_pct": "50"} for vm in OTHERS}
MICRO = {SERVER: {"micro_us": "5000"}}
TURBO = {"pool turbo": {"cpus": "2", "turbo_of": "core"}, SERVER: {"turbo": "yes"}}
EXTRA = {CORE: {"cpus": "1-2"}}  # the second core, as a regular one


def preset(name):
    return {CORE: {"sched_preset": name}}


def both(*settings):
    """Returns these settings merged into one."""
    result = {}
    for s in settings:
        for section, keys in s.items():
            result.setdefault(section, {}).update(keys)
    return result


# In the order of the table. {section: {key: value}}: a value that the base file has is replaced,
# and a section that it does not have is added.
POLICIES = {
    "faithful-3.4": preset("faithful-3.4"),
    "faithful-4.0": preset("faithful-4.0"),
    "faithful-4.1": preset("faithful-4.1"),
    "faithful-4.2": preset("faithful-4.2"),
    "hardened": preset("hardened"),
    "faithful-4.1+core": both(preset("faithful-4.1"), EXTRA),
    "hardened+core": both(preset("hardened"), EXTRA),
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

# What each policy is measured against. This is the Xen that its paper was written for; where the
# policy has a second core, that Xen has the second core as a regular one. Our own version is
# measured against the rules that it is built on.
BASELINES = {
    "vslicer": ("faithful-3.4", "hardened"),
    "vslicer-prototype": ("faithful-3.4",),
    "vturbo": ("faithful-4.1", "faithful-4.1+core", "hardened+core"),
    "sc": ("faithful-4.2", "hardened"),
    "aca": ("faithful-4.2", "hardened"),
    "sc+aca": ("faithful-4.2", "hardened"),
    "pools": ("faithful-4.1", "faithful-4.1+core", "hardened+core"),
    "anticipatory": ("faithful-4.1", "hardened"),
    "vturbo+vslicer": ("hardened+core",),
}


def seconds_of(platform, seeds):
    """Returns how many seconds to measure, if the command line does not say."""
    if platform != "sim" and seeds < ENOUGH:
        return LONGER
    return SECONDS[platform]


def settings_of(policy):
    """Returns the settings that are added to the base file. A name that is none of ours is a
    scheduler that runs the core."""
    return POLICIES.get(policy, {CORE: {"sched": policy}})


def lay_over(base, settings):
    """Returns the text of a VM file with other values. A value that a section already has is
    replaced; a value that it does not have is put behind its heading."""
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


def with_seed(text, seed, work, warm_up, seconds):
    """Sets the seed of the events and of the hypervisor, what the guests have to do, and when to
    measure. The first event comes at the same time whatever the warm-up is. So a run with a longer
    warm-up is the same run, measured later."""
    text = re.sub(r"(?m)^seed\s*=.*", f"seed = {seed}", text)
    times = {"start_ms": 0.5, "from_ms": warm_up, "to_ms": warm_up + seconds}
    guests = f"seed={seed} {work} " + " ".join(f"{k}={int(1000 * s)}" for k, s in times.items())
    return re.sub(r"(?m)^(cmdline\s*=.*\b(?:client|server)=.*)$", rf"\1 {guests}", text)


# ---- one run ----

class Refused(Exception):
    """The build does not know a setting. The text says which one."""


def simulate(path, *options, tool=()):
    command = [*tool, SIM, "-p", str(PCPUS), *options, path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.split("\n")[0].removeprefix("sim: ").replace(path + ":", "line ")
        raise Refused(" ".join(said.split()))
    return done


def part(vcpus, event_us, events):
    """Returns a measurement, or a half of one, as it is written to the results. The vCPUs of a VM
    are summed up."""
    vms = {}
    for v in vcpus:
        vm = vms.setdefault(v["vm"], {"vm": v["vm"], "cpu_pct": 0, "switches_per_s": 0})
        vm["cpu_pct"] = round(vm["cpu_pct"] + v["cpu_pct"], 3)
        vm["switches_per_s"] = round(vm["switches_per_s"] + v["switches_per_s"], 2)
    switches = sum(vm["switches_per_s"] for vm in vms.values() if vm["vm"] != "client")
    return {"vms": list(vms.values()), "events": events,
            "latency_us": {k: round(event_us[k], 1) for k in ("mean", "p99", "max")},
            "switches_per_s": round(switches, 2)}


def in_simulation(path, args, warm_up):
    """Simulates a VM file. Returns what was measured, in all and in both halves, and all
    parameters."""
    said = json.loads(simulate(path, "-j", "-w", f"{warm_up}s", "-t", f"{args.seconds}s").stdout)
    vcpus, served = said["vcpus"], next(v for v in said["vcpus"] if "events" in v)
    parts = [part(vcpus, served["event_us"], served["events"])]
    for half in (0, 1):
        of_it = [dict(v["halves"][half], vm=v["vm"]) for v in vcpus]
        parts.append(part(of_it, served["halves"][half]["event_us"],
                          served["halves"][half]["events"]))
        parts[-1]["credit_ms"] = {
            f"{v['vm']}/{v['vcpu']}": v["halves"][half]["credit_ms"]
            for v in vcpus
            if "credit_ms" in v
        }
    late = {vm["vm"]: vm["label_changed_s"] for vm in said["vms"]
            if vm["label_changes"] and vm["label_changed_s"] > warm_up}
    knobs = {"pools": {p["pool"]: dict(p["params"], policy=p["policy"]) for p in said["pools"]},
             "vms": {vm["vm"]: vm["params"] for vm in said["vms"]}}
    return parts[0] | {"halves": parts[1:], "labels_changed_s": late, "trace": said["trace"]}, knobs


MEASURED = re.compile(r"mixed: (whole|half 1|half 2): (\d+) events, ns from raised to done: "
                      r"mean (\d+), p99 (\d+), max (\d+)")
TAGS = ("begin", "first", "second")


def script(path, args, warm_up):
    """Writes what the image's shell has to do: print all settings, then the monitor's labels, and
    measure both halves. Also returns the names of the pools and the VMs."""
    with open(path, encoding="ascii") as f:
        text = f.read()
    pools = ["Pool-0", *re.findall(r"(?m)^\s*\[pool\s+(\S+)\]", text)]
    vms = re.findall(r"(?m)^\s*\[vm\s+(\S+)\]", text)
    half = args.seconds / 2
    lines = [f"+0ms param -j=pool-{p} -p {p}" for p in pools]
    lines += [f"+0ms param -j=vm-{vm} -d {vm}" for vm in vms]
    lines[0] = lines[0].replace("+0ms", f"@{warm_up * 500:.0f}ms")  # By then all VMs are there.
    lines += [f"@{warm_up * 1000:.0f}ms vcpu-list -j={TAGS[0]}"]
    lines += [f"+0ms top -j={tag} -d {half:g}" for tag in TAGS[1:]]
    return pools, vms, "\n".join(lines) + "\n"


def boot(path, args, warm_up):
    """Boots the image. Returns what it has printed once it has measured."""
    directory = os.path.dirname(path)
    commands, iso = os.path.join(directory, "compare.script"), os.path.join(
        directory, "compare.iso"
    )
    pools, vms, text = script(path, args, warm_up)
    with open(commands, "w", encoding="ascii") as f:
        f.write(text)
    subprocess.run([os.path.join(machine.ROOT, "tools", "mkiso.sh"), iso, path, "--hv", args.hv,
                    "--cmdline", "script=compare.script", "--module", f"compare.script={commands}"],
                   cwd=machine.ROOT, check=True)
    wall = demo.WALL[args.platform] * max(1, (warm_up + args.seconds) / 4)
    with machine.Machine(args.platform, iso, cpus=PCPUS, directory=directory) as m:
        how, _ = m.wait(f"\x1e\\{{.*\"id\": *\"{TAGS[2]}\".*\n", wall)
        if how == "matched":
            m.seen = 0  # The guest may have reported before.
            how, _ = m.wait(r"mixed: whole: .* max \d+\s", wall)
        said = m.serial()
    os.unlink(iso)  # It has 10 MB, and the results have the hashes of its parts.
    if how != "matched":
        raise sentence.Problem(f"{path}: nothing was measured ({how}); see {directory}")
    return pools, vms, said


def relabelled(before, after):
    """Returns the VMs whose label of the I/O monitor differs between `before` and `after`, which
    are rows of `vcpu-list` or `top`. A VM's class may say more than the label, and may differ
    between its vCPUs."""
    old, new = (
        {v["vm"] for v in rows if "io" in v["class"].split("+")} for rows in (before, after)
    )
    return sorted(old ^ new)


def in_image(path, args, warm_up):
    """Boots a VM file. Returns what was measured, as in_simulation() does, and all parameters."""
    pools, vms, said = boot(path, args, warm_up)
    events = {m[0]: (int(m[1]), dict(zip(("mean", "p99", "max"), (int(ns) / 1e3 for ns in m[2:]))))
              for m in MEASURED.findall(said)}
    tops = [demo.answer(said, tag)["vcpus"] for tag in TAGS[1:]]
    halves = [part(top, *reversed(events[f"half {n}"])) for n, top in enumerate(tops, 1)]
    whole = part([dict(v, cpu_pct=v["cpu_pct"] / 2, switches_per_s=v["switches_per_s"] / 2)
                  for top in tops for v in top], *reversed(events["whole"]))
    late, before = {}, demo.answer(said, TAGS[0])
    for time, after in zip((0.5, 1), tops):
        late |= dict.fromkeys(relabelled(before, after), warm_up + time * args.seconds)
        before = after

    def values(tag):
        return {row["name"]: row["value"] for row in demo.answer(said, tag)}

    knobs = {"pools": {p: values(f"pool-{p}") for p in pools},
             "vms": {vm: values(f"vm-{vm}") for vm in vms}}
    return whole | {"halves": halves, "labels_changed_s": late, "trace": None}, knobs


def place(policy, seed, args, warm_up):
    """Writes the VM file of a run into a directory of its own, because runs go on side by side."""
    run_of = f"seed-{seed}-after-{warm_up:g}s"
    return os.path.join(machine.BUILD, "run", f"compare-{args.platform}", policy, run_of,
                        "compare.cfg")


def write_file(policy, seed, args, warm_up):
    """Writes the VM file of a run with this policy and this seed, and returns its path."""
    path = place(policy, seed, args, warm_up)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(BASE, encoding="ascii") as f:
        work = f"percent={args.percent} loop={args.loop}"
        text = with_seed(f.read(), seed, work, warm_up, args.seconds)
    with open(path, "w", encoding="ascii") as f:
        f.write(lay_over(text, settings_of(policy)))
    return path


def run(policy, seed, args, warm_up):
    """Makes one run. Returns what the results have of it, and every parameter that was in
    effect."""
    path = write_file(policy, seed, args, warm_up)
    if args.platform == "sim":
        found, knobs = in_simulation(path, args, warm_up)
    else:
        found, knobs = in_image(path, args, warm_up)
    return {"seed": seed, "warm_up_s": warm_up, "vm_file": experiment.digest(path)} | found, knobs


SCHEDULER = ("hv_sched_yield", "sched_block", "sched_run", "sched_saved", "sched_timer_fire",
             "sched_wake")


def cost(policy, args, warm_up):
    """Returns how many instructions the scheduler takes for each decision after the warm-up, or
    None without valgrind. This is always counted in the simulation, whatever the platform is."""
    path = write_file(policy, 1, args, warm_up)
    tool = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
            "--collect-atstart=no",
            "--zero-before=sim_measurement_begins", *(f"--toggle-collect={f}" for f in SCHEDULER)]
    try:
        done = simulate(path, "-j", "-q", "-w", f"{warm_up}s", "-t", "2s", tool=tool)
    except FileNotFoundError:
        return None
    instructions = int(re.search(r"Collected\s*:\s*(\d+)", done.stderr)[1])
    return round(instructions / json.loads(done.stdout)["decisions"])


# ---- warm-up ----

def quantities(measured):
    """Returns the quantities that have to stay the same before a system counts as settled."""
    result = {"latency ms": measured["latency_us"]["mean"] / 1e3,
              "switches/s": measured["switches_per_s"]}
    return result | {
        f"{vm['vm']} %": vm["cpu_pct"] for vm in measured["vms"] if vm["vm"] != "client"
    }


def look(one):
    """Returns a run as the rule for the warm-up needs it. For each label it has the time at which
    the label changed, if that was during the measurement."""
    vms = [vm["vm"] for vm in one["vms"]]
    labels = [dict.fromkeys(vms), {vm: one["labels_changed_s"].get(vm) for vm in vms}]
    credit = [half.get("credit_ms") for half in one["halves"]]
    return experiment.Look(quantities(one), [quantities(half) for half in one["halves"]], labels,
                           credit if all(credit) else ())


class Measured:
    """A policy on one platform: all of its runs at the warm-up that counts, in the order of their
    seeds."""

    def __init__(self, policy, found, warm_up, why=None, tried=()):
        self.policy = policy
        self.runs, self.knobs = [one for one, _ in found], found[0][1]
        self.warm_up = warm_up    # in s
        self.why = why            # why it is not known to have settled, or None
        self.tried = list(tried)  # (warm-up, why it was too short)
        self.instructions = None  # for one decision

    def by_seed(self, value):
        return {one["seed"]: value(one) for one in self.runs}


def measure_in_simulation(policy, args):
    """Finds out how long a warm-up the policy needs, unless the command line gives one."""
    known = {}

    def observe(warm_up):
        known[warm_up] = [run(policy, seed, args, warm_up) for seed in args.seed_list]
        return [look(one) for one, _ in known[warm_up]]

    if args.warm_up:
        why, tried, warm_up = experiment.unsettled(observe(args.warm_up), FLOORS), (), args.warm_up
    else:
        warm_up, why, _, tried = experiment.settle(observe, SHORTEST, LONGEST, FLOORS)
    return Measured(policy, known[warm_up], warm_up, why, tried)


def measure_in_images(policies, warm_ups, never, args, label):
    """Runs each policy with each seed, after the warm-up that is given for the policy. A policy
    that has not settled by then is run again after twice that time, up to LONGEST_IMAGE. `never` is
    {policy: why it does not settle in the simulation}; such a policy counts as not settled here,
    too."""
    done, again, tried = {}, list(policies), {policy: [] for policy in policies}
    # QEMU's clock is the host's, so nothing may run beside it.
    workers = 1 if args.platform in ("qemu", "kvm") else os.cpu_count()
    while again:
        jobs = [(policy, seed) for policy in again for seed in args.seed_list]
        found = progress.run_all(
            label,
            lambda job: run(*job, args, warm_ups[job[0]]),
            jobs,
            workers,
            lambda job: f"{job[0]}, seed {job[1]}, after {warm_ups[job[0]]:g} s",
        )
        found = dict(zip(jobs, found))
        turn, again = again, []
        for policy in turn:
            mine = [found[policy, seed] for seed in args.seed_list]
            warm_up = warm_ups[policy]
            why = experiment.unsettled([look(one) for one, _ in mine], FLOORS)
            done[policy] = Measured(policy, mine, warm_up, why or never.get(policy), tried[policy])
            if why and not args.warm_up and 2 * warm_up <= LONGEST_IMAGE:
                tried[policy].append((warm_up, why))
                warm_ups[policy] = 2 * warm_up
                again.append(policy)
    return done


# ---- results ----

def summarise(measured):
    """Returns a policy's runs as one row of the table."""
    runs = measured.runs
    names = [vm["vm"] for vm in runs[0]["vms"]]
    shares = {
        name: [vm["cpu_pct"] for r in runs for vm in r["vms"] if vm["vm"] == name] for name in names
    }
    latency = {k: [r["latency_us"][k] for r in runs] for k in ("mean", "p99", "max")}
    return {"policy": measured.policy, "runs": len(runs), "warm_up_s": measured.warm_up,
            "unsettled": measured.why,
            "same_trace": experiment.same_trace([r["trace"] for r in runs]),
            "cpu_pct": {name: experiment.estimate(values) for name, values in shares.items()},
            "latency_us": {"mean": experiment.estimate(latency["mean"]),
                           "p99": experiment.points(latency["p99"]),
                           "max": experiment.points(latency["max"])},
            "switches_per_s": experiment.estimate([r["switches_per_s"] for r in runs]),
            "instructions_per_decision": measured.instructions}


def share_of_server(one):
    return next(vm["cpu_pct"] for vm in one["vms"] if vm["vm"] == SERVER.removeprefix("vm "))


def differences(measured):
    """Returns the differences between each policy and what it is measured against, by runs of the
    same seed."""
    rows = []
    for policy, found in measured.items():
        for baseline in BASELINES.get(policy, ()):
            if baseline not in measured:
                continue
            row = {"policy": policy, "baseline": baseline}
            for name, value, floor in (("latency_us", lambda one: one["latency_us"]["mean"], 20),
                                       ("cpu_pct", share_of_server, 0.5),
                                       ("switches_per_s", lambda one: one["switches_per_s"], 5)):
                row[name] = experiment.paired(measured[baseline].by_seed(value),
                                              found.by_seed(value), floor)
            rows.append(row)
    return rows


def columns(lines):
    """Returns lines of cells with aligned columns: the first column to the left, the others to the
    right."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return ["  ".join(c.rjust(w) if i
                      else c.ljust(w) for i, (c, w) in enumerate(zip(line, widths))).rstrip()
            for line in lines]


def table(summaries, missing):
    """Returns the table as lines of text."""
    text = experiment.text
    vms = [name for name in summaries[0]["cpu_pct"] if name != "client"] if summaries else []
    lines = [["policy", "W s", *(f"{vm} %" for vm in vms), "latency ms", "p99", "max", "switches/s",
              "instr."]]
    for s in summaries:
        lines.append([s["policy"], f"{s['warm_up_s']:g}" + ("!" if s["unsettled"] else ""),
                      *(text(s["cpu_pct"][vm]) for vm in vms),
                      *(text(s["latency_us"][k], 2, 1e-3) for k in ("mean", "p99", "max")),
                      text(s["switches_per_s"], 0), text(s["instructions_per_decision"], 0)])
    result = columns(lines)
    result += [f"{policy}  missing: {why}" for policy, why in missing.items()]
    result += [f"! {s['policy']} is not known to have settled: {s['unsettled']}" for s in summaries
               if s["unsettled"]]
    result += [f"{s['policy']}: {s['same_trace']}" for s in summaries if s["same_trace"]]
    return result


def table_of_differences(rows):
    lines = [["policy", "less baseline", "latency ms", "mixed %", "switches/s"]]
    lines += [[r["policy"], r["baseline"], experiment.text(r["latency_us"], 2, 1e-3),
               experiment.text(r["cpu_pct"]),
               experiment.text(r["switches_per_s"], 0)] for r in rows]
    return columns(lines) if rows else []


CAPTION = (
    "Bars: CPU time, mean of {n} runs. Circles: mean latency of {n} runs with its 95 % interval; "
    "where there is "
    "none,\n"
    "small dots: each run. Diamonds and crosses: median of the runs' 99th percentiles and maxima, "
    "thin lines: their range."
)


def centre(e):
    """Returns where the bar of an estimate ends. For several groups or values this is their
    mean."""
    values = [e["value"]] if "value" in e else e.get("values", [])
    for g in e.get("groups", ()):
        values += [g["mean"]] * g["n"]
    return e["mean"] if "mean" in e else sum(values) / len(values)


def draw(summaries, measured, platform, path):
    """Draws shares as bars and latencies as points: what each policy gives to the mixed VM, and
    what it costs the others."""
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
    fig, (left, right) = plt.subplots(1, 2, figsize=(11, 0.38 * len(names) + 2.4), sharey=True)
    start = [0.0] * len(names)
    for vm, colour in zip(vms, ["#d95f02", "#1b6ca8", "#5a9bc8", "#a6c8e0"]):
        width = [centre(s["cpu_pct"][vm]) for s in summaries]
        left.barh(y, width, left=start, color=colour, label=vm, height=0.7)
        start = [a + b for a, b in zip(start, width)]
    left.set_xlabel("CPU, % of a pCPU")
    left.set_yticks(list(y), names)
    left.invert_yaxis()
    left.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncol=len(vms), fontsize=8)
    for key, marker, colour in (("p99", "d", "#7570b3"), ("max", "x", "#c02020")):
        of = [s["latency_us"][key] for s in summaries]
        x = [p["median"] / 1e3 for p in of]
        ends = [[(p["median"] - p["min"]) / 1e3 for p in of],
                [(p["max"] - p["median"]) / 1e3 for p in of]]
        right.errorbar(x, list(y), xerr=ends, fmt=marker, color=colour, markersize=5,
                       elinewidth=0.6, label=key)
    for at, s in enumerate(summaries):
        e = s["latency_us"]["mean"]
        label = "mean" if at == 0 else None
        if "mean" in e:
            right.errorbar([e["mean"] / 1e3], [at], xerr=[e["ci95"] / 1e3], fmt="o",
                           color="#222222",
                           markersize=5, elinewidth=1.5, capsize=3, label=label)
            continue
        each = [one["latency_us"]["mean"] / 1e3 for one in measured[s["policy"]].runs]
        right.plot(each, [at] * len(each), ".", color="#222222", markersize=4, label=label)
    right.set_xscale("log")
    right.set_xlabel("latency of an event, ms")
    right.grid(axis="x", which="both", color="#e4e4e4")
    right.set_axisbelow(True)
    right.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncol=3, fontsize=8)
    fig.suptitle(f"Four VMs on a core, one of them serving 300 events a second ({platform})",
                 fontsize=10)
    fig.text(0.01, 0.01, CAPTION.format(n=summaries[0]["runs"]), fontsize=7.5, va="bottom")
    fig.tight_layout(rect=(0, 0.06, 1, 1))
    fig.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(fig)


# ---- the whole program ----

def check(policies, args):
    """Returns the policies that can be run, and {policy: why it cannot} for those that this build
    does not know.

    Every program that will run has to know a name that is none of ours. If one does not, the tool
    ends here, before anything is booted.
    """
    known, missing = [], {}
    for policy in policies:
        path = write_file(policy, 1, args, SHORTEST)
        try:
            simulate(path, "-n")
            if args.platform != "sim":
                check_image(path, policy, args)
            known.append(policy)
        except Refused as why:
            if policy not in POLICIES:
                raise sentence.Problem(
                    f"policy {policy}: {why}. Policies of compare: {', '.join(POLICIES)}; "
                    "others are the names of schedulers (labs/policies.c)"
                ) from why
            missing[policy] = str(why)
    return known, missing


def check_image(path, policy, args):
    """Raises an exception if the image does not know the policy. The program cfgdump that was built
    with the image knows the same policies, so it is asked."""
    cfgdump = os.path.join(os.path.dirname(args.hv), "cfgdump")
    guests = os.path.join(machine.BUILD, "guests")
    done = subprocess.run([cfgdump, "-p", str(PCPUS), "-i", guests, path], capture_output=True,
                          text=True,
                          check=False)
    if done.returncode == 0:
        return
    said = " ".join(done.stderr.split("\n")[0].replace(path + ":", "line ").split())
    if policy in POLICIES:
        raise Refused(said)
    raise sentence.Problem(
        f"policy {policy}: the image {os.path.relpath(args.hv, machine.ROOT)} does not "
        f"know it ({said}); `make compare LABS=labs/{policy}.c POLICY={policy}` builds "
        "one that does, if that is the file of the policy"
    )


def measure(args, known):
    """Returns {policy: Measured}. If an image runs, the simulation finds the warm-up first."""
    virtual = argparse.Namespace(**vars(args) | {"platform": "sim", "seconds": SECONDS["sim"]})
    in_sim = virtual if args.platform != "sim" else args
    if args.platform == "sim" or not args.warm_up:
        label = "compare in the simulation"
        if args.platform != "sim":
            label = "how long to warm up, in the simulation"
        found = progress.run_all(label, lambda policy: measure_in_simulation(policy, in_sim), known,
                                 os.cpu_count())
        measured = dict(zip(known, found))
        warm_ups = {policy: m.warm_up for policy, m in measured.items()}
        never = {policy: "in the simulation, " + m.why for policy, m in measured.items() if m.why}
    else:
        warm_ups, never = dict.fromkeys(known, args.warm_up), {}
    if args.platform != "sim":
        short = {policy: args.warm_up or min(w, LONGEST_IMAGE) for policy, w in warm_ups.items()}
        measured = measure_in_images(known, short, never, args, f"compare on {args.platform}")
    costs = progress.run_all("instructions a decision",
                             lambda policy: cost(policy, in_sim, warm_ups[policy]),
                             known, os.cpu_count())
    for policy, instructions in zip(known, costs):
        measured[policy].instructions = instructions
    return measured


def compare(args, known, missing):
    measured = measure(args, known)
    summaries = [summarise(m) for m in measured.values()]
    rows = differences(measured)
    print(
        f"Takt, {args.platform}: {args.seconds:g} s after a warm-up of W s, {args.seeds} seed(s), "
        f"{PCPUS} pCPUs"
    )
    print("\n".join(table(summaries, missing)))
    print(
        "\n".join(
            [
                "",
                "Differences to what each policy is measured against, by runs of the same seed:",
                *table_of_differences(rows),
                "",
            ]
        )
        if rows
        else ""
    )
    print("\n".join(textwrap.wrap(experiment.LEGEND, 100)))
    if args.platform in ("qemu", "kvm"):
        print("The clock is the host's here: these figures are worth as much as the host was idle. "
              "PLATFORM=bochs is exact.")
    write(args, measured, {"summary": summaries, "differences": rows, "missing": missing})
    return 0 if summaries else 1


def write(args, measured, result):
    """Writes the results file and the picture."""
    path = os.path.join(machine.BUILD, "results", f"compare-{args.platform}")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    inputs = [BASE, SIM]
    if args.platform != "sim":
        inputs += experiment.files_of(BASE, args.hv)
    head = experiment.provenance(args.platform, SIM if args.platform == "sim" else args.hv, inputs,
                                 pcpus=PCPUS, seeds=args.seed_list, seconds=args.seconds,
                                 percent=args.percent, loop=args.loop)
    policies = {name: {"settings": settings_of(name), "knobs": m.knobs, "warm_up_s": m.warm_up,
                       "unsettled": m.why,
                       "too_short": [{"warm_up_s": w, "why": why} for w, why in m.tried],
                       "runs": m.runs} for name, m in measured.items()}
    with open(path + ".json", "w", encoding="utf-8") as f:
        json.dump({"provenance": head, **result, "policies": policies}, f, indent=1)
        f.write("\n")
    if measured:
        draw(result["summary"], measured, args.platform, path + ".png")
    print(f"{path}.json, .png")


def main():
    parser = argparse.ArgumentParser(description="policies side by side")
    parser.add_argument("--platform", action="append", choices=list(SECONDS))
    parser.add_argument("--policy", action="append", metavar="NAME",
                        help=", ".join(POLICIES) + "; or a scheduler, which then runs the core")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"how many runs of each ({SEEDS})")
    parser.add_argument("--percent", type=int, default=PERCENT,
                        help=f"how much the mixed VM computes beside serving ({PERCENT})")
    parser.add_argument(
        "--loop",
        choices=["closed", "open"],
        default="closed",
        help="open: it forgets what it missed of that (guestlib/include/guest/duty.h)",
    )
    parser.add_argument("--seconds", type=float,
                        help="how long to measure (simulation: 30; image: 4, or 16 with fewer than "
                        "five seeds)")
    parser.add_argument("--warm-up", type=float,
                        help="s; without it, as long as it takes to settle")
    parser.add_argument("--hv", default=HV, metavar="ELF", help="the image (build/takt.elf)")
    given = parser.parse_args()
    plans = []
    for platform in given.platform or ["sim"]:
        args = argparse.Namespace(platform=platform, warm_up=given.warm_up, percent=given.percent,
                                  loop=given.loop,
                                  seconds=given.seconds or seconds_of(platform, given.seeds),
                                  seeds=given.seeds,
                                  seed_list=list(range(1, given.seeds + 1)),
                                  hv=os.path.abspath(given.hv))
        plans.append((args, *check(given.policy or list(POLICIES), args)))
    # Whatever can be refused has been refused by now, for all platforms.
    return max([compare(*plan) for plan in plans])


if __name__ == "__main__":
    sentence.run(main)
