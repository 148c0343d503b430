"""The second half of make sriov-demo: measures what a VM with a virtual function gains from SC and
ACA among VMs that compute.

Boots boot/sriov-sched.cfg on QEMU with -icount, which runs one instruction after the other on one
thread, and in which time is the number of instructions. So the figures do not depend on the host,
and repeat to the bit: the machine is loaded without a disk (tools/mkiso.sh --memory-disk), and its
commands are a script. First the VM has its pCPU for itself, and exits for each 1,000 frames are
counted. Then the policy changes from stream to stream, in one boot.

In one respect such a machine is not like a real one: its pCPUs share one stream of instructions, so
one of them is faster while others sleep. This holds under each policy.
"""
import json
import os
import re
import statistics
import subprocess

import experiment
import machine

CONFIG = os.path.join(machine.ROOT, "boot", "sriov-sched.cfg")
POLICIES = {"hardened": "hardened", "faithful-4.2": "faithful-4.2", "sc": "sc", "aca": "aca",
            "sc+aca": "sc+aca"}
BASELINE = "faithful-4.2"  # Credit as in Xen 4.2, against which the paper measured
HOGS = ("hog-1", "hog-2", "liar")
RUNS = 3
SHIFT = 3       # an instruction takes 8 ns
PATIENCE = 600  # in seconds of the host's time
TIMERS = 40     # exits a second that timers cause, however little there is to do
GAIN = 1.5      # The policies that share credit must gain at least this factor.
# Otherwise the host's clock would have an effect.
CLOCK = ("-rtc", "base=2020-01-01T00:00:00,clock=vm")
TCP = r"server: iperf: tcp (\d+) bytes in (\d+) ns"
FRAMES = r"server: iperf: frames rx=(\d+) .* tx=(\d+)"
STREAM = ("+0ms create source", "+0ms wait source 20s")


def script(runs=RUNS, policies=tuple(POLICIES)):
    """Returns the commands: one stream alone, then `runs` streams of each policy, in turns."""
    lines = ["@2000ms create source", "+800ms vcpu-list -j=alone-1", "+1000ms vcpu-list -j=alone-2",
             "+0ms wait source 20s", *(f"+0ms create {vm}" for vm in HOGS)]
    for _ in range(runs):
        for name in policies:
            lines += [f"+0ms sched-credit -s -p core --policy {POLICIES[name]}", *STREAM]
    return "\n".join([*lines, "+0ms vcpu-list -j=end", "+10ms poweroff", ""])


def boot(directory, commands, config=CONFIG):
    """Boots. Returns how the machine ended, and what it has printed."""
    os.makedirs(directory, exist_ok=True)
    kernel, path = os.path.join(directory, "sriov.grub"), os.path.join(directory, "script")
    with open(path, "w", encoding="ascii") as f:
        f.write(commands)
    subprocess.run([os.path.join(machine.ROOT, "tools", "mkiso.sh"), kernel, config,
                    "--memory-disk",
                    "--module", f"script={path}"], cwd=machine.ROOT, check=True)
    with machine.Machine("icount", None, cpus=3, directory=directory, kernel=kernel, shift=SHIFT,
                         igb=1, igb_net=None,
                         iommu=machine.IOMMU, extra=CLOCK) as m:
        how, _ = m.wait(timeout=PATIENCE)
        return how, m.serial()


class Said:
    """What the machine has printed about its streams and its vCPUs."""

    def __init__(self, serial, policies=tuple(POLICIES)):
        self.log = serial
        self.answers = {a["id"]: a["result"] for a in
                        (json.loads(m[1]) for m in re.finditer("\x1e(\\{.*\\})\n", serial))}
        streams = [(int(size), int(ns)) for size, ns in re.findall(TCP, serial)]
        frames = [int(rx) + int(tx) for rx, tx in re.findall(FRAMES, serial)]
        if not streams or not frames or "end" not in self.answers:
            raise LookupError("it has not come to its end")
        mbps = [size * 8e3 / ns for size, ns in streams]
        self.alone_mbps, self.alone_frames = mbps[0], frames[0] * 1e9 / streams[0][1]
        self.found = {name: mbps[1 + i::len(policies)] for i, name in enumerate(policies)}

    def vcpu(self, tag, vm):
        return next(v for v in self.answers[tag] if v["vm"] == vm)

    def exits(self):
        """Returns how often the server, when it runs alone, exits in a second: to be interrupted,
        to sleep, and for other reasons."""
        one, two = (self.vcpu(tag, "server") for tag in ("alone-1", "alone-2"))
        s = sum(two[k] - one[k] for k in ("running_ns", "runnable_ns", "blocked_ns")) / 1e9
        exits, interrupts, sleeps = ((two[k] - one[k]) / s
                                     for k in ("exits", "interrupted", "wakes"))
        return interrupts, sleeps, exits - interrupts - sleeps


def ratio(found, name):
    return statistics.median(found[name]) / statistics.median(found[BASELINE])


def table(found):
    runs = range(max(map(len, found.values())))
    print(f"        {'Mb/s':12}"
          + "".join(f"{f'run {n + 1}':>8}" for n in runs) + f"{'median':>9}{'of 4.2':>9}")
    for name, mine in found.items():
        print(f"        {name:12}" + "".join(f"{x:8.2f}" for x in mine) +
              f"{statistics.median(mine):9.2f}{ratio(found, name):8.2f}x")


def write_results(said):
    path = os.path.join(machine.BUILD, "results", "sriov-sched-icount.json")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    facts = experiment.provenance("icount", os.path.join(machine.BUILD, "takt.elf"),
                                  experiment.files_of(CONFIG),
                                  instruction_ns=1 << SHIFT, script=script().splitlines())
    result = {"alone": {"mbps": said.alone_mbps, "frames_per_s": said.alone_frames,
                        "exits_per_s": dict(zip(("interrupts", "sleep", "others"), said.exits()))},
              "mbps": said.found, "vcpus": said.answers["end"]}
    with open(path, "w", encoding="utf-8") as f:
        json.dump(facts | result, f, indent=1)
        f.write("\n")
    print(f"        {path}")


def show(hold):
    """Calls hold(sentence, whether it is true) for each check."""
    directory = os.path.join(machine.BUILD, "run", "sriov-sched")
    how, serial = boot(directory, script())
    try:
        said = Said(serial)
    except LookupError as what:
        hold(f"the second machine: {what} ({how}); see {directory}", False)
        return
    exits, cpu = said.exits(), {vm: said.vcpu("end", vm)["running_ns"] for vm in HOGS}
    print(
        f"        alone: {said.alone_mbps:.1f} Mb/s, {said.alone_frames:.0f} frames/s; exits for "
        "each 1,000 frames: "
        + ", ".join(
            f"{n / said.alone_frames * 1000:.1f} {what}"
            for n, what in zip(exits, ("by interrupts", "to sleep", "others"))
        )
    )
    hold(f"no frame costs an exit but by an interrupt: {exits[2]:.0f} others a second, for timers",
         exits[2] < max(exits[0] / 4, TIMERS))
    hold("the driver says when its VM becomes I/O-intensive",
         "server: net: the VM is now I/O-intensive" in said.log)
    table(said.found)
    for name in ("sc", "sc+aca"):
        gain = ratio(said.found, name)
        hold(
            f"{name}: {gain:.2f} times the goodput of {BASELINE}, medians of {RUNS} (at least "
            f"{GAIN})",
            gain >= GAIN,
        )
    liar = re.search(r"liar: says that.*", said.log)
    hold("who says so without interrupts is named: " + (liar[0] if liar else ""),
         liar and "says that it is I/O-intensive, but gets 0 events" in liar[0])
    hold("and gains nothing: " + ", ".join(f"{vm} {ns / 1e9:.1f} s" for vm, ns in cpu.items()),
         cpu["liar"] <= 1.05 * max(ns for vm, ns in cpu.items() if vm != "liar"))
    write_results(said)
    print("        In virtual time: the same image prints the same figures, on whatever host.")
