#!/usr/bin/env python3
"""make collab-arrivals: VMs that arrive at random, do a job on a disk that they share, and go.

IOrchestra's sections 5.3 and 5.5 have such a load. VMs arrive as a Poisson process. Each has 2, 4,
6, 8 or 10 vCPUs and as many GB of memory, chosen independently, and one of three jobs of a fixed
size: a file server, a key-value store, or one that only computes. A VM that finds too little memory
waits, and all that come later wait behind it. When the job is done, the VM is gone.

What is scaled down: a GB is 8 MiB here, and so 2 GB of the file server's are 16 MiB, and the 50,000
requests to the store, at 1,500 a second, are 390 at 12 a second. A VM's page cache has three
quarters of its memory. The paper does not say how long the computing takes, nor how fast its disks
are with this load, but that the machine is fully loaded with 20 VMs a minute, and not with a few.
So a vCPU computes for 15 s, and the device moves 2 MB/s: with 20 VMs a minute these jobs need ten
pCPUs and nine tenths of the device.

The set-ups are those of tools/collabdemo.py. Each has 12 pCPUs in all. I/O cores need two of them
beside the driver domain's own, and those two are taken from the VMs in all set-ups, so that a VM
finds as many pCPUs in each: without I/O cores they idle. With I/O cores a VM of more than 6 vCPUs
is on both sockets, and the others take turns.

Measures each set-up in the simulation of the whole machine (docs/simulation.md), prints a table,
and writes build/results/collab-arrivals.json with every run. Exits 0 only if no VM read anything
wrong, none crashed, and as many have been admitted as had arrived, but for those that wait at the
end, in the order in which they came.

  tools/arrivals.py [--rates 4 12 20] [--seconds 120] [--seeds N] [--setup NAME]...
"""
import argparse
import concurrent.futures
import json
import os
import random
import re
import subprocess

import collabdemo
import experiment
import machine
import sentence

SIZES = (2, 4, 6, 8, 10)  # of vCPUs, and of GB
GB_MIB = 8
MEMORY_GB = 32
PCPUS, IO_CORES, SOCKET = 12, 2, 6  # a socket has so many pCPUs
SEEDS, SECONDS, RATES = 3, 120, (4, 12, 20)
DEVICE = "ssd0=bw=2M,lat=100us,depth=8,queue=64"
DISK_MIB = {"fileserver": 20, "kvstore": 6}
DRIVER_MIB = 16 + MEMORY_GB // min(SIZES) * max(DISK_MIB.values())
SPARE_MIB = 48  # the hypervisor, and what it keeps of each VM beside its memory
JOBS = {
    "fileserver": "image = fileserver\n"
                  "cmdline = kib=16384 files=320 cache={cache} {guest}\n"
                  f"disk = iodom on=ssd0 size={DISK_MIB['fileserver']}M keep=0 {{place}}\n",
    "kvstore": "image = kvstore\n"
               "cmdline = count=390 rate=12 read_pct=50 cache={cache} {guest}\n"
               f"disk = iodom on=ssd0 size={DISK_MIB['kvstore']}M keep=0 {{place}}\n",
    "compute": "image = compute\ncmdline = work_ms=15000\n",
}
HEAD = """[hypervisor]
guest_console = log
noreboot = no
top = no
seed = {seed}

[pool io]
sched = null
sleepless = {sleepless}
cpus = 1-{io}

[vm iodom]
image = iodom
memory = {memory}M
vcpus = {vcpus}
pool = io
cmdline = {device} {driver}
"""
# {quantity: unit}. write_ms_per_mib is the time that all file servers together took, divided by
# what they wrote. It is no rate, because some runs have only jobs that fit into the page cache, and
# their rate is thirty times that of the others. Stores do not count: they get as many requests a
# second with each set-up. Latencies are of writes. These three are of VMs that completed with each
# set-up. cpu_s is the CPU time of all VMs that completed, busy_pct is how busy the VMs' pCPUs were.
QUANTITIES = {"arrived": "VMs", "completed": "VMs", "write_ms_per_mib": "ms",
              "mean_us": "us", "p999_us": "us", "cpu_s": "s", "busy_pct": "%"}
SAYS = re.compile(r"\[ *(?P<s>[\d.]+)\] (?P<vm>vm-\d+): (?P<rest>.*)")


def arrivals(rate, seconds, seed):
    """Returns [(ms, job, vCPUs, GB)] of VMs that arrive as a Poisson process with `rate` a minute.
    """
    rng = random.Random(f"arrivals {rate} {seed}")
    found, at = [], 0.0
    while True:
        at += rng.expovariate(rate / 60)
        if at >= seconds:
            return found
        found.append((int(at * 1000), rng.choice(sorted(JOBS)), rng.choice(SIZES),
                      rng.choice(SIZES)))


def place_of(number, vcpus):
    """Returns the options of a disk that say on which sockets the VM is."""
    if vcpus > SOCKET:
        return "socket=0 sockets=2"
    return f"socket={number % 2}"


def vm_file(of, seed, driver, guest, io=None):
    """Returns the VM file for arrivals(). `driver` and `guest` are words for the command lines of
    the driver domain and of the VMs. `io` is how many pCPUs the VMs do not get; by default as many
    as the driver domain has vCPUs."""
    cores = "cores=" in driver
    vcpus, sleepless = 1, "off"
    if cores:
        vcpus, sleepless = 1 + IO_CORES, "on"
    text = [HEAD.format(seed=seed, sleepless=sleepless, io=io or vcpus, vcpus=vcpus,
                        memory=DRIVER_MIB, device=DEVICE, driver=driver)]
    for i, (_, job, vcpus, gb) in enumerate(of):
        place = ""
        if cores:
            place = place_of(i, vcpus)
        body = JOBS[job].format(cache=gb * GB_MIB * 256 * 3 // 4, guest=guest, place=place)
        text.append(f"[vm vm-{i}]\nstart = no\nvcpus = {vcpus}\nmemory = {gb * GB_MIB}M\n{body}")
    return "\n".join(text)


def script(of, seconds):
    """Returns the shell's script: each VM is created when it arrives, or when there is room for it
    and those before it have been created."""
    return "".join(f"@{ms}ms create -w {seconds}s vm-{i}\n" for i, (ms, *_) in enumerate(of))


def memory_mib():
    """Returns how much RAM the machine has: as much for VMs as 32 GB are in the paper's."""
    return MEMORY_GB * GB_MIB + DRIVER_MIB + SPARE_MIB


def files(rate, seconds, seed, driver, guest, io=None):
    """Returns the text of a VM file and of a script, and how many VMs arrive."""
    of = arrivals(rate, seconds, seed)
    return vm_file(of, seed, driver, guest, io), script(of, seconds), len(of)


def words():
    """Returns the words for build/sim-whole that all set-ups have."""
    return ["-p", str(PCPUS), "-m", str(memory_mib())]


# ---- what a run has printed ----

def of_vms(said):
    """Returns {VM: {word: number}} of what the VMs that arrived have printed, and what the
    hypervisor said of them: "admitted", "ended" and "crashed"."""
    vms = {}
    for m in SAYS.finditer(said):
        vm = vms.setdefault(m["vm"], {})
        for word, value in re.findall(r"(\w+)=(\d+)", m["rest"]):
            vm[word] = int(value)
        if m["rest"].startswith("fileserver: "):
            vm["files"] = 1
        if re.match(r"id \d+, ", m["rest"]):
            vm["admitted"] = float(m["s"])
        if m["rest"].startswith("ends with code 0"):
            vm["ended"] = float(m["s"])
        if m["rest"].startswith("crashed"):
            vm["crashed"] = 1
    return vms


def completed(vms):
    """Returns the names of the VMs that have done their job."""
    return {name for name, vm in vms.items() if "ended" in vm and "took_us" in vm}


def read(said, arrived):
    """Returns what one run has printed, as {quantity: number}, and "vms"."""
    vms = of_vms(said)
    done = completed(vms)
    return {"arrived": arrived, "completed": len(done), "vms": vms,
            "cpu_s": sum(vms[name].get("cpu_us", 0) for name in done) / 1e6
            } | writing(vms, done)


def writing(vms, chosen):
    """Returns what those of the VMs that are chosen have measured of their writes, as {quantity:
    number}."""
    found = {"write_ms_per_mib": 0.0, "mean_us": 0.0, "p999_us": 0}
    writers = [vms[name] for name in chosen if vms[name].get("writes")]
    if writers:
        total = sum(vm["writes"] for vm in writers)
        found["mean_us"] = sum(vm["write_mean_us"] * vm["writes"] for vm in writers) / total
        found["p999_us"] = max(vm["write_p999_us"] for vm in writers)
    files = [vm for vm in writers if "files" in vm]
    if files:
        found["write_ms_per_mib"] = (sum(vm["took_us"] for vm in files) * 1.024
                                     / sum(vm["write_kib"] for vm in files))
    return found


def compare_the_same(runs):
    """Has the quantities of writes, of all runs of a rate and a seed, speak of the same VMs: of
    those that completed with each set-up. Otherwise a set-up would look quicker because its slowest
    VM has not come to its end."""
    for rate, seed in {(one["rate"], one["seed"]) for one in runs}:
        of = [one for one in runs if (one["rate"], one["seed"]) == (rate, seed)]
        chosen = set.intersection(*(completed(one["vms"]) for one in of))
        for one in of:
            one.update(writing(one["vms"], chosen))


def judge(name, run):
    """Returns a sentence about each thing of a run that must not be."""
    wrong = []
    admitted = [(int(vm[3:]), what["admitted"]) for vm, what in run["vms"].items()
                if "admitted" in what]
    in_order = [vm for vm, _ in sorted(admitted, key=lambda pair: pair[1])]
    if in_order != list(range(len(in_order))):
        wrong.append(f"{name}: VMs were not admitted in the order in which they arrived")
    for vm, what in run["vms"].items():
        if "crashed" in what:
            wrong.append(f"{name}: {vm} has crashed")
        if what.get("wrong"):
            wrong.append(f"{name}: {vm} has read {what['wrong']} words as nobody wrote them")
    if not run["completed"]:
        wrong.append(f"{name}: no VM has completed")
    return wrong


def busy_pct(pcpus):
    """Returns for how many per cent of the run the pCPUs were busy, all but those of the driver
    domain and the I/O cores. `pcpus` are those of build/sim-whole."""
    mine = [cpu for i, cpu in enumerate(pcpus) if not 1 <= i <= 1 + IO_CORES]
    busy = sum(cpu["busy_s"] for cpu in mine)
    return 100 * busy / (busy + sum(cpu["idle_s"] for cpu in mine))


# ---- the command ----

def run(setup, rate, seconds, seed):
    """Measures one set-up with one rate and seed."""
    driver, guest = collabdemo.SETUPS[setup]
    driver = driver.replace(collabdemo.COLLAB, " collab")
    directory = os.path.join(machine.BUILD, "run", "collab-arrivals", f"{setup}-{rate}-{seed}")
    os.makedirs(directory, exist_ok=True)
    vms, commands, arrived = files(rate, seconds, seed, driver, guest, 1 + IO_CORES)
    paths = [os.path.join(directory, "arrivals." + end) for end in ("cfg", "script", "json")]
    for path, text in zip(paths, (vms, commands)):
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
    done = subprocess.run([collabdemo.WHOLE, *words(), "-w", "1ms", "-t", f"{seconds}s",
                           "--script", paths[1], "--json", paths[2], paths[0]],
                          cwd=machine.ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise sentence.Problem(f"{experiment.inside(paths[0])}: {done.stderr.strip()[-300:]}")
    with open(paths[2], encoding="utf-8") as f:
        pcpus = json.load(f)["pcpus"]
    found = read(done.stdout, arrived) | {"busy_pct": busy_pct(pcpus)}
    return {"setup": setup, "rate": rate, "seed": seed,
            "vm_file": experiment.digest(paths[0])} | found


def table(runs):
    """Returns {rate: {set-up: {quantity: what its runs say about it}}}, and lines that show it."""
    by, rows = {}, {}
    for one in runs:
        by.setdefault((one["rate"], one["setup"]), []).append(one)
    lines = ["| VMs a minute, set-up | "
             + " | ".join(f"{q} ({unit})" for q, unit in QUANTITIES.items()) + " |",
             "|---" * (1 + len(QUANTITIES)) + "|"]
    for (rate, setup), of in by.items():
        row = {q: experiment.estimate([one[q] for one in of], floor=1.0) for q in QUANTITIES}
        rows.setdefault(str(rate), {})[setup] = row
        cells = " | ".join(experiment.text(row[q]) for q in QUANTITIES)
        lines.append(f"| {rate}, {setup} | {cells} |")
    return rows, "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rates", nargs="+", type=int, default=RATES, metavar="RATE",
                        help="VMs a minute")
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--setup", action="append", choices=collabdemo.SETUPS)
    args = parser.parse_args()
    todo = [(setup, rate, args.seconds, seed) for rate in args.rates
            for setup in args.setup or collabdemo.SETUPS for seed in range(1, args.seeds + 1)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = list(pool.map(lambda words: run(*words), todo))
    compare_the_same(runs)
    wrong = [what for one in runs
             for what in judge(f"{one['setup']}, {one['rate']} a minute, seed {one['seed']}", one)]
    rows, text = table(runs)
    guests = [os.path.join(machine.BUILD, "whole", f"{g}.elf") for g in ("iodom", *sorted(JOBS))]
    result = experiment.provenance("whole", collabdemo.WHOLE, guests, seeds=args.seeds,
                                   seconds=args.seconds) | {
        "summary": rows, "wrong": wrong, "runs": runs}
    path = os.path.join(machine.BUILD, "results", "collab-arrivals.json")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1)
    print(text)
    print(experiment.LEGEND)
    for what in wrong:
        print("not so: " + what)
    print(os.path.relpath(path, machine.ROOT))
    return bool(wrong)


if __name__ == "__main__":
    sentence.run(main)
