#!/usr/bin/env python3
"""make sim-scale: prints how fast the simulation of the whole machine is, and how much memory it
needs for a VM.

Time is what one core of this computer was busy with it, not what passed meanwhile.

  tools/wholescale.py [--sim build/sim-whole] [--guests build/whole]
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
import time

import machine
import sentence

NET = ("labs/vturbo-fig6.cfg", "labs/vturbo-fig6-credit.cfg")
DOMAINS, DISKS = 4, 64  # a driver domain serves 16 disks
HEAD = """[hypervisor]
guest_console = log
[model]
cpus = 8
memory = 2G
clock = 2.4GHz
copy = 5GB/s
exit = 315ns
"""
IODOM = """[pool io{i}]
sched = null
cpus = {cpu}
[vm iodom{i}]
image = iodom
cmdline = report_s=1
memory = 32M
pool = io{i}
"""
# Each VM waits for its request before it sends the next one, and the disk takes 5.9 ms for one.
DISK = """[vm d{i}]
image = spread
cmdline = threads=1 depth=1 kib=4 run_ms=8000
memory = 4M
cpus = {cpu}
disk = iodom{domain} size=1M lat=5900us
"""
IDLE = """[vm v{i}]
image = waker
memory = 4M
"""


def most_memory(pid):
    """Returns the most memory that the program has had until now, in KiB; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as f:
            return int((re.search(r"VmHWM:\s+(\d+)", f.read()) or [0, 0])[1])
    except OSError:
        return 0


def run(args, path, virtual):
    """Returns what the simulation has printed, the seconds of CPU time that it took for `virtual`
    seconds, and its memory in KiB. The kernel's own count of that (ru_maxrss) has the memory of
    this program in it."""
    most, pid = 0, 0
    with tempfile.TemporaryFile("w+") as said:
        with subprocess.Popen([args.sim, "-g", args.guests, "-w", "1s", "-t", f"{virtual - 1}s",
                               path], cwd=machine.ROOT, stdout=said) as p:
            while not pid:
                most = max(most, most_memory(p.pid))
                time.sleep(0.01)
                pid, status, used = os.wait4(p.pid, os.WNOHANG)
            p.returncode = os.waitstatus_to_exitcode(status)
        if p.returncode:
            sys.exit(f"wholescale: {path}: sim-whole ended with status {p.returncode}")
        said.seek(0)
        return said.read(), used.ru_utime + used.ru_stime, most


def speed(what, virtual, seconds):
    print(f"{what}: {virtual} virtual s in {seconds:.1f} s of one core, "
          f"{virtual / seconds:.1f} times real time")


def written(directory, text):
    path = os.path.join(directory, "scale.cfg")
    with open(path, "w", encoding="ascii") as f:
        f.write(text)
    return path


def network(args):
    for path in NET:
        said, seconds, _ = run(args, path, 12)
        rate = re.search(r"server: iperf: tcp .* ([0-9.]+) Mb/s", said)
        speed(f"{path}, TCP {rate[1]} Mb/s", 12, seconds)


def disks(args, directory):
    text = HEAD + "".join(IODOM.format(i=i, cpu=4 + i) for i in range(DOMAINS))
    text += "".join(DISK.format(i=i, cpu=i % 4, domain=i % DOMAINS) for i in range(DISKS))
    said, seconds, _ = run(args, written(directory, text), 8)
    counts = {}
    for at, vm, reads, writes in re.findall(
            r"\[ *([0-9.]+)\] .*iodom: (d\d+)\.0: (?:reads=(\d+) )?writes=(\d+)", said):
        counts.setdefault(vm, []).append((float(at), int(reads or 0) + int(writes)))
    rate = sum((c[-1][1] - c[0][1]) / (c[-1][0] - c[0][0]) for c in counts.values())
    speed(f"{len(counts)} VMs with a disk each and {DOMAINS} driver domains, {rate:.0f} requests/s "
          "in all", 8, seconds)


def memory(args, directory):
    """Each VM has the same 4 MiB, of which it touches what its image and its buffers need."""
    few, many = (run(args, written(directory, HEAD + "".join(IDLE.format(i=i) for i in range(n))),
                     2)[2] for n in (1, 61))
    print(f"memory: {(many - few) / 60 / 1024:.2f} MiB for each VM more, of which its RAM is what "
          "it has touched")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sim", default=os.path.join(machine.BUILD, "sim-whole"))
    parser.add_argument("--guests", default=os.path.join(machine.BUILD, "whole"))
    args = parser.parse_args()
    network(args)
    with tempfile.TemporaryDirectory() as directory:
        disks(args, directory)
        memory(args, directory)


if __name__ == "__main__":
    sentence.run(main)
