#!/usr/bin/env python3
"""make collab-demo: what it brings that guests and driver domain tune disk I/O together.

boot/collab-demo.cfg is the machine: VMs with page caches whose disks share one modelled device.
These set-ups are laid over it; docs/collab.md says what the functions do:

  plain       nobody takes part: guests write back as they do by themselves
  dif         guests are told that the device is idle, and then write back by themselves
  flush       the manager has the VM with most dirty pages write them while the device is idle
  congestion  guests whose queue is full go on if the device is not crowded
  all         flush and congestion

Each seed is a run of each set-up, with other pauses between the bursts. Prints a table, and writes
build/results/collab-demo-PLATFORM.json with every run.

Exits 0 only if the functions did what they are for: every VM completed and read back what it had
written; guests were asked to flush, and their queues released, in the set-ups that say so and in no
other one. On Bochs, where time is virtual, flush must also not lower the write throughput of any
run by more than 2 %, and raise it on average. By the host's clock (QEMU) such a difference means
nothing, so it is only printed.

  tools/collabdemo.py [--platform auto|qemu|kvm|bochs] [--seeds N] [--setup NAME]...
"""
import argparse
import json
import os
import re
import subprocess
import sys

import compare
import experiment
import machine
import netdemo
import sentence

BASE = os.path.join(machine.ROOT, "boot", "collab-demo.cfg")
WRITERS = ("one", "two", "three")
VMS = (*WRITERS, "video")
PCPUS, SEEDS = 3, 3
LOSS = 0.02  # No function may cost more than this part of the throughput.
COLLAB = " collab collab_ms=20"
# {set-up: (words for the driver domain, words for the guests)}
SETUPS = {"plain": ("", ""), "dif": (COLLAB + " flush=0 congestion=0 dif=1", " collab"),
          "flush": (COLLAB + " flush=1 congestion=0", " collab"),
          "congestion": (COLLAB + " flush=0 congestion=1", " collab"),
          "all": (COLLAB + " flush=1 congestion=1", " collab")}
# {counter: set-ups in which it must not be 0; in all others it must be}
DONE = {"flush_asked": ("flush", "all"), "by_itself": ("dif",), "released": ("congestion", "all")}
SCRIPT = "".join(f"@1s wait {vm} 60s\n" for vm in VMS) + \
    "+0ms store -j=cpu_ms read /local/domain/1/cpu_ms\n+1200ms poweroff\n"
WROTE = re.compile(r"\[ *(?P<ended_s>[\d.]+)\] (?P<vm>\w+): bursts: wrote (?P<kib>\d+) KiB in "
                   r"(?P<took_us>\d+) us, of that writing (?P<writing_us>\d+) us; (?P<rest>.*)")
READ = re.compile(r"video: video: (?P<rest>.*)")
HIGHER, LOWER = True, False
# {quantity: (unit, which is better)}
QUANTITIES = {"write_kib_per_s": ("KiB/s", HIGHER), "mean_us": ("us", LOWER),
              "p999_us": ("us", LOWER), "read_mean_us": ("us", LOWER),
              "read_p99_us": ("us", LOWER), "completed": ("VMs", HIGHER),
              "iodom_cpu_ms": ("ms", LOWER)}


def vm_file(setup, seed):
    """Returns the VM file of one run."""
    driver, guest = SETUPS[setup]
    with open(BASE, encoding="ascii") as f:
        text = f.read()

    def longer(section, more):
        words = re.search(rf"(?ms)^\[{section}\].*?^cmdline = (.*?)$", text)[1]
        return {section: {"cmdline": words + more}}

    over = [longer("vm iodom", driver), *(longer(f"vm {vm}", guest) for vm in VMS)]
    over.append({"hypervisor": {"seed": str(seed), "script": "collab-demo.script"}})
    return compare.lay_over(text, compare.both(*over))


def read(said):
    """Returns what one run has printed, as {quantity: number}, and "vms" with what each of them
    printed."""
    vms = {}
    for m in WROTE.finditer(said):
        vms[m["vm"]] = {k: int(m[k]) for k in ("kib", "took_us", "writing_us")} | {
            k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", m["rest"])}
    answer = re.search(r'\{"id": "cpu_ms".*?"value": "(\d+)"', said)
    lines = " ".join(m["rest"] for m in READ.finditer(said))
    video = {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", lines)}
    if not vms or not answer or "mean_us" not in video:
        raise LookupError("what the VMs wrote and read")
    written = sum(vm["kib"] for vm in vms.values())
    # First the figure of each VM is computed, then the sum: otherwise one VM that ends late would
    # lengthen the time of all of them.
    rate = sum(vm["kib"] * 1e6 / vm["took_us"] for vm in vms.values())
    return {"write_kib_per_s": round(rate, 1),
            "mean_us": round(sum(vm["mean_us"] * vm["kib"] for vm in vms.values()) / written, 1),
            "p999_us": max(vm["p999_us"] for vm in vms.values()),
            "read_mean_us": video["mean_us"], "read_p99_us": video["p99_us"],
            "completed": sum(f"{name}: ends with code 0" in said for name in VMS),
            "iodom_cpu_ms": int(answer[1]), "vms": vms | {"video": video}}


def run(setup, seed, platform):
    directory = os.path.join(machine.BUILD, "run", f"collab-demo-{platform}", f"{setup}-{seed}")
    os.makedirs(directory, exist_ok=True)
    paths = [os.path.join(directory, name) for name in ("collab-demo.cfg", "collab-demo.script")]
    for path, text in zip(paths, (vm_file(setup, seed), SCRIPT)):
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
    iso = os.path.join(directory, "takt.iso")
    subprocess.run([os.path.join(machine.ROOT, "tools", "mkiso.sh"), iso, paths[0], "--module",
                    f"collab-demo.script={paths[1]}"], cwd=machine.ROOT, check=True)
    with machine.Machine(platform, iso, cpus=PCPUS, directory=directory) as m:
        how, _ = m.wait(timeout=600 if platform == "bochs" else 90)
        said = netdemo.plain(m.serial())
    os.unlink(iso)  # It has 10 MB, and the results have the hashes of its parts.
    try:
        found = read(said)
    except LookupError as what:
        raise sentence.Problem(f"{setup}, seed {seed}: no result of {what} ({how}); see {directory}"
                               ) from None
    return {"setup": setup, "seed": seed, "vm_file": experiment.digest(paths[0])} | found


def sums(one, what):
    return sum(vm.get(what, 0) for vm in one["vms"].values())


def judge(runs, platform):
    """Returns a sentence about each thing that does not hold."""
    wrong = []
    rate = {}
    for one in runs:
        name, setup = f"{one['setup']}, seed {one['seed']}", one["setup"]
        rate.setdefault(setup, {})[one["seed"]] = one["write_kib_per_s"]
        if one["completed"] != len(VMS):
            wrong.append(f"{name}: {one['completed']} of {len(VMS)} VMs completed")
        if sums(one, "wrong"):
            wrong.append(f"{name}: {sums(one, 'wrong')} words were read back as nobody wrote them")
        for counter, setups in DONE.items():
            if (sums(one, counter) > 0) != (setup in setups):
                wrong.append(f"{name}: {counter} is {sums(one, counter)}")
    if platform != "bochs" or "plain" not in rate or "flush" not in rate:
        return wrong
    pairs = [(seed, rate["plain"][seed], rate["flush"][seed]) for seed in rate["plain"]]
    for seed, before, after in pairs:
        if after < before * (1 - LOSS):
            wrong.append(f"flush, seed {seed}: {after} KiB/s are more than {100 * LOSS:g} % below "
                         f"{before} without it")
    if sum(after for _, _, after in pairs) <= sum(before for _, before, _ in pairs):
        wrong.append("flush: the mean write throughput is not above the one without it")
    return wrong


def summary(runs):
    """Returns {set-up: {quantity: what its runs say about it}}."""
    by = {}
    for one in runs:
        by.setdefault(one["setup"], []).append(one)
    return {setup: {q: experiment.estimate([one[q] for one in of], floor=1.0) for q in QUANTITIES}
            for setup, of in by.items()}


def table(rows):
    lines = ["| set-up | " + " | ".join(f"{q} ({unit})" for q, (unit, _) in QUANTITIES.items())
             + " |", "|---" * (1 + len(QUANTITIES)) + "|"]
    for setup, row in rows.items():
        cells = " | ".join(experiment.text(row[q]) for q in QUANTITIES)
        lines.append(f"| {setup} | {cells} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--platform", default="auto")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--setup", action="append", choices=SETUPS)
    args = parser.parse_args()
    platform = machine.choose(args.platform)
    chosen = args.setup or list(SETUPS)
    runs = [run(setup, seed, platform) for seed in range(1, args.seeds + 1) for setup in chosen]
    rows, wrong = summary(runs), judge(runs, platform)
    elf = os.path.join(machine.BUILD, "takt.elf")
    guests = [os.path.join(machine.BUILD, "guests", f"{g}.elf")
              for g in ("iodom", "bursts", "video")]
    result = experiment.provenance(platform, elf, [BASE, *guests], seeds=args.seeds) | {
        "summary": rows, "wrong": wrong, "runs": runs}
    path = os.path.join(machine.BUILD, "results", f"collab-demo-{platform}.json")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1)
    print(table(rows))
    print(experiment.LEGEND)
    for what in wrong:
        print("not so: " + what)
    print(os.path.relpath(path, machine.ROOT))
    return bool(wrong)


if __name__ == "__main__":
    sentence.run(main)
