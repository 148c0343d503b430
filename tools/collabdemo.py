#!/usr/bin/env python3
"""make collab-demo: what it brings that guests and driver domain tune disk I/O together.

boot/collab-demo.cfg is the machine: VMs with page caches whose disks share one modelled device, and
VMs without whose disks share another one. These set-ups are laid over it; docs/collab.md says what
the functions do:

  plain       nobody takes part: guests write back as they do by themselves
  dif         guests are told that the device is idle, and then write back by themselves
  sdc         two I/O cores poll the VMs' rings. One core serves all of a VM, and all VMs have equal
              shares (a baseline)
  flush       the manager has the VM with most dirty pages write them while the device is idle
  congestion  guests whose queue is full go on if the device is not crowded
  cosched     two I/O cores, each of which serves its own socket. A VM on two sockets moves its
              threads to the one that is faster, and shares are those that the administrator gave
  all         flush, congestion and cosched

The I/O cores have two pCPUs more. They spin all the time, so their CPU time is not that of work:
it is told as spin_ms, and the rest of the driver domain's as iodom_cpu_ms.

Each seed is a run of each set-up, with other pauses between the bursts and other latencies of the
second device. Prints a table, and writes build/results/collab-demo-PLATFORM.json with every run.

Exits 0 only if the functions did what they are for: every VM completed and read back what it had
written; guests were asked to flush, their queues released, and threads moved to another socket, in
the set-ups that say so and in no other one. On Bochs and in the simulation of the whole machine
(`whole`), where time is virtual, also

  - flush does not lower the write throughput of any run by more than 2 %, and raises it on average;
    nor does `all`, compared with cosched
  - with cosched and all, what each VM gets of the second device is within 5 points of its share,
    and nearer to it than with sdc; and all VMs together get no less than with sdc, less 2 %

By the host's clock (QEMU) such differences mean nothing, so they are only printed.

  tools/collabdemo.py [--platform auto|qemu|kvm|bochs|whole] [--seeds N] [--setup NAME]...
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
# {VM on the second device: the share of it that the administrator gives it}
SHARES = {"wide": 2, "near": 1, "far": 1}
VMS = (*WRITERS, "video", *SHARES)
PCPUS, SEEDS = 3, 3
RUN_MS = 800  # How long each of the VMs on the second device runs, as BASE says.
WHOLE = os.path.join(machine.BUILD, "sim-whole")
VIRTUAL = ("bochs", "whole")  # platforms on which time is virtual
LOSS = 0.02  # No function may cost more than this part of the throughput.
POINTS = 5.0  # With co-scheduling nobody's part of the device is further from its share than this.
# The device has hardly any latency, so by slow_pct it would always be crowded, and release nobody.
COLLAB = " collab collab_ms=20 slow_pct=0"
# With I/O cores: pCPUs for them beside those of the other set-ups, and the sockets of the VMs. A
# request takes longer if an I/O core gets it from another socket.
IO_CORES = 2
CORES = f" cores={IO_CORES} remote=20us{COLLAB}"
SOCKETS = {"one": "socket=0", "two": "socket=1", "three": "socket=1", "video": "socket=0",
           "wide": f"socket=0 sockets=2 share={SHARES['wide']}", "near": "socket=0",
           "far": "socket=1"}
# {set-up: (words for the driver domain, words for the guests)}
SETUPS = {"plain": ("", ""), "dif": (COLLAB + " flush=0 congestion=0 dif=1", " collab"),
          "sdc": (CORES + " flush=0 congestion=0 coschedule=0", " collab"),
          "flush": (COLLAB + " flush=1 congestion=0", " collab"),
          "congestion": (COLLAB + " flush=0 congestion=1", " collab"),
          "cosched": (CORES + " flush=0 congestion=0 coschedule=1", " collab"),
          "all": (CORES + " flush=1 congestion=1 coschedule=1", " collab")}
WITH_CORES = [setup for setup, (driver, _) in SETUPS.items() if "cores=" in driver]
# {counter: set-ups in which it must not be 0; in all others it must be}
DONE = {"flush_asked": ("flush", "all"), "by_itself": ("dif",), "released": ("congestion", "all"),
        "moves": ("cosched", "all")}
SCRIPT = "".join(f"@1s wait {vm} 60s\n" for vm in VMS) + \
    "+0ms store -j=cpu_ms read /local/domain/1/cpu_ms\n" \
    "+0ms vcpu-list -j=vcpus iodom\n+1200ms poweroff\n"
SAYS = re.compile(r"\] (?P<vm>\w+): (?:bursts|video|spread): (?P<socket>socket \d: )?"
                  r"(?P<rest>.*=.*)")
HIGHER, LOWER = True, False
# {quantity: (unit, which is better)}
QUANTITIES = {"write_kib_per_s": ("KiB/s", HIGHER), "mean_us": ("us", LOWER),
              "p999_us": ("us", LOWER), "read_mean_us": ("us", LOWER),
              "read_p99_us": ("us", LOWER), "spread_kib_per_s": ("KiB/s", HIGHER),
              "wide_kib_per_s": ("KiB/s", HIGHER), "off_share": ("points", LOWER),
              "completed": ("VMs", HIGHER),
              "iodom_cpu_ms": ("ms", LOWER), "spin_ms": ("ms", LOWER)}


def vm_file(setup, seed):
    """Returns the VM file of one run."""
    driver, guest = SETUPS[setup]
    with open(BASE, encoding="ascii") as f:
        text = f.read()
    text = text.replace("vary=20%", f"vary=20%,seed={seed}")
    def longer(section, more):
        words = re.search(rf"(?ms)^\[{section}\].*?^cmdline = (.*?)$", text)[1]
        return {section: {"cmdline": words + more}}

    over = [longer("vm iodom", driver), *(longer(f"vm {vm}", guest) for vm in VMS)]
    if setup in WITH_CORES:
        over.append({"pool io": {"cpus": "1,3,4"}, "vm iodom": {"vcpus": str(1 + IO_CORES)}})
        for vm, words in SOCKETS.items():
            disk = re.search(rf"(?ms)^\[vm {vm}\].*?^disk = (.*?)$", text)[1]
            over.append({f"vm {vm}": {"disk": f"{disk} {words}"}})
    over.append({"hypervisor": {"seed": str(seed), "script": "collab-demo.script"}})
    return compare.lay_over(text, compare.both(*over))


def spin_time(said):
    """Returns the CPU time of the I/O cores in ms: all vCPUs of the driver domain but the first."""
    answer = re.search(r'\{"id": "vcpus".*?"result": (\[.*?\])\}', said)
    if not answer:
        raise LookupError("the driver domain's vCPUs")
    return round(1000 * sum(float(v["time_s"]) for v in json.loads(answer[1]) if v["vcpu"]))


def off_share(kib):
    """Returns how many percentage points of all that was done lie between what a VM did and its
    share, at most. `kib` is {VM: what it did}."""
    return max(abs(100 * kib[vm] / sum(kib.values()) - 100 * share / sum(SHARES.values()))
               for vm, share in SHARES.items())


def figures_of_vms(said):
    """Returns {VM: {word: number}}, as the VMs have printed them. Words that a VM prints of each of
    its sockets are added up."""
    vms = {}
    for m in SAYS.finditer(said):
        vm = vms.setdefault(m["vm"], {})
        for word, value in re.findall(r"(\w+)=(\d+)", m["rest"]):
            before = vm.get(word, 0) if m["socket"] else 0
            vm[word] = before + int(value)
    return vms


def read(said):
    """Returns what one run has printed, as {quantity: number}, and "vms" with what each of them
    printed."""
    vms = figures_of_vms(said)
    answer = re.search(r'\{"id": "cpu_ms".*?"value": "(\d+)"', said)
    writers = [vms[name] for name in WRITERS if "write_kib" in vms.get(name, {})]
    video = vms.get("video", {})
    kib = {name: vms[name]["kib"] for name in SHARES if "kib" in vms.get(name, {})}
    if (len(writers) < len(WRITERS) or len(kib) < len(SHARES) or not answer
            or "read_mean_us" not in video):
        raise LookupError("what the VMs wrote and read")
    spin_ms = spin_time(said)
    written = sum(vm["write_kib"] for vm in writers)
    # First the figure of each VM is computed, then the sum: otherwise one VM that ends late would
    # lengthen the time of all of them.
    rate = sum(vm["write_kib"] * 1e6 / vm["took_us"] for vm in writers)
    mean = sum(vm["write_mean_us"] * vm["write_kib"] for vm in writers) / written
    return {"write_kib_per_s": round(rate, 1), "mean_us": round(mean, 1),
            "p999_us": max(vm["write_p999_us"] for vm in writers),
            "read_mean_us": video["read_mean_us"], "read_p99_us": video["read_p99_us"],
            "spread_kib_per_s": round(sum(kib.values()) * 1000 / RUN_MS, 1),
            "wide_kib_per_s": round(kib["wide"] * 1000 / RUN_MS, 1),
            "off_share": round(off_share(kib), 1),
            "completed": sum(f"{name}: ends with code 0" in said for name in VMS),
            "iodom_cpu_ms": int(answer[1]) - spin_ms, "spin_ms": spin_ms,
            "vms": vms}


def simulate(paths, cpus):
    """Runs a VM file and a script in build/sim-whole. Returns what was printed."""
    done = subprocess.run([WHOLE, "-p", str(cpus), "--script", paths[1], paths[0]],
                          cwd=machine.ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise sentence.Problem(f"{experiment.inside(paths[0])}: {done.stderr.strip()}")
    return done.stdout


def boot(paths, cpus, platform, directory):
    """Boots an image with a VM file and a script. Returns what was printed, and how it ended."""
    iso = os.path.join(directory, "takt.iso")
    subprocess.run([os.path.join(machine.ROOT, "tools", "mkiso.sh"), iso, paths[0], "--module",
                    f"collab-demo.script={paths[1]}"], cwd=machine.ROOT, check=True)
    with machine.Machine(platform, iso, cpus=cpus, directory=directory) as m:
        how, _ = m.wait(timeout=3600 if platform == "bochs" else 300)
        said = netdemo.plain(m.serial())
    os.unlink(iso)  # It has 10 MB, and the results have the hashes of its parts.
    return said, how


def run(setup, seed, platform):
    directory = os.path.join(machine.BUILD, "run", f"collab-demo-{platform}", f"{setup}-{seed}")
    os.makedirs(directory, exist_ok=True)
    paths = [os.path.join(directory, name) for name in ("collab-demo.cfg", "collab-demo.script")]
    for path, text in zip(paths, (vm_file(setup, seed), SCRIPT)):
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
    cpus = PCPUS
    if setup in WITH_CORES:
        cpus += IO_CORES
    if platform == "whole":
        said, how = simulate(paths, cpus), "the simulation has ended"
    else:
        said, how = boot(paths, cpus, platform, directory)
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
    if platform in VIRTUAL:
        wrong += judge_flush(rate) + judge_shares(runs)
    return wrong


def judge_flush(rate):
    """Returns a sentence about each loss of write throughput by flush. `rate` is {set-up: {seed:
    KiB/s}}."""
    wrong = []
    for before, after in (("plain", "flush"), ("cosched", "all")):
        if before not in rate or after not in rate:
            continue
        for seed, was in rate[before].items():
            if rate[after][seed] < was * (1 - LOSS):
                wrong.append(f"{after}, seed {seed}: {rate[after][seed]} KiB/s are more than "
                             f"{100 * LOSS:g} % below {was} with {before}")
        if sum(rate[after].values()) <= sum(rate[before].values()):
            wrong.append(f"{after}: the mean write throughput is not above that with {before}")
    return wrong


def judge_shares(runs):
    """Returns a sentence about each run in which co-scheduling did not give the second device to
    its VMs by their shares, or lost throughput compared with SDC."""
    wrong = []
    by = {(one["setup"], one["seed"]): one for one in runs}
    for (setup, seed), one in by.items():
        sdc = by.get(("sdc", seed))
        if setup not in ("cosched", "all"):
            continue
        if one["off_share"] > POINTS:
            wrong.append(f"{setup}, seed {seed}: a VM is {one['off_share']} points from its share, "
                         f"and {POINTS:g} are allowed")
        if sdc and one["off_share"] >= sdc["off_share"]:
            wrong.append(f"{setup}, seed {seed}: a VM is {one['off_share']} points from its share, "
                         f"and with sdc it is {sdc['off_share']}")
        if sdc and one["spread_kib_per_s"] < sdc["spread_kib_per_s"] * (1 - LOSS):
            wrong.append(f"{setup}, seed {seed}: {one['spread_kib_per_s']} KiB/s of the second "
                         f"device are more than {100 * LOSS:g} % below {sdc['spread_kib_per_s']} "
                         "with sdc")
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
    platform = args.platform
    if platform != "whole":
        platform = machine.choose(platform)
    chosen = args.setup or list(SETUPS)
    runs = [run(setup, seed, platform) for seed in range(1, args.seeds + 1) for setup in chosen]
    rows, wrong = summary(runs), judge(runs, platform)
    elf, images = os.path.join(machine.BUILD, "takt.elf"), "guests"
    if platform == "whole":
        elf, images = WHOLE, "whole"
    guests = [os.path.join(machine.BUILD, images, f"{g}.elf")
              for g in ("iodom", "bursts", "video", "spread")]
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
