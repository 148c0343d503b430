"""The second half of make sriov-demo: what the drivers' own counts bring a VM with a virtual function among VMs that compute.

Boots boot/sriov-sched.cfg on QEMU and talks to its shell. First the VM has its pCPU for itself: exits for each 1,000 frames. Then the
policy changes from stream to stream, in one boot: the clock is the host's, so only neighbours are compared, and medians are told.
"""
import os
import re
import statistics
import subprocess
import time

import machine
from storedemo import load

CONFIG = os.path.join(machine.ROOT, "boot", "sriov-sched.cfg")
POLICIES = {"credit": "hardened", "sc": "sc", "aca": "aca", "sc+aca": "sc+aca"}
HOGS = ("hog-1", "hog-2", "liar")
RUNS = 5
PATIENCE = 60  # s of wall-clock time, for each thing that is waited for
TIMERS = 40  # exits a second, whatever there is to do
GAIN = 1.5  # of what shares credit, at least
TCP = r"server: iperf: tcp (\d+) bytes in (\d+) ns"
FRAMES = r"server: iperf: frames rx=(\d+) .* tx=(\d+)"


class Failed(Exception):
    """What did not come."""


class Bench:
    def __init__(self, m, shell):
        self.machine, self.shell = m, shell
        self.frames = 0  # of the server, both ways, so far

    def await_line(self, what):
        """What the machine prints has to be read meanwhile: its serial line waits for us."""
        end = time.monotonic() + PATIENCE
        while True:
            how, match = self.machine.wait(what, 0.5)
            if how == "matched":
                return match
            if how == "ended" or time.monotonic() > end:
                raise Failed(f"{what}: {how}")
            self.shell.run("cpupool-list")

    def vcpu(self, vm):
        return next((v for v in self.shell.run("vcpu-list") if v["vm"] == vm), None)

    def stream(self, after=()):
        """Mb/s of one stream, its frames a second, and the server's vCPU at these times after its beginning, s."""
        seen = []
        self.shell.run("create source", timeout=PATIENCE)
        self.await_line("source: net: ")
        begin = time.monotonic()
        for at in after:
            time.sleep(max(begin + at - time.monotonic(), 0))
            seen.append(self.vcpu("server"))
        size, ns = map(int, self.await_line(TCP).groups())
        frames = sum(map(int, self.await_line(FRAMES).groups()))
        self.await_line("source: destroyed")
        a_second = (frames - self.frames) * 1e9 / ns
        self.frames = frames
        return size * 8e3 / ns, a_second, seen

    def full_load(self):
        """Alone on its pCPU: Mb/s, frames a second, and what the server exits in a second to be interrupted, to sleep, and else."""
        mbps, frames, (one, two) = self.stream((0.8, 2.3))
        s = sum(two[k] - one[k] for k in ("running_ns", "runnable_ns", "blocked_ns")) / 1e9
        exits, interrupts, sleeps = ((two[k] - one[k]) / s for k in ("exits", "interrupted", "wakes"))
        return mbps, frames, interrupts, sleeps, exits - interrupts - sleeps

    def policies(self):
        """{name: [Mb/s of each run]}"""
        found = {name: [] for name in POLICIES}
        for vm in HOGS:
            self.shell.run(f"create {vm}", timeout=PATIENCE)
        for _ in range(RUNS):
            for name, preset in POLICIES.items():
                self.shell.run(f"sched-credit -s -p core --policy {preset}")
                found[name].append(self.stream()[0])
        return found


def median_ratio(found, name):
    return statistics.median(a / b for a, b in zip(found[name], found["credit"]))


def table(found):
    print(f"        {'Mb/s':8}" + "".join(f"{f'run {n + 1}':>8}" for n in range(RUNS)) + f"{'median':>9}{'of credit':>11}")
    for name, runs in found.items():
        print(f"        {name:8}" + "".join(f"{x:8.1f}" for x in runs) +
              f"{statistics.median(runs):9.1f}{median_ratio(found, name):10.2f}x")


def show(hold):
    """Calls hold(sentence, whether it is so) for each thing."""
    directory = os.path.join(machine.BUILD, "run", "sriov-sched")
    os.makedirs(directory, exist_ok=True)
    iso = os.path.join(directory, "sriov.iso")
    subprocess.run([os.path.join(machine.ROOT, "tools", "mkiso.sh"), iso, CONFIG], cwd=machine.ROOT, check=True)
    takt = load("taktctl")
    with machine.Machine("qemu", iso, cpus=3, directory=directory, com1="socket", igb=1, iommu=machine.IOMMU) as m:
        try:
            m.wait("server: net: ", PATIENCE)
            with takt.Takt("unix:" + m.socket_path, timeout=PATIENCE) as shell:
                bench = Bench(m, shell)
                alone = bench.full_load()
                found = bench.policies()
                cpu = {vm: bench.vcpu(vm)["running_ns"] for vm in HOGS}
        except (Failed, takt.ConsoleError, takt.CommandError) as what:
            hold(f"the second machine: {what}; see {directory}", False)
            return
        log, took = m.serial(), m.host_took()
    mbps, frames, *exits = alone
    print(f"        alone: {mbps:.0f} Mb/s, {frames:.0f} frames/s; exits for each 1,000 frames: " +
          ", ".join(f"{n / frames * 1000:.1f} {what}" for n, what in zip(exits, ("by interrupts", "to sleep", "others"))))
    hold(f"no frame costs an exit but by an interrupt: {exits[2]:.0f} others a second, for timers",
         exits[2] < max(exits[0] / 4, TIMERS))
    hold("the driver says when its VM becomes I/O-intensive", "server: net: the VM is now I/O-intensive" in log)
    table(found)
    for name in ("sc", "sc+aca"):
        ratio = median_ratio(found, name)
        hold(f"{name}: {ratio:.2f} times the goodput of credit, the median of {RUNS} (at least {GAIN})", ratio >= GAIN)
    hold("who says so without interrupts is named: " +
         (re.search(r"liar: says that.*", log) or [""])[0], "liar: says that it is I/O-intensive, but gets 0 events" in log)
    hold("and gains nothing: " + ", ".join(f"{vm} {ns / 1e9:.1f} s" for vm, ns in cpu.items()),
         cpu["liar"] <= 1.05 * max(ns for vm, ns in cpu.items() if vm != "liar"))
    print(f"        The clock is the host's; a CPU of this machine waited for it for {took:.0%} of its time, at the most.")
