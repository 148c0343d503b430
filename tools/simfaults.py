#!/usr/bin/env python3
"""make sim-faults: the whole machine in virtual time, with faults that a seed chooses.

For each seed a VM file is made up, and build/sim-faults runs it for two virtual seconds, under
AddressSanitizer and UndefinedBehaviorSanitizer. The seed also says which faults are injected, and
at which events; after each event the invariants of the hypervisor's rooms are checked
(docs/simulation.md, "Faults"). At the end all VMs are destroyed, and nothing may be left of them.
A run also fails if a guest has read other data than it had written, or if the shell does not
answer.

  tools/simfaults.py [--seeds N] [--first SEED]       runs so many seeds, on all CPUs
  tools/simfaults.py --first SEED --trace FILE        repeats one, with a trace of all that happened

Prints the command that repeats each seed that fails, and exits with 1 if there is one.
"""
import argparse
import os
import random
import re
import subprocess
import time

import machine
import netdemo
import progress
import sentence

SIM = os.path.join(machine.BUILD, "sim-faults")
GUESTS = os.path.join(machine.BUILD, "whole")
DIRECTORY = os.path.join(machine.BUILD, "run", "sim-faults")
SEEDS = 1000
SECONDS = 2  # virtual, and then the time in which all VMs go
WALL = 120  # s of this computer that a run may take
SCRIPT = f"@{SECONDS * 1000 - 10}ms list -j=end\n"
TOLD = 5  # seeds that fail whose last lines are printed

# What a guest says if data was not what it should be, and the most that the number may be.
WRONG = (r"blktest: .* (\d+) bad", r"iperf: .* (\d+) wrong")


def link(rng):
    """Returns options of a link: a rate, a delay, a loss, and a queue that may be short."""
    options = [f"rate={rng.choice((5, 20, 100))}M"] if rng.random() < 0.7 else []
    if rng.random() < 0.6:
        options.append(f"delay={rng.randrange(1, 20)}ms jitter=1ms "
                       f"reorder={rng.choice((0, 1, 10, 50))}%")
    if rng.random() < 0.7:
        options.append(f"loss={rng.choice((0.1, 1, 5, 20))}%")
    options.append(f"queue={rng.choice((1, 4, 64, 256))} seed={rng.randrange(1, 1000)}")
    return " ".join(options)


def vm(name, image, cmdline="", **keys):
    lines = [f"[vm {name}]", f"image = {image}"]
    keys.setdefault("memory", "4M")
    return lines + ([f"cmdline = {cmdline}"] if cmdline else []) + [
        f"{key} = {value}" for key, value in keys.items()]


def vm_file(seed):
    """Returns (the text of a VM file for this seed, pCPUs of its machine)."""
    rng = random.Random(seed)
    cpus = rng.randrange(1, 4)
    preset = rng.choice(("hardened", "faithful-4.2", "vslicer", "aca", "sc"))
    on_crash = rng.choice(("restart", "destroy", "preserve"))
    lines = ["[hypervisor]", f"seed = {seed}", "top = no", f"sched_preset = {preset}"]
    shared, cmdline = rng.random() < 0.5, "report_s=1"
    if shared:  # a device under several disks, and most times a manager who knows their VMs
        cmdline += " ssd0=bw=8M,lat=100us,depth=8,queue=16"
        cmdline += rng.choice((" collab collab_ms=20", " collab", ""))
    lines += vm("iodom", "iodom", cmdline, memory="24M", on_crash=on_crash,
                weight=rng.choice((128, 256, 1024)))
    lines += vm("answer", "netping", net=f"iodom {link(rng)}", on_crash=on_crash)
    lines += vm("ping", "netping", f"to=2 batches=1000 batch={rng.choice((1, 8, 32))} "
                f"interval_ms={rng.choice((5, 50))}", net=f"iodom {link(rng)}")
    for n in range(rng.randrange(3)):
        depth = rng.choice((1, 4, 32))
        lines += vm(f"disk-{n}", "blktest", f"requests={rng.choice((100, 1000))}",
                    disk=f"iodom size=4M bw={rng.choice((10, 100))}M lat=100us depth={depth}",
                    on_crash=on_crash)
    for n in range(shared * rng.randrange(1, 3)):
        word = rng.choice((" collab", ""))
        lines += vm(f"writer-{n}", "bursts", f"kib=200 bursts=40 pause_ms=20 cache=128{word}",
                    memory="8M", disk="iodom on=ssd0 size=1M", on_crash=on_crash)
    if rng.random() < 0.5:
        lines += vm("server", "iperf", "server", memory="8M", net=f"iodom {link(rng)}")
        lines += vm("stream", "iperf", "to=10.0.0.2 tcp seconds=1", memory="8M",
                    net=f"iodom {link(rng)}")
    if rng.random() < 0.5:
        lines += vm("watch", "storewatch")
    for n in range(rng.randrange(3)):
        lines += vm(f"hog-{n}", rng.choice(("spin", "busy", "waker")),
                    vcpus=rng.choice((1, 2)))
    return "\n".join(lines) + "\n", cpus


def command(seed, trace=None):
    """Makes the VM file of a seed, and returns the command that runs it."""
    text, cpus = vm_file(seed)
    paths = [os.path.join(DIRECTORY, f"{seed}.{kind}") for kind in ("cfg", "script")]
    for path, content in zip(paths, (text, SCRIPT)):
        with open(path, "w", encoding="ascii") as f:
            f.write(content)
    return [SIM, "-g", GUESTS, "-p", str(cpus), "-m", "96", "-w", "1ms", "-t",
            f"{SECONDS * 1000 - 501}ms", "--script", paths[1], "--faults", str(seed),
            *(["--trace", trace] if trace else []), paths[0]]


def why_wrong(said):
    """Returns what is wrong with a run that came to its end; None if nothing is."""
    for pattern in WRONG:
        if any(int(n) for n in re.findall(pattern, said)):
            return "a guest has read other data than was written"
    if not re.search(r'"id": ?"end"', said):
        return "the shell did not answer"
    if not re.search(r"^seed \d+: \d+ events", said, re.M):
        return "the simulation did not come to its end"
    return None


def run(seed, trace=None):
    """Runs a seed. Returns (what is wrong or None, what it printed)."""
    try:
        done = subprocess.run(command(seed, trace), capture_output=True, check=False, timeout=WALL)
    except subprocess.TimeoutExpired as e:
        return f"it took longer than {WALL} s", netdemo.plain((e.stdout or b"").decode())
    said = netdemo.plain((done.stdout + done.stderr).decode(errors="replace"))
    if done.returncode:
        found = re.findall(r"^panic: .*|^.*runtime error: .*|^.*AddressSanitizer: .*", said, re.M)
        return (found or [f"exit status {done.returncode}"])[0], said
    return why_wrong(said), said


def main():
    parser = argparse.ArgumentParser(description="the whole machine with faults of a seed")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--trace", metavar="FILE")
    args = parser.parse_args()
    os.makedirs(DIRECTORY, exist_ok=True)
    if args.trace:
        why, said = run(args.first, args.trace)
        print(f"{said}\n{args.trace}: the trace (docs/trace.md)")
        print(f"simfaults: seed {args.first}: {why or 'nothing is wrong'}")
        return bool(why)
    seeds = range(args.first, args.first + (args.seeds or SEEDS))
    began = time.monotonic()
    found = progress.run_all("sim-faults", run, seeds, os.cpu_count(), lambda s: f"seed {s}")
    took = time.monotonic() - began
    bad = [(seed, why, said) for seed, (why, said) in zip(seeds, found) if why]
    for seed, why, said in bad[:TOLD]:
        print("\n".join(said.splitlines()[-8:]))
    for seed, why, _ in bad:
        print(f"seed {seed}: {why}\n    tools/simfaults.py --first {seed} --trace trace.bin")
    events = [int(n) for _, said in found for n in re.findall(r"^seed \d+: (\d+) events", said,
                                                              re.M)]
    print(f"simfaults: {len(seeds)} seeds of {SECONDS} virtual seconds in {took:.0f} s, "
          f"{sum(events)} events checked, {len(bad)} seeds failed")
    return bool(bad)


if __name__ == "__main__":
    sentence.run(main)
